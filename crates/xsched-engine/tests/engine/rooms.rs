//! Work on the memory of devices under very many programs and questions: bounds, the length of a piece, and the order of answers.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::support::{Client, OWN, World, settings, terms};
use xsched_engine::tuning::{
    DEVICE_HOLDERS_MAX, DEVICE_WANTS_MAX, HOLDERS_MAX, PIECE_STEPS, QUESTIONS_STEPS, STEPS_OF_HOLDER, WANTS_MAX,
};
use xsched_engine::{Bounds, Ceilings, Effect, Input, MemorySettings, Message, Rank, Terms, User};
use xsched_proto::account::Amount;
use xsched_proto::class::Class;
use xsched_proto::wire::{DaemonMsg, MemoryOrder};
use xsched_testkit::own_time;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
const CAPACITY: u64 = 80 * GIB;
const DEVICE: &str = "sim:0";
/// Groups of a user without privilege on one device, and processes with memory there.
const USER_PROGRAMS: usize = 128;

fn user(n: u32) -> User {
    User { uid: 60_000 + n, rank: Rank::Other, within: 0 }
}

/// Terms of a user without privilege.
fn usual() -> Terms {
    let bounds = Bounds { groups: 512, device_groups: USER_PROGRAMS, devices: 64, ..terms().bounds };
    Terms { ceilings: Ceilings { priority: 191, ..Ceilings::NONE }, bounds, ..terms() }
}

fn world(capacity: Option<Amount>) -> World {
    let memory = MemorySettings { capacity, ..MemorySettings::default() };
    World::with(xsched_engine::Settings { memory, ..settings("hpf") })
}

/// Program of a user that uses memory of a device, if it may.
fn holder(w: &mut World, of: User, class: Class, device: &str, limit: Option<u64>, reserve: Option<u64>) -> Client {
    let client = w.attach_as(|arrival| {
        (arrival.user, arrival.terms) = (of, if of == OWN { terms() } else { usual() });
        arrival.wishes.priority = Some(class.nominal());
        arrival.wishes.memory_swap = true;
        arrival.wishes.memory_limit = limit.map(Amount::Bytes);
        arrival.wishes.memory_reserve = reserve.map(Amount::Bytes);
    });
    // Effects are looked through for faults: those before it are of no interest.
    w.effects.clear();
    w.say(&client, Message::MemoryDevice { slot: 0, device: device.into(), capacity_bytes: CAPACITY });
    client
}

fn holds(client: &Client, bytes: u64) {
    let words = client.segment.account(0);
    words.take_anyway(bytes);
    words.movable_bytes.store(bytes, SeqCst);
}

fn ask(w: &mut World, client: &Client, number: u32, bytes: u64) {
    w.say(client, Message::MemoryAsk { slot: 0, number, bytes, lacking: bytes, returns: false, part: false });
}

/// Answers since the last call, in order: connection, number, granted.
fn answers(w: &mut World) -> Vec<(u64, u32, bool)> {
    let told = std::mem::take(&mut w.effects);
    let of = |effect| match effect {
        Effect::Send(id, DaemonMsg::MemoryAnswer { number, granted, .. }) if number > 0 => Some((id, number, granted)),
        _ => None,
    };
    told.into_iter().filter_map(of).collect()
}

#[test]
fn processes_with_memory_are_bounded_by_user_and_device_and_newcomers_find_a_place() {
    let mut w = world(None);
    let mut is_held = |of: User, device: &str| {
        let client = holder(&mut w, of, Class::Normal, device, None, None);
        let why = w.fault(&client);
        if why.is_some() {
            w.leave(&client);
        }
        (client, why)
    };
    for n in 0..USER_PROGRAMS {
        assert_eq!(is_held(user(0), DEVICE).1, None, "process {n}");
    }
    let why = is_held(user(0), DEVICE).1.expect("one too many");
    assert!(why.contains("128 processes with memory on sim:0"), "{why}");
    // Users with much leave a quarter of the table to others.
    let mut held = USER_PROGRAMS;
    'full: for n in 1..20 {
        for _ in 0..USER_PROGRAMS {
            if is_held(user(n), DEVICE).1.is_some() {
                break 'full;
            }
            held += 1;
        }
    }
    assert_eq!(held, DEVICE_HOLDERS_MAX / 4 * 3 + DEVICE_HOLDERS_MAX / 64, "the last user has little");
    let why = is_held(user(3), DEVICE).1.expect("the table is full for it");
    assert!(why.contains("as many processes with memory on sim:0 as the daemon keeps"), "{why}");
    assert_eq!(is_held(user(100), DEVICE).1, None, "a newcomer");
    assert_eq!(is_held(OWN, DEVICE).1, None);
    // Names of devices are bounded, too.
    let mut last = None;
    for n in 0..70 {
        let (client, why) = is_held(user(200), &format!("sim:{}", n + 1));
        last = why.or(last);
        assert!(client.id > 0);
    }
    assert!(last.expect("too many").contains("64 devices with memory"));
}

