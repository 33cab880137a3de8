//! Memory of devices: the ledger against a plain model, and limits and reserves as programs meet them.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use crate::support::{Client, World, settings};
use xsched_engine::ledger::{HolderId, HolderTerms, Ledger, Pot, STEP_BYTES};
use xsched_engine::{Effect, Input, Inventory, MemorySettings, MemoryTerms, Message, User};
use xsched_proto::account::{Amount, MemorySlot, UNLIMITED};
use xsched_proto::class::Class;
use xsched_proto::wire::DaemonMsg;

const GIB: u64 = 1 << 30;
const CAPACITY: u64 = 80 * GIB;
const DEVICE: &str = "sim:0";

/// Numbers that look random, the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Process of the model: its words, the limits that it has, and what it holds in truth.
struct Process {
    words: Arc<MemorySlot>,
    limits: Vec<(Pot, u64)>,
    holds: Vec<u64>,
    /// Memory for which it did not ask.
    beyond: u64,
}

impl Process {
    fn used(&self) -> u64 {
        self.holds.iter().sum::<u64>() + self.beyond
    }
}

/// Ledger beside its model.
struct Model {
    dice: Dice,
    ledger: Ledger<Arc<MemorySlot>>,
    processes: BTreeMap<HolderId, Process>,
    /// Limit of each pot.
    limits: BTreeMap<Pot, u64>,
    last: u64,
    grants: u64,
    refusals: u64,
}

impl Model {
    fn new(seed: u64) -> Model {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut limit = |most: u64| (1 + dice.below(most)) * (STEP_BYTES / 3);
        let pots = [Pot::Program(1), Pot::Program(2), Pot::User(7, 0), Pot::Container(9), Pot::Device];
        let limits = pots.map(|pot| (pot, limit(40))).into();
        Model { dice, ledger: Ledger::default(), processes: BTreeMap::new(), limits, last: 0, grants: 0, refusals: 0 }
    }

    fn members(&self, pot: Pot) -> impl Iterator<Item = &Process> {
        self.processes.values().filter(move |process| process.limits.iter().any(|(own, _)| *own == pot))
    }

    fn used(&self, pot: Pot) -> u64 {
        self.members(pot).map(Process::used).sum()
    }

    /// Memory for which nobody asked.
    fn beyond(&self, pot: Pot) -> u64 {
        self.members(pot).map(|process| process.beyond).sum()
    }

    /// A process comes; after a daemon's restart it may hold something already.
    fn attach(&mut self) {
        self.last += 1;
        let pots: Vec<Pot> = self.limits.keys().copied().collect();
        let mut limits = Vec::new();
        for pot in pots {
            if self.dice.below(2) == 0 {
                limits.push((pot, self.limits[&pot]));
            }
        }
        let id = (self.last, self.dice.below(3) as u16);
        let words = Arc::new(MemorySlot::default());
        words.allowance_bytes.store(UNLIMITED, SeqCst);
        let terms = HolderTerms { limits: limits.clone(), program: id.0, ..HolderTerms::default() };
        self.ledger.add(id, DEVICE.into(), words.clone(), CAPACITY, terms);
        self.ledger.settle(DEVICE);
        self.processes.insert(id, Process { words, limits, holds: Vec::new(), beyond: 0 });
    }

    fn any(&mut self) -> Option<HolderId> {
        let ids: Vec<HolderId> = self.processes.keys().copied().collect();
        (!ids.is_empty()).then(|| ids[self.dice.below(ids.len() as u64) as usize])
    }

    fn allocate(&mut self, id: HolderId) {
        let bytes = 1 + self.dice.below(3 * STEP_BYTES);
        let process = &self.processes[&id];
        let fits = process.limits.iter().all(|(pot, limit)| self.used(*pot) + bytes <= *limit);
        let took = process.words.take(bytes)
            || (self.ledger.ask(id, bytes).is_ok() && {
                assert!(process.words.take(bytes), "what was granted can be had");
                true
            });
        assert!(took || !fits, "{bytes} of {:?}", process.limits);
        // An allowance may be there from before another process came to hold memory for which nobody asks.
        let asked_for = |pot| self.used(pot) - self.beyond(pot);
        assert!(!took || process.limits.iter().all(|(pot, limit)| asked_for(*pot) + bytes <= *limit));
        if took {
            self.grants += 1;
            self.processes.get_mut(&id).expect("it is there").holds.push(bytes);
        } else {
            self.refusals += 1;
        }
    }

    fn step(&mut self) {
        let Some(id) = self.any().filter(|_| self.dice.below(8) > 0) else { return self.attach() };
        match self.dice.below(20) {
            0..12 => self.allocate(id),
            12..16 => {
                let process = self.processes.get_mut(&id).expect("it is there");
                if let Some(bytes) = process.holds.pop() {
                    process.words.give(bytes);
                }
            }
            16 => {
                // A context, for which nobody asks.
                let process = self.processes.get_mut(&id).expect("it is there");
                process.words.take_anyway(STEP_BYTES / 5);
                process.beyond += STEP_BYTES / 5;
            }
            17 => {
                // Killed: nothing is given back by itself.
                self.processes.remove(&id);
                assert_eq!(self.ledger.remove(id.0).len(), 1);
                self.ledger.settle(DEVICE);
            }
            18 => self.restart(),
            _ => self.ledger.settle(DEVICE),
        }
    }

