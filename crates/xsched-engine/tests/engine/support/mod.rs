//! A host of the engine without sockets, threads and clocks: memory in the process, programs and commands that a test moves, and virtual
//! time.
#![allow(dead_code, unreachable_pub)]

pub mod memory;
pub mod script;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use xsched_engine::{
    Arrival, Bounds, Ceilings, Changes, Effect, Engine, Error, Given, Input, Message, NewGroup, Order, Rank, Sender,
    Settings, Terms, User, What, Wishes,
};
use xsched_policy::{Choice, GUARD_US, GroupId, LOOK_US, Level, Lineage};
use xsched_proto::class::Class;
use xsched_proto::gate::Gate;
use xsched_proto::hint::Hints;
use xsched_proto::segment::{GroupSlot, state};
use xsched_proto::wire::{Changed, DaemonMsg, Levels, Platform, Sharing, Target};

use self::memory::Segment;

/// Time between two beats of a host while some gate is closed, in ns.
const BEAT_NS: u64 = 50_000_000;
/// Timers of a policy within one call of [`World::pass_us`], at most: more would be a timer that comes without end.
const TIMERS_MAX: usize = 1_000_000;

/// The user as whom the host runs.
pub const OWN: User = User { uid: 1_000, rank: Rank::Own, within: 0 };
/// Root of the machine.
pub const ROOT: User = User { uid: 0, rank: Rank::Root, within: 0 };

/// The configuration unless a test changes it: that of a daemon without a file.
pub fn settings(policy: &str) -> Settings {
    Settings {
        policy: Choice::named(policy).expect("a policy"),
        devices: BTreeMap::new(),
        class_hints: [Hints::default(); Class::ALL.len()],
        class_rules: Vec::new(),
        guard_us: Some(GUARD_US),
        evenness: 100,
        budget_us: xsched_gatekeeper::BUDGET_DEFAULT_US,
        pool_max_class: Class::Normal,
        pool_timeslice_us: 130,
        pool_budget_us: 400,
        yields: false,
        has_details: false,
        memory: Default::default(),
    }
}

/// The terms of the daemon's own user without rules.
pub fn terms() -> Terms {
    let bounds = Bounds {
        connections: usize::MAX,
        groups: 4_096,
        device_groups: 1_024,
        jobs: 128,
        queues: 1_048_576,
        descriptors: usize::MAX,
        mapped_mib: usize::MAX,
        devices: 1_024,
        books: 65_536,
    };
    Terms { given: Given::default(), ceilings: Ceilings::NONE, bounds, memory: Default::default() }
}

/// A group of the simulated device at level 1.
pub fn new_group(slot: u16, device: &str) -> NewGroup {
    NewGroup {
        slot,
        device: device.into(),
        platform: Platform::Sim,
        steps: 0,
        fixed: None,
        system: false,
        levels: Levels::ONE,
        sharing: Sharing::Time,
        pool: None,
        state: None,
    }
}

/// The change of one hint.
pub fn hint(changes: Changes) -> What {
    What::Hint(changes)
}

/// An attached program.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its connection.
    pub id: u64,
    /// Its process.
    pub pid: u32,
    /// Its memory.
    pub segment: Segment,
}

impl Client {
    /// The words of one of its groups.
    pub fn words(&self, slot: u16) -> &GroupSlot {
        self.segment.slot(slot)
    }

    /// The gate of one of its groups.
    pub fn gate(&self, slot: u16) -> Gate {
        self.words(slot).gate.load()
    }

    /// Returns true if one of its groups is granted its device.
    pub fn is_open(&self, slot: u16) -> bool {
        self.gate(slot).is_granted()
    }
}

/// Pieces of work on memory of one input; more are taken for a loop.
const PIECES_MAX: usize = 100_000;

/// An engine with its host, at a time.
pub struct World {
    pub engine: Engine<Segment>,
    pub now_ns: u64,
    /// Effects that no test has taken yet, in order.
    pub effects: Vec<Effect>,
    /// Programs that leave their messages unread.
    pub deaf: BTreeSet<u64>,
    /// Pieces of work on memory that the last input has led to.
    pub pieces: usize,
    looks: VecDeque<u64>,
    look_ns: Option<u64>,
    beat_ns: Option<u64>,
    last_id: u64,
}

