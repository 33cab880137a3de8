//! Shared memory: the segment this process makes, and the daemon's heartbeat page.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate, memfd_create};
use rustix::io;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};
use xsched_core::Descriptor;
use xsched_proto::backlog::{PAGE_BYTES, Page};
use xsched_proto::segment::{Heartbeat, SEGMENT_BYTES, Segment};
use xsched_proto::writing;

/// The segment and the memfd behind it.
pub(crate) struct Shared {
    pub(crate) segment: &'static Segment,
    pub(crate) fd: Descriptor,
}

impl Shared {
    /// Makes the segment: sealed, mapped, and not inherited by forked children, which must not touch their parent's
    /// gates.
    pub(crate) fn create() -> std::io::Result<Shared> {
        writing::may_grow_to(SEGMENT_BYTES as u64)?;
        let fd = memfd_create("xsched-segment", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // Another thread may just have lowered the limit.
        writing::without_signals(|| ftruncate(&fd, SEGMENT_BYTES as u64))?;
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

/// Mapping of the daemon's heartbeat page, for reading. The page of the next daemon takes its place: threads at a gate may read it
/// at any time, so that it is never unmapped.
#[derive(Default)]
pub(crate) struct HeartbeatPage(Option<NonNull<Heartbeat>>);

// SAFETY: memory that is only read, and that all threads of the process may read.
unsafe impl Send for HeartbeatPage {}

impl HeartbeatPage {
    /// Maps the page of a daemon, in place of the former.
    pub(crate) fn map(&mut self, fd: &OwnedFd) -> io::Result<*mut Heartbeat> {
        let place = map_heartbeat(fd, self.0)?;
        self.0 = Some(place);
        Ok(place.as_ptr())
    }
}

fn map_heartbeat(fd: &OwnedFd, former: Option<NonNull<Heartbeat>>) -> io::Result<NonNull<Heartbeat>> {
    // Without these seals the page could be cut short at any time: SIGBUS. Only files in memory have any.
    let seals = fcntl_get_seals(fd)?.difference(SealFlags::EXEC);
    let wanted = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    // A first touch of a huge page fails where none is left: SIGBUS too.
    let huge = fstatfs(fd)?.f_type == libc::HUGETLBFS_MAGIC;
    if seals != wanted || huge || fstat(fd)?.st_size != 4096 {
        return Err(io::Errno::INVAL);
    }
    let flags = if former.is_some() { MapFlags::SHARED | MapFlags::FIXED } else { MapFlags::SHARED };
    let place = former.map_or(core::ptr::null_mut(), |place| place.as_ptr().cast());
    // SAFETY: a read-only mapping of one page, at an address of the kernel's choice or in place of one that was made here, in one
    // step: a reader finds one or the other.
    let at = unsafe { mmap(place, 4096, ProtFlags::READ, flags, fd, 0) }?;
    // SAFETY: as above; a forked child makes its own.
    unsafe { madvise(at, 4096, Advice::LinuxDontFork) }?;
    NonNull::new(at.cast()).ok_or(io::Errno::NOMEM)
}

/// Mappings of the pages of [`xsched_proto::backlog`]: that of this process, to be written, and those of others. Never unmapped, as
/// launches may read them at any time.
#[derive(Default)]
pub(crate) struct Pages {
    pages: BTreeMap<Option<u8>, NonNull<Page>>,
    /// File of this process's page: a driver may want to map it itself.
    own: Option<OwnedFd>,
}

// SAFETY: memory of atomics, which all threads of the process may use.
unsafe impl Send for Pages {}

impl Pages {
    /// Maps a page in place of the one that was there; `place` = of another process.
    pub(crate) fn map(&mut self, place: Option<u8>, fd: OwnedFd) -> io::Result<&'static Page> {
        let seals = fcntl_get_seals(&fd)?;
        // As for the heartbeat page.
        let huge = fstatfs(&fd)?.f_type == libc::HUGETLBFS_MAGIC;
        if !seals.contains(SealFlags::SHRINK) || huge || fstat(&fd)?.st_size != PAGE_BYTES as _ {
            return Err(io::Errno::INVAL);
        }
        let former = self.pages.get(&place);
        let flags = if former.is_some() { MapFlags::SHARED | MapFlags::FIXED } else { MapFlags::SHARED };
        let at = former.map_or(core::ptr::null_mut(), |page| page.as_ptr().cast());
        let protection = if place.is_none() { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a mapping of one page at an address of the kernel's choice, or in place of one that was made here, in one step.
        let at = unsafe { mmap(at, PAGE_BYTES, protection, flags, &fd, 0) }?;
        // SAFETY: as above; a forked child has no driver that would write there.
        unsafe { madvise(at, PAGE_BYTES, Advice::LinuxDontFork) }?;
        let page = NonNull::new(at.cast::<Page>()).ok_or(io::Errno::NOMEM)?;
        self.pages.insert(place, page);
        if place.is_none() {
            self.own = Some(fd);
        }
        // SAFETY: one page of atomics and padding, for which any bits are valid, mapped until the process ends.
        Ok(unsafe { page.as_ref() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_next_daemon_takes_the_place_of_the_former() {
        let name = format!("xsched-pages-{}", std::process::id());
        let page = |at_ns: u64| {
            let fd = memfd_create(&*name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&fd, 4096).unwrap();
            rustix::io::pwrite(&fd, &at_ns.to_ne_bytes(), 0).unwrap();
            let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
            fcntl_add_seals(&fd, seals).unwrap();
            fd
        };
        let mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().matches(&name).count();
        let mut place = HeartbeatPage::default();
        let first = place.map(&page(7)).unwrap();
        for at_ns in 8..40 {
            assert_eq!(place.map(&page(at_ns)).unwrap(), first);
            // SAFETY: mapped, and its first word is the time.
            assert_eq!(unsafe { first.cast::<u64>().read_volatile() }, at_ns);
        }
        assert_eq!(mapped(), 1);
        let bad = memfd_create(&*name, MemfdFlags::CLOEXEC).unwrap();
        assert!(place.map(&bad).is_err());
        // SAFETY: as above.
        assert_eq!(unsafe { first.cast::<u64>().read_volatile() }, 39, "what is refused replaces nothing");
    }

    #[test]
    fn a_heartbeat_page_that_could_be_cut_short_is_refused() {
        let page = |bytes, seals: SealFlags| {
            let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&fd, bytes).unwrap();
            fcntl_add_seals(&fd, seals).unwrap();
            map_heartbeat(&fd, None).is_ok()
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
        assert!(map_heartbeat(&opened, None).is_err());
    }
}
