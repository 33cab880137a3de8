//! Inputs made of any bytes, in any order, and rules that hold after each of them.
//!
//! Programs, commands, slots and devices are few, so that inputs meet each other; many inputs name a program, a command or a group that is
//! not there. Values that the host checks before it gives an input (wishes, hints of commands, the configuration) are within their ranges;
//! all that a program says or stores itself is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;

use xsched_engine::{
    Bounds, Ceilings, Changes, Effect, Engine, Given, Input, Inventory, Message, NewGroup, Order, Rank, Seat, Sender,
    Settings, Side, Terms, User, What, Wishes,
};
use xsched_policy::registry::{self, POLICIES};
use xsched_policy::{Accepts, Answer, Choice, ClassRule, GroupId, Level, Lineage, PoolId};
use xsched_proto::device::DeviceState;
use xsched_proto::domains::DomainMode;
use xsched_proto::hint::{Hints, Laxity, Slo};
use xsched_proto::segment::{GROUPS, QUEUES, state};
use xsched_proto::wire::{DaemonMsg, Levels, Platform, Sharing, Target};

use super::memory::Segment;
use super::{OWN, ROOT, World, arrival, settings, terms};

/// Programs have the numbers 1 to this; the next one never attaches but by chance.
const PROGRAMS: u64 = 4;
/// Connection of the command that records.
const RECORDER: u64 = 400;
/// Commands have the numbers from this on.
const COMMANDS: u64 = 100;
/// Time after which a group that waits has its device once, where starvation is looked for, in µs.
const GUARD_US: u64 = 100_000;
/// Time for which starvation is looked for, in µs.
const WATCHED_US: u64 = 800_000;
/// Time beside the guard's and the turns of others within which a group has its device, in µs: half a look, a moment in which others drain,
/// and a quantum of a class that is not preemptible.
const SLACK_US: u64 = 10_000;

const USERS: [User; 6] = [
    ROOT,
    OWN,
    OWN,
    OWN,
    User { uid: 60_001, rank: Rank::Other, within: 0 },
    User { uid: 60_002, rank: Rank::Other, within: 7 },
];

