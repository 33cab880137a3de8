//! Files that are mapped, and what identifies them.

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags};
use xsched_proto::segment::SEGMENT_BYTES;

/// File mapped shared, as a `T` that consists of atomics.
pub(super) struct Mapping<T> {
    at: NonNull<T>,
}

impl<T> Mapping<T> {
    /// Maps the first `size_of::<T>()` bytes of `file`.
    ///
    /// # Safety
    /// The file is at least that long and can never shrink; `T` is made of atomics for which any bits are valid.
    pub(super) unsafe fn new(file: impl AsFd) -> rustix::io::Result<Mapping<T>> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let at = unsafe { rustix::mm::mmap(ptr::null_mut(), size_of::<T>(), protection, MapFlags::SHARED, file, 0)? };
        Ok(Mapping { at: NonNull::new(at.cast()).ok_or(rustix::io::Errno::NOMEM)? })
    }

    pub(super) fn get(&self) -> &T {
        // SAFETY: mapped until drop, page aligned, and valid for any content as the constructor demands. Other
        // processes change it meanwhile, which atomics allow.
        unsafe { self.at.as_ref() }
    }
}

// SAFETY: it is memory of no thread's own, mapped until it is dropped, on whichever thread; what is in it is `T`, which is shared.
unsafe impl<T: Sync> Send for Mapping<T> {}
// SAFETY: all that can be had of it is `&T`.
unsafe impl<T: Sync> Sync for Mapping<T> {}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `new`; `get` lends it no longer than `self` lives.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast::<c_void>(), size_of::<T>()) };
    }
}

/// Identity of a file: file system and inode.
pub(crate) type FileId = (u64, u64);

/// Identity of the file behind a descriptor.
pub(crate) fn file_id(file: impl AsFd) -> rustix::io::Result<FileId> {
    rustix::fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino))
}

/// Releases the memory of a segment, whichever processes have it open.
pub(crate) fn discard(file: impl AsFd) {
    use rustix::fs::{FallocateFlags, fallocate};
    // If the kernel refuses, the memory is released with the file's last descriptor.
    let _ = fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, SEGMENT_BYTES as u64);
}