impl World {
    /// A world with the usual configuration.
    pub fn new() -> World {
        World::with(settings("hpf"))
    }

    /// A world in which another policy decides.
    pub fn of(policy: &str) -> World {
        World::with(settings(policy))
    }

    /// A world with a configuration.
    pub fn with(settings: Settings) -> World {
        World::recording(settings, false)
    }

    /// A world with a configuration, in which bursts may be recorded.
    pub fn recording(settings: Settings, bursts: bool) -> World {
        let now_ns = 1_000_000_000;
        let engine = Engine::new(settings, memory::heartbeat(), 1, bursts);
        World {
            engine,
            now_ns,
            effects: Vec::new(),
            deaf: BTreeSet::new(),
            pieces: 0,
            looks: VecDeque::new(),
            look_ns: None,
            beat_ns: None,
            last_id: 0,
        }
    }

    /// Gives the engine an input now, and carries out what follows.
    pub fn input(&mut self, input: Input<Segment>) {
        self.engine.handle(self.now_ns, input);
        self.carry_out();
        while let Some(id) = self.looks.pop_front() {
            self.engine.handle(self.now_ns, Input::Look(id));
            self.carry_out();
        }
        self.pieces = 0;
        while self.engine.has_memory_work() {
            self.pieces += 1;
            assert!(self.pieces < PIECES_MAX, "work on memory without end");
            self.engine.handle(self.now_ns, Input::MemoryWork);
            self.carry_out();
        }
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.engine.next_effect() {
            match effect {
                Effect::LookAt(programs) => self.looks.extend(programs),
                Effect::LookAgain(id) => self.looks.push_front(id),
                Effect::Timeslice { program, before_us, .. } if self.deaf.contains(&program) => {
                    self.engine.handle(self.now_ns, Input::TimesliceUnsent { program, before_us });
                }
                effect => self.effects.push(effect),
            }
        }
    }

    /// The next time at which the host has something to do, in ns. Looks and beats are kept up while they are wanted.
    fn next_ns(&mut self) -> Option<u64> {
        let keep = |timer: &mut Option<u64>, wanted: bool, at_ns: u64| {
            *timer = wanted.then(|| timer.unwrap_or(at_ns));
        };
        keep(&mut self.look_ns, self.engine.arbiter().any_scrutinised(), self.now_ns + LOOK_US * 1_000);
        keep(&mut self.beat_ns, self.engine.must_beat(), self.now_ns + BEAT_NS);
        let policy_ns = self.engine.next_policy_us().map(|us| us.saturating_mul(1_000));
        [policy_ns, self.look_ns, self.beat_ns].into_iter().flatten().min()
    }

    /// Lets time pass, in µs: what is due in it is done at its time.
    pub fn pass_us(&mut self, us: u64) {
        self.pass(us, |_| ());
    }

    /// Lets time pass, in µs, and calls after each thing that was done, for programs that follow their gates.
    pub fn pass(&mut self, us: u64, mut then: impl FnMut(&mut World)) {
        let end_ns = self.now_ns + us * 1_000;
        let mut timers = 0;
        while let Some(at_ns) = self.next_ns().filter(|at_ns| *at_ns <= end_ns) {
            timers += 1;
            assert!(timers < TIMERS_MAX, "a timer comes without end");
            self.now_ns = self.now_ns.max(at_ns);
            if self.look_ns.is_some_and(|at| at <= self.now_ns) {
                self.look_ns = None;
                self.input(Input::LookTime);
            } else if self.beat_ns.is_some_and(|at| at <= self.now_ns) {
                self.beat_ns = None;
                self.input(Input::Beat);
            } else {
                self.input(Input::PolicyTime);
            }
            then(self);
        }
        self.now_ns = end_ns;
        self.engine.set_now(end_ns);
    }

    /// Lets time pass until a time in ms from the beginning of the world.
    pub fn at_ms(&mut self, ms: u64) {
        let at_ns = 1_000_000_000 + ms * 1_000_000;
        assert!(at_ns >= self.now_ns, "time never goes back");
        self.pass_us((at_ns - self.now_ns) / 1_000);
    }

    /// A program of the host's own user attaches with a priority.
    pub fn attach(&mut self, priority: i32) -> Client {
        self.attach_as(|arrival| arrival.wishes.priority = Some(priority))
    }

