//! Files that are complete at any time, since a new version replaces the old one in one step; and reading without a wait.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::tuning::CONFIG_MAX_BYTES;

/// Replaces a file by one with this text: written elsewhere and moved, so that the file is whole at any time. Its folder is made if
/// necessary.
///
/// # Errors
/// Returns the system's error.
pub(crate) fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
    }
    let fresh = path.with_extension("toml.new");
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).custom_flags(flags).open(&fresh);
    open?.write_all(text.as_bytes())?;
    std::fs::rename(&fresh, path)
}

/// Reads a text that a user wrote. A file that might never end, such as a FIFO, is refused instead of waited for.
///
/// # Errors
/// Returns the reason in a few words.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|e| e.to_string())?;
    let kind = file.metadata().map_err(|e| e.to_string())?.file_type();
    // /dev/null is an empty configuration.
    if !kind.is_file() && !kind.is_char_device() {
        let what = match () {
            () if kind.is_fifo() => "a FIFO",
            () if kind.is_dir() => "a folder",
            () => "no file",
        };
        return Err(format!("it is {what}: use a file"));
    }
    let mut bytes = Vec::new();
    let read = file.take(CONFIG_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if read as u64 > CONFIG_MAX_BYTES {
        return Err(format!("it has more than {} MiB", CONFIG_MAX_BYTES >> 20));
    }
    let text = String::from_utf8(bytes);
    text.map_err(|e| format!("it is no UTF-8 text: see byte {}", e.utf8_error().valid_up_to() + 1))
}

/// Reads what an earlier daemon has kept. A file that is not there counts as empty, and so does one that cannot be read: the reason is
/// returned beside it, in one line.
pub(crate) fn read_kept<T: Default + DeserializeOwned>(path: &Path, max_bytes: u64) -> (T, Option<String>) {
    let read = || {
        let mut text = String::new();
        let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(T::default()),
            opened => opened.map_err(|e| e.to_string())?,
        };
        let got = file.take(max_bytes + 1).read_to_string(&mut text).map_err(|e| e.to_string())?;
        if got as u64 > max_bytes {
            return Err("it is too large".to_owned());
        }
        toml::from_str(&text).map_err(|e| e.message().lines().collect::<Vec<_>>().join("; "))
    };
    read()
        .map_or_else(|why| (T::default(), Some(format!("{} is not used: {why}", path.display()))), |read| (read, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_and_damaged_or_too_large_counts_as_empty() {
        type Kept = std::collections::BTreeMap<String, u32>;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept.toml");
        let read = || read_kept::<Kept>(&path, 6);
        assert_eq!(read(), (Kept::new(), None), "there is none");
        std::fs::write(&path, "a = 1\n").unwrap();
        assert_eq!(read(), (Kept::from([("a".into(), 1)]), None));
        for (text, why) in [("a = 12\n", "it is too large"), ("a = [", "")] {
            std::fs::write(&path, text).unwrap();
            let (kept, failed) = read();
            assert!(kept.is_empty() && failed.is_some_and(|line| line.contains(&format!("is not used: {why}"))));
        }
    }

    #[test]
    fn a_file_that_might_never_end_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("text"), "a = 1\n").unwrap();
        std::fs::write(at("bytes"), [b'a', 0xff]).unwrap();
        let fifo = at("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        assert_eq!(read_text(&at("text")), Ok("a = 1\n".into()));
        assert_eq!(read_text(Path::new("/dev/null")), Ok(String::new()));
        for (path, why) in [
            (fifo.as_path(), "it is a FIFO: use a file"),
            (folder.path(), "it is a folder: use a file"),
            (Path::new("/dev/zero"), "it has more than 4 MiB"),
            (&at("bytes"), "it is no UTF-8 text: see byte 2"),
            (&at("none"), "No such file or directory (os error 2)"),
        ] {
            assert_eq!(read_text(path), Err(why.to_owned()), "{}", path.display());
        }
    }
}
