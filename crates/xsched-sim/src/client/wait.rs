//! Waits of threads: for a lock, and for a word of the shared memory.

use rustix::thread::futex;
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if another thread panicked while it held the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until `word` is no longer `seen`; may return early.
pub(super) fn sleep_on(word: &AtomicU32, seen: u32) {
    let _ = futex::wait(word, futex::Flags::empty(), seen, None);
}
