//! Walks over the loaded objects that a `fork` cannot interrupt.
//!
//! `dl_iterate_phdr` takes a lock of the loader that glibc (2.36) does not reset in a forked child. A child forked
//! while another thread of this library walks would wait forever in its first walk, although the program by itself
//! never walks. So forks wait for walks to end, and walks for forks, each for [`PATIENCE`] at most.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

/// Number of threads in a walk, and in a fork.
static WALKS: AtomicU32 = AtomicU32::new(0);
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Upper limit of each wait. A walk takes some 10 µs, a fork perhaps milliseconds.
const PATIENCE: Duration = Duration::from_millis(200);

type Visit = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;

/// Calls `visit` with each loaded object and `data` until it returns something other than 0, and returns that.
///
/// # Safety
/// `visit` may do with `data` what it does.
pub(crate) unsafe fn objects(visit: Visit, data: *mut c_void) -> c_int {
    // Each side raises its own count before it reads the other's, so that at least one of the two sees the other.
    WALKS.fetch_add(1, SeqCst);
    if FORKS.load(SeqCst) != 0 {
        WALKS.fetch_sub(1, SeqCst);
        await_none(&FORKS);
        WALKS.fetch_add(1, SeqCst);
    }
    // SAFETY: the caller's promise; the loader's description of an object is alive during the visit.
    let answer = unsafe { libc::dl_iterate_phdr(Some(visit), data) };
    WALKS.fetch_sub(1, SeqCst);
    answer
}

#[cold]
fn await_none(count: &AtomicU32) {
    let begin = Instant::now();
    while count.load(SeqCst) != 0 && begin.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
}

/// Waits for walks to end; the calling thread is about to fork.
pub(crate) fn before_fork() {
    FORKS.fetch_add(1, SeqCst);
    if WALKS.load(SeqCst) != 0 {
        await_none(&WALKS);
    }
}

/// Ends the fork in the parent.
pub(crate) fn after_fork() {
    FORKS.fetch_sub(1, SeqCst);
}

/// Resets the counts in the child, whose only thread is this one.
pub(crate) fn in_forked_child() {
    FORKS.store(0, SeqCst);
    WALKS.store(0, SeqCst);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_child_forked_while_others_walk_can_walk_too() {
        unsafe extern "C" fn visit(_: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
            0
        }
        // SAFETY: `visit` does not use its arguments.
        let walk = || unsafe { objects(visit, std::ptr::null_mut()) };
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Relaxed) {
                        walk();
                    }
                });
            }
            let statuses: Vec<c_int> = (0..300)
                .map(|_| {
                    let mut status = -1;
                    // SAFETY: the child calls nothing that needs a lock another thread may hold, but for what is tried.
                    unsafe {
                        match libc::fork() {
                            0 => {
                                libc::alarm(10);
                                libc::_exit(walk());
                            }
                            child => assert_eq!(libc::waitpid(child, &raw mut status, 0), child),
                        }
                    }
                    status
                })
                .take_while(|status| *status == 0)
                .collect();
            over.store(true, Relaxed);
            assert_eq!(statuses.len(), 300, "a child did not end well");
        });
    }
}