/// Bytes that are read from the front; behind the end there are zeros.
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }

    fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn word(&mut self) -> u32 {
        u32::from(self.short()) | u32::from(self.short()) << 16
    }

    /// A number of any size: mostly small, sometimes at an end of its range.
    fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => u64::MAX >> 1,
            3 => u64::from(self.word()) << 32 | u64::from(self.word()),
            4 => u64::from(self.word()),
            _ => u64::from(self.byte()),
        }
    }

    fn is(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    fn some<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.is().then(|| value(self))
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        let at = self.below(all.len());
        all[at].clone()
    }

    /// A priority in range.
    fn priority(&mut self) -> i32 {
        match self.below(4) {
            0 => self.of(&[-256, -255, -128, 0, 128, 192, 254, 255]),
            _ => i32::from(self.byte()) * 2 - 255,
        }
    }

    /// Hints, each within its range.
    fn hints(&mut self) -> Hints {
        if self.below(4) > 0 {
            return Hints::default();
        }
        Hints {
            weight: self.some(|b| 1 + u32::from(b.short()) % 10_000),
            utilization: self.some(|b| u32::from(b.byte()) % 101),
            timeslice_us: self.some(|b| 100 + u64::from(b.short()) % 20_000),
            deadline_us: self.some(|b| u64::from(b.short())),
            k: self.some(|b| u32::from(b.byte()) % 4),
            laxity: self.some(|b| Laxity {
                us: b.short().into(),
                lax: b.some(|b| b.priority().max(-255)),
                critical: b.some(|b| b.priority().max(-255)),
            }),
            active: self.some(Bytes::is),
            slo: self.some(|b| match b.below(3) {
                0 => Slo::None,
                1 => Slo::P99(1 + u64::from(b.short())),
                _ => Slo::Slowdown(101 + u32::from(b.byte())),
            }),
        }
    }

    /// Hints of a program itself, which nobody has checked.
    fn wild_hints(&mut self) -> Hints {
        let hints = self.hints();
        match self.below(6) {
            0 => Hints { weight: Some(self.word()), ..hints },
            1 => Hints { timeslice_us: Some(self.number()), ..hints },
            2 => Hints { utilization: Some(self.word()), k: Some(self.word()), ..hints },
            _ => hints,
        }
    }

    fn program(&mut self) -> u64 {
        1 + u64::from(self.byte() % 32) * (PROGRAMS + 1) / 32
    }

    fn command(&mut self) -> u64 {
        COMMANDS + u64::from(self.byte() % 4)
    }

    /// The slot of a group: mostly one of the first.
    fn slot(&mut self) -> u16 {
        if self.below(64) == 0 { self.of(&[GROUPS as u16 - 1, GROUPS as u16, u16::MAX]) } else { self.below(3) as u16 }
    }

    fn queue_slot(&mut self) -> u16 {
        if self.below(64) == 0 { self.of(&[QUEUES as u16, u16::MAX]) } else { self.below(5) as u16 }
    }

    fn device(&mut self) -> String {
        match self.below(64) {
            0 => String::new(),
            1 => "x".repeat(257),
            2 => "a\nb".into(),
            3..=40 => "d0".into(),
            n => format!("d{}", n % 3),
        }
    }

    fn levels(&mut self) -> Levels {
        let few = [Levels::NONE, Levels::ONE, Levels::ONE.with(Levels::TWO), Levels::THREE];
        if self.is() { Levels::ALL } else { self.of(&few) }
    }

    fn choice(&mut self, listed: bool) -> Choice {
        let listed_ones: Vec<_> = registry::listed().collect();
        let entry = if listed { self.of(&listed_ones) } else { self.of(POLICIES) };
        if self.is() {
            return Choice::named(entry.name).expect("a policy");
        }
        let value = |accepts: &Accepts, random: u64| match accepts {
            Accepts::Number { least, most, .. } => (least + random % (most - least + 1)).to_string(),
            Accepts::Word(words) => words[random as usize % words.len()].to_owned(),
        };
        let params: Vec<(&str, String)> =
            entry.params.iter().map(|param| (param.name, value(&param.accepts, self.short().into()))).collect();
        Choice::with(entry.name, params.iter().map(|(name, value)| (*name, &**value))).expect("values in range")
    }

    fn settings(&mut self) -> Settings {
        let ranges = [(-255, -1), (0, 127), (128, 191), (192, 254), (255, 255)];
        let class_rules = if self.below(3) == 0 {
            let rule = |(lowest, highest)| {
                self.is().then(|| ClassRule {
                    lowest,
                    highest,
                    quantum_us: 1_000 + u64::from(self.short()) % 20_000,
                    preemptible: self.is(),
                    guarantee_percent: u32::from(self.byte()) % 19,
                })
            };
            ranges.into_iter().filter_map(rule).collect()
        } else {
            Vec::new()
        };
        Settings {
            policy: self.choice(false),
            class_hints: [(); 5].map(|()| Hints { weight: self.some(|b| 1 + u32::from(b.byte())), ..Hints::default() }),
            class_rules,
            guard_us: self.some(|b| 1_000 + u64::from(b.short()) * 16),
            evenness: u32::from(self.byte()) % 101,
            budget_us: self.of(&[0, 1, 500, 100_000]),
            pool_timeslice_us: self.of(&[100, 130, 2_000]),
            yields: self.of(&[false, true]),
            has_details: self.is(),
            memory: Default::default(),
            ..settings("hpf")
        }
    }

    fn terms(&mut self, user: User) -> Terms {
        let given = if self.below(4) == 0 {
            Given {
                priority: self.some(Bytes::priority),
                ceiling: self.some(Bytes::priority),
                hints: self.hints(),
                level: self.some(|b| 1 + b.byte() % 3),
                threshold: self.some(Bytes::word),
                batch: self.some(Bytes::word),
                system_ceiling: self.some(Bytes::priority),
                domains: self.some(|b| b.of(&[DomainMode::Off, DomainMode::Ahead, DomainMode::Exempt])),
            }
        } else {
            Given::default()
        };
        if user.is_own() {
            return Terms { given, ..terms() };
        }
        let ceilings = Ceilings { priority: 191, weight: 1_000, timeslice_us: 100_000 };
        // Few, so that they are met.
        let bounds = Bounds { groups: 4, device_groups: 2, jobs: 1, queues: 2, devices: 2, books: 4, ..terms().bounds };
        Terms { given, ceilings, bounds, memory: Default::default() }
    }
}