#[test]
fn a_program_has_one_slot_for_a_device() {
    let mut w = world(None);
    let client = holder(&mut w, user(0), Class::Normal, DEVICE, None, None);
    w.say(&client, Message::MemoryDevice { slot: 1, device: DEVICE.into(), capacity_bytes: CAPACITY });
    assert!(w.fault(&client).expect("it breaks the protocol").contains("two memory slots for sim:0"));
}

#[test]
fn processes_with_memory_are_bounded_over_all_devices() {
    let mut w = world(None);
    let (mut held, mut devices) = (0, 0);
    'full: for of in 0..200 {
        for n in 0..512 {
            let device = format!("sim:{}", n % 64);
            let client = holder(&mut w, user(of), Class::Normal, &device, None, None);
            if w.fault(&client).is_some() {
                break 'full;
            }
            (held, devices) = (held + 1, devices.max(n % 64 + 1));
        }
    }
    assert_eq!((held, devices), (HOLDERS_MAX / 4 * 3 + HOLDERS_MAX / 64, 64));
}

#[test]
fn questions_are_bounded_by_user_and_device_and_another_user_waits_as_before() {
    let mut w = world(Some(Amount::Bytes(30 * GIB)));
    let low = holder(&mut w, OWN, Class::Low, DEVICE, None, None);
    holds(&low, 28 * GIB);
    let mut waiting = 0;
    for of in 0..8 {
        let clients: Vec<Client> =
            (0..USER_PROGRAMS / 4).map(|_| holder(&mut w, user(of), Class::Normal, DEVICE, None, None)).collect();
        answers(&mut w);
        for (n, client) in clients.iter().enumerate() {
            for number in 0..WANTS_MAX as u32 + 1 {
                ask(&mut w, client, n as u32 * 100 + number + 1, 20 * GIB);
            }
        }
        // One more of a program than may wait, and all beyond those of the user.
        let refused = answers(&mut w);
        assert!(refused.iter().all(|(.., granted)| !granted), "{refused:?}");
        let may_wait = if of < 3 { 2 * USER_PROGRAMS } else { DEVICE_WANTS_MAX / 64 };
        assert_eq!(refused.len(), clients.len() * (WANTS_MAX + 1) - may_wait, "user {of}");
        waiting = w.engine.inventory().questions;
    }
    // A quarter is left to users with few.
    assert!(waiting <= DEVICE_WANTS_MAX, "{waiting}");
    let urgent = holder(&mut w, user(100), Class::High, DEVICE, None, None);
    answers(&mut w);
    ask(&mut w, &urgent, 7, 4 * GIB);
    assert_eq!(answers(&mut w), [], "it waits for memory that leaves");
}

/// A device of 30 GiB that one program fills, and so many programs of users that wait for some of it: those of users with an even number
/// are more urgent.
fn crowd(w: &mut World, programs: usize) -> (Client, Vec<Client>) {
    let low = holder(w, OWN, Class::Low, DEVICE, None, None);
    holds(&low, 29 * GIB);
    let class = |n: usize| if n.is_multiple_of(2) { Class::High } else { Class::Normal };
    let all = (0..programs).map(|n| holder(w, user((n / 64) as u32), class(n), DEVICE, None, None)).collect();
    (low, all)
}

#[test]
fn a_pass_over_many_questions_is_cut_into_pieces_and_goes_on_in_order() {
    let mut w = world(Some(Amount::Bytes(30 * GIB)));
    let (low, crowd) = crowd(&mut w, 300);
    for (n, client) in crowd.iter().enumerate() {
        ask(&mut w, client, n as u32 + 1, 90 * MIB);
    }
    let order = w.told(low.id).into_iter().find_map(|message| match message {
        DaemonMsg::MemoryMove { number, order, .. } => Some((number, order)),
        _ => None,
    });
    let (number, order) = order.expect("an order to lend");
    assert!(matches!(order, MemoryOrder::Lend { .. }), "{order:?}");
    answers(&mut w);
    // All of its memory has left: there is room for everyone.
    let words = low.segment.account(0);
    words.give(words.movable_bytes.swap(0, SeqCst));
    w.say(&low, Message::MemoryMoved { number, why: None });
    assert!(w.pieces > 3, "{} pieces", w.pieces);
    let answered = answers(&mut w);
    let asked: Vec<u32> = answered.iter().map(|(_, number, _)| *number).collect();
    let (urgent, others): (Vec<u32>, Vec<u32>) = (1..=300).partition(|number| number % 2 == 1);
    assert_eq!(asked, [urgent, others].concat(), "the most urgent ones first, then the oldest, each once");
    assert!(answered.iter().all(|(.., granted)| *granted));
    assert!(w.engine.longest_memory_piece() <= PIECE_STEPS + QUESTIONS_STEPS + 4 * 302 * STEPS_OF_HOLDER);
}

