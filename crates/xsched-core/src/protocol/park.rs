//! Park and wake: a thread sleeps at a closed gate or until there is room in the budget, and its wake-up is not lost.

use core::sync::atomic::Ordering::*;

use xsched_proto::gate::{Gate, GateWord};
use xsched_proto::memory::{Memory, Sleepers, Woken, Word};

/// Reason for which a thread left the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Open,
    Signal,
}

/// Sleeps until the gate is open, or `is_over` says that this gate does not count any more. The daemon stores first and wakes
/// afterwards; a sleep begins only while the word is the one that was read. `is_over` is checked every `look_ns` too, since it may
/// turn true while the word stays. A signal ends the sleep for good if `signal_ends` says so.
pub(crate) fn at_gate<M: Memory>(
    gate: &GateWord<M>,
    look_ns: u64,
    mut is_over: impl FnMut() -> bool,
    mut signal_ends: impl FnMut() -> bool,
) -> Left {
    loop {
        let seen: Gate = gate.load();
        if seen.is_open() || is_over() {
            return Left::Open;
        }
        if gate.sleep(seen, look_ns) == Woken::Signal && signal_ends() {
            return Left::Signal;
        }
    }
}

/// Completions of a group, for the threads that wait until something is complete.
pub(crate) struct Progress<M: Memory> {
    completions: M::U32,
    waiters: M::U32,
}

impl<M: Memory> Progress<M> {
    pub(crate) fn new() -> Self {
        Progress { completions: M::U32::new(0), waiters: M::U32::new(0) }
    }

    /// Reports a completion, which was stored before.
    pub(crate) fn advance(&self) {
        self.completions.fetch_add(1, AcqRel);
        // A thread that begins to wait is seen here, or its sleep finds another count. The same holds for the load of
        // `Readiness::waiting` that comes after this: that thread sees the completion, or is seen.
        M::barrier_after_rmw();
        if self.waiters.load(Acquire) != 0 {
            M::wake(&self.completions, Sleepers::Own);
        }
    }

    /// Begins a thread's wait, before its first call of [`Progress::seen`].
    pub(crate) fn begin_wait(&self) {
        self.waiters.fetch_add(1, AcqRel);
        M::barrier_after_rmw();
    }

    /// Ends a thread's wait.
    pub(crate) fn end_wait(&self) {
        self.waiters.fetch_sub(1, Release);
    }

    /// Completions so far, to be read before the check for room.
    pub(crate) fn seen(&self) -> u32 {
        self.completions.load(Acquire)
    }

    /// Sleeps until there are more completions than `seen`, for `most_ns` at most.
    pub(crate) fn sleep(&self, seen: u32, most_ns: u64) -> Woken {
        M::sleep(&self.completions, seen, Sleepers::Own, most_ns)
    }
}