    /// A program attaches, with whatever a test changes about it.
    pub fn attach_as(&mut self, change: impl FnOnce(&mut Arrival<Segment>)) -> Client {
        self.last_id += 1;
        let (id, segment) = (self.last_id, Segment::default());
        let pid = 100 + id as u32;
        let mut arrival = arrival(pid, segment.clone());
        change(&mut arrival);
        let pid = arrival.pid;
        self.input(Input::Attached(id, Box::new(arrival)));
        Client { id, pid, segment }
    }

    /// A program leaves.
    pub fn leave(&mut self, client: &Client) {
        self.input(Input::Left { program: client.id, by_itself: true });
    }

    /// A program says something.
    pub fn say(&mut self, client: &Client, message: Message) {
        self.input(Input::Message(client.id, message));
    }

    /// A program adds a group. Returns its number.
    pub fn group(&mut self, client: &Client, slot: u16, device: &str) -> u64 {
        self.add(client, new_group(slot, device))
    }

    /// A program adds a group with such levels.
    pub fn group_with(&mut self, client: &Client, slot: u16, device: &str, steps: i32, levels: Levels) -> u64 {
        self.add(client, NewGroup { steps, levels, ..new_group(slot, device) })
    }

    /// A program adds a group on a GPU of NVIDIA's, with all levels.
    pub fn cuda(&mut self, client: &Client, slot: u16, device: &str) -> u64 {
        self.add(client, NewGroup { platform: Platform::Cuda, levels: Levels::ALL, ..new_group(slot, device) })
    }

    /// A program adds a group. Returns its number.
    pub fn add(&mut self, client: &Client, group: NewGroup) -> u64 {
        let slot = group.slot;
        client.words(slot).inherited_priority.store(i32::MIN, Relaxed);
        self.say(client, Message::GroupAdd(group));
        let is_answer = |effect: &Effect| matches!(effect, Effect::Send(to, DaemonMsg::GroupAdded { slot: s, .. }) if *to == client.id && *s == slot);
        let at = self.effects.iter().position(is_answer);
        let at = at.unwrap_or_else(|| panic!("no group: {:?}", self.effects));
        match self.effects.remove(at) {
            Effect::Send(_, DaemonMsg::GroupAdded { id, .. }) => id,
            other => panic!("{other:?}"),
        }
    }

    /// A program adds a queue.
    pub fn queue(&mut self, client: &Client, slot: u16, group: u16) {
        client.segment.use_queue(slot, group);
        self.say(client, Message::QueueAdd { slot, group });
    }

    /// The number of the queue in a slot.
    pub fn queue_number(&self, client: &Client, slot: u16) -> u64 {
        self.engine.programs()[&client.id].queues[&slot].id
    }

    /// A program stores a state, and wakes the host.
    pub fn set_state(&mut self, client: &Client, slot: u16, word: u32) {
        client.words(slot).state.store(word, Relaxed);
        self.wake(client);
    }

    /// A program wakes the host, which reads its words and decides.
    pub fn wake(&mut self, client: &Client) {
        self.input(Input::Words(client.id));
        self.input(Input::Decide);
    }

    /// A launch. A group that counts as idle for want of progress goes on with that.
    pub fn ready(&mut self, client: &Client, slot: u16) {
        let words = client.words(slot);
        words.gate.go_on();
        if words.state.load(Relaxed) == state::IDLE {
            words.ready_at_ns.store(self.now_ns, Relaxed);
        }
        self.set_state(client, slot, state::READY);
    }

    /// A command completes, and another is launched.
    pub fn gets_on(&mut self, client: &Client, slot: u16) {
        let words = client.words(slot);
        words.completed.fetch_add(1, Relaxed);
        if words.gate.go_on() {
            self.wake(client);
        }
    }

    /// The last command of a burst completes.
    pub fn idle(&mut self, client: &Client, slot: u16) {
        let words = client.words(slot);
        if words.state.load(Relaxed) != state::IDLE {
            let ns = self.now_ns.saturating_sub(words.ready_at_ns.load(Relaxed));
            words.burst_us.store(ns / 1_000, Relaxed);
            words.bursts.fetch_add(1, Relaxed);
        }
        self.set_state(client, slot, state::IDLE);
    }

