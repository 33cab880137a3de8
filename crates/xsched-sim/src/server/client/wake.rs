//! Wakeups of a client's threads.

use rustix::thread::futex;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Release;

/// Advances a word, and wakes all threads that sleep on it.
pub(super) fn wake(word: &AtomicU32) {
    word.fetch_add(1, Release);
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}
