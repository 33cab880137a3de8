//! A program at one of its devices: one process with one group and one queue, and where its thread is.

use std::collections::VecDeque;

use xsched_flow::activity::{Activity, View};
use xsched_flow::estimate::Cell;
use xsched_flow::gaps::{Cycle, Gaps, Terms};
use xsched_flow::tuning::{FIRST_GRACE_NS, HELD_LONG_NS, LENGTHS_NS, LONG_PARTS};
use xsched_proto::class::SHORT_US;
use xsched_proto::segment::length;

use super::company::Company;
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
    /// At a gate that yields, until other programs keep up.
    Yields,
    /// In a wait for room in the in-flight budget.
    ForRoom,
    /// In a wait until all its commands are complete.
    ForDevice,
    /// The program has ended.
    Gone,
}

/// A thread at a wait for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sync {
    /// Commands are not complete.
    Waits,
    /// The last command is complete, and the thread wakes up.
    Wakes,
    /// The wait is over. Time since the end of the one before it in the same request, in ns.
    Ends(Option<u64>),
    /// There was nothing to wait for.
    GoesOn,
}

/// A fence behind a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    pub(super) seq: u64,
    /// Expected device time up to it, in ns.
    pub(super) issued_ns: u64,
}

/// Commands that a rank has given to its device.
pub(super) struct Flight {
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
}

/// Times of a rank's present burst, and of the pause before it, in ns.
pub(super) struct Spell {
    /// Begin of the wait at the gate.
    pub(super) waits_since_ns: u64,
    pub(super) grace_ns: u64,
    /// Begin of the grace time; 0 = none runs.
    pub(super) grace_since_ns: u64,
    /// Time for which the present gap is kept, if that is longer than the grace time.
    pub(super) hold_ns: u64,
    /// The last gap, if nothing was learned from it yet: its length, its end, and true if it was kept.
    pub(super) gap: Option<(u64, u64, bool)>,
    /// End of the last command.
    pub(super) idle_since_ns: u64,
    /// Time at which the library's agent looks next, where it has something to find.
    pub(super) look_ns: u64,
    /// Begin of the burst.
    pub(super) ready_since_ns: u64,
    /// Device time of the burst's commands.
    pub(super) burst_ns: u64,
    /// Launches of the program when its grace time began.
    pub(super) launches: u64,
}

/// Expected time of short and of long commands of late, in ns.
#[derive(Default)]
pub(super) struct Lengths {
    short_ns: u64,
    long_ns: u64,
}

/// Waits of the host for the device within a request, in ns.
#[derive(Default)]
pub(super) struct Syncs {
    /// True if commands were given after the last wait.
    pub(super) is_due: bool,
    /// Begin of the wait; none = the host does not wait.
    since_ns: Option<u64>,
    /// End of the last wait of the request; none = there was none.
    last_ns: Option<u64>,
    /// Time waited in the request so far.
    waited_ns: u64,
}

/// Totals of a rank.
pub(super) struct Tally {
    /// Device time so far, in ns.
    pub(super) device_ns: u64,
    /// Begin of the program, in ns.
    pub(super) began_ns: u64,
    /// Times that the gate closed under daemons that are gone.
    pub(super) suspensions: u64,
}

/// Place of a rank in its request.
#[derive(Default)]
pub(super) struct Cursor {
    /// Kind of the next command, and its number within the kind.
    pub(super) at: (usize, u32),
    /// Device time of each command of this kind, where all together have a time, in ns.
    pub(super) each_ns: u64,
    /// The next command, once its thread has looked at its gate.
    pub(super) next: Option<u64>,
    /// Launch time of all commands of the present kind, where they have one, in ns.
    pub(super) pace_ns: u64,
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
    pub(super) cursor: Cursor,
    /// The burst that is on the device, or that waits.
    pub(super) burst: Option<Burst>,
    /// Estimates by kind of command.
    pub(super) estimates: Vec<Cell>,
    pub(super) flight: Flight,
    pub(super) spell: Spell,
    pub(super) lengths: Lengths,
    pub(super) syncs: Syncs,
    pub(super) company: Company,
    pub(super) gaps: Gaps,
    pub(super) tally: Tally,
}

