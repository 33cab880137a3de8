//! Room for programs that do not fit together: who leaves for whom, and when. A program does as it is told, unless a test says otherwise.

mod support;

use std::sync::atomic::Ordering::SeqCst;

use support::{Client, OWN, World, settings};
use xsched_engine::tuning::WANTS_MAX;
use xsched_engine::{Effect, Input, MemorySettings, Message, What};
use xsched_proto::account::{Amount, Residency};
use xsched_proto::class::Class;
use xsched_proto::wire::{DaemonMsg, MemoryOrder, Target};

const GIB: u64 = 1 << 30;
const CAPACITY: u64 = 80 * GIB;
const DEVICE: &str = "sim:0";
const SECOND_NS: u64 = 1_000_000_000;

/// A device of 80 GiB, of which programs may hold 30.
fn world() -> World {
    world_with(Some(Amount::Bytes(30 * GIB)))
}

fn world_with(capacity: Option<Amount>) -> World {
    World::with(xsched_engine::Settings {
        memory: MemorySettings { capacity, ..MemorySettings::default() },
        ..settings("hpf")
    })
}

/// Program of a class that holds so much, all of which can leave if it swaps.
fn program(w: &mut World, class: Class, swap: bool, held: u64) -> Client {
    let client = w.attach_as(|arrival| {
        arrival.wishes.priority = Some(class.nominal());
        arrival.wishes.memory_swap = swap;
    });
    w.say(&client, Message::MemoryDevice { slot: 0, device: DEVICE.into(), capacity_bytes: CAPACITY });
    ask(w, &client, held, false, false);
    let words = client.segment.account(0);
    assert!(words.take(held), "there is room for it");
    words.movable_bytes.store(if swap { held } else { 0 }, SeqCst);
    w.effects.clear();
    client
}

fn ask(w: &mut World, client: &Client, bytes: u64, refused: bool, returns: bool) {
    w.say(client, Message::MemoryAsk { slot: 0, number: 7, bytes, refused, returns, part: false });
}

/// Answer of the daemon to a program's question since the last call; none = it waits.
fn answer(w: &mut World, client: &Client) -> Option<bool> {
    w.told(client.id).into_iter().find_map(|message| match message {
        DaemonMsg::MemoryAnswer { number: 7, granted, .. } => Some(granted),
        _ => None,
    })
}

/// Order of the daemon to a program since the last call.
fn ordered(w: &mut World, client: &Client) -> Option<(u32, MemoryOrder)> {
    w.told(client.id).into_iter().find_map(|message| match message {
        DaemonMsg::MemoryMove { number, order, .. } => Some((number, order)),
        _ => None,
    })
}

/// A program's memory has left, as it was ordered, or a part of it.
fn leaves(w: &mut World, client: &Client) {
    let (number, order) = ordered(w, client).expect("an order");
    let words = client.segment.account(0);
    let movable = words.movable_bytes.load(SeqCst);
    let bytes = if let MemoryOrder::Lend { bytes } = order { bytes } else { movable };
    words.movable_bytes.store(movable - bytes, SeqCst);
    words.give(bytes);
    words.away_bytes.fetch_add(bytes, SeqCst);
    if order == MemoryOrder::Freeze {
        words.residency.store(Residency::FROZEN.0, SeqCst);
    }
    w.say(client, Message::MemoryMoved { number, why: None });
}

/// A program's memory comes back, as it was granted.
fn returns(client: &Client) {
    let words = client.segment.account(0);
    let bytes = words.away_bytes.swap(0, SeqCst);
    assert!(words.take(bytes), "what was granted can be had");
    words.movable_bytes.fetch_add(bytes, SeqCst);
}

fn later(w: &mut World, ns: u64) {
    w.now_ns += ns;
    w.input(Input::MemoryTime);
}

