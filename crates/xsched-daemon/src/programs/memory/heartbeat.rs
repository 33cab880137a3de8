//! Heartbeat page, as the daemon has it.

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Release;

use rustix::fs::{MemfdFlags, SealFlags};
use xsched_proto::segment::Heartbeat;

use super::mapping::Mapping;

/// Page by which clients see that the daemon lives.
pub(crate) struct HeartbeatPage {
    file: OwnedFd,
    page: Mapping<Heartbeat>,
}

impl HeartbeatPage {
    pub(crate) fn new() -> rustix::io::Result<HeartbeatPage> {
        let file = rustix::fs::memfd_create("xsched-heartbeat", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, 4096)?;
        // SAFETY: long enough, and the file is not shared before it is sealed; a heartbeat is atomics.
        let page: Mapping<Heartbeat> = unsafe { Mapping::new(&file)? };
        page.get().clock_offset_ns.store(xsched_proto::clock::offset_ns(), Release);
        // Clients get the page read-only: otherwise a client could keep others waiting for a dead daemon.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Ok(HeartbeatPage { file, page })
    }

    pub(crate) fn file(&self) -> &OwnedFd {
        &self.file
    }
}

impl Deref for HeartbeatPage {
    type Target = Heartbeat;

    fn deref(&self) -> &Heartbeat {
        self.page.get()
    }
}