impl Spell {
    /// Time from the begin of a gap at which the group is idle, in ns.
    pub(super) fn ends_ns(&self) -> u64 {
        self.grace_ns.max(self.hold_ns)
    }
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
            cursor: Cursor::default(),
            burst: None,
            estimates: vec![Cell::default(); kinds],
            flight: Flight {
                issued: 0,
                issued_ns: 0,
                gated_ns: 0,
                fences: VecDeque::new(),
                fenced: none,
                done: none,
                pending: 0,
                prequeued: None,
                running_since_ns: 0,
            },
            spell: Spell {
                waits_since_ns: 0,
                grace_ns: FIRST_GRACE_NS,
                grace_since_ns: 0,
                hold_ns: 0,
                gap: None,
                idle_since_ns: 0,
                look_ns: 0,
                ready_since_ns: 0,
                burst_ns: 0,
                launches: 0,
            },
            lengths: Lengths::default(),
            syncs: Syncs::default(),
            company: Company::default(),
            gaps: Gaps::default(),
            tally: Tally { device_ns: 0, began_ns: now_ns, suspensions: 0 },
        }
    }

    /// The host waits until all its commands are complete.
    pub(super) fn sync(&mut self, now_ns: u64) -> Sync {
        if self.flight.pending > 0 {
            self.thread = Thread::ForDevice;
            self.syncs.since_ns.get_or_insert(now_ns);
            return Sync::Waits;
        }
        if std::mem::take(&mut self.syncs.is_due) {
            self.syncs.since_ns.get_or_insert(now_ns);
            return Sync::Wakes;
        }
        let Some(since_ns) = self.syncs.since_ns.take() else { return Sync::GoesOn };
        self.syncs.waited_ns += now_ns - since_ns;
        Sync::Ends(self.syncs.last_ns.replace(now_ns).map(|last_ns| now_ns - last_ns))
    }

    /// Time that the host waited in the request that ends, in ns.
    pub(super) fn take_waited_ns(&mut self) -> u64 {
        std::mem::take(&mut self.syncs).waited_ns
    }

    /// Its activity, by its gate and the state that it has told.
    pub(super) fn activity(&self, word: u32, told: u32, now_ns: u64) -> Activity {
        Activity::of(&View {
            word,
            told,
            complete: self.flight.pending == 0,
            waiters: u32::from(match self.thread {
                Thread::AtGate | Thread::ForRoom => true,
                // The daemon need not know of short waits, as most of these are.
                Thread::Yields => now_ns.saturating_sub(self.spell.waits_since_ns) > HELD_LONG_NS,
                _ => false,
            }),
            waits_since_ns: self.spell.waits_since_ns,
            grace_since_ns: self.spell.grace_since_ns,
            grace_ns: self.spell.ends_ns(),
            now_ns,
        })
    }

    /// Learns from the last gap, and decides for how long the next one is kept.
    pub(super) fn begin_gap(&mut self, now_ns: u64, terms: Terms) {
        self.spell.hold_ns = 0;
        let gap = self.spell.gap.take();
        if terms.hold_ns > 0 {
            if let Some((gap_ns, ended_ns, kept)) = gap {
                self.gaps.learn(Cycle { gap_ns, own_ns: now_ns - ended_ns, kept });
            }
            self.spell.hold_ns = self.gaps.hold_ns(terms);
        }
    }

    /// Counts the expected time of a budgeted command. Returns how long commands are of late.
    pub(super) fn lengths(&mut self, estimate_ns: u64) -> Option<u32> {
        if estimate_ns <= SHORT_US * 1_000 {
            self.lengths.short_ns += estimate_ns;
        } else {
            self.lengths.long_ns += estimate_ns;
        }
        let all = self.lengths.short_ns + self.lengths.long_ns;
        if all < LENGTHS_NS {
            return None;
        }
        let is_short = self.lengths.long_ns <= all / LONG_PARTS;
        self.lengths = Lengths::default();
        Some(if is_short { length::SHORT } else { length::LONG })
    }

    /// Takes in that the device has reached a command.
    pub(super) fn reached(&mut self, seq: u64) {
        while let Some(fence) = self.flight.fences.front().filter(|fence| fence.seq <= seq) {
            self.flight.done = *fence;
            self.flight.fences.pop_front();
        }
        if self.flight.pending == 0 {
            self.flight.done = Fence { seq: self.flight.issued, issued_ns: self.flight.issued_ns };
            self.flight.fences.clear();
        }
    }
}
