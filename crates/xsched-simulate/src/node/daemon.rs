//! The daemon of a machine: the engine, and what its host does for it, in virtual time.

use std::collections::{BTreeMap, VecDeque};

use xsched_engine::{
    Arrival, Bounds, Ceilings, Effect, Engine, Given, Input, MemorySettings, MemoryTerms, Message, NewGroup, Rank,
    Settings, Terms,
};
use xsched_engine::{User, Wishes};
use xsched_policy::{Choice, LOOK_US, Level, Lineage};
use xsched_proto::class::Class;
use xsched_proto::hint::Hints;
use xsched_proto::trace::Burst;
use xsched_proto::wire::DaemonMsg;

use crate::journal::{Entry, Event, Gate, Words};
use crate::memory::{self, Segment};
use crate::scenario::{Daemon as Written, Detail, Program};

use super::device::POOL_TIMESLICE_US;

/// An effect that reaches a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Its context has another time slice, in µs.
    Timeslice(u64),
    /// The running command is interrupted, or goes on.
    Interrupt(bool),
    /// A program of the pool tells how it keeps up: its rank, the place of its page, and the page's number.
    Page { owner: usize, page: u8, epoch: u32 },
}

/// A daemon.
pub(super) struct Daemon {
    pub(super) engine: Engine<Segment>,
    /// Messages to programs, in order.
    pub(super) told: Vec<(usize, Told)>,
    looks: VecDeque<u64>,
    look_ns: Option<u64>,
    /// Time between two looks for programs that make no progress, in ns.
    looks_each_ns: u64,
    /// Bursts that were recorded, by rank, if they are.
    pub(super) recorded: Option<Vec<(usize, Burst)>>,
    /// Number of the next burst that is fetched.
    next_burst: u64,
    /// Inputs so far, if they are kept.
    pub(super) journal: Option<Vec<Entry>>,
    /// Words of the ranks that have come.
    segments: Vec<Segment>,
}

/// Process of the first rank.
const FIRST_PID: u32 = 1_000;
/// Connection of the command that records.
const RECORDER: u64 = u64::MAX;

fn settings(policy: Choice, written: &Written, yields: bool) -> Settings {
    Settings {
        policy,
        devices: BTreeMap::new(),
        class_hints: [Hints::default(); Class::ALL.len()],
        class_rules: Vec::new(),
        guard_us: Some(written.guard.0 / 1_000).filter(|us| *us > 0),
        evenness: 100,
        budget_us: (written.budget.0 / 1_000) as u32,
        pool_max_class: Class::Normal,
        pool_timeslice_us: POOL_TIMESLICE_US,
        pool_budget_us: 400,
        yields,
        has_details: false,
        memory: MemorySettings::default(),
    }
}

fn terms() -> Terms {
    let bounds = Bounds {
        connections: usize::MAX,
        groups: usize::MAX,
        device_groups: usize::MAX,
        jobs: usize::MAX,
        queues: usize::MAX,
        descriptors: usize::MAX,
        mapped_mib: usize::MAX,
        devices: usize::MAX,
        books: usize::MAX,
    };
    Terms { given: Given::default(), ceilings: Ceilings::NONE, bounds, memory: MemoryTerms::default() }
}

/// An input as the journal has it; none = it is not there, or part of another one.
fn event_of(input: &Input<Segment>) -> Option<Event> {
    Some(match input {
        Input::Left { program, .. } => Event::Left(rank_of(*program)),
        Input::Words(id) => Event::Words(rank_of(*id)),
        Input::Decide => Event::Decide,
        Input::PolicyTime => Event::Policy,
        Input::LookTime => Event::LookTime,
        Input::Look(id) => Event::Look(rank_of(*id)),
        Input::Beat => Event::Beat,
        _ => return None,
    })
}

/// The user of programs that name none.
const USER: u32 = 1_000;