    /// Another daemon takes over, and hears of the processes one after the other.
    fn restart(&mut self) {
        self.ledger = Ledger::default();
        for (id, process) in &self.processes {
            let terms = HolderTerms { limits: process.limits.clone(), program: id.0, ..HolderTerms::default() };
            self.ledger.add(*id, DEVICE.into(), process.words.clone(), CAPACITY, terms);
        }
        self.ledger.settle(DEVICE);
    }

    fn check(&self) {
        for (pot, limit) in &self.limits {
            let allowance = |process: &Process| process.words.allowance_bytes.load(SeqCst).max(process.used());
            let (beyond, allowed) = (self.beyond(*pot), self.members(*pot).map(allowance).sum::<u64>());
            assert!(allowed <= limit + beyond, "{pot:?}: {allowed} of {limit}, {beyond} beyond");
        }
        for process in self.processes.values() {
            assert_eq!(process.words.used_bytes.load(SeqCst), process.used());
        }
    }
}

#[test]
fn ten_thousand_courses_end_as_in_a_plain_model() {
    let (mut grants, mut refusals) = (0, 0);
    for seed in 0..10_000 {
        let mut model = Model::new(seed);
        for _ in 0..30 {
            model.step();
            model.check();
        }
        model.ledger.settle(DEVICE);
        for (pot, _) in model.limits.iter().filter(|(pot, _)| !matches!(pot, Pot::Program(_))) {
            assert_eq!(model.ledger.used(DEVICE, *pot), model.used(*pot), "{pot:?}");
        }
        let ids: Vec<u64> = model.processes.keys().map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| _ = model.ledger.remove(id));
        assert!(model.ledger.is_empty());
        (grants, refusals) = (grants + model.grants, refusals + model.refusals);
    }
    assert!(grants > 20_000 && refusals > 5_000, "{grants} allocations, {refusals} refused");
}

/// Allowances change while threads take and give: together they are never above the limit.
#[test]
fn processes_that_take_at_the_same_time_stay_within_their_limit() {
    let limit = 20 * STEP_BYTES;
    let words: Vec<Arc<MemorySlot>> = (0..3).map(|_| Arc::default()).collect();
    let mut ledger = Ledger::default();
    for (n, words) in words.iter().enumerate() {
        let terms = HolderTerms { limits: vec![(Pot::User(7, 0), limit)], ..HolderTerms::default() };
        ledger.add((n as u64, 0), DEVICE.into(), words.clone(), CAPACITY, terms);
        ledger.settle(DEVICE);
    }
    let ledger = Mutex::new(ledger);
    // Memory that was taken for good: the words count for a moment what is given back at once, too.
    let taken: Vec<AtomicU64> = words.iter().map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for (n, own) in words.iter().enumerate() {
            let (ledger, words, taken) = (&ledger, &words, &taken);
            let give = move |bytes: u64| {
                taken[n].fetch_sub(bytes, SeqCst);
                own.give(bytes);
            };
            scope.spawn(move || {
                let (mut dice, mut held) = (Dice(n as u64 + 5), Vec::new());
                for _ in 0..3_000 {
                    let bytes = 1 + dice.below(4 * STEP_BYTES);
                    if own.take(bytes) {
                        taken[n].fetch_add(bytes, SeqCst);
                        held.push(bytes);
                    } else {
                        let mut ledger = ledger.lock().expect("no panic");
                        let _ = ledger.ask((n as u64, 0), bytes);
                        let allowed: u64 = words.iter().map(|words| words.allowance_bytes.load(SeqCst)).sum();
                        assert!(allowed <= limit, "{allowed} of {limit}");
                        let taken: u64 = taken.iter().map(|taken| taken.load(SeqCst)).sum();
                        assert!(taken <= limit, "{taken} of {limit}");
                    }
                    if dice.below(2) == 0 {
                        held.pop().into_iter().for_each(give);
                    }
                }
                held.into_iter().for_each(give);
            });
        }
    });
    let mut ledger = ledger.into_inner().expect("no panic");
    ledger.settle(DEVICE);
    assert_eq!(ledger.used(DEVICE, Pot::User(7, 0)), 0);
}

#[test]
fn a_report_that_is_a_lie_takes_from_others_no_more_than_a_true_one_could() {
    let words = |_| Arc::new(MemorySlot::default());
    let [liar, honest]: [Arc<MemorySlot>; 2] = [0, 1].map(words);
    let mut ledger = Ledger::default();
    let terms = || HolderTerms { limits: vec![(Pot::Class(Class::Low), 40 * GIB)], ..HolderTerms::default() };
    for (id, words) in [(1, &liar), (2, &honest)] {
        ledger.add((id, 0), DEVICE.into(), words.clone(), CAPACITY, terms());
        ledger.settle(DEVICE);
    }
    liar.used_bytes.store(u64::MAX, SeqCst);
    liar.allowance_bytes.store(u64::MAX, SeqCst);
    assert_eq!(ledger.ask((2, 0), 30 * GIB), Ok(()), "its grant was a step");
    assert!(honest.take(30 * GIB));
    assert!(ledger.ask((1, 0), GIB).is_err(), "and it gets no more");
    liar.used_bytes.store(0, SeqCst);
    assert_eq!(ledger.ask((1, 0), 10 * GIB), Ok(()));
    assert!(ledger.ask((1, 0), 10 * GIB + 1).is_err(), "what others hold is not given twice");
}

