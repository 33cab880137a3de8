//! Memory of backlog pages ([`xsched_proto::backlog`]), and `XSCHED_YIELD`, which can forbid them.

use std::os::fd::{AsRawFd, OwnedFd};

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

/// Descriptors of a program's page.
pub(crate) struct PageFiles {
    /// Descriptor by which its owner writes it.
    pub(crate) own: OwnedFd,
    /// Descriptor by which the others read it.
    pub(crate) read_only: OwnedFd,
}

/// Makes a page that cannot be cut short, with a descriptor by which others cannot write it: opening it again for writing needs its owner's
/// rights.
pub(crate) fn make() -> rustix::io::Result<PageFiles> {
    let own = rustix::fs::memfd_create("xsched-backlog", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&own, PAGE_BYTES as u64)?;
    rustix::fs::fcntl_add_seals(&own, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    rustix::fs::fchmod(&own, Mode::RUSR | Mode::WUSR)?;
    let path = format!("/proc/self/fd/{}", own.as_raw_fd());
    let read_only = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(PageFiles { own, read_only })
}
