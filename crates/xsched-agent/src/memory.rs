//! Shared memory: the segment this process makes, and the daemon's heartbeat page.

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate, memfd_create};
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
    /// Makes the segment: sealed, mapped, and not inherited by forked children, which must not touch their parent's
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
    // Without these seals it could be cut short at any time: SIGBUS. Only files in memory have any.
    let seals = fcntl_get_seals(fd)?.difference(SealFlags::EXEC);
    let wanted = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    // A first touch of a huge page fails where none is left: SIGBUS too.
    let huge = fstatfs(fd)?.f_type == libc::HUGETLBFS_MAGIC;
    if seals != wanted || huge || fstat(fd)?.st_size != 4096 {
        return Err(io::Errno::INVAL);
    }
    // SAFETY: a fresh read-only mapping of one page at an address of the kernel's choice.
    let at = unsafe { mmap(core::ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::SHARED, fd, 0) }?;
    // SAFETY: as above; a forked child makes its own.
    unsafe { madvise(at, 4096, Advice::LinuxDontFork) }?;
    Ok(at.cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_page_that_could_be_cut_short_is_refused() {
        let page = |bytes, seals: SealFlags| {
            let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&fd, bytes).unwrap();
            fcntl_add_seals(&fd, seals).unwrap();
            map_heartbeat(&fd).is_ok()
        };
        let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        assert!(page(4096, all));
        for missing in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::FUTURE_WRITE, SealFlags::SEAL, all] {
            assert!(!page(4096, all.difference(missing)), "{missing:?}");
        }
        assert!(!page(8192, all) && !page(4095, all) && !page(0, all));
        let file = std::env::temp_dir().join(format!("xsched-heartbeat-{}", std::process::id()));
        std::fs::write(&file, [0; 4096]).unwrap();
        let opened = std::fs::File::open(&file).unwrap().into();
        std::fs::remove_file(&file).unwrap();
        assert!(map_heartbeat(&opened).is_err());
    }
}