    /// Takes the messages that a connection was sent since the last call, in order.
    pub fn told(&mut self, to: u64) -> Vec<DaemonMsg> {
        let mut told = Vec::new();
        self.effects.retain(|effect| {
            let message = match effect {
                Effect::Send(id, message) | Effect::Finish(id, message) if *id == to => message.clone(),
                Effect::Timeslice { program, slot, us, .. } if *program == to => {
                    DaemonMsg::Timeslice { slot: *slot, us: *us }
                }
                Effect::Page { to: id, owner, page, epoch } if *id == to => {
                    DaemonMsg::Backlog { page: *page, epoch: *epoch, own: to == *owner }
                }
                _ => return true,
            };
            told.push(message);
            false
        });
        told
    }

    /// Takes the reason for which a program was refused or dropped; none if it was not.
    pub fn fault(&mut self, client: &Client) -> Option<String> {
        let is_it = |effect: &Effect| matches!(effect, Effect::Refuse(id, _) | Effect::Drop(id, _) if *id == client.id);
        let at = self.effects.iter().position(is_it)?;
        match self.effects.remove(at) {
            Effect::Refuse(_, why) | Effect::Drop(_, why) => Some(why.to_string()),
            _ => None,
        }
    }

    /// A command of the host's own user, carried out to its end.
    ///
    /// # Errors
    /// It was refused.
    pub fn order(&mut self, targets: Vec<Target>, what: What) -> Result<Vec<DaemonMsg>, Error> {
        self.order_of(OWN, targets, what)
    }

    /// A command of a user, carried out to its end.
    ///
    /// # Errors
    /// It was refused.
    pub fn order_of(&mut self, user: User, targets: Vec<Target>, what: What) -> Result<Vec<DaemonMsg>, Error> {
        let command = self.begin_order(user, targets, what);
        while self.engine.is_changing(command) {
            self.go_on(command);
        }
        let mut answer = self.told(command);
        match answer.pop() {
            Some(DaemonMsg::End) => Ok(answer),
            Some(DaemonMsg::Refused(why)) => Err(why),
            other => panic!("no end: {other:?}"),
        }
    }

    /// Begins a command. Returns its connection.
    pub fn begin_order(&mut self, user: User, targets: Vec<Target>, what: What) -> u64 {
        self.last_id += 1;
        let command = self.last_id;
        let ancestors = vec![90_000 + command as u32];
        let from = Sender { command, user, pid: ancestors[0], ancestors, ceilings: Ceilings::NONE };
        self.input(Input::Change(Box::new(Order { from, targets, what })));
        command
    }

    /// Does the next piece of a command.
    pub fn go_on(&mut self, command: u64) {
        match self.engine.wanted_start(command) {
            Some(_) => self.input(Input::Start(command, Some(1))),
            None => self.input(Input::Continue(command)),
        }
    }

    /// Values that a command changes: name, before, now.
    pub fn changed(&mut self, targets: Vec<Target>, what: What) -> Vec<(String, String, String)> {
        let answer = self.order(targets, what).expect("it may be changed");
        let of = |message| match message {
            DaemonMsg::Changed(Changed { values, .. }) => values,
            _ => Vec::new(),
        };
        answer.into_iter().flat_map(of).map(|value| (value.what, value.was, value.now)).collect()
    }

    /// Effective priorities of a program's groups, in the order in which they came.
    pub fn priorities(&self, client: &Client) -> Vec<i32> {
        let groups = &self.engine.programs()[&client.id].groups;
        groups.iter().map(|id| self.status(*id).priority).collect()
    }

    /// The arbiter's view of a group.
    pub fn status(&self, id: GroupId) -> xsched_policy::GroupStatus {
        self.engine.arbiter().status(self.now_ns / 1_000, id).expect("a group")
    }
}

/// A process of the host's own user that attaches without wishes.
pub fn arrival(pid: u32, memory: Segment) -> Arrival<Segment> {
    let level = |id| Level { id, weight: 100 };
    Arrival {
        pid,
        user: OWN,
        exe: "/usr/bin/program".into(),
        name: "program".into(),
        start: Some(u64::from(pid)),
        ancestors: vec![pid, 1],
        nice: 0,
        lineage: Lineage { user: level(OWN.uid.into()), cgroup: vec![level(1)], namespace: None },
        memory,
        wishes: Wishes::default(),
        terms: terms(),
    }
}

/// The page that every program reads.
pub type Page = Arc<xsched_proto::segment::Heartbeat>;
