//! Counts of moves, for `XSCHED_STATS`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Duration;

use crate::lock::Lock;

static BEGUN: AtomicBool = AtomicBool::new(false);
static MOVES: AtomicU64 = AtomicU64::new(0);
/// Moves back to the device while another program's memory left; their bytes, and the time that they took in µs.
static BESIDE: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static FAILURES: AtomicU64 = AtomicU64::new(0);
/// Failures by reason.
static REASONS: Lock<BTreeMap<String, u64>> = Lock::new();

/// Notes that there is memory that can move.
pub(super) fn begin() {
    BEGUN.store(true, Relaxed);
}

/// Counts a move that begins.
pub(super) fn begins() {
    MOVES.fetch_add(1, Relaxed);
}

/// Counts a move of so many bytes back to the device, while another program's memory left.
pub(super) fn came_beside(bytes: u64, time: Duration) {
    for (count, more) in BESIDE.iter().zip([1, bytes, time.as_micros() as u64]) {
        count.fetch_add(more, Relaxed);
    }
}

/// Number of moves by [`came_beside`], their bytes, and the time that they took in µs.
pub(super) fn beside() -> [u64; 3] {
    BESIDE.each_ref().map(|count| count.load(Relaxed))
}

/// Counts a move that has ended with an error, with its reason, of which there are few.
pub(super) fn failed(why: &str) {
    FAILURES.fetch_add(1, Relaxed);
    let mut reasons = REASONS.lock();
    match reasons.get_mut(why) {
        Some(count) => *count += 1,
        None => _ = reasons.insert(why.to_owned(), 1),
    }
}

/// Failures by reason.
pub(super) fn reasons() -> BTreeMap<String, u64> {
    if REASONS.is_untouched() { BTreeMap::new() } else { REASONS.lock().clone() }
}

/// Empties the table, in a forked child.
pub(super) fn forget_all() {
    REASONS.forget();
}

/// Counts of moves, and of those that ended with an error; `None` without memory that can move.
pub(in super::super) fn counts() -> Option<(u64, u64)> {
    BEGUN.load(Relaxed).then(|| (MOVES.load(Relaxed), FAILURES.load(Relaxed)))
}
