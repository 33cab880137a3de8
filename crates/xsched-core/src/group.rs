//! The unit of suspension: its words, and facts that follow from them alone. `registry` has its queues, `activity` its way between idle
//! and ready, `waiting` the threads at its gate, `device_gates` its gates on the device.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};
use std::sync::Mutex;

use xsched_flow::activity::next_grace_ns;
use xsched_flow::journal::Record;
use xsched_flow::tuning::{FIRST_GRACE_NS, INSIDE_NS, LENGTHS_NS, LONG_PARTS, RELEASE_NS};
use xsched_flow::watchdog::override_commands;
use xsched_proto::class::SHORT_US;
use xsched_proto::memory::Hardware;
use xsched_proto::segment::{GroupSlot, length};

use crate::backlog_pages::Yields;
use crate::clock::now_ns;
use crate::estimate::{PARTS, uncut_ns};
use crate::journal;
use crate::protocol::park::Progress;
use crate::protocol::registration::{Registration, wait_registered};

/// Expected time from which on a command is long, in ns. Between two gates inside one lies about [`INSIDE_NS`], which is not.
fn long_ns(part: u16) -> u64 {
    if matches!(part, 0 | PARTS) { SHORT_US * 1000 } else { 2 * INSIDE_NS }
}

/// All XQueues of a process on a device that have the same priority. Suspended together, so that a queue can never
/// be held by another queue that is not.
pub struct Group {
    pub(crate) index: u16,
    pub(crate) registration: AtomicU32,
    /// Time until which a launch waits for the daemon's answer, in ns.
    pub(crate) attach_deadline: AtomicU64,
    /// Threads that wait, at the closed gate or for the in-flight budget.
    pub(crate) waiting: AtomicU32,
    /// Threads inside a call that waits for the device.
    pub(crate) syncing: AtomicU32,
    /// Completions, for threads that wait for the in-flight budget.
    pub(crate) progress: Progress<Hardware>,
    pub(crate) overrides: Overrides,
    pub(crate) grace: Grace,
    /// Time at which a thread last began to wait at the closed gate while commands were in flight, in ns.
    pub(crate) waits_since: AtomicU64,
    pub(crate) device_gates: GateHold,
    lengths: Lengths,
    pub(crate) yields: Yields,
    pub(crate) burst: Burst,
    /// Priority by which [`crate::Inheritance`] compares groups of a process.
    pub(crate) priority: AtomicI32,
    pub(crate) inherited: Mutex<Vec<i32>>,
}

/// Beginning of a group's burst.
pub(crate) struct Burst {
    /// Work that the group's queues had been given when the burst began.
    pub(crate) from: Mutex<Given>,
    /// True if no burst goes on: the next announcement begins one.
    pub(crate) over: AtomicBool,
}

/// Liveness overrides in a row: commands admitted over budget because nothing was complete for long.
#[derive(Default)]
pub(crate) struct Overrides {
    in_a_row: AtomicU32,
    /// Commands that the last override admits beyond its own, without a wait.
    credit: AtomicU32,
}

impl Overrides {
    /// Ends the row: a command fits into the budget.
    #[inline]
    pub(crate) fn end(&self) {
        self.in_a_row.store(0, Relaxed);
        self.credit.store(0, Relaxed);
    }

    /// Uses one command of the credit. False: none is left.
    pub(crate) fn use_credit(&self) -> bool {
        self.credit.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_ok()
    }

    /// Begins an override, whose credit grows with the row.
    pub(crate) fn begin(&self) {
        let row = self.in_a_row.fetch_add(1, Relaxed);
        let commands = override_commands(row);
        journal::record(|| Record::Override(row, commands));
        self.credit.store(commands, Relaxed);
    }
}

/// Grace time of a group that has drained, at whose end it is idle.
pub(crate) struct Grace {
    /// Time at which the group drained, in ns; 0 = it has not.
    pub(crate) since: AtomicU64,
    /// Length of the grace time, in ns.
    pub(crate) ns: AtomicU64,
}

