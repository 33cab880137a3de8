//! Search for the descriptor behind a shared mapping of this process.

use super::error::{Error, Result};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::ops::Range;

/// Pages of a file that hold a range of this process's memory.
#[derive(Debug)]
pub(super) struct Backing {
    pub(super) fd: OwnedFd,
    /// Offset of the first page in the file, in bytes.
    pub(super) offset: u64,
    /// Length in whole pages, in bytes.
    pub(super) bytes: u64,
    /// Address of the first page.
    pub(super) base: u64,
}

/// A line of /proc/self/maps.
#[derive(Debug, PartialEq, Eq)]
struct Area {
    range: Range<u64>,
    shared: bool,
    offset: u64,
    device: (u32, u32),
    inode: u64,
}

fn parse(line: &str) -> Option<Area> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let shared = words.next()?.ends_with('s');
    let offset = hex(words.next()?)?;
    let (major, minor) = words.next()?.split_once(':')?;
    let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    Some(Area { range: hex(start)?..hex(end)?, shared, offset, device, inode: words.next()?.parse().ok()? })
}

/// Finds the mapping that holds `bytes` bytes at `address`. `NotSupported` if it is not a shared mapping of one file
/// that is still open.
pub(super) fn backing(address: u64, bytes: u64) -> Result<Backing> {
    let end = address.checked_add(bytes).ok_or(Error::InvalidValue)?;
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|_| Error::NotSupported)?;
    let mut areas = maps.lines().filter_map(parse);
    let area = areas.find(|area| area.range.contains(&address)).ok_or(Error::InvalidValue)?;
    if !area.shared || area.inode == 0 || end > area.range.end {
        return Err(Error::NotSupported);
    }
    let base = address & !0xfff;
    let offset = area.offset + (base - area.range.start);
    let fd = open_fd(&area).ok_or(Error::NotSupported)?;
    Ok(Backing { fd, offset, bytes: end.next_multiple_of(4096) - base, base })
}

/// A duplicate of the first writable descriptor of the area's file.
fn open_fd(area: &Area) -> Option<OwnedFd> {
    for entry in std::fs::read_dir("/proc/self/fd").ok()?.flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // SAFETY: used only to duplicate it; if another thread closes it meanwhile, the call fails or the check below
        // does.
        let number = unsafe { BorrowedFd::borrow_raw(number) };
        let Ok(fd) = rustix::io::fcntl_dupfd_cloexec(number, 3) else { continue };
        let Ok(stat) = rustix::fs::fstat(&fd) else { continue };
        let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
        let writable = rustix::fs::fcntl_getfl(&fd).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::RDWR));
        if stat.st_ino == area.inode && device == area.device && writable {
            return Some(fd);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_read() {
        let line = "7f12a000-7f12c000 rw-s 00001000 00:01 1036                   /memfd:seg (deleted)";
        let area = Area { range: 0x7f12a000..0x7f12c000, shared: true, offset: 0x1000, device: (0, 1), inode: 1036 };
        assert_eq!(parse(line), Some(area));
        assert_eq!(parse("00400000-00452000 r-xp 00000000 08:02 173521 /usr/bin/x").map(|a| a.shared), Some(false));
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn private_memory_has_no_backing() {
        let local = Box::new(7_u32);
        let error = backing((&raw const *local).addr() as u64, 4).unwrap_err();
        assert_eq!(error, Error::NotSupported);
        assert_eq!(backing(16, 4).unwrap_err(), Error::InvalidValue);
    }

    #[test]
    fn a_page_inside_a_memfd_is_found() {
        let fd = crate::memory::sealed_memfd("test", 3 * 4096).unwrap();
        let mapping = crate::memory::Mapping::new(&fd, 0, 3 * 4096).unwrap();
        let base = mapping.base().addr() as u64;
        let found = backing(base + 4096 + 8, 4).unwrap();
        assert_eq!((found.offset, found.bytes, found.base), (4096, 4096, base + 4096));
        assert_eq!(rustix::fs::fstat(&found.fd).unwrap().st_ino, rustix::fs::fstat(&fd).unwrap().st_ino);
        assert_eq!(backing(base + 2 * 4096, 4097).unwrap_err(), Error::NotSupported);
    }
}