/// A ledger of processes with these limits, each alone in its connection, and their words.
fn ledger_of<const N: usize>(terms: [HolderTerms; N]) -> (Ledger<Arc<MemorySlot>>, [Arc<MemorySlot>; N]) {
    let (mut ledger, words) = (Ledger::default(), std::array::from_fn(|_| Arc::new(MemorySlot::default())));
    for (n, terms) in terms.into_iter().enumerate() {
        ledger.add((n as u64, 0), DEVICE.into(), Arc::clone(&words[n]), CAPACITY, terms);
    }
    ledger.settle(DEVICE);
    (ledger, words)
}

fn limited(pot: Pot, bytes: u64) -> HolderTerms {
    HolderTerms { limits: vec![(pot, bytes)], ..HolderTerms::default() }
}

#[test]
fn a_reserve_is_one_for_all_processes_of_its_program_and_kept_from_others_only() {
    let of = |program, priority, reserve_bytes| HolderTerms {
        program,
        priority,
        reserve_bytes,
        limits: vec![(Pot::Device, 30 * GIB)],
        ..HolderTerms::default()
    };
    let (mut ledger, words) = ledger_of([of(1, 5, 10 * GIB), of(1, 0, 10 * GIB), of(2, 0, 0)]);
    let kept = words.each_ref().map(|words| words.keep_free_bytes.load(SeqCst));
    assert_eq!(kept, [0, 0, 10 * GIB]);
    // Also of a device that counts as smaller than it is.
    assert!(ledger.ask((2, 0), 20 * GIB + 1).is_err());
    assert_eq!((ledger.ask((2, 0), 20 * GIB), ledger.ask((0, 0), 10 * GIB)), (Ok(()), Ok(())));
}

#[test]
fn a_process_that_shares_a_limit_gets_steps_and_one_whose_limit_falls_keeps_what_it_holds() {
    let user = Pot::User(7, 0);
    let (mut ledger, words) = ledger_of([limited(Pot::Program(1), 20 * STEP_BYTES), limited(user, 5 * STEP_BYTES)]);
    let allowance = |n: usize| words[n].allowance_bytes.load(SeqCst) / STEP_BYTES;
    assert_eq!([allowance(0), allowance(1)], [20, 5], "each is alone with its limit");
    assert!(words[0].take(2 * STEP_BYTES));
    for (steps, left) in [(9, 9), (1, 2)] {
        ledger.set_terms((0, 0), limited(Pot::Program(1), steps * STEP_BYTES));
        ledger.settle(DEVICE);
        assert_eq!(allowance(0), left);
    }
    // A program that had no limit for a while shares one as if it came now.
    words[0].give(2 * STEP_BYTES);
    for terms in [limited(Pot::Program(1), 20 * STEP_BYTES), HolderTerms::default(), limited(user, 5 * STEP_BYTES)] {
        ledger.set_terms((0, 0), terms);
        ledger.settle(DEVICE);
    }
    assert_eq!(allowance(0), 1);
    for (n, steps) in [(1, 1), (0, 2)] {
        assert_eq!((ledger.ask((n, 0), steps * STEP_BYTES), allowance(n as usize)), (Ok(()), steps), "and no more");
    }
}

#[test]
fn memory_that_another_daemon_granted_is_granted_again() {
    let class = || limited(Pot::Class(Class::Low), 32 * GIB);
    let (mut ledger, words) = ledger_of([]);
    assert!(ledger.is_empty() && words.is_empty());
    let held = [30, 3].map(|gib| {
        let words = Arc::new(MemorySlot::default());
        words.take_anyway(gib * GIB);
        words
    });
    for (n, words) in held.iter().enumerate() {
        ledger.add((n as u64, 0), DEVICE.into(), words.clone(), CAPACITY, class());
    }
    ledger.settle(DEVICE);
    assert!(ledger.ask((1, 0), GIB).is_err(), "33 GiB of 32 are held");
}

#[test]
fn an_overhead_that_may_be_too_low_is_presumed_of_no_other_process() {
    let (mut ledger, words) = ledger_of([limited(Pot::Program(1), GIB), limited(Pot::Program(2), GIB)]);
    let overhead =
        |ledger: &Ledger<Arc<MemorySlot>>, n| ledger.get((n, 0)).expect("it is there").report().overhead_bytes;
    ledger.measure(DEVICE, 1, |_| Some(500));
    assert_eq!([overhead(&ledger, 0), overhead(&ledger, 1)], [500, 500]);
    // The program took memory before or after the driver was asked.
    words[1].take_anyway(300);
    ledger.measure(DEVICE, 2, |(n, _)| Some([500, 400][n as usize]));
    assert_eq!(overhead(&ledger, 1), 400);
    ledger.add((2, 0), DEVICE.into(), Arc::default(), CAPACITY, HolderTerms::default());
    assert_eq!(overhead(&ledger, 2), 500);
}

