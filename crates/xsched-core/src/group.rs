//! The unit of suspension: its words, and facts that follow from them alone. `registry` has its queues, `activity` its way between idle
//! and ready, `waiting` the threads at its gate, `device_gates` its gates on the device.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};
use std::sync::Mutex;

use xsched_flow::activity::next_grace_ns;
use xsched_flow::gaps::{Cycle, Gaps, Terms};
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

/// Grace time of a group that has drained, at whose end its request is over, and hold, at whose end it is idle.
pub(crate) struct Grace {
    /// Time at which the group drained, in ns; 0 = it has not.
    pub(crate) since: AtomicU64,
    /// Length of the grace time, in ns.
    pub(crate) ns: AtomicU64,
    /// Time for which the group keeps the device through this gap, in ns, if that is longer than its grace time.
    hold_ns: AtomicU64,
    /// Length of the last gap, if nothing was learned from it yet, and its end, in ns.
    gap_ns: AtomicU64,
    ended_at: AtomicU64,
    /// True if the group kept the device through that gap.
    kept: AtomicBool,
    /// Gaps so far. Only the thread that begins a grace time needs them.
    gaps: Mutex<Gaps>,
}

impl Grace {
    fn new() -> Grace {
        Grace {
            since: AtomicU64::new(0),
            ns: AtomicU64::new(FIRST_GRACE_NS),
            hold_ns: AtomicU64::new(0),
            gap_ns: AtomicU64::new(0),
            ended_at: AtomicU64::new(0),
            kept: AtomicBool::new(false),
            gaps: Mutex::default(),
        }
    }

    /// Begins the grace time, and decides how long the group keeps the device through the gap that begins. False: it runs already.
    pub(crate) fn begin(&self, now_ns: u64, slot: &GroupSlot) -> bool {
        if self.runs() {
            return false;
        }
        // Another thread that has begun one just now has decided.
        if let Ok(mut gaps) = self.gaps.try_lock() {
            self.hold_ns.store(self.hold(&mut gaps, now_ns, slot), Relaxed);
        }
        self.since.compare_exchange(0, now_ns, SeqCst, Relaxed).is_ok()
    }

    /// Learns from the last gap. Returns the hold of the next one, in ns.
    fn hold(&self, gaps: &mut Gaps, now_ns: u64, slot: &GroupSlot) -> u64 {
        let hold_us = slot.hold_us.load(Acquire);
        let terms =
            Terms { hold_ns: u64::from(hold_us) * 1_000, slowdown_percent: slot.slowdown_percent.load(Relaxed) };
        let gap_ns = self.gap_ns.swap(0, Relaxed);
        if hold_us == 0 {
            return 0;
        }
        if gap_ns != 0 {
            let kept = self.kept.load(Relaxed);
            let own_ns = now_ns.saturating_sub(self.ended_at.load(Relaxed));
            gaps.learn(Cycle { gap_ns, own_ns, kept });
            let count = if kept { &slot.gaps_kept } else { &slot.gaps_given };
            count.fetch_add(1, Relaxed);
            slot.gap_us.store((gaps.kept_ns() / 1_000) as u32, Relaxed);
            slot.gap_cost_us.store((gaps.return_ns() / 1_000) as u32, Relaxed);
        }
        let before = journal::is_on().then(|| gaps.clone());
        let hold_ns = gaps.hold_ns(terms);
        if let Some(before) = before {
            journal::record(|| Record::Hold(Box::new(before), terms, hold_ns));
        }
        hold_ns
    }

    /// Time from the begin of the gap at which the group is idle, in ns.
    pub(crate) fn ends_ns(&self) -> u64 {
        self.ns.load(Relaxed).max(self.hold_ns.load(Relaxed))
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
    /// ns, if it had run out, whether or not the group has kept the device for longer.
    pub(crate) fn end(&self) -> Option<u64> {
        if !self.runs() {
            return None;
        }
        let armed = self.since.swap(0, Relaxed);
        if armed == 0 {
            return None;
        }
        let now_ns = now_ns();
        let gap = now_ns.saturating_sub(armed);
        self.kept.store(gap < self.ends_ns(), Relaxed);
        self.ended_at.store(now_ns, Relaxed);
        self.gap_ns.store(gap, Relaxed);
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
            grace: Grace::new(),
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
