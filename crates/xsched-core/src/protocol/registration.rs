//! Registration: a daemon takes a group's gate over, or is gone. A launch in between is neither lost to the daemon, which would
//! take its group for idle, nor stuck at a gate that no daemon holds.

use core::sync::atomic::Ordering::*;

use xsched_proto::memory::{Memory, Sleepers, Word};
use xsched_proto::segment::state;

use super::idle::Readiness;

/// State of a group's registration with the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Registration {
    /// The daemon has been asked.
    Pending = 0,
    /// The daemon holds its gate.
    Attached = 1,
    /// There is no daemon; the gate stands open.
    Detached = 2,
}

/// Result of a daemon's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// The daemon holds the gate and takes the group for idle.
    Idle,
    /// The daemon holds the gate and takes the group for idle, but it is not: it must announce itself.
    Busy,
    /// The daemon is gone meanwhile; the gate stands open.
    Gone,
}

/// Words of one group that say if a daemon holds its gate.
pub(crate) struct Holding<'a, M: Memory> {
    pub(crate) readiness: Readiness<'a, M>,
    /// A [`Registration`].
    pub(crate) registration: &'a M::U32,
}

impl<M: Memory> Holding<'_, M> {
    /// Takes the daemon's answer: its gate holds from now on. `is_busy` is true if launches are not known to be complete, `is_gone`
    /// if the daemon was given up, which is stored before [`Holding::detach`].
    pub(crate) fn attach(&self, is_busy: impl FnOnce() -> bool, is_gone: impl FnOnce() -> bool) -> Answered {
        let Readiness { gate, state, waiting } = &self.readiness;
        state.store(state::IDLE, Release);
        gate.attach();
        self.say(Registration::Attached);
        // If another thread gave the daemon up just now, it opened the gate before it was closed here, or will do so.
        if is_gone() {
            self.detach();
            return Answered::Gone;
        }
        // A launch that went by the open gate is visible here as a count after this barrier, or has seen that it must announce
        // itself; a thread that waits since the gate was another daemon's is not counted among the launches.
        M::heavy_barrier();
        if waiting.load(Acquire) > 0 || is_busy() { Answered::Busy } else { Answered::Idle }
    }

    /// Opens the gate for good: there is no daemon, or no more.
    pub(crate) fn detach(&self) {
        self.readiness.gate.detach();
        self.say(Registration::Detached);
    }

    fn say(&self, registration: Registration) {
        // A read-modify-write: of two threads that store, the later one then synchronises with the earlier one.
        self.registration.swap(registration as u32, AcqRel);
        M::wake(self.registration, Sleepers::Own);
    }
}

/// Waits for the answer on a group, for `left_ns` at most.
pub(crate) fn wait_registered<M: Memory>(registration: &M::U32, left_ns: impl Fn() -> u64) -> Registration {
    loop {
        match registration.load(Acquire) {
            1 => return Registration::Attached,
            2 => return Registration::Detached,
            _ => {}
        }
        let left = left_ns();
        if left == 0 {
            return Registration::Pending;
        }
        // A signal does not end the wait, which is short: a launch that goes on before its end is unscheduled.
        M::sleep(registration, 0, Sleepers::Own, left);
    }
}