#[test]
fn the_smaller_of_a_programs_own_limit_and_its_rules_holds_on_a_device_no_larger_than_it_is() {
    let mut w = World::with(xsched_engine::Settings {
        memory: MemorySettings { capacity: Some(Amount::Bytes(100 * GIB)), ..MemorySettings::default() },
        ..settings("hpf")
    });
    for (own, given, limit) in [(None, None, 80), (Some(10), Some(4), 4), (Some(3), Some(4), 3)] {
        let client = called(&mut w, "one", |arrival| {
            arrival.wishes.memory_limit = own.map(|gib| Amount::Bytes(gib * GIB));
            arrival.terms.memory.program = given.map(|gib| Amount::Bytes(gib * GIB));
        });
        assert_eq!(w.engine.memory_of(client.id)[0].limit_bytes, Some(limit * GIB));
    }
}

/// Memory of a program on the device. Returns the answer to its first message.
fn memory(w: &mut World, client: &Client) {
    w.say(client, Message::MemoryDevice { slot: 0, device: DEVICE.into(), capacity_bytes: CAPACITY });
    assert_eq!(answer(w, client, 0), (true, None));
}

fn answer(w: &mut World, client: &Client, wanted: u32) -> (bool, Option<String>) {
    let is_answer = |effect: &Effect| matches!(effect, Effect::Send(to, DaemonMsg::MemoryAnswer { number, .. }) if *to == client.id && *number == wanted);
    let at = w.effects.iter().position(is_answer).unwrap_or_else(|| panic!("no answer: {:?}", w.effects));
    match w.effects.remove(at) {
        Effect::Send(_, DaemonMsg::MemoryAnswer { granted, why, .. }) => (granted, why),
        other => panic!("{other:?}"),
    }
}

/// A program allocates: by its words, or after a question. Returns the reason of a refusal.
fn allocate(w: &mut World, client: &Client, bytes: u64) -> Result<(), String> {
    if client.segment.account(0).take(bytes) {
        return Ok(());
    }
    w.say(client, Message::MemoryAsk { slot: 0, number: 3, bytes, lacking: 0, returns: false, part: false });
    match answer(w, client, 3) {
        (true, _) => {
            assert!(client.segment.account(0).take(bytes));
            Ok(())
        }
        (false, why) => Err(why.expect("a reason")),
    }
}

fn called(
    w: &mut World,
    name: &str,
    change: impl FnOnce(&mut xsched_engine::Arrival<crate::support::memory::Segment>),
) -> Client {
    let client = w.attach_as(|arrival| {
        arrival.name = name.into();
        change(arrival);
    });
    memory(w, &client);
    client
}

#[test]
fn processes_of_one_program_share_its_limit_and_all_of_it_comes_back() {
    let mut w = World::new();
    let limited = |arrival: &mut xsched_engine::Arrival<_>| {
        arrival.wishes.memory_limit = Some(Amount::PerMille(250));
        arrival.wishes.job = Some("train".into());
    };
    let first = called(&mut w, "train.py", limited);
    assert_eq!(first.segment.account(0).allowance_bytes.load(SeqCst), 20 * GIB, "alone it need not ask");
    let second = called(&mut w, "train.py", limited);
    assert_eq!(allocate(&mut w, &first, 12 * GIB), Ok(()));
    assert_eq!(allocate(&mut w, &second, 8 * GIB), Ok(()), "taken back from the first");
    let why = allocate(&mut w, &first, 1).expect_err("all is taken");
    assert_eq!(
        why,
        "the limit of the program is 20 GiB, and 20 GiB are in use, 20 GiB of 80 GiB are train.py's (normal)"
    );
    let seen = first.segment.account(0).seen(60 * GIB, CAPACITY);
    assert_eq!(seen, (0, 20 * GIB));
    let info = w.engine.memory_of(first.id);
    assert_eq!((info[0].held.used_bytes, info[0].program_used_bytes), (12 * GIB, 20 * GIB));
    assert_eq!((info[0].limit_bytes, &*info[0].device), (Some(20 * GIB), DEVICE));
    w.leave(&second);
    assert_eq!(first.segment.account(0).allowance_bytes.load(SeqCst), 20 * GIB);
    assert_eq!(allocate(&mut w, &first, 8 * GIB), Ok(()));
    w.leave(&first);
    assert_eq!(w.engine.inventory(), Inventory::default());
}

#[test]
fn a_process_that_another_one_started_counts_with_it_without_a_job() {
    let mut w = World::new();
    let limited = |arrival: &mut xsched_engine::Arrival<_>| arrival.wishes.memory_limit = Some(Amount::Bytes(4 * GIB));
    let parent = called(&mut w, "serve", limited);
    let child = called(&mut w, "worker", |arrival| {
        limited(arrival);
        arrival.ancestors = vec![arrival.pid, parent.pid, 1];
    });
    let stranger = called(&mut w, "worker", limited);
    let contained = |arrival: &mut xsched_engine::Arrival<_>| {
        limited(arrival);
        arrival.terms.memory.within = Some(8);
    };
    let (one, other) = (called(&mut w, "one", contained), called(&mut w, "other", contained));
    assert_eq!(allocate(&mut w, &one, 3 * GIB), Ok(()));
    assert!(allocate(&mut w, &other, 2 * GIB).is_err(), "a container is one program");
    assert_eq!(allocate(&mut w, &parent, 3 * GIB), Ok(()));
    assert!(allocate(&mut w, &child, 2 * GIB).is_err());
    assert_eq!(allocate(&mut w, &stranger, 4 * GIB), Ok(()));
}