impl Grace {
    /// Begins the grace time. False: it runs already.
    pub(crate) fn begin(&self, now_ns: u64) -> bool {
        self.since.compare_exchange(0, now_ns, SeqCst, Relaxed).is_ok()
    }

    /// Cancels the grace time, which measures nothing then.
    pub(crate) fn cancel(&self) {
        self.since.store(0, Relaxed);
    }

    /// True: it runs, or has run out since the last launch.
    #[inline(always)]
    pub(crate) fn runs(&self) -> bool {
        self.since.load(Relaxed) != 0
    }

    /// Ends the grace time at a launch: measures the gap between bursts, so that the next grace time can follow it. Returns its begin, in
    /// ns, if it had run out.
    pub(crate) fn end(&self) -> Option<u64> {
        if !self.runs() {
            return None;
        }
        let armed = self.since.swap(0, Relaxed);
        if armed == 0 {
            return None;
        }
        let gap = now_ns().saturating_sub(armed);
        let grace = self.ns.load(Relaxed);
        let next = next_grace_ns(grace, gap);
        journal::record(|| Record::Grace(grace, gap, next));
        self.ns.store(next, Relaxed);
        (gap >= grace).then_some(armed)
    }
}

/// Commands that gates on the device hold, and the end of that; see [`crate::device_gates`].
pub(crate) struct GateHold {
    /// Gates inside recorded commands wait for the group's word.
    pub(crate) inside: AtomicBool,
    /// Grant epoch in which gates were last seen to hold commands, and since when, in ns.
    pub(crate) epoch: AtomicU32,
    pub(crate) since: AtomicU64,
    /// Release timeout: the longest time that gates may hold commands, in ns.
    pub(crate) patience: AtomicU64,
    /// Grant epoch in which the commands were released.
    pub(crate) released_epoch: AtomicU32,
}

/// Expected time of the budgeted commands since [`GroupSlot::lengths`] was last set, and of the long ones among them, in ns.
#[derive(Default)]
struct Lengths {
    all_ns: AtomicU64,
    long_ns: AtomicU64,
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
            registration: AtomicU32::new(Registration::Pending as u32),
            attach_deadline: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            syncing: AtomicU32::new(0),
            progress: Progress::new(),
            overrides: Overrides::default(),
            grace: Grace { since: AtomicU64::new(0), ns: AtomicU64::new(FIRST_GRACE_NS) },
            waits_since: AtomicU64::new(0),
            device_gates: GateHold {
                inside: AtomicBool::new(false),
                epoch: AtomicU32::new(0),
                since: AtomicU64::new(0),
                patience: AtomicU64::new(RELEASE_NS),
                released_epoch: AtomicU32::new(0),
            },
            lengths: Lengths::default(),
            yields: Yields::default(),
            burst: Burst { from: Mutex::default(), over: AtomicBool::new(true) },
            priority: AtomicI32::new(0),
            inherited: Mutex::new(Vec::new()),
        }
    }

    /// Index of its slot in the segment.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Adds a budgeted command of known length to the account by which time slices are chosen. `part`: see
    /// [`Work`](crate::Work).
    pub(crate) fn note_length(&self, slot: &GroupSlot, ns: u64, part: u16) {
        // Without a lock: threads that add at the same time may lose a part, which need not be exact.
        let Lengths { all_ns, long_ns } = &self.lengths;
        if uncut_ns(ns, part) > self::long_ns(part) {
            long_ns.store(long_ns.load(Relaxed) + ns, Relaxed);
        }
        let all = all_ns.load(Relaxed) + ns;
        all_ns.store(all, Relaxed);
        if all >= LENGTHS_NS {
            let long = long_ns.swap(0, Relaxed);
            all_ns.store(0, Relaxed);
            slot.lengths.store(if long * LONG_PARTS <= all { length::SHORT } else { length::LONG }, Relaxed);
        }
    }

    /// Waits for the daemon's answer to the registration until `deadline_ns`.
    pub(crate) fn wait_registered(&self, deadline_ns: u64) -> Registration {
        wait_registered::<Hardware>(&self.registration, || deadline_ns.saturating_sub(now_ns()))
    }
}
