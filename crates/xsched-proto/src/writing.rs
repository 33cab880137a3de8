//! Writes in a process that is not ours: the kernel answers some of them with a signal, which would end the process.

use core::mem::zeroed;
use std::io;

use rustix::process::{Resource, getrlimit};

/// Signals that a write raises for its thread: beyond the file-size limit, and into a pipe that has no reader.
const RAISED: [libc::c_int; 2] = [libc::SIGXFSZ, libc::SIGPIPE];

/// Runs a write. If the kernel raises SIGXFSZ or SIGPIPE for the write, it fails, and the process does not see the signal.
pub fn without_signals<T>(write: impl FnOnce() -> T) -> T {
    let _kept = Kept::begin();
    write()
}

/// Fails where a file of this size in bytes would exceed RLIMIT_FSIZE, which the kernel answers with SIGXFSZ. The limit also holds for
/// files in memory.
///
/// # Errors
/// One line with the limit and the size, in bytes.
pub fn may_grow_to(bytes: u64) -> io::Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < bytes => Err(io::Error::other(format!(
            "the file-size limit (ulimit -f) of {limit} bytes is below the {bytes} that it needs: raise it"
        ))),
        _ => Ok(()),
    }
}

/// Guard that blocks the signals of [`RAISED`] for the calling thread; when it is dropped, signals raised meanwhile are discarded.
struct Kept {
    before: libc::sigset_t,
    pending: libc::sigset_t,
}

impl Kept {
    fn begin() -> Kept {
        // SAFETY: signal sets are plain data; the functions fill those they are given, and change this thread's mask only, which
        // is restored on drop.
        unsafe {
            let (mut raised, mut kept) = (zeroed(), Kept { before: zeroed(), pending: zeroed() });
            libc::sigemptyset(&mut raised);
            for signal in RAISED {
                libc::sigaddset(&mut raised, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raised, &mut kept.before);
            libc::sigpending(&mut kept.pending);
            kept
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: as above. A signal that was pending before is the program's own, and stays.
        unsafe {
            let (mut now, at_once) = (zeroed(), libc::timespec { tv_sec: 0, tv_nsec: 0 });
            libc::sigpending(&mut now);
            for signal in RAISED {
                if libc::sigismember(&now, signal) == 1 && libc::sigismember(&self.pending, signal) == 0 {
                    let mut one = zeroed();
                    libc::sigemptyset(&mut one);
                    libc::sigaddset(&mut one, signal);
                    libc::sigtimedwait(&one, core::ptr::null_mut(), &at_once);
                }
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, core::ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn is_blocked(signal: libc::c_int) -> bool {
        // SAFETY: as above.
        unsafe {
            let mut mask = zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), &mut mask);
            libc::sigismember(&mask, signal) == 1
        }
    }

    #[test]
    fn a_pipe_without_reader_ends_no_process() {
        // SAFETY: the child only makes system calls, and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the default disposition, as programs have it and Rust's own runtime does not.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let failed = without_signals(|| rustix::io::write(&writer, b"x")) == Err(rustix::io::Errno::PIPE);
            // SAFETY: ends the child.
            unsafe { libc::_exit(if failed && !is_blocked(libc::SIGPIPE) { 7 } else { 8 }) }
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
    }

    #[test]
    fn a_signal_that_was_pending_before_stays() {
        std::thread::spawn(|| {
            // SAFETY: concerns this thread, which ends with what is pending for it.
            unsafe {
                let mut one: libc::sigset_t = zeroed();
                libc::sigaddset(&mut one, libc::SIGPIPE);
                libc::pthread_sigmask(libc::SIG_BLOCK, &one, core::ptr::null_mut());
                libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE);
                without_signals(|| std::io::sink().write_all(b"x").unwrap());
                let mut now: libc::sigset_t = zeroed();
                libc::sigpending(&mut now);
                assert_eq!(libc::sigismember(&now, libc::SIGPIPE), 1);
            }
            assert!(is_blocked(libc::SIGPIPE));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_file_is_as_large_as_the_limit_allows() {
        let limit = getrlimit(Resource::Fsize).current;
        assert!(may_grow_to(0).is_ok());
        assert_eq!(may_grow_to(u64::MAX).is_ok(), limit.is_none());
    }
}