#[test]
fn an_urgent_program_gets_the_room_of_the_least_urgent_one_at_once() {
    let mut w = world();
    let low = program(&mut w, Class::Low, true, 10 * GIB);
    let normal = program(&mut w, Class::Normal, true, 10 * GIB);
    let fixed = program(&mut w, Class::Low, false, 5 * GIB);
    let urgent = program(&mut w, Class::High, false, 0);
    ask(&mut w, &urgent, 12 * GIB, false, false);
    assert_eq!(answer(&mut w, &urgent), None);
    assert_eq!((ordered(&mut w, &normal), ordered(&mut w, &fixed)), (None, None), "one is enough");
    w.effects.clear();
    // The question is looked at again, and orders nothing twice.
    later(&mut w, SECOND_NS);
    assert_eq!((ordered(&mut w, &low), ordered(&mut w, &normal)), (None, None));
    w.leave(&urgent);
    let urgent = program(&mut w, Class::High, false, 0);
    ask(&mut w, &urgent, 12 * GIB, false, false);
    // Its first order stands.
    let words = low.segment.account(0);
    words.give(words.movable_bytes.swap(0, SeqCst));
    w.say(&low, Message::MemoryMoved { number: 1, why: None });
    assert_eq!(answer(&mut w, &urgent), Some(true));
    assert!(urgent.segment.account(0).take(12 * GIB));
    // Nobody gives room to the less urgent one, which has memory of the host then.
    ask(&mut w, &low, 10 * GIB, false, true);
    assert_eq!(answer(&mut w, &low), Some(false));
    // More than all of them have is refused, and nobody leaves in vain.
    ask(&mut w, &urgent, 20 * GIB, false, false);
    assert_eq!((answer(&mut w, &urgent), ordered(&mut w, &normal)), (Some(false), None));
}

/// Asks for a part of a program's memory that is on the host.
fn ask_part(w: &mut World, client: &Client, bytes: u64) -> Option<bool> {
    w.effects.clear();
    w.say(client, Message::MemoryAsk { slot: 0, number: 7, bytes, refused: false, returns: true, part: true });
    answer(w, client)
}

#[test]
fn a_program_lends_a_more_urgent_one_what_it_lacks_and_goes_on() {
    let mut w = world();
    let low = program(&mut w, Class::Low, true, 24 * GIB);
    w.cuda(&low, 0, DEVICE);
    w.ready(&low, 0);
    let urgent = program(&mut w, Class::High, false, 0);
    ask(&mut w, &urgent, 10 * GIB, false, false);
    leaves(&mut w, &low);
    let away = || low.segment.account(0).away_bytes.load(SeqCst);
    assert_eq!(away(), 4 * GIB);
    assert_eq!(answer(&mut w, &urgent), Some(true));
    assert!(urgent.segment.account(0).take(10 * GIB));
    // More than it lacks: the next allocations need no move.
    ask(&mut w, &urgent, 1, false, false);
    leaves(&mut w, &low);
    assert_eq!(away(), 4 * GIB + 20 * GIB / 8);
    w.effects.clear();
    ask(&mut w, &urgent, GIB, false, false);
    assert_eq!((answer(&mut w, &urgent), ordered(&mut w, &low)), (Some(true), None));
    assert!(urgent.segment.account(0).take(GIB));
    // The program is not held, and its part comes back as soon as there is room for all of it.
    assert!(low.is_open(0));
    assert_eq!(ask_part(&mut w, &low, away()), Some(false));
    assert!(low.is_open(0), "it does not wait");
    w.leave(&urgent);
    assert_eq!(ask_part(&mut w, &low, away()), Some(true));
    returns(&low);
    assert_eq!(low.segment.account(0).movable_bytes.load(SeqCst), 24 * GIB);
}

/// Room that others wait for is not taken by a part.
#[test]
fn a_part_comes_back_after_all_that_waits() {
    let mut w = world();
    let (holder, lent) = (program(&mut w, Class::Normal, true, 20 * GIB), away(&mut w, 5 * GIB));
    let first = away(&mut w, 20 * GIB);
    ask(&mut w, &first, 20 * GIB, false, true);
    assert_eq!(answer(&mut w, &first), None);
    assert_eq!(ask_part(&mut w, &lent, 5 * GIB), Some(false), "though there is room");
    later(&mut w, 20 * SECOND_NS);
    leaves(&mut w, &holder);
    assert_eq!(answer(&mut w, &first), Some(true));
    returns(&first);
    assert_eq!(ask_part(&mut w, &lent, 5 * GIB), Some(true));
}

