//! A program at one of its devices: one process with one group and one queue, and where its thread is.

use std::collections::VecDeque;

use xsched_flow::activity::{Activity, View};
use xsched_flow::estimate::Cell;
use xsched_flow::tuning::{FIRST_GRACE_NS, LENGTHS_NS, LONG_PARTS};
use xsched_proto::class::SHORT_US;
use xsched_proto::segment::length;

use super::device::Seat;
use super::fluid::Burst;

/// Place of a program's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thread {
    /// Between two requests.
    Rests,
    /// On the host, until its next step.
    Computes,
    /// At the closed gate.
    AtGate,
    /// In a wait for room in the in-flight budget.
    ForRoom,
    /// In a wait until all its commands are complete.
    ForDevice,
    /// The program has ended.
    Gone,
}

/// A fence behind a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    pub(super) seq: u64,
    /// Expected device time up to it, in ns.
    pub(super) issued_ns: u64,
}

/// A program at one of its devices.
pub(super) struct Rank {
    /// Its program, by its place among those of the machine.
    pub(super) member: usize,
    /// Its device, by its place in the machine.
    pub(super) device: usize,
    pub(super) seat: Seat,
    pub(super) thread: Thread,
    /// Number of the thread's last step that was set: an older one has no effect.
    pub(super) step: u32,
    /// Kind of the next command, and its number within the kind.
    pub(super) at: (usize, u32),
    /// Device time of each command of this kind, where all together have a time, in ns.
    pub(super) each_ns: u64,
    /// The next command, once its thread has looked at its gate.
    pub(super) next: Option<u64>,
    /// The burst that is on the device, or that waits.
    pub(super) burst: Option<Burst>,
    /// Estimates by kind of command.
    pub(super) estimates: Vec<Cell>,
    /// Commands given to the device so far, and their expected time in ns.
    pub(super) issued: u64,
    pub(super) issued_ns: u64,
    pub(super) gated_ns: u64,
    pub(super) fences: VecDeque<Fence>,
    pub(super) fenced: Fence,
    pub(super) done: Fence,
    /// Commands on the device.
    pub(super) pending: u64,
    /// Grant epoch in which a command was last given to wait behind a gate.
    pub(super) prequeued: Option<u32>,
    /// Begin of the command that runs, as far as completions tell, in ns.
    pub(super) running_since_ns: u64,
    /// Begin of the wait at the gate, in ns.
    pub(super) waits_since_ns: u64,
    pub(super) grace_ns: u64,
    /// Begin of the grace time, in ns; 0 = none runs.
    pub(super) grace_since_ns: u64,
    /// End of the last command, in ns.
    pub(super) idle_since_ns: u64,
    /// Begin of the burst, in ns.
    pub(super) ready_since_ns: u64,
    /// Device time of the burst's commands, in ns.
    pub(super) burst_ns: u64,
    /// Expected time of short and of long commands, for [`Rank::lengths`].
    short_ns: u64,
    long_ns: u64,
    /// Device time so far, in ns.
    pub(super) device_ns: u64,
    /// Begin of the program, in ns.
    pub(super) began_ns: u64,
    /// Times that the gate closed under daemons that are gone.
    pub(super) suspensions: u64,
}

impl Rank {
    pub(super) fn new(member: usize, device: usize, seat: Seat, kinds: usize, now_ns: u64) -> Rank {
        let none = Fence { seq: 0, issued_ns: 0 };
        Rank {
            member,
            device,
            seat,
            thread: Thread::Rests,
            step: 0,
            at: (0, 0),
            each_ns: 0,
            next: None,
            burst: None,
            estimates: vec![Cell::default(); kinds],
            issued: 0,
            issued_ns: 0,
            gated_ns: 0,
            fences: VecDeque::new(),
            fenced: none,
            done: none,
            pending: 0,
            prequeued: None,
            running_since_ns: 0,
            waits_since_ns: 0,
            grace_ns: FIRST_GRACE_NS,
            grace_since_ns: 0,
            idle_since_ns: 0,
            ready_since_ns: 0,
            burst_ns: 0,
            short_ns: 0,
            long_ns: 0,
            device_ns: 0,
            began_ns: now_ns,
            suspensions: 0,
        }
    }

    /// Its activity, by its gate and the state that it has told.
    pub(super) fn activity(&self, word: u32, told: u32, now_ns: u64) -> Activity {
        Activity::of(&View {
            word,
            told,
            complete: self.pending == 0,
            waiters: u32::from(matches!(self.thread, Thread::AtGate | Thread::ForRoom)),
            waits_since_ns: self.waits_since_ns,
            grace_since_ns: self.grace_since_ns,
            grace_ns: self.grace_ns,
            now_ns,
        })
    }

    /// Counts the expected time of a budgeted command. Returns how long commands are of late.
    pub(super) fn lengths(&mut self, estimate_ns: u64) -> Option<u32> {
        if estimate_ns <= SHORT_US * 1_000 {
            self.short_ns += estimate_ns;
        } else {
            self.long_ns += estimate_ns;
        }
        let all = self.short_ns + self.long_ns;
        if all < LENGTHS_NS {
            return None;
        }
        let is_short = self.long_ns <= all / LONG_PARTS;
        (self.short_ns, self.long_ns) = (0, 0);
        Some(if is_short { length::SHORT } else { length::LONG })
    }

    /// Takes in that the device has reached a command.
    pub(super) fn reached(&mut self, seq: u64) {
        while let Some(fence) = self.fences.front().filter(|fence| fence.seq <= seq) {
            self.done = *fence;
            self.fences.pop_front();
        }
        if self.pending == 0 {
            self.done = Fence { seq: self.issued, issued_ns: self.issued_ns };
            self.fences.clear();
        }
    }
}
