//! Counts of moves, for `XSCHED_STATS`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

static BEGUN: AtomicBool = AtomicBool::new(false);
static MOVES: AtomicU64 = AtomicU64::new(0);
static FAILURES: AtomicU64 = AtomicU64::new(0);

/// Notes that there is memory that can move.
pub(super) fn begin() {
    BEGUN.store(true, Relaxed);
}

/// Counts a move that begins.
pub(super) fn begins() {
    MOVES.fetch_add(1, Relaxed);
}

/// Counts a move that has ended with an error.
pub(super) fn failed() {
    FAILURES.fetch_add(1, Relaxed);
}

/// Counts of moves, and of those that ended with an error; `None` without memory that can move.
pub(in super::super) fn counts() -> Option<(u64, u64)> {
    BEGUN.load(Relaxed).then(|| (MOVES.load(Relaxed), FAILURES.load(Relaxed)))
}
