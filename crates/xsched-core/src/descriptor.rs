//! Descriptors of this library in the application's process, which may close them, and reuse their numbers for something else.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use rustix::fs::fstat;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

/// Lower limit of the numbers that descriptors are moved to: the kernel hands out the lowest free number, so that high ones are
/// rarely used.
const HIGH: u64 = 960;

/// A descriptor of this library whose identity is checked before each use: a program that closes all its descriptors, as before it
/// starts another, must not find our bytes in the next file that it opens under the same number.
///
/// Descriptors of kinds that share an inode (eventfd, epoll, timerfd) cannot be distinguished.
pub struct Descriptor {
    fd: ManuallyDrop<OwnedFd>,
    identity: Option<(u64, u64)>,
}

/// Numbers of all descriptors of this library, plus one; 0 = free place. There are never more than these few at a time.
static OURS: [AtomicI32; 16] = [const { AtomicI32::new(0) }; 16];

/// Closes the parent's descriptors in a forked child: others would otherwise not notice the parent's death. Only for a child that
/// has not run anything of its own yet.
pub fn close_all_in_child() {
    for place in &OURS {
        if let Some(number) = place.swap(0, Relaxed).checked_sub(1).filter(|n| *n >= 0) {
            // SAFETY: the parent's own descriptor, inherited a moment ago; the child uses nothing of the parent's.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }
}

fn note(from: i32, to: i32) {
    let _ = OURS.iter().any(|place| place.compare_exchange(from, to, Relaxed, Relaxed).is_ok());
}

fn identity(fd: BorrowedFd<'_>) -> Option<(u64, u64)> {
    fstat(fd).ok().map(|s| (s.st_dev, s.st_ino))
}

impl Descriptor {
    /// Moves a descriptor out of the application's way: off the standard numbers, should those be closed, and off the numbers that
    /// the program will soon get for itself.
    pub fn new(fd: OwnedFd) -> Descriptor {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let wanted = [HIGH.min(limit.saturating_sub(64)).max(3), 3];
        let moved = wanted.into_iter().find_map(|least| fcntl_dupfd_cloexec(&fd, least as i32).ok());
        let fd = moved.unwrap_or(fd);
        let identity = identity(fd.as_fd());
        note(0, fd.as_raw_fd() + 1);
        Descriptor { fd: ManuallyDrop::new(fd), identity }
    }

    /// The descriptor, unless the application closed it.
    pub fn get(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.as_fd();
        (self.identity.is_some() && identity(fd) == self.identity).then_some(fd)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        note(self.fd.as_raw_fd() + 1, 0);
        if self.get().is_some() {
            // SAFETY: dropped once, here, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_closes_what_is_its_parents() {
        let ours = Descriptor::new(OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap()));
        // SAFETY: the child only makes system calls that are safe after fork in a program with threads.
        match unsafe { libc::fork() } {
            0 => {
                close_all_in_child();
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(if ours.get().is_none() { 7 } else { 8 }) }
            }
            child => {
                let mut status = 0;
                // SAFETY: waits for the child made above.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                assert_eq!(libc::WEXITSTATUS(status), 7, "closed in the child");
            }
        }
        assert!(ours.get().is_some(), "open in the parent");
    }

    #[test]
    fn a_descriptor_that_became_another_is_neither_used_nor_closed() {
        let file = || OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
        let ours = Descriptor::new(file());
        let number = ours.get().unwrap().as_raw_fd();
        assert!(number > 2);
        // An application closes all descriptors and opens something new.
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        // SAFETY: only this test uses the number, and ManuallyDrop keeps it from being closed twice.
        let mut taken = ManuallyDrop::new(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number) });
        rustix::io::dup2(&reader, &mut taken).unwrap();
        assert!(ours.get().is_none());
        drop(ours);
        assert_eq!(identity(taken.as_fd()), identity(reader.as_fd()), "still open");
        drop(ManuallyDrop::into_inner(taken));
    }
}
