//! Announce and idle: a launch after idle tells the daemon, and the agent calls a group idle that has nothing to do. Neither may
//! miss the other.
//!
//! Both sides store first and look afterwards. A launch counts itself (in one of three places), then looks at the gate word; the
//! agent sets *must announce*, then looks at the counts. The barriers between make one of the two see the other.

use core::sync::atomic::Ordering::*;

use xsched_proto::gate::{Gate, GateWord};
use xsched_proto::memory::{Memory, Word};
use xsched_proto::segment::state;

/// A launch on the fast path counts itself in its thread's own counter, then looks at the gate.
#[inline(always)]
pub(crate) fn count<M: Memory>(launches: &M::U64, gate: &GateWord<M>) -> Gate {
    launches.store(launches.load(Relaxed).wrapping_add(1), Relaxed);
    M::light_barrier();
    gate.peek()
}

/// It is not one of those after all: the driver refused it, or it is about to be numbered.
#[inline(always)]
pub(crate) fn uncount<M: Memory>(launches: &M::U64) {
    launches.store(launches.load(Relaxed).wrapping_sub(1), Release);
}

/// It is numbered instead. Returns its number.
#[inline(always)]
pub(crate) fn number<M: Memory>(issued: &M::U64) -> u64 {
    issued.fetch_add(1, SeqCst) + 1
}

/// The words of one group that say whether it wants the device.
pub(crate) struct Readiness<'a, M: Memory> {
    pub(crate) gate: &'a GateWord<M>,
    pub(crate) state: &'a M::U32,
    /// Threads that wait with a launch that is counted nowhere.
    pub(crate) waiting: &'a M::U32,
}

impl<M: Memory> Readiness<'_, M> {
    /// A launch on the slow path has been numbered. Whether it must announce itself.
    #[inline]
    pub(crate) fn numbered(&self) -> bool {
        M::light_barrier();
        self.gate.load().must_announce()
    }

    /// A thread begins to wait: its launch is counted nowhere until it may go on. Whether it must announce itself.
    pub(crate) fn begin_wait(&self) -> bool {
        self.waiting.fetch_add(1, AcqRel);
        // Not only for the agent, for which a light one would do, but also for the last completion: see `Progress::advance`.
        M::barrier_after_rmw();
        self.gate.load().must_announce()
    }

    /// It waits no more.
    pub(crate) fn end_wait(&self) {
        self.waiting.fetch_sub(1, AcqRel);
    }

    /// Announces the group unless another thread does. True: the daemon is to be told, after `ready` has run and the state is
    /// stored.
    pub(crate) fn announce(&self, ready: impl FnOnce()) -> bool {
        if !self.gate.announce() {
            return false;
        }
        ready();
        self.state.store(state::READY, Release);
        true
    }

    /// Agent: calls the group idle, unless `came` tells that a launch came since it looked idle, or a thread waits. True: the
    /// daemon is to be told.
    pub(crate) fn call_idle(&self, came: impl FnOnce() -> bool) -> bool {
        if self.gate.call_idle() {
            // Known as idle before.
            return false;
        }
        // A launch counts itself before it looks at the gate. After this barrier either its count is visible here, or it sees
        // that it must announce itself.
        M::heavy_barrier();
        if came() || self.waiting.load(Acquire) > 0 {
            self.gate.announce();
            return false;
        }
        self.state.store(state::IDLE, Release);
        // The launch that announced itself may have stored READY just before this store, which undid that. One that announces
        // itself after this look stores after it.
        if !self.gate.settle().must_announce() {
            self.state.store(state::READY, Release);
        }
        true
    }

    /// Tells that the group is drained. True: that is news, the daemon is to be told.
    pub(crate) fn drained(&self) -> bool {
        self.state.swap(state::DRAINED, AcqRel) != state::DRAINED
    }

    /// What was drained goes on.
    pub(crate) fn undrained(&self) {
        let _ = self.state.compare_exchange(state::DRAINED, state::READY, AcqRel, Relaxed);
    }
}