/// A run of an engine on such bytes.
pub struct Script<'a> {
    bytes: Bytes<'a>,
    pub world: World,
    segments: BTreeMap<u64, Segment>,
    /// Commands that were begun and not ended.
    commands: BTreeSet<u64>,
    /// Groups that their programs were told to interrupt, by program and slot.
    interrupted: BTreeSet<(u64, u16)>,
    /// Number of inputs that were given.
    pub inputs: usize,
    /// The most that was kept at a time, by kind.
    pub most: Inventory,
    /// Number of groups and queues that were refused.
    pub refused: usize,
    /// Number of times that a program was told to interrupt a group.
    pub interrupts: usize,
    /// Number of groups that were watched for starvation.
    pub watched: usize,
}

/// Plays bytes to their end, has all programs leave, and checks that nothing is left.
pub fn play(data: &[u8]) -> Script<'_> {
    let mut script = Script::begin(data);
    script.steps();
    script.end();
    script
}

/// Plays bytes to their end; then all programs are honest and want their devices for good under a policy that users may choose, and none
/// of their groups starves.
pub fn play_and_watch(data: &[u8]) -> Script<'_> {
    let mut script = Script::begin(data);
    let choice = script.bytes.choice(true);
    script.steps();
    script.watch(choice);
    script.end();
    script
}