/// Number of a hierarchy's node with this name.
fn number_of(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

impl Daemon {
    pub(super) fn new(policy: Choice, written: &Written, yields: bool, detail: Detail, seed: u64) -> Daemon {
        let looks_each_ns = match detail {
            Detail::Kernels => LOOK_US * 1_000,
            // A burst that has the device makes progress.
            Detail::Bursts => 1_000_000_000,
        };
        Daemon {
            engine: Engine::new(settings(policy, written, yields), memory::heartbeat(), seed, false),
            told: Vec::new(),
            looks: VecDeque::new(),
            look_ns: None,
            looks_each_ns,
            recorded: None,
            next_burst: 0,
            journal: None,
            segments: Vec::new(),
        }
    }

    /// Gives the engine an input, and carries out what follows.
    pub(super) fn input(&mut self, now_ns: u64, input: Input<Segment>) {
        self.handle(now_ns, input);
        self.carry_out();
        while let Some(id) = self.looks.pop_front() {
            self.handle(now_ns, Input::Look(id));
            self.carry_out();
        }
        while self.engine.has_memory_work() {
            self.handle(now_ns, Input::MemoryWork);
            self.carry_out();
        }
    }

    fn handle(&mut self, now_ns: u64, input: Input<Segment>) {
        let event = self.journal.is_some().then(|| event_of(&input)).flatten();
        self.enter(now_ns, event, |daemon| daemon.engine.handle(now_ns, input));
    }

    /// Does something, and enters it into the journal if that is kept.
    fn enter(&mut self, at_ns: u64, event: Option<Event>, does: impl FnOnce(&mut Daemon)) {
        let Some(event) = event else { return does(self) };
        let words = self.segments.iter().map(|segment| Words::of(segment, segment.launches())).collect();
        does(self);
        let gates = self.segments.iter().map(|segment| Gate::of(segment)).collect();
        self.journal.get_or_insert_default().push(Entry { at_ns, event, words, gates });
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.engine.next_effect() {
            match effect {
                Effect::LookAt(programs) => self.looks.extend(programs),
                Effect::LookAgain(id) => self.looks.push_front(id),
                Effect::Send(id, DaemonMsg::Timeslice { us, .. }) | Effect::Timeslice { program: id, us, .. } => {
                    self.told.push((rank_of(id), Told::Timeslice(us)));
                }
                Effect::Send(id, DaemonMsg::Interrupt { on, .. }) => {
                    self.told.push((rank_of(id), Told::Interrupt(on)));
                }
                Effect::Page { to, owner, page, epoch } => {
                    self.told.push((rank_of(to), Told::Page { owner: rank_of(owner), page, epoch }));
                }
                _ => (),
            }
        }
    }

    /// The next time at which the daemon has something to do by itself, in ns.
    pub(super) fn next_ns(&mut self, now_ns: u64) -> Option<u64> {
        let keep = |timer: &mut Option<u64>, wanted: bool, at_ns: u64| {
            *timer = wanted.then(|| timer.unwrap_or(at_ns));
        };
        keep(&mut self.look_ns, self.engine.arbiter().any_scrutinised(), now_ns + self.looks_each_ns);
        let policy_ns = self.engine.next_policy_us().map(|us| us.saturating_mul(1_000));
        // The heartbeat is for programs whose daemon may be dead: no simulated one looks at it.
        [policy_ns, self.look_ns].into_iter().flatten().min()
    }

    /// Does what is due.
    pub(super) fn turn(&mut self, now_ns: u64) {
        if self.look_ns.is_some_and(|at| at <= now_ns) {
            self.look_ns = None;
            self.input(now_ns, Input::LookTime);
        } else {
            self.input(now_ns, Input::PolicyTime);
        }
    }

    /// A program attaches, with its one group and its one queue.
    pub(super) fn attach(&mut self, now_ns: u64, rank: usize, program: &Newcomer<'_>, group: NewGroup) {
        let id = id_of(rank);
        let uid = program.kind.user.unwrap_or(USER);
        let level = |id| Level { id, weight: 100 };
        let pid = FIRST_PID + rank as u32;
        let arrival = Arrival {
            pid,
            user: User { uid, rank: Rank::Own, within: 0 },
            exe: format!("/usr/bin/{}", program.kind.name),
            name: program.kind.name.clone(),
            start: Some(u64::from(pid)),
            ancestors: vec![pid, 1],
            nice: 0,
            lineage: Lineage {
                user: level(uid.into()),
                cgroup: vec![level(uid.into())],
                namespace: program.kind.namespace.as_deref().map(|name| level(number_of(name))),
            },
            memory: program.segment.clone(),
            wishes: Wishes {
                priority: program.priority,
                hints: program.kind.hints().unwrap_or_default(),
                level: program.kind.level,
                job: program.job.clone(),
                ..Wishes::default()
            },
            terms: terms(),
        };
        self.segments.push(program.segment.clone());
        let came = Event::Came { priority: program.priority, device: group.device.clone() };
        let event = self.journal.is_some().then_some(came);
        self.enter(now_ns, event, |daemon| {
            daemon.input(now_ns, Input::Attached(id, Box::new(arrival)));
            daemon.input(now_ns, Input::Message(id, Message::GroupAdd(group)));
            daemon.input(now_ns, Input::Message(id, Message::QueueAdd { slot: 0, group: 0 }));
        });
        if self.recorded.is_some() {
            self.record(now_ns);
        }
    }

    /// Has all programs recorded.
    fn record(&mut self, now_ns: u64) {
        let user = User { uid: 0, rank: Rank::Root, within: 0 };
        self.input(now_ns, Input::Record { command: RECORDER, user, pids: Vec::new() });
    }

    /// Fetches the bursts since the last call.
    fn fetch_bursts(&mut self) {
        let Some(recorded) = &mut self.recorded else { return };
        let Some((next, _, bursts)) = self.engine.bursts(RECORDER, self.next_burst) else { return };
        self.next_burst = next;
        let rank_of = |burst: &Burst| burst.pid.saturating_sub(FIRST_PID) as usize;
        recorded.extend(bursts.into_iter().map(|burst| (rank_of(&burst), burst)));
    }

    /// A program has changed its words.
    pub(super) fn words(&mut self, now_ns: u64, rank: usize) {
        self.input(now_ns, Input::Words(id_of(rank)));
        self.input(now_ns, Input::Decide);
        self.fetch_bursts();
    }

    /// Times that the gate of a program has closed so far.
    pub(super) fn suspensions(&self, now_ns: u64, rank: usize) -> u64 {
        let status = |group| self.engine.arbiter().status(now_ns / 1_000, group);
        self.engine.group_at(id_of(rank), 0).and_then(status).map_or(0, |status| status.suspensions)
    }
}

/// A program that attaches.
pub(super) struct Newcomer<'a> {
    pub(super) kind: &'a Program,
    pub(super) priority: Option<i32>,
    pub(super) segment: &'a Segment,
    pub(super) job: Option<String>,
}

pub(super) fn id_of(rank: usize) -> u64 {
    rank as u64 + 1
}

fn rank_of(id: u64) -> usize {
    id.saturating_sub(1) as usize
}