/// Users by turns that reach every bound on a device: processes with limits and reserves, each with memory that can leave, and questions.
fn every_bound(w: &mut World, asking: usize) -> Vec<Client> {
    let mut all = Vec::new();
    for n in 0..DEVICE_HOLDERS_MAX {
        let class = [Class::Low, Class::Normal, Class::High][n % 3];
        let of = user((n % 64) as u32);
        let client = holder(w, of, class, DEVICE, Some(GIB + n as u64), Some(10 * MIB));
        assert_eq!(w.fault(&client), None, "process {n}");
        holds(&client, 64 * MIB);
        all.push(client);
    }
    w.effects.clear();
    for (n, client) in all.iter().cycle().take(asking).enumerate() {
        ask(w, client, n as u32 + 1, if n % 5 == 0 { 2 * GIB } else { 900 * MIB });
        w.effects.clear();
    }
    all
}

fn crowded() -> World {
    let memory = MemorySettings {
        capacity: Some(Amount::Bytes(78 * GIB)),
        classes: [Some(Amount::Bytes(70 * GIB)); 5],
        host_limit: Some(Amount::Bytes(100 * GIB)),
        host_bytes: 128 * GIB,
        ..MemorySettings::default()
    };
    World::with(xsched_engine::Settings { memory, ..settings("hpf") })
}

#[test]
fn a_piece_of_work_on_memory_has_a_bound_with_every_bound_reached() {
    let mut w = crowded();
    // Of questions there are fewer: their bound is reached above, and each of them looks at every process here.
    let all = every_bound(&mut w, 300);
    assert!(w.engine.inventory().questions > 100, "{}", w.engine.inventory().questions);
    // One scan of each kind begins a piece: of terms, of the room, of givers, of turns, of the store.
    let most = PIECE_STEPS + QUESTIONS_STEPS + 7 * DEVICE_HOLDERS_MAX * STEPS_OF_HOLDER;
    w.now_ns += 250_000_000;
    w.input(Input::MemoryTime);
    assert!(w.pieces > 0);
    w.effects.clear();
    w.engine.handle(w.now_ns, Input::MemoryTime);
    all.iter()
        .take(100)
        .for_each(|client| w.engine.handle(w.now_ns, Input::Left { program: client.id, by_itself: true }));
    assert!(w.engine.has_memory_work(), "departures lead to one work for all of them");
    w.input(Input::Decide);
    assert!(!w.engine.has_memory_work());
    assert!(w.engine.longest_memory_piece() <= most, "{} of {most}", w.engine.longest_memory_piece());
    let left = w.engine.inventory();
    assert_eq!((left.holders, left.memory_work), (DEVICE_HOLDERS_MAX - 100, 0));
}

/// Prints how long pieces take with every bound reached, and how long it takes until the last of 10,000 questions is answered: processor time
/// of each piece. A measurement, to be run alone: `cargo test --release -p xsched-engine --test engine longest -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement; `cargo test --release -p xsched-engine --test engine longest -- --ignored --nocapture`"]
fn the_longest_piece_of_work_on_memory_in_time() {
    let mut w = crowded();
    let all = every_bound(&mut w, 2 * DEVICE_HOLDERS_MAX);
    let mut longest: Vec<(Duration, &str)> = Vec::new();
    let mut time = |w: &mut World, what: &'static str, input| {
        let begin = own_time();
        w.engine.handle(w.now_ns, input);
        longest.push((own_time() - begin, what));
        while w.engine.next_effect().is_some() {}
        while w.engine.has_memory_work() {
            let begin = own_time();
            w.engine.handle(w.now_ns, Input::MemoryWork);
            longest.push((own_time() - begin, "a piece"));
            while w.engine.next_effect().is_some() {}
        }
    };
    let question = |number| Message::MemoryAsk {
        slot: 0,
        number,
        bytes: 900 * MIB,
        lacking: 900 * MIB,
        returns: false,
        part: false,
    };
    let begin = Instant::now();
    for n in 0..10_000 {
        let client = &all[n % all.len()];
        time(&mut w, "a question", Input::Message(client.id, question(n as u32 + 1)));
    }
    println!("10,000 questions decided or waiting after {:.2?}", begin.elapsed());
    for _ in 0..4 {
        w.now_ns += 250_000_000;
        let begin = Instant::now();
        time(&mut w, "the time", Input::MemoryTime);
        println!("{} questions wait; a pass over all: {:.2?}", w.engine.inventory().questions, begin.elapsed());
    }
    let begin = Instant::now();
    for client in &all[..512] {
        time(&mut w, "a departure", Input::Left { program: client.id, by_itself: true });
    }
    println!("512 departures: {:.2?}", begin.elapsed());
    for what in ["a question", "the time", "a departure", "a piece"] {
        let mut of: Vec<Duration> = longest.iter().filter(|(_, kind)| *kind == what).map(|(took, _)| *took).collect();
        of.sort();
        let at = |part: usize| of[(of.len() - 1) * part / 100];
        println!("{what}: median {:.1?}, P99 {:.1?}, longest {:.1?} of {}", at(50), at(99), at(100), of.len());
    }
}