#[test]
fn the_smallest_limit_that_applies_holds() {
    let mut w = World::with(xsched_engine::Settings {
        memory: MemorySettings {
            capacity: Some(Amount::Bytes(30 * GIB)),
            classes: Class::ALL.map(|class| (class == Class::Low).then_some(Amount::Bytes(10 * GIB))),
            ..MemorySettings::default()
        },
        ..settings("hpf")
    });
    let with = |memory: MemoryTerms, priority: i32| {
        move |arrival: &mut xsched_engine::Arrival<_>| {
            arrival.terms.memory = memory;
            arrival.wishes.priority = Some(priority);
        }
    };
    let pod = |limit: u64| MemoryTerms { pod: Some((5, Amount::Bytes(limit * GIB))), ..MemoryTerms::default() };
    let of_rule = MemoryTerms { rule: Some((2, Amount::Bytes(7 * GIB))), ..pod(12) };
    let one = called(&mut w, "one", with(of_rule, 0));
    let two = called(&mut w, "two", with(pod(12), 0));
    let low = called(&mut w, "low", with(MemoryTerms::default(), -1));
    let reason = |why: Result<(), String>| why.expect_err("refused").split(',').next().map(str::to_owned).expect("one");
    assert_eq!(reason(allocate(&mut w, &one, 8 * GIB)), "the limit of the programs of its rule is 7 GiB");
    assert_eq!(allocate(&mut w, &one, 7 * GIB), Ok(()));
    assert_eq!(reason(allocate(&mut w, &two, 6 * GIB)), "the limit of the pod is 12 GiB");
    assert_eq!(allocate(&mut w, &two, 5 * GIB), Ok(()));
    assert_eq!(reason(allocate(&mut w, &low, 11 * GIB)), "the limit of class low is 10 GiB");
    assert_eq!(allocate(&mut w, &low, 10 * GIB), Ok(()));
    let rest = called(&mut w, "rest", with(MemoryTerms::default(), 0));
    assert_eq!(rest.segment.account(0).seen(CAPACITY, CAPACITY), (8 * GIB, 30 * GIB), "the device is smaller");
    assert_eq!(reason(allocate(&mut w, &rest, 9 * GIB)), "the limit of the device is 30 GiB");
    assert_eq!(allocate(&mut w, &rest, 8 * GIB), Ok(()));
}

#[test]
fn what_an_urgent_program_reserves_is_kept_free_until_it_takes_it() {
    let mut w = World::new();
    let urgent = called(&mut w, "serve", |arrival| {
        arrival.wishes.priority = Some(Class::High.nominal());
        arrival.wishes.memory_reserve = Some(Amount::Bytes(30 * GIB));
    });
    let low = called(&mut w, "train.py", |arrival| arrival.wishes.priority = Some(Class::Low.nominal()));
    let kept = |client: &Client| client.segment.account(0).keep_free_bytes.load(SeqCst);
    assert_eq!((kept(&low), kept(&urgent)), (30 * GIB, 0));
    assert!(w.engine.follows_memory());
    assert_eq!(allocate(&mut w, &urgent, 12 * GIB), Ok(()));
    w.input(Input::MemoryTime);
    assert_eq!(kept(&low), 18 * GIB);
    assert_eq!(low.segment.account(0).seen(68 * GIB, CAPACITY), (50 * GIB, CAPACITY));
    for (bytes, fits) in [(50 * GIB, true), (50 * GIB + 1, false)] {
        w.say(&low, Message::MemoryAsk { slot: 0, number: 5, bytes, lacking: 0, returns: false, part: false });
        let why = "12 GiB of 80 GiB are serve's (high), 18 GiB are reserved for more urgent programs";
        assert_eq!(answer(&mut w, &low, 5), (fits, Some(why.into())));
    }
    assert_eq!(allocate(&mut w, &urgent, 40 * GIB), Ok(()), "a reserve is no limit");
    w.say(&low, Message::MemoryAsk { slot: 0, number: 4, bytes: GIB, lacking: 0, returns: false, part: false });
    assert_eq!(answer(&mut w, &low, 4), (true, Some("52 GiB of 80 GiB are serve's (high)".into())));
    assert_eq!(kept(&low), 0, "a question has it looked at");
    w.leave(&urgent);
    assert!(!w.engine.follows_memory());
    let limited = called(&mut w, "serve", |arrival| {
        arrival.wishes.priority = Some(Class::High.nominal());
        arrival.wishes.memory_reserve = Some(Amount::PerMille(1_000));
        arrival.wishes.memory_limit = Some(Amount::Bytes(5 * GIB));
    });
    assert_eq!((kept(&low), kept(&limited)), (5 * GIB, 0), "no more than it may take");
}