#[test]
fn best_effort_programs_take_turns_and_wait_off_the_device() {
    let mut w = world();
    let mut both = [program(&mut w, Class::Normal, true, 20 * GIB), program(&mut w, Class::Normal, true, 0)];
    both.iter().for_each(|client| _ = w.cuda(client, 0, DEVICE));
    both.iter().for_each(|client| w.ready(client, 0));
    ask(&mut w, &both[1], 20 * GIB, false, false);
    // 40 GiB at 20 GiB/s, ten times.
    for _ in 0..19 {
        later(&mut w, SECOND_NS);
        assert_eq!(ordered(&mut w, &both[0]), None, "its turn");
    }
    later(&mut w, SECOND_NS);
    leaves(&mut w, &both[0]);
    assert_eq!(answer(&mut w, &both[1]), Some(true));
    assert!(both[1].segment.account(0).take(20 * GIB));
    both[1].segment.account(0).movable_bytes.store(20 * GIB, SeqCst);
    for _ in 0..2 {
        w.effects.clear();
        ask(&mut w, &both[0], 20 * GIB, false, true);
        assert!(!both[0].is_open(0), "it waits off the device");
        later(&mut w, 19 * SECOND_NS);
        assert_eq!((answer(&mut w, &both[0]), ordered(&mut w, &both[1])), (None, None));
        later(&mut w, SECOND_NS);
        leaves(&mut w, &both[1]);
        assert_eq!(answer(&mut w, &both[0]), Some(true));
        returns(&both[0]);
        both.swap(0, 1);
    }
    // A program that gives its question up goes on.
    ask(&mut w, &both[0], 20 * GIB, false, true);
    assert!(!both[0].is_open(0));
    w.say(&both[0], Message::MemoryMoved { number: 0, why: None });
    w.leave(&both[1]);
    assert!(both[0].is_open(0));
}

/// A program that attaches with memory on the host, as one does that was without a daemon for a while.
fn away(w: &mut World, held: u64) -> Client {
    let client = program(w, Class::Normal, true, 0);
    w.cuda(&client, 0, DEVICE);
    client.segment.account(0).away_bytes.store(held, SeqCst);
    client
}

#[test]
fn a_program_that_has_attached_anew_gets_its_next_turn_and_no_other() {
    let mut w = world();
    let (one, two) = (away(&mut w, 20 * GIB), program(&mut w, Class::Normal, true, 20 * GIB));
    ask(&mut w, &one, 20 * GIB, false, true);
    assert_eq!(answer(&mut w, &one), None, "the other's turn");
    // The other's connection ends while it moves, so that there is room. Neither that room nor the memory that is still on its way to it
    // is for the next one who asks.
    w.leave(&two);
    assert_eq!(answer(&mut w, &one), Some(true));
    let two = away(&mut w, 20 * GIB);
    ask(&mut w, &two, 20 * GIB, false, true);
    assert_eq!(answer(&mut w, &two), None, "not taken so far");
    // The other's attaching took its room back: the first one asks again, and does not wait for the other, which waits for it.
    assert!(!one.segment.account(0).take(20 * GIB));
    w.effects.clear();
    ask(&mut w, &one, 20 * GIB, false, true);
    assert_eq!(answer(&mut w, &one), Some(true));
    returns(&one);
    for (holder, waiting) in [(&one, &two), (&two, &one), (&one, &two)] {
        later(&mut w, 18 * SECOND_NS);
        assert_eq!((answer(&mut w, waiting), ordered(&mut w, holder)), (None, None), "its turn");
        later(&mut w, 2 * SECOND_NS);
        leaves(&mut w, holder);
        assert_eq!(answer(&mut w, waiting), Some(true));
        w.effects.clear();
        ask(&mut w, holder, 20 * GIB, false, true);
        assert_eq!(answer(&mut w, holder), None, "not taken so far");
        // Taken, and not there.
        assert!(waiting.segment.account(0).take(20 * GIB));
        later(&mut w, SECOND_NS / 2);
        assert_eq!(answer(&mut w, holder), None);
        waiting.segment.account(0).give(20 * GIB);
        returns(waiting);
    }
}

#[test]
fn memory_that_comes_back_does_not_overtake_what_waits() {
    let mut w = world();
    let holder = program(&mut w, Class::Normal, true, 20 * GIB);
    let (first, second) = (away(&mut w, 20 * GIB), away(&mut w, 10 * GIB));
    ask(&mut w, &first, 20 * GIB, false, true);
    ask(&mut w, &second, 10 * GIB, false, true);
    assert_eq!((answer(&mut w, &first), answer(&mut w, &second)), (None, None), "though there is room for the second");
    later(&mut w, 20 * SECOND_NS);
    leaves(&mut w, &holder);
    assert_eq!((answer(&mut w, &first), answer(&mut w, &second)), (Some(true), None));
    returns(&first);
    later(&mut w, SECOND_NS);
    assert_eq!(answer(&mut w, &second), Some(true));
}

