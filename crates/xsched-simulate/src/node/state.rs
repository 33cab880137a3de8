//! The state of a machine, and the little that all modules use of it.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use xsched_policy::Choice;

use crate::memory::Segment;
use crate::outcome::{Outcome, Span, Track};
use crate::placement::{Machine, Placed};
use crate::random::Random;
use crate::scenario::{Kernels, Program, Scenario};

use super::daemon::Daemon;
use super::device::{Device, Done};
use super::rank::{Rank, Tally, Thread};

/// Something that happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    /// A program begins.
    Begins(usize),
    /// A program ends.
    Ends(usize),
    /// A request of a program comes.
    Arrives(usize),
    /// A program's thread goes on.
    Steps(usize, u32),
    /// The agent of a program's library looks for completions.
    Looks(usize),
    /// A program's grace time ends.
    GraceEnds(usize),
    /// The daemon reads a program's words.
    Heard(usize),
    /// A program's context gets another time slice, in µs.
    Slice(usize, u64),
    /// The running command of a program is interrupted, or goes on.
    Interrupt(usize, bool),
    /// A program learns how another one of the pool tells that it keeps up, or that it is to tell so itself.
    Page { rank: usize, owner: usize, page: u8, epoch: u32 },
    /// A change of the scenario, by its place.
    Event(usize),
    /// A daemon is there again.
    Returns,
    /// A part of the time ends.
    IntervalEnds(usize),
}

/// A program.
pub(super) struct Member<'a> {
    pub(super) placed: &'a Placed,
    pub(super) kind: &'a Program,
    /// Its ranks; none before it begins.
    pub(super) ranks: Vec<usize>,
    /// Arrivals of requests that wait, and of the one that is served first.
    pub(super) requests: VecDeque<u64>,
    /// Ranks that have not ended the request that is served; 0 = none is served.
    pub(super) serving: usize,
    /// Requests that came so far.
    pub(super) came: u64,
    /// Requests that were begun so far.
    pub(super) served: u64,
    /// Priority by a change of the scenario.
    pub(super) priority: Option<i32>,
    /// Commands of the request that is served, where requests were recorded.
    pub(super) traced: Option<Kernels>,
    /// Random numbers of its arrivals, and those of its work: requests come at the same times under each policy.
    pub(super) arrivals: Random,
    pub(super) work: Random,
}

impl<'a> Member<'a> {
    /// Commands of the request that is served, of one kind.
    pub(super) fn kernels(&self, at: usize) -> Option<Cow<'a, Kernels>> {
        match &self.traced {
            None => self.kind.kernels.get(at).map(Cow::Borrowed),
            Some(one) => (at == 0).then(|| Cow::Owned(one.clone())),
        }
    }
}

/// Number of a program among the parts of a scenario that draw random numbers: two for each.
pub(super) fn part_of(placed: &Placed) -> u64 {
    (placed.kind as u64) << 33 | u64::from(placed.number) << 1
}

/// Happenings to come.
#[derive(Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    /// Number of the last entry: those of one time keep their order.
    entries: u64,
}

impl Agenda {
    fn set(&mut self, at_ns: u64, happening: Happening) {
        self.entries += 1;
        self.heap.push(Reverse((at_ns, self.entries, happening)));
    }

    /// Time of the next one, in ns.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Takes the next one.
    pub(super) fn pop(&mut self) -> Option<Happening> {
        self.heap.pop().map(|Reverse((_, _, happening))| happening)
    }
}

/// A machine.
pub(crate) struct Node<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) machine: &'a Machine,
    pub(super) policy: Option<Choice>,
    pub(super) seed: u64,
    pub(super) now_ns: u64,
    pub(super) agenda: Agenda,
    pub(super) devices: Vec<Device>,
    pub(super) daemon: Option<Daemon>,
    pub(super) members: Vec<Member<'a>>,
    pub(super) ranks: Vec<Rank>,
    /// Words of each rank.
    pub(super) segments: Vec<Segment>,
    pub(super) done: Vec<Done>,
    /// Ranks at closed gates.
    pub(super) waiting: Vec<usize>,
    pub(super) outcome: Outcome,
    pub(super) has_spans: bool,
}

/// Most spans of a trace.
const SPANS_MAX: usize = 2_000_000;

impl Node<'_> {
    pub(super) fn set(&mut self, at_ns: u64, happening: Happening) {
        self.agenda.set(at_ns, happening);
    }

    /// Plays a device up to now.
    pub(super) fn play_device(&mut self, device: usize) {
        self.devices[device].run_until(self.now_ns, &self.segments, &mut self.done);
    }

    pub(super) fn span(&mut self, track: Track, name: &'static str, from_ns: u64, to_ns: u64) {
        if self.has_spans && to_ns > from_ns && self.outcome.spans.len() < SPANS_MAX {
            self.outcome.spans.push(Span { track, name, from_ns, to_ns });
        }
    }

    /// Adds what a rank has had to the outcome.
    pub(super) fn account(&mut self, rank: usize) {
        let known = self.daemon.as_ref().map_or(0, |daemon| daemon.suspensions(self.now_ns, rank));
        let Rank { member, tally: Tally { device_ns, began_ns, suspensions }, .. } = self.ranks[rank];
        let outcome = &mut self.outcome.programs[self.members[member].placed.kind];
        outcome.device_ns += device_ns;
        outcome.present_ns += self.now_ns - began_ns;
        outcome.preemptions += suspensions + known;
    }

    /// The daemon reads the words in a moment.
    pub(super) fn tell(&mut self, rank: usize) {
        if self.daemon.is_some() {
            self.set(self.now_ns + self.scenario.daemon.latency.0, Happening::Heard(rank));
        }
    }

    /// The thread computes for some time, and goes on then.
    pub(super) fn compute(&mut self, rank: usize, ns: u64) {
        self.ranks[rank].thread = Thread::Computes;
        self.set_step(rank, self.now_ns + ns);
    }

    pub(super) fn set_step(&mut self, rank: usize, at_ns: u64) {
        self.ranks[rank].step = self.ranks[rank].step.wrapping_add(1);
        self.set(at_ns, Happening::Steps(rank, self.ranks[rank].step));
    }
}