#[test]
fn memory_that_only_the_driver_knows_of_counts_as_overhead() {
    const MIB: u64 = 1 << 20;
    let mut w = World::new();
    let limit = |arrival: &mut xsched_engine::Arrival<_>| arrival.wishes.memory_limit = Some(Amount::Bytes(10 * GIB));
    let first = called(&mut w, "first", limit);
    let told = |w: &World, client: &Client| w.engine.memory_of(client.id)[0].held;
    let driver = |w: &mut World, at_ns, bytes| {
        w.input(Input::Memory(DEVICE.into(), at_ns, vec![(first.pid, bytes), (u32::MAX, Some(GIB))]));
        (told(w, &first).overhead_bytes / MIB, told(w, &first).used_bytes / MIB)
    };
    let words = first.segment.account(0);
    assert!(words.take(4 * GIB));
    words.managed_bytes.store(GIB, SeqCst);
    assert_eq!(driver(&mut w, 1, Some(3 * GIB)), (0, 4096), "it took memory since the driver was asked");
    assert_eq!(driver(&mut w, 2, Some(3 * GIB + 500 * MIB)), (500, 4596), "the driver does not count managed memory");
    assert_eq!(words.seen(70 * GIB, CAPACITY), (6 * GIB - 500 * MIB, 10 * GIB));
    assert_eq!(driver(&mut w, 2, Some(GIB)), (500, 4596), "known already");
    assert!(words.take(GIB));
    assert_eq!(driver(&mut w, 3, Some(4 * GIB)), (500, 5620), "before or after it took that");
    assert_eq!(driver(&mut w, 4, Some(4 * GIB + 600 * MIB)), (600, 5720), "a module");
    assert_eq!(driver(&mut w, 5, None), (600, 5720), "not told");
    assert!(allocate(&mut w, &first, 5 * GIB - 600 * MIB).is_ok());
    let why = allocate(&mut w, &first, 1).expect_err("it has all of it");
    assert!(why.starts_with("the limit of the program is 10 GiB, and 10 GiB are in use"), "{why}");
    let second = called(&mut w, "second", limit);
    assert_eq!(told(&w, &second).overhead_bytes, 500 * MIB, "as the first one had at first");
    w.input(Input::Memory(DEVICE.into(), 6, vec![(first.pid, None)]));
    assert_eq!(told(&w, &second).overhead_bytes, 0, "it has no context");
}

#[test]
fn a_question_for_a_measurement_is_answered_by_a_newer_one() {
    const MIB: u64 = 1 << 20;
    let mut w = World::new();
    let one = called(&mut w, "one", |arrival| arrival.wishes.memory_limit = Some(Amount::Bytes(10 * GIB)));
    let words = one.segment.account(0);
    let driver =
        |w: &mut World, at_ns, bytes| w.input(Input::Memory(DEVICE.into(), at_ns, vec![(one.pid, Some(bytes))]));
    let free = || words.seen(70 * GIB, CAPACITY).0;
    let answers = |w: &World| {
        let is_one = |effect: &&Effect| matches!(effect, Effect::Send(_, DaemonMsg::MemoryAnswer { number: 9, .. }));
        w.effects.iter().filter(is_one).count()
    };
    driver(&mut w, 1, 600 * MIB);
    assert_eq!(free(), 10 * GIB - 600 * MIB);
    // The program unloads a module and allocates: by a count that is not known to be of the same time, the module may be there still.
    assert!(words.take(2 * GIB));
    let asked_ns = w.now_ns;
    w.say(&one, Message::MemoryMeasure { slot: 0, number: 9 });
    assert!(w.effects.contains(&Effect::Measure(DEVICE.into())));
    assert_eq!(answers(&w), 0);
    driver(&mut w, asked_ns, 2 * GIB + 500 * MIB);
    assert_eq!((answers(&w), free()), (1, 10 * GIB - 500 * MIB - 2 * GIB), "exact");
    w.effects.clear();
    w.pass_us(10);
    w.say(&one, Message::MemoryMeasure { slot: 0, number: 9 });
    let before_ns = w.now_ns - 1;
    driver(&mut w, before_ns, 2 * GIB + 500 * MIB);
    assert_eq!(answers(&w), 0, "the driver was asked before");
    w.input(Input::Unmeasured(DEVICE.into()));
    assert_eq!(answers(&w), 1, "no driver tells");
    w.effects.clear();
    for _ in 0..1_000 {
        w.say(&one, Message::MemoryMeasure { slot: 0, number: 9 });
    }
    assert_eq!(w.effects.iter().filter(|effect| matches!(effect, Effect::Measure(_))).count(), 16, "a bound");
    w.leave(&one);
    assert_eq!(w.engine.inventory(), Inventory::default());
}

