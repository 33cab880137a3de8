//! The unit of suspension: its words, and what they say by themselves. What it has in common with its queues and the daemon is in
//! `runtime`, `activity`, `waiting` and `device_gates`.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};
use std::sync::Mutex;

use xsched_flow::activity::next_grace_ns;
use xsched_flow::journal::Record;
use xsched_flow::tuning::{FIRST_GRACE_NS, INSIDE_NS, LENGTHS_NS, LONG_PARTS, RELEASE_NS};
use xsched_proto::class::SHORT_US;
use xsched_proto::memory::Hardware;
use xsched_proto::segment::{GroupSlot, length};

use crate::clock::now_ns;
use crate::company::Yields;
use crate::estimate::{PARTS, uncut_ns};
use crate::journal;
use crate::protocol::park::Progress;
use crate::protocol::registration::{Registration, wait_registered};

/// From here on a command is long, in ns. Between two gates inside one lies about [`INSIDE_NS`], which is not.
fn long_ns(part: u16) -> u64 {
    if matches!(part, 0 | PARTS) { SHORT_US * 1000 } else { 2 * INSIDE_NS }
}

/// All XQueues of a process on a device that have the same priority. Suspended together, so that a queue can never
/// be held by another queue that is not.
pub struct Group {
    pub(crate) index: u16,
    pub(crate) used: AtomicU32,
    pub(crate) registration: AtomicU32,
    /// Until then a launch waits for the daemon's answer.
    pub(crate) attach_deadline: AtomicU64,
    /// Threads that wait, at the closed gate or for the bound.
    pub(crate) waiting: AtomicU32,
    /// Threads inside a call that waits for the device.
    pub(crate) syncing: AtomicU32,
    /// For threads that wait for the budget.
    pub(crate) progress: Progress<Hardware>,
    /// How often in a row the bound had to let commands through, and how many more it lets through without a wait.
    pub(crate) overrides_in_a_row: AtomicU32,
    pub(crate) override_credit: AtomicU32,
    /// When the group drained, waiting for the grace time to pass; 0 = not.
    pub(crate) grace_since: AtomicU64,
    pub(crate) grace_ns: AtomicU64,
    /// When a thread last began to wait at the closed gate while commands were in flight.
    pub(crate) waits_since: AtomicU64,
    /// Gates inside recorded commands wait for its word.
    pub(crate) holds_inside: AtomicBool,
    /// After which turn gates on the device were seen to hold commands, since when (in ns), and after which turn they let them go
    /// on; see [`crate::device_gates`].
    pub(crate) held_epoch: AtomicU32,
    pub(crate) held_since: AtomicU64,
    /// How long that may last, in ns.
    pub(crate) release_patience: AtomicU64,
    pub(crate) released_epoch: AtomicU32,
    /// Expected time of the commands under a bound since [`GroupSlot::lengths`] was told last, and of the long ones among
    /// them, in ns.
    bounded_ns: AtomicU64,
    bounded_long_ns: AtomicU64,
    pub(crate) yields: Yields,
    /// The work that its queues had been given when the burst began.
    pub(crate) burst_from: Mutex<Given>,
    /// Priority by which [`crate::Inheritance`] compares groups of a process.
    pub(crate) priority: AtomicI32,
    pub(crate) inherited: Mutex<Vec<i32>>,
}

/// Work that the queues of a group were given so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Given {
    pub(crate) launches: u64,
    /// Commands among them that were numbered, and their expected time in ns.
    pub(crate) numbered: u64,
    pub(crate) ns: u64,
}

impl Group {
    pub(crate) fn new(index: u16) -> Self {
        Group {
            index,
            used: AtomicU32::new(0),
            registration: AtomicU32::new(Registration::Pending as u32),
            attach_deadline: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            syncing: AtomicU32::new(0),
            progress: Progress::new(),
            overrides_in_a_row: AtomicU32::new(0),
            override_credit: AtomicU32::new(0),
            grace_since: AtomicU64::new(0),
            grace_ns: AtomicU64::new(FIRST_GRACE_NS),
            waits_since: AtomicU64::new(0),
            holds_inside: AtomicBool::new(false),
            held_epoch: AtomicU32::new(0),
            held_since: AtomicU64::new(0),
            release_patience: AtomicU64::new(RELEASE_NS),
            released_epoch: AtomicU32::new(0),
            bounded_ns: AtomicU64::new(0),
            bounded_long_ns: AtomicU64::new(0),
            yields: Yields::default(),
            burst_from: Mutex::default(),
            priority: AtomicI32::new(0),
            inherited: Mutex::new(Vec::new()),
        }
    }

    /// Index of its slot in the segment.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Called by a launch that was drained before: measures the gap, so that the grace time can follow it.
    pub(crate) fn end_grace(&self) {
        if self.grace_since.load(Relaxed) == 0 {
            return;
        }
        let armed = self.grace_since.swap(0, Relaxed);
        if armed == 0 {
            return;
        }
        let gap = now_ns().saturating_sub(armed);
        let grace = self.grace_ns.load(Relaxed);
        let next = next_grace_ns(grace, gap);
        journal::record(|| Record::Grace(grace, gap, next));
        self.grace_ns.store(next, Relaxed);
    }

    /// Keeps account of how long the commands are that are held to a bound, as far as it is known: time slices go by that. `part`: see
    /// [`Work`](crate::Work).
    pub(crate) fn note_length(&self, slot: &GroupSlot, ns: u64, part: u16) {
        // Threads that do so at the same time may lose some of it: it need not be exact.
        if uncut_ns(ns, part) > long_ns(part) {
            self.bounded_long_ns.store(self.bounded_long_ns.load(Relaxed) + ns, Relaxed);
        }
        let all_ns = self.bounded_ns.load(Relaxed) + ns;
        self.bounded_ns.store(all_ns, Relaxed);
        if all_ns >= LENGTHS_NS {
            let long_ns = self.bounded_long_ns.swap(0, Relaxed);
            self.bounded_ns.store(0, Relaxed);
            slot.lengths.store(if long_ns * LONG_PARTS <= all_ns { length::SHORT } else { length::LONG }, Relaxed);
        }
    }

    /// Waits for the daemon's answer to the registration until `deadline_ns`.
    pub(crate) fn wait_registered(&self, deadline_ns: u64) -> Registration {
        wait_registered::<Hardware>(&self.registration, || deadline_ns.saturating_sub(now_ns()))
    }
}