#[test]
fn the_daemon_beats_while_threads_may_wait_for_memory_at_an_open_gate() {
    let mut w = world();
    let plain = program(&mut w, Class::Normal, false, GIB);
    assert!(!w.engine.must_beat());
    let swap = program(&mut w, Class::Normal, true, GIB);
    w.cuda(&swap, 0, DEVICE);
    w.ready(&swap, 0);
    assert!(swap.is_open(0));
    let seen = |w: &World| w.engine.heartbeat().beat_ns.load(SeqCst);
    let before = seen(&w);
    w.pass_us(200_000);
    assert!(seen(&w) > before);
    w.leave(&swap);
    assert!(!w.engine.must_beat());
    w.leave(&plain);
}

#[test]
fn so_many_questions_of_a_program_wait_for_room_and_no_more() {
    let mut w = world();
    let _low = program(&mut w, Class::Low, true, 20 * GIB);
    let urgent = program(&mut w, Class::High, false, 0);
    for number in 0..=WANTS_MAX as u32 {
        let ask = Message::MemoryAsk { slot: 0, number, bytes: 15 * GIB, refused: false, returns: false, part: false };
        w.say(&urgent, ask);
    }
    let answers = w.told(urgent.id).into_iter().filter_map(|message| match message {
        DaemonMsg::MemoryAnswer { number, granted, .. } => Some((number, granted)),
        _ => None,
    });
    assert_eq!(answers.collect::<Vec<_>>(), [(WANTS_MAX as u32, false)]);
}

#[test]
fn room_that_the_driver_lacks_is_made_and_kept_for_the_program_that_asked() {
    let mut w = world_with(None);
    let low = program(&mut w, Class::Low, true, 20 * GIB);
    let urgent = program(&mut w, Class::High, false, 0);
    ask(&mut w, &urgent, 15 * GIB, true, false);
    leaves(&mut w, &low);
    assert_eq!(answer(&mut w, &urgent), Some(true));
    ask(&mut w, &low, 20 * GIB, false, true);
    assert_eq!(answer(&mut w, &low), None, "the driver would say yes");
    later(&mut w, SECOND_NS);
    assert_eq!(answer(&mut w, &low), Some(true), "as if the other had taken it: the driver knows");
    // A program that cannot leave is not asked again at once.
    returns(&low);
    ask(&mut w, &urgent, 15 * GIB, true, false);
    let (number, _) = ordered(&mut w, &low).expect("an order");
    w.say(&low, Message::MemoryMoved { number, why: Some("a capture".into()) });
    assert_eq!((answer(&mut w, &urgent), ordered(&mut w, &low)), (Some(false), None));
}

#[test]
fn a_freeze_is_carried_through_or_undone() {
    let mut w = world();
    let swap = program(&mut w, Class::Normal, true, 20 * GIB);
    w.cuda(&swap, 0, DEVICE);
    w.ready(&swap, 0);
    let target = || vec![Target::Pid(swap.pid)];
    for why in [Some("a capture"), None] {
        let command = w.begin_order(OWN, target(), What::Freeze(true));
        while !w.engine.awaits_answers(command) {
            w.go_on(command);
        }
        assert!(!swap.is_open(0));
        match why {
            Some(why) => {
                let (number, order) = ordered(&mut w, &swap).expect("an order");
                assert_eq!(order, MemoryOrder::Freeze);
                w.say(&swap, Message::MemoryMoved { number, why: Some(why.into()) });
            }
            None => leaves(&mut w, &swap),
        }
        let last = w.effects.iter().find_map(|effect| match effect {
            Effect::Finish(to, last) if *to == command => Some(last.clone()),
            _ => None,
        });
        assert_eq!(matches!(last, Some(DaemonMsg::End)), why.is_none(), "{last:?}");
        assert_eq!(swap.is_open(0), why.is_some());
        w.effects.clear();
    }
    // A frozen program is asked for no room, and another may have it.
    let other = program(&mut w, Class::Normal, false, 0);
    ask(&mut w, &other, 30 * GIB, false, false);
    assert_eq!((answer(&mut w, &other), ordered(&mut w, &swap)), (Some(true), None));
}
