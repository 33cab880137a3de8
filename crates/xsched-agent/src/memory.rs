//! Shared memory: the segment this process makes, and the daemon's heartbeat page.

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::io;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};
use xsched_core::Descriptor;
use xsched_proto::segment::{Heartbeat, SEGMENT_BYTES, Segment};

/// The segment and the memfd behind it.
pub(crate) struct Shared {
    pub(crate) segment: &'static Segment,
    pub(crate) fd: Descriptor,
}

impl Shared {
    /// Makes the segment: sealed, mapped, and not inherited by forked children, who must not touch their parent's
    /// gates.
    pub(crate) fn create() -> io::Result<Shared> {
        let fd = memfd_create("xsched-segment", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, SEGMENT_BYTES as u64)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // SAFETY: a fresh mapping of whole pages at an address of the kernel's choice.
        let at = unsafe {
            mmap(core::ptr::null_mut(), SEGMENT_BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &fd, 0)
        }?;
        // SAFETY: the advice concerns exactly the mapping made above.
        unsafe { madvise(at, SEGMENT_BYTES, Advice::LinuxDontFork) }?;
        // SAFETY: zeroed memory of the right size and alignment is a valid Segment (atomics only), and it stays
        // mapped until the process ends.
        let segment = unsafe { &*at.cast::<Segment>() };
        Ok(Shared { segment, fd: Descriptor::new(fd) })
    }
}

/// Maps a daemon's heartbeat page for reading; it stays mapped, since gate waiters may look at it at any time.
pub(crate) fn map_heartbeat(fd: &OwnedFd) -> io::Result<*mut Heartbeat> {
    if fstat(fd)?.st_size < size_of::<Heartbeat>() as _ {
        return Err(io::Errno::INVAL);
    }
    // SAFETY: a fresh read-only mapping of one page at an address of the kernel's choice.
    let at = unsafe { mmap(core::ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::SHARED, fd, 0) }?;
    // SAFETY: as above; a forked child makes its own.
    unsafe { madvise(at, 4096, Advice::LinuxDontFork) }?;
    Ok(at.cast())
}
