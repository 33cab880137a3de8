//! Shared mappings.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::ptr::NonNull;

/// A shared, writable mapping of a file; unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory owned by this value; all access goes through raw pointers or atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of `fd` from `offset` on.
    pub fn new(fd: impl AsFd, offset: u64, bytes: usize) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: a fresh mapping, placed by the kernel, overlaps nothing.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, offset)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    /// Maps pages of another file, from `offset` on, in place of those at `at`; all in whole pages.
    pub fn replace(&self, at: u64, fd: impl AsFd, offset: u64, bytes: u64) -> io::Result<()> {
        let whole = [at, offset, bytes].iter().all(|n| n.is_multiple_of(4096)) && bytes > 0;
        let place = self.at(at, bytes).filter(|_| whole).ok_or(io::ErrorKind::InvalidInput)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: the range lies in this mapping, of which there are only raw pointers; it stays mapped throughout.
        unsafe { rustix::mm::mmap(place.cast(), bytes as usize, protection, flags | MapFlags::FIXED, fd, offset)? };
        Ok(())
    }

    /// Address of the first byte.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Pointer to `bytes` bytes at `offset`, if they lie inside the mapping.
    pub fn at(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        if offset.checked_add(bytes)? > self.bytes as u64 {
            return None;
        }
        Some(self.base().wrapping_add(usize::try_from(offset).ok()?))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `new`, and nothing borrows from it any more.
        let _ = unsafe { rustix::mm::munmap(self.base().cast(), self.bytes) };
    }
}

/// Creates a memfd of fixed size.
pub fn sealed_memfd(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// Current time, in ns of CLOCK_MONOTONIC.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
