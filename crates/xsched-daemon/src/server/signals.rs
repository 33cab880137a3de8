//! Signals as events of the loop.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

/// Effect of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGTERM or SIGINT: the daemon ends.
    End,
    /// SIGHUP: the daemon reads its configuration again.
    Reload,
}

/// Signals as a descriptor; when dropped, they act as before.
pub(crate) struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    pub(crate) fn new() -> rustix::io::Result<Signals> {
        // SAFETY: a signal set is plain bits, and all-zero is one; it is initialised by sigemptyset all the same.
        let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
        // SAFETY: all pointers are to the two sets above.
        let fd = unsafe {
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
        }
        // SAFETY: just made, and not owned elsewhere.
        Ok(Signals { fd: unsafe { OwnedFd::from_raw_fd(fd) }, before })
    }

    /// Takes the next signal that has arrived, if any.
    pub(crate) fn take(&self) -> Option<Signal> {
        // SAFETY: plain bits, filled in by the kernel below.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer is as large as said.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), size) };
        if got != size.cast_signed() {
            return None;
        }
        let reload = i32::try_from(info.ssi_signo) == Ok(libc::SIGHUP);
        Some(if reload { Signal::Reload } else { Signal::End })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Remaining signals are read, so that they have no effect when the mask is restored.
        while self.take().is_some() {}
        // SAFETY: the mask was filled in by the kernel.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}
