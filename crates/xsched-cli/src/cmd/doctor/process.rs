//! Process as `/proc` shows it.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Mapping in a process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Offset in the file at which it begins.
    pub(super) offset: u64,
    /// Mapped file; none where there is none.
    pub(super) file: Option<PathBuf>,
    /// True if that file was deleted; another one may lie at the path.
    pub(super) is_gone: bool,
}

/// Process ids of all processes.
pub(super) fn all() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// Words of its command line; empty for a thread of the kernel's, and for a process that has ended.
pub(super) fn command(pid: u32) -> Vec<Vec<u8>> {
    words(std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default())
}

/// Environment that it was started with; none where it may not be read.
pub(super) fn environment(pid: u32) -> Option<Vec<Vec<u8>>> {
    std::fs::read(format!("/proc/{pid}/environ")).ok().map(words)
}

/// Variable of that environment.
pub(super) fn variable(pid: u32, name: &str) -> Option<OsString> {
    value(&environment(pid)?, name)
}

/// Variable of an environment; none where it is empty.
pub(super) fn value(environment: &[Vec<u8>], name: &str) -> Option<OsString> {
    let of = |entry: &Vec<u8>| Some(entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec());
    environment.iter().find_map(of).filter(|value| !value.is_empty()).map(OsString::from_vec)
}

fn words(text: Vec<u8>) -> Vec<Vec<u8>> {
    text.split(|&b| b == 0).filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect()
}

/// Path that a process names, as this process reaches it: the other's root may differ.
pub(super) fn path_in(pid: u32, path: &Path) -> PathBuf {
    let mut inside = OsString::from(format!("/proc/{pid}/root"));
    inside.push(path.as_os_str());
    inside.into()
}

/// State letter of a process, as `ps` shows it.
pub(super) fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may contain anything.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Reports whether the kernel started it in secure mode, in which the loader ignores preloads; none where that may not be read.
pub(super) fn is_secure(pid: u32) -> Option<bool> {
    let vector = std::fs::read(format!("/proc/{pid}/auxv")).ok()?;
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).ok();
    let entries = vector.chunks_exact(16).filter_map(|entry| Some((word(&entry[..8])?, word(&entry[8..])?)));
    Some(entries.into_iter().any(|(kind, value)| kind == libc::AT_SECURE && value != 0))
}

/// Reports whether it sees other files than this process does.
pub(super) fn has_own_files(pid: u32) -> bool {
    let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let theirs = of(&pid.to_string());
    theirs.is_some() && theirs != of("self")
}

/// Mappings of a process.
///
/// # Errors
/// Fails where they may not be read.
pub(super) fn mappings(pid: u32) -> std::io::Result<Vec<Mapping>> {
    let maps = std::fs::read(format!("/proc/{pid}/maps"))?;
    Ok(maps.split(|&b| b == b'\n').filter_map(mapping).collect())
}

/// Parses a line such as `7f0a-7f0b r-xp 00001000 fe:00 1234   /usr/lib/liba.so`.
fn mapping(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let mut next = || {
        let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
        let word = std::str::from_utf8(&rest[..end]).ok();
        rest = rest[end..].trim_ascii_start();
        word
    };
    let (range, _rights, offset) = (next()?, next()?, next()?);
    let (_device, _inode) = (next()?, next()?);
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let there = rest.strip_suffix(b" (deleted)");
    let path = there.unwrap_or(rest);
    let file = path.starts_with(b"/").then(|| PathBuf::from(std::ffi::OsStr::from_bytes(path)));
    Some(Mapping { start: number(start)?, end: number(end)?, offset: number(offset)?, file, is_gone: there.is_some() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_is_read_whatever_the_file_is_called() {
        let file = |line: &str| mapping(line.as_bytes()).map(|m| (m.start, m.end, m.offset, m.file));
        let some = |name: &str| Some((0x1000, 0x3000, 0x2000, Some(PathBuf::from(name))));
        assert_eq!(file("1000-3000 r-xp 00002000 fe:00 77                  /a b/lib c.so"), some("/a b/lib c.so"));
        assert_eq!(file("1000-3000 rw-p 00002000 00:00 0 "), Some((0x1000, 0x3000, 0x2000, None)));
        assert_eq!(file("1000-3000 rw-p 00002000 00:00 0    [heap]").unwrap().3, None);
        let gone = mapping(b"1000-3000 r-xp 00002000 fe:00 77   /lib/liba.so (deleted)").unwrap();
        assert_eq!((gone.file, gone.is_gone), (Some("/lib/liba.so".into()), true));
        assert_eq!(file(""), None);
    }

    #[test]
    fn this_process_is_seen_as_it_is() {
        let pid = std::process::id();
        assert!(all().contains(&pid) && !command(pid).is_empty());
        assert_eq!((is_secure(pid), has_own_files(pid)), (Some(false), false));
        assert!(state(pid).is_some() && environment(pid).is_some());
        let own = std::env::current_exe().unwrap();
        assert!(mappings(pid).unwrap().iter().any(|m| m.offset == 0 && m.file.as_ref() == Some(&own)));
    }
}
