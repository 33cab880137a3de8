//! A descriptor in a process that is not ours: the application may close it, and its number may come to be anything.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::fstat;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

/// Numbers from here on are rarely anybody's: the kernel hands out the lowest free one.
const HIGH: u64 = 960;

/// A descriptor of ours that is looked at before each use: a program that closes all it has, as before it starts
/// another, must not find our bytes in what it opens next under the same number.
///
/// Descriptors of the kinds that share an inode (eventfd, epoll, timerfd) are not told apart.
pub struct Descriptor {
    fd: ManuallyDrop<OwnedFd>,
    identity: Option<(u64, u64)>,
}

fn identity(fd: BorrowedFd<'_>) -> Option<(u64, u64)> {
    fstat(fd).ok().map(|s| (s.st_dev, s.st_ino))
}

impl Descriptor {
    /// Moves a descriptor out of the way: neither is it one of the standard ones, should those be closed, nor one that
    /// the program will soon get for itself.
    pub fn new(fd: OwnedFd) -> Descriptor {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let wanted = [HIGH.min(limit.saturating_sub(64)).max(3), 3];
        let moved = wanted.into_iter().find_map(|least| fcntl_dupfd_cloexec(&fd, least as i32).ok());
        let fd = moved.unwrap_or(fd);
        let identity = identity(fd.as_fd());
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
        if self.get().is_some() {
            // SAFETY: dropped once, here, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_descriptor_that_became_another_is_neither_used_nor_closed() {
        let file = || OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
        let ours = Descriptor::new(file());
        let number = ours.get().unwrap().as_raw_fd();
        assert!(number > 2);
        // What an application does that closes all and opens something new.
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        // SAFETY: the number is only this test's, and ManuallyDrop keeps it from being closed as a descriptor of ours.
        let mut taken = ManuallyDrop::new(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number) });
        rustix::io::dup2(&reader, &mut taken).unwrap();
        assert!(ours.get().is_none());
        drop(ours);
        assert_eq!(identity(taken.as_fd()), identity(reader.as_fd()), "still open");
        drop(ManuallyDrop::into_inner(taken));
    }
}
