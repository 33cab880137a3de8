//! Announce and idle: a launch after idle announces its group to the daemon, and the agent calls a group idle that has nothing to
//! do. Neither may miss the other.
//!
//! Both sides store first and load afterwards. A launch counts itself (in one of three places), then reads the gate word; the agent
//! sets *must announce*, then reads the counts. The barriers between make one of the two see the other.

use core::sync::atomic::Ordering::*;

use xsched_proto::gate::{Gate, GateWord};
use xsched_proto::memory::{Memory, Word};
use xsched_proto::segment::state;

/// Counts a launch on the fast path in its thread's own counter, then reads the gate.
#[inline(always)]
pub(crate) fn count<M: Memory>(launches: &M::U64, gate: &GateWord<M>) -> Gate {
    launches.store(launches.load(Relaxed).wrapping_add(1), Relaxed);
    M::light_barrier();
    gate.peek()
}

/// Takes a launch out of its thread's counter: the driver refused it, or it is about to be numbered.
#[inline(always)]
pub(crate) fn uncount<M: Memory>(launches: &M::U64) {
    launches.store(launches.load(Relaxed).wrapping_sub(1), Release);
}

/// Numbers a launch on the slow path. Returns its number.
#[inline(always)]
pub(crate) fn number<M: Memory>(issued: &M::U64) -> u64 {
    issued.fetch_add(1, SeqCst) + 1
}

/// Words of one group that say if it wants the device.
pub(crate) struct Readiness<'a, M: Memory> {
    pub(crate) gate: &'a GateWord<M>,
    pub(crate) state: &'a M::U32,
    /// Threads that wait with a launch that is counted nowhere.
    pub(crate) waiting: &'a M::U32,
}

impl<M: Memory> Readiness<'_, M> {
    /// Checks the gate after a launch has been numbered. True: the group must be announced.
    #[inline]
    pub(crate) fn numbered(&self) -> bool {
        M::light_barrier();
        self.gate.load().must_announce()
    }

    /// Begins a thread's wait: its launch is counted nowhere until it may go on. True: the group must be announced.
    pub(crate) fn begin_wait(&self) -> bool {
        self.waiting.fetch_add(1, AcqRel);
        // The full barrier is not for the agent, for which a light one would do, but for the last completion: see
        // `Progress::advance`.
        M::barrier_after_rmw();
        self.gate.load().must_announce()
    }

    /// Ends a thread's wait.
    pub(crate) fn end_wait(&self) {
        self.waiting.fetch_sub(1, AcqRel);
    }

    /// Announces the group unless another thread does. True: the daemon is to be notified, after `ready` has run and the state is
    /// stored.
    pub(crate) fn announce(&self, ready: impl FnOnce()) -> bool {
        if !self.gate.announce() {
            return false;
        }
        ready();
        self.state.store(state::READY, Release);
        true
    }

    /// Agent: calls the group idle, unless a launch `came` since the check that found it idle, or a thread waits. True: the daemon
    /// is to be notified.
    pub(crate) fn call_idle(&self, came: impl FnOnce() -> bool) -> bool {
        if self.gate.call_idle() {
            // The daemon knows it as idle already.
            return false;
        }
        // A launch counts itself before it reads the gate. After this barrier either its count is visible here, or it sees
        // that it must announce itself.
        M::heavy_barrier();
        if came() || self.waiting.load(Acquire) > 0 {
            self.gate.announce();
            return false;
        }
        self.state.store(state::IDLE, Release);
        // A launch that announced itself may have stored READY just before this store, which undid that. A launch that announces
        // itself after this load stores after it.
        if !self.gate.settle().must_announce() {
            self.state.store(state::READY, Release);
        }
        true
    }

    /// Reports that the group is drained. True: that is news, the daemon is to be notified.
    pub(crate) fn drained(&self) -> bool {
        self.state.swap(state::DRAINED, AcqRel) != state::DRAINED
    }

    /// Ends the drained state: the group's launches go on.
    pub(crate) fn undrained(&self) {
        let _ = self.state.compare_exchange(state::DRAINED, state::READY, AcqRel, Relaxed);
    }
}
