//! The parts of `XSCHED_YIELD`: the way in which programs of one MPS server run beside each other, and the pages by which urgent ones tell how
//! they keep up ([`xsched_proto::backlog`]).

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use xsched_policy::PoolId;
use xsched_proto::backlog::{PAGE_BYTES, PAGES};
use xsched_proto::variables;

use crate::Error;

/// The way in which programs of one MPS server run beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Always, whatever their class.
    Open,
    /// As others: gates close.
    Closed,
    /// Gates that would close yield where they may.
    Yielding,
}

impl Beside {
    /// By this process's environment.
    pub(crate) fn of_process() -> Result<Beside, Error> {
        let Some(value) = variables::get("XSCHED_YIELD") else { return Ok(Beside::Open) };
        match value.to_str().and_then(variables::flag) {
            Some(false) => Ok(Beside::Closed),
            Some(true) => Ok(Beside::Yielding),
            None => Err(Error::input(format!("XSCHED_YIELD={}: use 0 or 1", value.to_string_lossy()))),
        }
    }
}

/// The page of a program.
pub(crate) struct Page {
    pub(crate) conn: u64,
    pub(crate) server: PoolId,
    pub(crate) epoch: u32,
    /// To be written, and for reading only.
    pub(crate) file: OwnedFd,
    pub(crate) read_only: OwnedFd,
}

/// All pages, by place.
#[derive(Default)]
pub(crate) struct Pages {
    pub(crate) pages: BTreeMap<u8, Page>,
    /// The number of the last one.
    epoch: u32,
}

impl Pages {
    /// The place and number of a program's page.
    pub(crate) fn of(&self, conn: u64) -> Option<(u8, u32)> {
        self.pages.iter().find(|(_, page)| page.conn == conn).map(|(place, page)| (*place, page.epoch))
    }

    /// Makes one. None: there are too many, or the system refuses.
    pub(crate) fn make(&mut self, conn: u64, server: PoolId) -> Option<(u8, u32)> {
        let place = (0..PAGES as u8).find(|place| !self.pages.contains_key(place))?;
        let (file, read_only) = page_files().ok()?;
        self.epoch = self.epoch.wrapping_add(1);
        self.pages.insert(place, Page { conn, server, epoch: self.epoch, file, read_only });
        Some((place, self.epoch))
    }

    /// A program is gone.
    pub(crate) fn forget(&mut self, conn: u64) {
        self.pages.retain(|_, page| page.conn != conn);
    }
}

/// A page that cannot be cut short, and a descriptor by which others cannot write it: to open it anew takes its owner's rights.
fn page_files() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let file = rustix::fs::memfd_create("xsched-backlog", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, PAGE_BYTES as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let read_only = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok((file, read_only))
}