#[test]
fn an_advance_is_not_held_and_counts_against_limits() {
    const MIB: u64 = 1 << 20;
    let mut w = World::new();
    let limit = |arrival: &mut xsched_engine::Arrival<_>| {
        arrival.wishes.memory_limit = Some(Amount::Bytes(10 * GIB));
        arrival.wishes.job = Some("train".into());
    };
    let (one, two) = (called(&mut w, "one", limit), called(&mut w, "two", limit));
    assert_eq!(allocate(&mut w, &one, 9 * GIB), Ok(()));
    let words = one.segment.account(0);
    words.advance_bytes.store(GIB, SeqCst);
    w.input(Input::Memory(DEVICE.into(), 1, vec![(one.pid, Some(8 * GIB + 300 * MIB)), (two.pid, None)]));
    let told = w.engine.memory_of(one.id)[0].clone();
    let held = 8 * GIB + 300 * MIB;
    assert_eq!((told.held.used_bytes, told.held.overhead_bytes), (held, 300 * MIB), "as the driver has it");
    assert_eq!(told.program_used_bytes, held);
    assert_eq!(w.engine.memory().get((one.id, 0)).map(|holder| holder.claimed_bytes()), Some(held + GIB));
    assert!(allocate(&mut w, &two, GIB).is_err());
    words.give(GIB);
    words.advance_bytes.store(0, SeqCst);
    assert_eq!(words.seen(70 * GIB, CAPACITY).0, 2 * GIB - 300 * MIB, "as it is without the advance");
    assert_eq!(allocate(&mut w, &two, GIB), Ok(()));
}

#[test]
fn refusals_are_logged_at_once_and_then_added_up() {
    let mut w = World::new();
    let one = called(&mut w, "train.py", |arrival| arrival.wishes.memory_limit = Some(Amount::Bytes(10 * GIB)));
    assert_eq!(allocate(&mut w, &one, 8 * GIB), Ok(()));
    w.effects.clear();
    let refused = |w: &mut World, by_driver| {
        one.segment.account(0).refuse(1);
        w.say(&one, Message::MemoryRefused { slot: 0, bytes: 4 * GIB, by_driver });
        let lines = w.effects.drain(..).filter_map(|effect| match effect {
            Effect::Log(_, line) => Some(line),
            _ => None,
        });
        lines.collect::<Vec<_>>()
    };
    let name = format!("process {} (train.py)", one.pid);
    let why = "the limit of the program is 10 GiB, and 8 GiB are in use, 8 GiB of 80 GiB are train.py's (normal)";
    assert_eq!(refused(&mut w, false), [format!("{name}: 4 GiB of {DEVICE} were refused: {why}")]);
    for _ in 0..1_000 {
        assert!(refused(&mut w, false).is_empty());
    }
    w.pass_us(10_000_000);
    let why = "8 GiB of 80 GiB are train.py's (normal); 1001 allocations were refused since the last such line";
    assert_eq!(refused(&mut w, true), [format!("{name}: 4 GiB of {DEVICE} were refused by the driver: {why}")]);
    assert!(refused(&mut w, true).is_empty());
    w.leave(&one);
    let last = format!("{name}: 1 more allocations were refused before it ended");
    assert!(w.effects.iter().any(|effect| matches!(effect, Effect::Log(_, line) if *line == last)), "{:?}", w.effects);
}

#[test]
fn programs_of_others_are_not_named_and_a_question_for_no_device_breaks_the_protocol() {
    let mut w = World::new();
    let theirs = called(&mut w, "secret", |arrival| arrival.user = User::unknown(4_000));
    let own = called(&mut w, "own", |_| ());
    assert_eq!(allocate(&mut w, &theirs, 41 * GIB), Ok(()));
    assert_eq!(allocate(&mut w, &own, GIB), Ok(()));
    w.say(&own, Message::MemoryAsk { slot: 0, number: 4, bytes: GIB, lacking: 0, returns: false, part: false });
    assert_eq!(answer(&mut w, &own, 4).1.as_deref(), Some("1 GiB of 80 GiB are own's (normal), 41 GiB are others'"));
    for message in [
        Message::MemoryAsk { slot: 1, number: 4, bytes: 1, lacking: 0, returns: false, part: false },
        Message::MemoryDevice { slot: 0, device: DEVICE.into(), capacity_bytes: 1 },
        Message::MemoryDevice { slot: 16, device: DEVICE.into(), capacity_bytes: 1 },
        Message::MemoryDevice { slot: 2, device: "\u{1b}[2J".into(), capacity_bytes: 1 },
    ] {
        w.effects.clear();
        w.say(&own, message);
        assert!(matches!(w.effects[..], [Effect::Drop(id, _)] if id == own.id), "{:?}", w.effects);
    }
}

/// A device on which each class may hold nine tenths.
fn shared_in_parts() -> World {
    let memory = MemorySettings { classes: [Some(Amount::PerMille(900)); 5], ..MemorySettings::default() };
    World::with(xsched_engine::Settings { memory, ..settings("hpf") })
}

/// A program of a user that says a size of the device.
fn says(w: &mut World, uid: u32, capacity_bytes: u64, reserve: Option<Amount>) -> Client {
    let client = w.attach_as(|arrival| {
        arrival.user = User::unknown(uid);
        arrival.wishes.priority = Some(Class::High.nominal());
        arrival.wishes.memory_reserve = reserve;
    });
    w.say(&client, Message::MemoryDevice { slot: 0, device: DEVICE.into(), capacity_bytes });
    w.effects.clear();
    client
}