impl<'a> Script<'a> {
    fn begin(data: &'a [u8]) -> Script<'a> {
        let mut bytes = Bytes(data);
        let (settings, records) = (bytes.settings(), bytes.is());
        Script {
            bytes,
            world: World::recording(settings, records),
            segments: BTreeMap::new(),
            commands: BTreeSet::new(),
            interrupted: BTreeSet::new(),
            inputs: 0,
            most: Inventory::default(),
            refused: 0,
            interrupts: 0,
            watched: 0,
        }
    }

    fn steps(&mut self) {
        while !self.bytes.0.is_empty() {
            self.step();
        }
    }

    fn engine(&self) -> &Engine<Segment> {
        &self.world.engine
    }

    fn step(&mut self) {
        let b = &mut self.bytes;
        let input = match b.below(64) {
            0..=4 => self.attached(),
            5 => Input::Left { program: b.program(), by_itself: b.is() },
            6..=13 => Input::Message(b.program(), Message::GroupAdd(new_group(b))),
            14..=21 => return self.message(),
            22..=37 => return self.change_state(),
            38..=40 => return self.scribble(),
            41 | 42 => Input::Decide,
            43..=45 => Input::Look(b.program()),
            46 => Input::LookTime,
            47 => match b.below(8) {
                6 => Input::Record { command: RECORDER, user: b.of(&USERS), pids: vec![100 + u32::from(b.byte() % 8)] },
                7 => Input::RecordEnds(RECORDER),
                0 => Input::Beat,
                1 => Input::Device(b.device().into(), b.some(|b| Box::new(device_state(b)))),
                2 => Input::ActiveWindow { user: b.of(&USERS), pid: b.some(|b| b.byte().into()) },
                3 => Input::Words(b.program()),
                4 => {
                    let mut process = || (u32::from(b.byte()), b.some(|b| u64::from(b.short()) << 20));
                    let processes = (0..4).map(|_| process()).collect();
                    Input::Memory(b.device().into(), b.short().into(), processes)
                }
                _ => Input::Nice(vec![(b.program(), i32::from(b.byte() % 40) - 20)]),
            },
            48 => Input::Policy(b.some(Bytes::device), b.choice(false)),
            49 => match b.below(3) {
                0 => {
                    let run = (0..b.below(4)).map(|_| GroupId(b.byte().into())).collect();
                    let again_in_us = b.some(|b| 100 + u64::from(b.short()));
                    Input::Answer(b.device(), Answer { number: b.byte().into(), run, again_in_us })
                }
                _ => {
                    let settings = Box::new(b.settings());
                    let policies = (0..b.below(2)).map(|_| (b.some(Bytes::device), b.choice(false))).collect();
                    let user = b.of(&USERS);
                    let terms = (0..b.below(3)).map(|_| (b.program(), b.terms(user))).collect();
                    Input::Configured { settings, policies, terms }
                }
            },
            50..=52 => Input::Change(Box::new(order(b))),
            53 => match b.is() {
                true => Input::Start(b.command(), b.some(|b| b.byte().into())),
                false => Input::Continue(b.command()),
            },
            54 | 55 => return self.carry_on(),
            56 => match b.below(4) {
                0 => Input::TimesliceUnsent { program: b.program(), before_us: b.some(Bytes::number) },
                1 => Input::PageFailed(b.program()),
                2 => Input::BookClosed(b.program(), b.device().into()),
                _ => Input::Restored { program: b.program(), changes: changes(b), held: b.is() },
            },
            _ => return self.pass(),
        };
        self.give(input);
    }

    fn attached(&mut self) -> Input<Segment> {
        let b = &mut self.bytes;
        let (id, user, memory) = (b.program(), b.of(&USERS), Segment::default());
        memory.piece.store(b.of(&[2, 5, usize::MAX]), Relaxed);
        let level = |n: u8| Level { id: 1 + u64::from(n % 3), weight: 100 + u32::from(n) };
        let mut arrival = arrival(100 + b.byte() as u32 % 8, memory.clone());
        arrival.user = user;
        arrival.ancestors = vec![arrival.pid, 90 + u32::from(b.byte() % 8), 1];
        arrival.start = b.some(|b| b.byte().into());
        arrival.nice = i32::from(b.byte() % 40) - 20;
        arrival.lineage =
            Lineage { user: level(b.byte()), cgroup: vec![level(b.byte())], namespace: b.some(|b| level(b.byte())) };
        arrival.terms = b.terms(user);
        let asked = b.hints();
        arrival.wishes = Wishes {
            priority: b.some(Bytes::priority),
            hints: arrival.terms.ceilings.cut(asked),
            level: b.some(|b| 1 + b.byte() % 3),
            threshold: b.some(Bytes::word),
            batch: b.some(Bytes::word),
            job: (b.below(4) == 0).then(|| format!("j{}", b.byte() % 2)),
            domains: b.some(|b| b.of(&[DomainMode::Off, DomainMode::Report, DomainMode::Exempt])),
            memory_limit: None,
            memory_reserve: None,
            memory_swap: false,
            memory_idle_s: None,
        };
        // A second one with this number is ignored, with its memory.
        self.segments.entry(id).or_insert(memory);
        Input::Attached(id, Box::new(arrival))
    }

    /// Program and slot of a group: mostly of one that is there.
    fn place(&mut self) -> (u64, u16) {
        let at = self.bytes.byte();
        let mut all: Vec<(u64, u16)> =
            self.engine().groups().values().map(|group| (group.program.0, group.slot)).collect();
        all.sort_unstable();
        if all.is_empty() || at >= 240 {
            return (self.bytes.program(), self.bytes.slot());
        }
        all[usize::from(at) % all.len()]
    }

    /// A message of a program that is none of the first ones.
    fn message(&mut self) {
        let (id, slot) = self.place();
        let b = &mut self.bytes;
        let message = match b.below(16) {
            0..=2 => Message::Levels { slot, levels: b.levels() },
            3 | 4 => Message::GroupHint {
                slot,
                priority: b.some(|b| if b.below(8) == 0 { b.word() as i32 } else { b.priority().max(-255) }),
                hints: b.wild_hints(),
            },
            5 => Message::ProgramHint(b.wild_hints()),
            6 | 7 => Message::GroupRemove(slot),
            8..=13 => Message::QueueAdd { slot: b.queue_slot(), group: slot },
            _ => Message::QueueRemove(b.queue_slot()),
        };
        self.give(Input::Message(id, message));
    }

    /// A program stores a state, and perhaps wakes the host.
    fn change_state(&mut self) {
        let (id, slot) = self.place();
        let b = &mut self.bytes;
        let usual = [state::READY, state::READY, state::IDLE, state::DRAINED];
        let word = if b.below(64) == 0 { b.word() } else { b.of(&usual) };
        let (wakes, decides) = (b.below(8) > 0, b.below(4) > 0);
        if let Some(segment) = self.segments.get(&id).filter(|_| usize::from(slot) < GROUPS) {
            let words = segment.slot(slot);
            if words.state.swap(word, Relaxed) != state::READY && word == state::READY {
                words.ready_at_ns.store(self.world.now_ns, Relaxed);
                words.gate.announce();
            }
            if word == state::IDLE {
                words.bursts.fetch_add(1, Relaxed);
            }
            words.gate.go_on();
        }
        if wakes {
            self.give(Input::Words(id));
        }
        if decides {
            self.give(Input::Decide);
        }
    }

    /// A program stores what it likes in the words that are its own.
    fn scribble(&mut self) {
        let (id, slot) = self.place();
        let b = &mut self.bytes;
        let Some(segment) = self.segments.get(&id).filter(|_| usize::from(slot) < GROUPS) else { return };
        let words = segment.slot(slot);
        let longs = [
            &words.completed,
            &words.ready_at_ns,
            &words.longest_us,
            &words.bursts,
            &words.burst_us,
            &words.launches_retired,
            &words.unheard_ready_ns,
            &words.heard_ready_ns,
            &words.waiting_since_ns,
            &words.heard_late_us,
        ];
        let shorts = [
            &words.waiting,
            &words.lengths,
            &words.burst_launches,
            &words.untold_gates,
            &words.held_inside,
            &words.level,
            &words.grants,
            &words.stalls,
            &words.system,
        ];
        let queue = b.below(super::memory::QUEUES);
        let queue = &segment.queues[queue];
        match b.below(6) {
            0 => words.inherited_priority.store(b.word() as i32, Relaxed),
            1 => b.of(&shorts).store(b.number() as u32, Relaxed),
            2 => queue.group.store(b.byte().into(), Relaxed),
            3 => queue.shared.launches.store(b.number(), Relaxed),
            4 => {
                queue.fence.store(b.byte().into(), Relaxed);
                queue.completed_word.store(b.byte().into(), Relaxed);
            }
            _ => b.of(&longs).store(b.number(), Relaxed),
        }
        match b.below(6) {
            0 => words.gate.detach(),
            1 => words.gate.attach(),
            2 => _ = words.gate.call_idle(),
            3 => words.gate.let_hold(),
            _ => (),
        }
    }

    /// Does some pieces of a command.
    fn carry_on(&mut self) {
        let (command, pieces) = (self.bytes.command(), self.bytes.below(12));
        for _ in 0..pieces {
            self.give(Input::Continue(command));
        }
    }

    fn pass(&mut self) {
        let b = &mut self.bytes;
        let units_ns = [1_000, 100_000, 1_000_000, 20_000_000, 1_000_000_000, 3_600_000_000_000];
        let ns = b.of(&units_ns) * u64::from(b.byte());
        self.world.now_ns += ns;
        if self.bytes.is() {
            self.give(Input::PolicyTime);
        }
    }

    /// Gives the engine an input and checks what follows.
    pub fn give(&mut self, input: Input<Segment>) {
        self.inputs += 1;
        let before = self.world.engine.inventory();
        let known: BTreeSet<u64> = self.engine().programs().keys().copied().collect();
        let sender = match &input {
            Input::Message(id, _) | Input::Words(id) => Some(*id),
            _ => None,
        };
        let added = match &input {
            Input::Message(id, Message::GroupAdd(group)) => Some((*id, group.slot)),
            _ => None,
        };
        let is_message = matches!(input, Input::Message(..));
        if let Input::Change(order) = &input {
            self.commands.insert(order.from.command);
        }
        let gate_of = |script: &Script, (id, slot): (u64, u16)| {
            let segment = script.segments.get(&id).filter(|_| usize::from(slot) < GROUPS)?;
            Some(segment.slot(slot).gate.load())
        };
        let gate = added.and_then(|place| gate_of(self, place));
        self.world.engine.handle(self.world.now_ns, input);
        let mut effects = Vec::new();
        while let Some(effect) = self.world.engine.next_effect() {
            effects.push(effect);
        }
        let refuses = |effect: &Effect| matches!(effect, Effect::Refuse(..) | Effect::Drop(..));
        let accepts = |effect: &Effect| matches!(effect, Effect::Send(_, DaemonMsg::GroupAdded { .. }));
        if is_message && effects.iter().any(refuses) && !effects.iter().any(accepts) {
            self.refused += 1;
            assert_eq!(self.engine().inventory(), before, "a refusal leaves something behind: {effects:?}");
            assert_eq!(added.and_then(|place| gate_of(self, place)), gate, "a refused group has another gate");
        }
        for effect in &effects {
            self.check_effect(effect, &known, sender);
        }
        let engine = &self.world.engine;
        self.segments.retain(|id, _| engine.programs().contains_key(id));
        self.check_state();
    }

    fn check_effect(&mut self, effect: &Effect, before: &BTreeSet<u64>, sender: Option<u64>) {
        let is_program = |id: &u64| before.contains(id) || self.world.engine.programs().contains_key(id);
        match effect {
            Effect::Send(id, message) => {
                assert!(is_program(id) || self.commands.contains(id), "{effect:?}");
                if let DaemonMsg::Interrupt { slot, on } = message {
                    assert!(!on || self.world.engine.group_at(*id, *slot).is_some(), "{effect:?}");
                    self.interrupts += usize::from(*on);
                    let place = (*id, *slot);
                    if *on {
                        self.interrupted.insert(place)
                    } else {
                        self.interrupted.remove(&place)
                    };
                }
            }
            Effect::Finish(id, _) => assert!(self.commands.remove(id), "{effect:?}"),
            Effect::Refuse(id, _) | Effect::Drop(id, _) => assert!(is_program(id) || sender == Some(*id), "{effect:?}"),
            Effect::Timeslice { program, .. } => assert!(is_program(program), "{effect:?}"),
            Effect::Page { to, owner, .. } => assert!(is_program(to) && is_program(owner), "{effect:?}"),
            Effect::PageGone(id) | Effect::LookAgain(id) => assert!(is_program(id), "{effect:?}"),
            Effect::LookAt(programs) => assert!(programs.iter().all(is_program), "{effect:?}"),
            Effect::Log(..)
            | Effect::Measure(_)
            | Effect::Burst(_)
            | Effect::Remember
            | Effect::DevicesInUse
            | Effect::BlankBook(..) => (),
        }
    }

    /// Rules that hold after each input.
    fn check_state(&mut self) {
        let engine = &self.world.engine;
        let kept = engine.inventory();
        assert_eq!(kept.programs, engine.programs().len());
        let groups: Vec<GroupId> = engine.programs().values().flat_map(|program| program.groups.clone()).collect();
        let once: BTreeSet<GroupId> = groups.iter().copied().collect();
        assert_eq!((once.len(), groups.len()), (kept.groups, kept.groups), "each group is of one program");
        assert_eq!(engine.arbiter().groups().count(), kept.groups, "the arbiter has the same groups");
        let queues: usize = engine.programs().values().map(|program| program.queues.len()).sum();
        assert_eq!(queues, kept.queues, "each queue is of one program");
        assert!(kept.sums <= kept.programs && kept.pages <= kept.programs);
        assert_eq!(kept.commands, self.commands.len(), "each command that goes on is to be answered");
        self.interrupted.retain(|(id, _)| engine.programs().contains_key(id));
        for (id, slot) in &self.interrupted {
            // Nothing of the program runs then, whatever group it is of.
            let groups = engine.programs()[id].groups.len();
            assert!(
                groups == 1 && engine.group_at(*id, *slot).is_some(),
                "{id} is interrupted and has {groups} groups"
            );
        }
        for (id, group) in engine.groups() {
            let program = &engine.programs()[&group.program.0];
            let is_granted = engine.gatekeeper().is_granted(*id);
            assert_eq!(group.words.gate.load().is_granted(), is_granted, "the gate of {id:?} is as it was decided");
            assert!(!(is_granted && program.held), "{id:?} has its device though its program is suspended");
            let is_interrupted = self.interrupted.contains(&(group.program.0, group.slot));
            assert!(!(is_granted && is_interrupted), "{id:?} has its device and was not told to go on");
        }
        let most = &mut self.most;
        most.programs = most.programs.max(kept.programs);
        most.groups = most.groups.max(kept.groups);
        most.queues = most.queues.max(kept.queues);
        most.books = most.books.max(kept.books);
        most.pages = most.pages.max(kept.pages);
        most.commands = most.commands.max(kept.commands);
        most.sums = most.sums.max(kept.sums);
    }

    /// All leaves, and nothing is left.
    fn end(&mut self) {
        self.end_commands();
        self.give(Input::RecordEnds(RECORDER));
        for id in 1..=PROGRAMS + 1 {
            self.give(Input::Left { program: id, by_itself: id % 2 == 0 });
            self.give(Input::Left { program: id, by_itself: true });
        }
        for _ in 0..2 {
            self.give(Input::LookTime);
        }
        let now_ns = self.world.now_ns;
        self.world.engine.gatekeeper_mut().ledger_mut().finish(now_ns);
        let books: Vec<_> = self.engine().books().keys().cloned().collect();
        for (program, device) in books {
            let account = self.engine().gatekeeper().ledger().account(&device, program).map(|account| account.closed);
            assert_eq!(account, Some(true), "a book of a program that is gone has its account");
            self.give(Input::BookClosed(program.0, device.clone()));
            self.give(Input::BookClosed(program.0, device));
        }
        assert_eq!(self.engine().inventory(), Inventory::default());
        assert_eq!(self.engine().gatekeeper().ledger().devices().count(), 0, "no device has books");
        let page = self.engine().heartbeat();
        assert!(page.best_effort.iter().all(|best_effort| best_effort.load(Relaxed) == 0));
        self.come_again();
    }

    /// Nothing is held against programs that come with numbers that were in use before.
    fn come_again(&mut self) {
        let entry = self.engine().arbiter().policy().entry;
        for id in (1..=PROGRAMS).filter(|_| entry.conserves_work) {
            let memory = Segment::default();
            self.segments.insert(id, memory.clone());
            self.give(Input::Attached(id, Box::new(arrival(100, memory.clone()))));
            self.give(Input::Message(id, Message::GroupAdd(super::new_group(0, "alone"))));
            memory.slot(0).state.store(state::READY, Relaxed);
            self.give(Input::Words(id));
            self.give(Input::Decide);
            assert!(memory.slot(0).gate.load().is_granted(), "program {id} is alone on its device");
            self.give(Input::Left { program: id, by_itself: true });
        }
    }

    fn end_commands(&mut self) {
        let mut pieces = 0;
        while let Some(command) = self.commands.first().copied() {
            self.give(Input::Continue(command));
            pieces += 1;
            assert!(pieces < 10_000, "command {command} has no end");
        }
    }

    /// All programs want their devices, and are honest from now on; none of their groups starves.
    fn watch(&mut self, choice: Choice) {
        self.end_commands();
        let world = &mut self.world;
        let _ = world.order_of(ROOT, vec![Target::All], What::Hold(false));
        let settings = Settings { guard_us: Some(GUARD_US), ..world.engine.settings().clone() };
        world.input(Input::Configured { settings: settings.into(), policies: vec![(None, choice)], terms: Vec::new() });
        for id in world.engine.programs().keys().copied().collect::<Vec<_>>() {
            for (_, group) in world.engine.groups_of(&world.engine.programs()[&id]) {
                let words = &group.words;
                words.inherited_priority.store(i32::MIN, Relaxed);
                words.longest_us.store(100, Relaxed);
                words.state.store(state::READY, Relaxed);
                words.ready_at_ns.store(world.now_ns, Relaxed);
                words.gate.go_on();
            }
            world.input(Input::Words(id));
        }
        world.input(Input::Decide);
        let groups = watched(&world.engine);
        self.watched += groups.len();
        // By group: the last time at which it had its device, and true if it had it when the world was looked at last.
        let at_first = |id: &GroupId| (*id, (world.now_ns, world.status(*id).granted));
        let mut had: BTreeMap<GroupId, (u64, bool)> = groups.keys().map(at_first).collect();
        world.pass(WATCHED_US, |world| {
            be_honest(world);
            for (id, most_us) in &groups {
                let status = world.status(*id);
                let (since_ns, had_it) = had.get_mut(id).expect("a watched group");
                if std::mem::replace(had_it, status.granted) || status.granted {
                    *since_ns = world.now_ns;
                }
                let us = (world.now_ns - *since_ns) / 1_000;
                assert!(us <= *most_us, "{id:?} has not had its device for {us} us, {most_us} at most: {status:?}");
            }
        });
        world.effects.clear();
        self.interrupted.clear();
    }
}

/// Groups that must not starve, and the time in which each of them has its device, in µs. Not those of suspended programs, of jobs on several
/// devices, and behind a group of the system domain.
fn watched(engine: &Engine<Segment>) -> BTreeMap<GroupId, u64> {
    let arbiter = engine.arbiter();
    let turns = |device: &str| -> u64 {
        arbiter.groups().filter(|(name, _)| *name == device).map(|(_, group)| group.hints.turn_us()).sum()
    };
    let spans = |job: &str, device: &str| {
        engine.groups().values().any(|other| {
            let program = &engine.programs()[&other.program.0];
            *other.device != *device && program.job.as_deref() == Some(job)
        })
    };
    let may_wait = |id: GroupId| {
        let group = &engine.groups()[&id];
        let program = &engine.programs()[&group.program.0];
        let is_behind = engine.groups_of(program).any(|(_, group)| group.system);
        let is_held = arbiter.status(0, id).is_none_or(|status| status.held || !status.ready);
        is_behind || is_held || program.job.as_deref().is_some_and(|job| spans(job, &group.device))
    };
    let groups = engine.groups().iter().filter(|(id, _)| !may_wait(**id));
    groups.map(|(id, group)| (*id, GUARD_US + turns(&group.device) + SLACK_US)).collect()
}

/// Programs follow their gates: they complete something while these are open, and say that they have drained once they are closed.
fn be_honest(world: &mut World) {
    for _ in 0..20 {
        let mut changed = BTreeSet::new();
        for group in world.engine.groups().values() {
            let (words, is_open) = (&group.words, group.words.gate.load().is_granted());
            if is_open {
                words.completed.fetch_add(1, Relaxed);
            }
            let stalled = words.gate.go_on();
            let word = if is_open { state::READY } else { state::DRAINED };
            if words.state.swap(word, Relaxed) != word || stalled {
                changed.insert(group.program.0);
            }
        }
        if changed.is_empty() {
            return;
        }
        changed.into_iter().for_each(|id| world.input(Input::Words(id)));
        world.input(Input::Decide);
    }
}

fn new_group(b: &mut Bytes<'_>) -> NewGroup {
    let sharing = match b.below(6) {
        0 => Sharing::Pool,
        1 | 2 => Sharing::Spatial(u64::from(b.byte() % 2)),
        _ => Sharing::Time,
    };
    NewGroup {
        slot: b.slot(),
        device: b.device(),
        platform: b.of(&Platform::ALL),
        steps: if b.below(8) == 0 { b.word() as i32 } else { i32::from(b.byte()) - 128 },
        fixed: if b.below(8) == 0 { b.some(|b| b.word() as i32) } else { b.some(|b| b.priority().max(-255)) },
        system: b.below(8) == 0,
        levels: b.levels(),
        sharing,
        pool: (sharing == Sharing::Pool).then(|| {
            let side = if b.byte().is_multiple_of(2) { Side::Inner } else { Side::Outer };
            Seat { server: PoolId(b.byte().into()), side }
        }),
        state: b.some(|b| Box::new(device_state(b))),
    }
}

fn device_state(b: &mut Bytes<'_>) -> DeviceState {
    DeviceState {
        age_ms: b.number(),
        memory_used_bytes: b.some(Bytes::number),
        memory_total_bytes: b.some(Bytes::number),
        active_percent: b.some(Bytes::word),
        temperature_c: b.some(|b| b.byte().into()),
        ..DeviceState::default()
    }
}

fn changes(b: &mut Bytes<'_>) -> Changes {
    Changes {
        priority: b.some(|b| b.priority().max(-255)),
        by_root: b.is(),
        level: b.some(|b| 1 + b.byte() % 3),
        threshold: b.some(Bytes::word),
        batch: b.some(Bytes::word),
        hints: b.hints(),
    }
}

fn order(b: &mut Bytes<'_>) -> Order {
    let user = b.of(&USERS);
    let target = |b: &mut Bytes<'_>| match b.below(7) {
        0 => Target::Pid(100 + u32::from(b.byte() % 8)),
        1 => Target::Tree(90 + u32::from(b.byte() % 20)),
        2 => Target::Job(format!("j{}", b.byte() % 3)),
        3 => Target::User(b.of(&USERS).uid),
        4 => Target::Queue(b.byte().into()),
        _ => Target::All,
    };
    let targets = (0..b.below(4)).map(|_| target(b)).collect();
    let what = if b.is() { What::Hold(b.is()) } else { What::Hint(Changes { by_root: user.is_root(), ..changes(b) }) };
    let ceilings = if user.is_own() { Ceilings::NONE } else { Ceilings { priority: 191, ..Ceilings::NONE } };
    let ancestors = vec![100 + u32::from(b.byte() % 8)];
    Order { from: Sender { command: b.command(), user, pid: 500, ancestors, ceilings }, targets, what }
}
