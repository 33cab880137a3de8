//! Memory of backlog pages ([`xsched_proto::backlog`]), and `XSCHED_YIELD`, which can forbid them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use xsched_proto::backlog::PAGE_BYTES;
use xsched_proto::variables;

use crate::Error;

/// Reports whether gates may yield: they may unless this process's environment forbids it.
///
/// # Errors
/// Fails if the variable has another value than 0 and 1.
pub(crate) fn may_yield() -> Result<bool, Error> {
    let Some(value) = variables::get("XSCHED_YIELD") else { return Ok(true) };
    let wrong = || Error::input(format!("XSCHED_YIELD={}: use 0 or 1", value.to_string_lossy()));
    value.to_str().and_then(variables::flag).ok_or_else(wrong)
}

/// Memory of a program's page.
pub(crate) struct PageFile {
    /// Descriptor by which its owner writes it.
    own: OwnedFd,
}

impl PageFile {
    /// Descriptor by which the owner writes the page.
    pub(crate) fn to_write(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }

    /// Opens the page for others, who cannot write it: opening it again for that needs the rights of the daemon's user. Made anew for each
    /// of them, so that a page takes one descriptor of the daemon's.
    pub(crate) fn to_read(&self) -> rustix::io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.own.as_raw_fd());
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    }
}

/// Makes a page that cannot be cut short.
pub(crate) fn make() -> rustix::io::Result<PageFile> {
    let own = rustix::fs::memfd_create("xsched-backlog", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&own, PAGE_BYTES as u64)?;
    rustix::fs::fcntl_add_seals(&own, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    rustix::fs::fchmod(&own, Mode::RUSR | Mode::WUSR)?;
    Ok(PageFile { own })
}