#[test]
fn a_word_on_the_size_of_a_device_decides_nothing_for_other_users() {
    for lie in [1 << 20, 1 << 63, u64::MAX] {
        let mut w = shared_in_parts();
        let liar = says(&mut w, 4_000, lie, None);
        liar.segment.account(0).take_anyway(lie / 2);
        liar.segment.account(0).away_bytes.store(lie / 2, SeqCst);
        w.input(Input::MemoryTime);
        let _ = allocate(&mut w, &liar, lie / 4);
        let (one, other) = (says(&mut w, 4_001, CAPACITY, None), says(&mut w, 4_002, CAPACITY, None));
        assert_eq!(allocate(&mut w, &one, GIB), Ok(()), "beside {lie}");
        assert_eq!(allocate(&mut w, &one, 49 * GIB), Ok(()));
        // Users that say the same share the device.
        let why = allocate(&mut w, &other, 30 * GIB).expect_err("72 GiB for all");
        assert!(why.starts_with("the limit of class high is 72 GiB, and 50 GiB are in use"), "{why}");
        assert_eq!(allocate(&mut w, &other, 22 * GIB), Ok(()));
    }
}

#[test]
fn the_size_that_a_driver_tells_counts_for_all() {
    let mut w = shared_in_parts();
    let (liar, one) = (says(&mut w, 4_000, 1 << 63, None), says(&mut w, 4_001, CAPACITY, None));
    let state = xsched_proto::device::DeviceState { memory_total_bytes: Some(40 * GIB), ..Default::default() };
    w.input(Input::Device(DEVICE.into(), Some(Box::new(state))));
    let told = |w: &World, client: &Client| w.engine.memory_of(client.id)[0].capacity_bytes;
    assert_eq!((told(&w, &liar), told(&w, &one)), (40 * GIB, 40 * GIB));
    let why = allocate(&mut w, &one, 37 * GIB).expect_err("nine tenths of 40 GiB");
    assert!(why.starts_with("the limit of class high is 36 GiB, and "), "{why}");
    assert_eq!(allocate(&mut w, &one, 30 * GIB), Ok(()));
    // A false report takes no more from others than contexts may have without a question.
    liar.segment.account(0).take_anyway(1 << 62);
    w.input(Input::MemoryTime);
    assert_eq!(allocate(&mut w, &one, 4 * GIB), Ok(()));
    let later = says(&mut w, 4_002, 1 << 63, None);
    assert_eq!(told(&w, &later), 40 * GIB, "it is known from before");
}

#[test]
fn a_reserve_holds_against_other_users_only_as_far_as_an_operator_allows() {
    let kept = |client: &Client| client.segment.account(0).keep_free_bytes.load(SeqCst) / GIB;
    let low = |w: &mut World, uid| {
        let client = w.attach_as(|arrival| {
            arrival.user = User::unknown(uid);
            arrival.wishes.priority = Some(Class::Low.nominal());
        });
        memory(w, &client);
        client
    };
    let all = Some(Amount::PerMille(1_000));
    // Key of the user or rule, of the class, and what others leave then.
    let gib = |n| Some(Amount::Bytes(n * GIB));
    for (own, class, of_others) in [(None, None, 0), (gib(10), None, 10), (gib(10), gib(3), 10), (None, gib(3), 3)] {
        let mut reserves = [None; 5];
        reserves[2] = class;
        let memory = MemorySettings { reserves, ..MemorySettings::default() };
        let mut w = World::with(xsched_engine::Settings { memory, ..settings("hpf") });
        let urgent = w.attach_as(|arrival| {
            arrival.user = User::unknown(4_000);
            arrival.wishes.priority = Some(Class::High.nominal());
            arrival.wishes.memory_reserve = gib(30);
            arrival.terms.memory.reserve_of_others = own;
        });
        w.say(&urgent, Message::MemoryDevice { slot: 0, device: DEVICE.into(), capacity_bytes: CAPACITY });
        let (same, other) = (low(&mut w, 4_000), low(&mut w, 4_001));
        assert_eq!((kept(&same), kept(&other)), (30, of_others), "{own:?} {class:?}");
        assert_eq!(allocate(&mut w, &urgent, 8 * GIB), Ok(()));
        w.input(Input::MemoryTime);
        assert_eq!((kept(&same), kept(&other)), (22, of_others.saturating_sub(8)), "it has taken some of it");
    }
    // A part of a device whose size only the program says is nothing to others, and a rule's own reserve holds for all.
    let mut w = World::new();
    let other = low(&mut w, 4_001);
    let urgent = says(&mut w, 4_000, CAPACITY, all);
    assert_eq!(kept(&other), 0);
    w.leave(&urgent);
    let urgent = w.attach_as(|arrival| {
        arrival.user = User::unknown(4_000);
        arrival.wishes.priority = Some(Class::High.nominal());
        arrival.terms.memory.reserve = gib(6);
    });
    w.say(&urgent, Message::MemoryDevice { slot: 0, device: DEVICE.into(), capacity_bytes: CAPACITY });
    assert_eq!(kept(&other), 6);
}
