//! Room for programs that do not fit together: who leaves for whom, and when. A program does as it is told, unless a test says otherwise.

use std::sync::atomic::Ordering::SeqCst;

use crate::support::{Client, OWN, World, settings};
use xsched_engine::tuning::WANTS_MAX;
use xsched_engine::{Effect, Input, MemorySettings, Message, User, What};
use xsched_proto::account::{Amount, Residency};
use xsched_proto::class::Class;
use xsched_proto::hint::Hints;
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
    ask_lacking(w, client, bytes, if refused { bytes } else { 0 }, returns);
}

/// A program asks for room for so many bytes, of which the driver lacked some.
fn ask_lacking(w: &mut World, client: &Client, bytes: u64, lacking: u64, returns: bool) {
    w.say(client, Message::MemoryAsk { slot: 0, number: 7, bytes, lacking, returns, part: false });
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

/// An urgent program, whose last request took 30 ms, begins beside a command of 7 ms that is under way. Returns true if it waits for the
/// command's end first.
fn waits_for_the_end(away: u64, longest_us: u64, policy: &str) -> bool {
    let mut w = World::with(settings(policy));
    let low = program(&mut w, Class::Low, true, 24 * GIB);
    let urgent = program(&mut w, Class::High, false, 0);
    for client in [&low, &urgent] {
        w.cuda(client, 0, DEVICE);
        w.queue(client, 0, 0);
    }
    w.ready(&urgent, 0);
    w.pass(30_000, |w| w.gets_on(&urgent, 0));
    w.idle(&urgent, 0);
    low.segment.account(0).away_bytes.store(away, SeqCst);
    low.words(0).longest_us.store(longest_us, SeqCst);
    low.segment.queues[0].fence.store(8, SeqCst);
    low.segment.queues[0].completed_word.store(6, SeqCst);
    w.ready(&low, 0);
    w.ready(&urgent, 0);
    let begun_ns = w.now_ns;
    let mut waits = false;
    while w.now_ns < begun_ns + 3_000_000 {
        w.pass_us(50);
        w.gets_on(&urgent, 0);
        waits |= !urgent.is_open(0) && !low.is_open(0);
    }
    low.segment.queues[0].completed_word.store(8, SeqCst);
    w.pass_us(1_000);
    assert!(urgent.is_open(0) || policy != "hpf", "it has ended");
    waits
}

#[test]
fn a_command_that_may_use_memory_of_the_host_ends_before_an_urgent_program_begins() {
    assert!(waits_for_the_end(4 * GIB, 7_000, "hpf"));
    assert!(waits_for_the_end(4 * GIB, 0, "hpf"), "also if its length is not known");
    assert!(waits_for_the_end(4 * GIB, 100_000, "hpf"), "one was long: others are not");
    assert!(!waits_for_the_end(0, 7_000, "hpf"), "moments come later");
    assert!(!waits_for_the_end(4 * GIB, 7_000, "fair"), "programs take turns");
}

/// Asks for a part of a program's memory that is on the host.
fn ask_part(w: &mut World, client: &Client, bytes: u64) -> Option<bool> {
    w.effects.clear();
    w.say(client, Message::MemoryAsk { slot: 0, number: 7, bytes, lacking: 0, returns: true, part: true });
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
    w.ready(&client, 0);
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

/// A program without work does not keep the other waiting until its turn is over.
#[test]
fn the_turn_of_an_idle_program_ends() {
    let mut w = world();
    let (one, two) = (away(&mut w, 20 * GIB), program(&mut w, Class::Normal, true, 20 * GIB));
    w.cuda(&two, 0, DEVICE);
    w.ready(&two, 0);
    ask(&mut w, &one, 20 * GIB, false, true);
    later(&mut w, 3 * SECOND_NS);
    assert_eq!(ordered(&mut w, &two), None, "its turn");
    w.idle(&two, 0);
    // 40 GiB at 20 GiB/s.
    later(&mut w, SECOND_NS);
    assert_eq!(ordered(&mut w, &two), None, "idle for a moment");
    later(&mut w, 2 * SECOND_NS);
    leaves(&mut w, &two);
    assert_eq!(answer(&mut w, &one), Some(true));
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
        let ask = Message::MemoryAsk { slot: 0, number, bytes: 15 * GIB, lacking: 0, returns: false, part: false };
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

/// Sets the limit of the host store of all programs.
fn limit_host(w: &mut World, gib: u64) {
    let mut settings = w.engine.settings().clone();
    settings.memory.host_limit = Some(Amount::Bytes(gib * GIB));
    w.input(Input::Configured { settings: Box::new(settings), policies: Vec::new(), terms: Vec::new() });
}

/// Last message of a command that freezes a program, after which nothing was ordered, or none.
fn refused_freeze(w: &mut World, pids: &[u32]) -> Option<String> {
    let targets = pids.iter().map(|pid| Target::Pid(*pid)).collect();
    let command = w.begin_order(OWN, targets, What::Freeze(true));
    while w.engine.is_changing(command) && !w.engine.awaits_answers(command) {
        w.go_on(command);
    }
    w.effects.iter().find_map(|effect| match effect {
        Effect::Finish(to, DaemonMsg::Refused(why)) if *to == command => Some(why.to_string()),
        _ => None,
    })
}

#[test]
fn no_memory_leaves_beyond_the_limits_of_the_host_store() {
    let mut w = world();
    limit_host(&mut w, 12);
    let (first, second) = (program(&mut w, Class::Low, true, 10 * GIB), program(&mut w, Class::Low, true, 8 * GIB));
    let urgent = program(&mut w, Class::High, false, 0);
    let line = "the host store would hold 13 GiB of 12 GiB";
    let is_told = |w: &mut World| {
        let told = w.told(urgent.id).into_iter().find_map(|message| match message {
            DaemonMsg::MemoryAnswer { granted: false, why, .. } => why,
            _ => None,
        });
        assert!(told.as_deref().is_some_and(|why| why.ends_with(line)), "{told:?}");
    };
    // The memory of both would be needed, and the store has room for one.
    ask(&mut w, &urgent, 25 * GIB, false, false);
    is_told(&mut w);
    assert_eq!((ordered(&mut w, &first), ordered(&mut w, &second)), (None, None), "no program leaves in vain");
    ask(&mut w, &urgent, 15 * GIB, false, false);
    leaves(&mut w, &first);
    assert_eq!((answer(&mut w, &urgent), ordered(&mut w, &second)), (Some(true), None));
    assert!(urgent.segment.account(0).take(15 * GIB));
    // The next one would exceed it, by an allocation and by a freeze.
    ask(&mut w, &urgent, 10 * GIB, false, false);
    is_told(&mut w);
    limit_host(&mut w, 10);
    let frozen = refused_freeze(&mut w, &[second.pid]);
    let line = "cannot be frozen: the host store would hold 11 GiB of 10 GiB";
    assert!(frozen.as_deref().is_some_and(|why| why.ends_with(line)), "{frozen:?}");
    assert_eq!(ordered(&mut w, &second), None);
    // A smaller limit moves nothing, a larger one counts at once.
    limit_host(&mut w, 1);
    assert_eq!((ordered(&mut w, &first), ordered(&mut w, &second)), (None, None));
    limit_host(&mut w, 18);
    // The first one gives what it has left, and the second one the rest.
    w.effects.clear();
    ask(&mut w, &urgent, 10 * GIB, false, false);
    leaves(&mut w, &first);
    leaves(&mut w, &second);
    assert_eq!(answer(&mut w, &urgent), Some(true));
    let away = [&first, &second].map(|client| client.segment.account(0).away_bytes.load(SeqCst) / GIB);
    assert_eq!(away, [10, 3]);
}

#[test]
fn memory_comes_back_in_pieces_while_the_one_before_leaves_in_pieces() {
    let mut w = world();
    let first = program(&mut w, Class::Low, true, 20 * GIB);
    let second = program(&mut w, Class::Low, true, 0);
    second.segment.account(0).away_bytes.store(20 * GIB, SeqCst);
    let third = program(&mut w, Class::Low, true, 0);
    third.segment.account(0).away_bytes.store(GIB, SeqCst);
    later(&mut w, 60 * SECOND_NS);
    ask(&mut w, &second, 20 * GIB, false, true);
    let (number, order) = ordered(&mut w, &first).expect("its turn is over");
    assert_eq!((order, answer(&mut w, &second)), (MemoryOrder::Leave, None));
    let piece = |w: &mut World| {
        w.effects.clear();
        let ask = Message::MemoryAsk { slot: 0, number: 7, bytes: 5 * GIB, lacking: 0, returns: true, part: true };
        w.say(&second, ask);
        answer(w, &second) == Some(true) && second.segment.account(0).take(5 * GIB)
    };
    let leave = |bytes: u64| {
        let words = first.segment.account(0);
        words.give(bytes);
        words.away_bytes.fetch_add(bytes, SeqCst);
        words.movable_bytes.fetch_sub(bytes, SeqCst);
    };
    // The first piece has left: the other one is granted all, which it cannot have at once.
    leave(2 * GIB);
    w.effects.clear();
    w.say(&first, Message::MemoryLeaving { number });
    assert_eq!((answer(&mut w, &second), second.segment.account(0).take(20 * GIB)), (Some(true), false));
    assert_eq!([piece(&mut w), piece(&mut w), piece(&mut w)], [true, true, false], "10 GiB were free, and 2 have left");
    // Nobody else is let in between: memory that comes back waits until the second program's is there.
    w.effects.clear();
    ask(&mut w, &third, GIB, false, true);
    assert_eq!(answer(&mut w, &third), None);
    leave(4 * GIB);
    assert_eq!([piece(&mut w), piece(&mut w)], [true, false]);
    leave(14 * GIB);
    w.say(&first, Message::MemoryMoved { number, why: None });
    assert!(piece(&mut w), "the last of its 20 GiB");
    assert_eq!(second.segment.account(0).used_bytes.load(SeqCst), 20 * GIB);
}

/// Without a limit only the driver knows how much room is lacking.
#[test]
fn a_program_that_holds_less_makes_room_where_that_is_enough() {
    let mut w = world_with(None);
    let first = program(&mut w, Class::Low, true, 50 * GIB);
    let second = program(&mut w, Class::Low, true, 0);
    second.segment.account(0).away_bytes.store(60 * GIB, SeqCst);
    later(&mut w, 300 * SECOND_NS);
    ask_lacking(&mut w, &second, 60 * GIB, 51 * GIB, true);
    assert_eq!((answer(&mut w, &second), ordered(&mut w, &first)), (Some(false), None), "nobody leaves in vain");
    ask_lacking(&mut w, &second, 60 * GIB, 30 * GIB, true);
    let (number, order) = ordered(&mut w, &first).expect("an order");
    assert_eq!((order, answer(&mut w, &second)), (MemoryOrder::Leave, None));
    // A piece has left, and the rest follows: the second program can begin.
    let words = first.segment.account(0);
    words.give(2 * GIB);
    words.away_bytes.store(2 * GIB, SeqCst);
    words.movable_bytes.fetch_sub(2 * GIB, SeqCst);
    w.effects.clear();
    w.say(&first, Message::MemoryLeaving { number });
    assert_eq!(answer(&mut w, &second), Some(true));
}

#[test]
fn programs_of_one_command_share_the_room_of_the_host_store() {
    let mut w = world();
    limit_host(&mut w, 15);
    let both = [program(&mut w, Class::Low, true, 10 * GIB), program(&mut w, Class::Low, true, 10 * GIB)];
    assert_eq!(refused_freeze(&mut w, &both.each_ref().map(|client| client.pid)), None, "one of them moves");
    let orders = both.each_ref().map(|client| ordered(&mut w, client));
    let moving = orders.iter().position(Option::is_some).expect("an order");
    assert_eq!(orders[1 - moving], None);
    let (number, _) = orders[moving].expect("an order");
    let words = both[moving].segment.account(0);
    words.away_bytes.store(words.movable_bytes.swap(0, SeqCst), SeqCst);
    words.residency.store(Residency::FROZEN.0, SeqCst);
    w.effects.clear();
    w.say(&both[moving], Message::MemoryMoved { number, why: None });
    let last = w.effects.iter().find_map(|effect| match effect {
        Effect::Finish(_, DaemonMsg::Refused(why)) => Some(why.to_string()),
        _ => None,
    });
    let pid = both[1 - moving].pid;
    assert!(last.as_deref().is_some_and(|why| why.contains(&format!("process {pid} "))), "{last:?}");
}

#[test]
fn a_user_has_a_part_of_the_host_store() {
    let mut w = world();
    let attach = |w: &mut World, uid: u32| {
        let client = w.attach_as(|arrival| {
            arrival.user = User::unknown(uid);
            arrival.terms.memory.user_host = Some(Amount::PerMille(100));
            arrival.wishes.priority = Some(Class::Low.nominal());
            arrival.wishes.memory_swap = true;
        });
        w.say(&client, Message::MemoryDevice { slot: 0, device: DEVICE.into(), capacity_bytes: CAPACITY });
        ask(w, &client, 8 * GIB, false, false);
        assert!(client.segment.account(0).take(8 * GIB));
        client.segment.account(0).movable_bytes.store(8 * GIB, SeqCst);
        client
    };
    let mut settings = w.engine.settings().clone();
    settings.memory.host_bytes = 100 * GIB;
    w.input(Input::Configured { settings: Box::new(settings), policies: Vec::new(), terms: Vec::new() });
    let (one, another, other) = (attach(&mut w, 7), attach(&mut w, 7), attach(&mut w, 8));
    w.effects.clear();
    let urgent = program(&mut w, Class::High, false, 0);
    ask(&mut w, &urgent, 20 * GIB, false, false);
    let orders = [&one, &another, &other].map(|client| ordered(&mut w, client).is_some());
    assert_eq!(orders, [true, false, true], "10 GiB of each user");
}

/// Program that gives its memory back after so many idle seconds, with a group on the device.
fn idler(w: &mut World, own_s: Option<u32>, rule_s: Option<u32>) -> Client {
    let client = w.attach_as(|arrival| {
        arrival.wishes.memory_swap = true;
        arrival.wishes.memory_idle_s = own_s;
        arrival.terms.memory.idle_s = rule_s;
    });
    w.say(&client, Message::MemoryDevice { slot: 0, device: DEVICE.into(), capacity_bytes: CAPACITY });
    ask(w, &client, 10 * GIB, false, false);
    assert!(client.segment.account(0).take(10 * GIB));
    client.segment.account(0).movable_bytes.store(10 * GIB, SeqCst);
    w.cuda(&client, 0, DEVICE);
    w.effects.clear();
    client
}

/// Lets so many seconds pass, a second at a time. Returns after how many of them a program was ordered to leave.
fn seconds_until_ordered(w: &mut World, client: &Client, most: u64) -> Option<u64> {
    (1..=most).find(|_| {
        later(w, SECOND_NS);
        w.effects
            .iter()
            .any(|effect| matches!(effect, Effect::Send(to, DaemonMsg::MemoryMove { .. }) if *to == client.id))
    })
}

#[test]
fn the_memory_of_an_idle_program_leaves_by_itself_and_is_counted() {
    let mut w = world();
    let (own, of_rule) = (idler(&mut w, Some(300), Some(30)), idler(&mut w, None, Some(60)));
    let never = idler(&mut w, None, None);
    assert!(w.engine.follows_memory());
    w.ready(&own, 0);
    assert_eq!(seconds_until_ordered(&mut w, &of_rule, 100), Some(60));
    leaves(&mut w, &of_rule);
    assert_eq!(seconds_until_ordered(&mut w, &own, 1_000), None, "it has work");
    w.idle(&own, 0);
    assert_eq!(seconds_until_ordered(&mut w, &own, 200), None);
    // A burst between two looks counts, too.
    w.ready(&own, 0);
    w.idle(&own, 0);
    assert_eq!(seconds_until_ordered(&mut w, &own, 1_000), Some(300));
    leaves(&mut w, &own);
    let told = |w: &World, client: &Client| {
        let memory = w.engine.memory_of(client.id);
        (memory[0].idle_s, memory[0].idle_leaves)
    };
    assert_eq!([&own, &of_rule, &never].map(|client| told(&w, client)), [(Some(300), 1), (Some(60), 1), (None, 0)]);
    assert_eq!(seconds_until_ordered(&mut w, &own, 1_000), None, "it is away");
    // Memory that comes back for a copy stays as long again, and so does memory that could not leave.
    ask(&mut w, &own, 10 * GIB, false, true);
    assert_eq!(answer(&mut w, &own), Some(true));
    returns(&own);
    w.effects.clear();
    assert_eq!(seconds_until_ordered(&mut w, &own, 1_000), Some(300));
    let (number, _) = ordered(&mut w, &own).expect("an order");
    w.say(&own, Message::MemoryMoved { number, why: Some("a capture".into()) });
    assert_eq!(told(&w, &own).1, 1);
    w.effects.clear();
    assert_eq!(seconds_until_ordered(&mut w, &own, 1_000), Some(5));
    assert_eq!(ordered(&mut w, &never), None);
}

/// Begins a command that freezes or thaws a program, up to the wait for its answer.
fn begin_move(w: &mut World, client: &Client, freeze: bool) -> u64 {
    let command = w.begin_order(OWN, vec![Target::Pid(client.pid)], What::Freeze(freeze));
    while !w.engine.awaits_answers(command) {
        w.go_on(command);
    }
    command
}

/// Line with which a command was refused since the last call.
fn refusal(w: &mut World, command: u64) -> Option<String> {
    let at = w.effects.iter().position(|effect| matches!(effect, Effect::Finish(to, _) if *to == command))?;
    match w.effects.remove(at) {
        Effect::Finish(_, DaemonMsg::Refused(why)) => Some(why.to_string()),
        _ => None,
    }
}

/// Passes seconds until a command has ended.
fn seconds_until_ended(w: &mut World, command: u64) -> (u64, String) {
    for n in 1..=200 {
        later(w, SECOND_NS);
        if let Some(line) = refusal(w, command) {
            return (n, line);
        }
    }
    panic!("it never ends");
}

#[test]
fn an_order_that_a_program_does_not_begin_is_given_up_and_undone() {
    let mut w = world();
    let swap = program(&mut w, Class::Normal, true, 20 * GIB);
    w.cuda(&swap, 0, DEVICE);
    w.ready(&swap, 0);
    let words = swap.segment.account(0);
    let command = begin_move(&mut w, &swap, true);
    let first = ordered(&mut w, &swap).expect("an order");
    w.effects.clear();
    let line = format!("process {} ", swap.pid);
    let (after_s, why) = seconds_until_ended(&mut w, command);
    assert_eq!((after_s, why.starts_with(&line)), (15, true), "{why}");
    assert!(why.ends_with("was not frozen: it has not begun within 15 s: is it stopped?"), "{why}");
    assert!(swap.is_open(0), "as before");
    let undone = ordered(&mut w, &swap).expect("the other order");
    assert_eq!((first.1, undone.1), (MemoryOrder::Freeze, MemoryOrder::Thaw));
    w.effects.clear();
    // Until it answers, another command is told why it cannot be frozen.
    later(&mut w, 15 * SECOND_NS);
    let why = refused_freeze(&mut w, &[swap.pid]).expect("a refusal");
    assert!(why.ends_with("has not answered an earlier order so far: is it stopped?"), "{why}");
    // The program goes on and finds both orders: a late answer to the first is none to the second.
    w.effects.clear();
    w.say(&swap, Message::MemoryMoved { number: first.0, why: Some("late".into()) });
    assert!(refused_freeze(&mut w, &[swap.pid]).is_some());
    w.effects.clear();
    w.say(&swap, Message::MemoryMoved { number: undone.0, why: None });
    // A program that moves its memory is not silent, and gets the time that this takes.
    let command = begin_move(&mut w, &swap, true);
    words.residency.store(Residency::MOVING.0, SeqCst);
    later(&mut w, 60 * SECOND_NS);
    assert_eq!(refusal(&mut w, command), None);
    let (number, _) = ordered(&mut w, &swap).expect("an order");
    words.give(words.movable_bytes.swap(0, SeqCst));
    words.away_bytes.store(20 * GIB, SeqCst);
    words.residency.store(Residency::FROZEN.0, SeqCst);
    w.effects.clear();
    w.say(&swap, Message::MemoryMoved { number, why: None });
    assert!(!swap.is_open(0));
    // A program stays frozen where it does not begin to thaw.
    let command = begin_move(&mut w, &swap, false);
    let (after_s, why) = seconds_until_ended(&mut w, command);
    assert_eq!(after_s, 15, "{why}");
    assert!(why.ends_with("was not thawed, and stays frozen: it has not begun within 15 s: is it stopped?"), "{why}");
    assert!(!swap.is_open(0));
}

#[test]
fn nobody_counts_on_the_memory_of_a_silent_program() {
    let mut w = world();
    let silent = program(&mut w, Class::Low, true, 20 * GIB);
    let other = program(&mut w, Class::Normal, true, 10 * GIB);
    let urgent = program(&mut w, Class::High, false, 0);
    ask(&mut w, &urgent, 8 * GIB, false, false);
    assert_eq!((ordered(&mut w, &silent).is_some(), ordered(&mut w, &other)), (true, None));
    later(&mut w, 5 * SECOND_NS);
    let told = w.told(urgent.id).into_iter().find_map(|message| match message {
        DaemonMsg::Note { text } => Some(text),
        _ => None,
    });
    let text = told.expect("a line");
    assert!(
        text.starts_with("waits for 8 GiB of GPU memory: the limit of the device is 30 GiB, and 30 GiB are"),
        "{text}"
    );
    w.effects.clear();
    later(&mut w, 5 * SECOND_NS);
    assert!(w.told(urgent.id).is_empty(), "once");
    assert_eq!(ordered(&mut w, &other), None);
    later(&mut w, 5 * SECOND_NS);
    leaves(&mut w, &other);
    assert_eq!(answer(&mut w, &urgent), Some(true));
}

/// Two programs of 20 GiB with these weights that always want the device, on which one of them has its memory.
fn rivals(policy: &str, weights: [u32; 2]) -> (World, [Client; 2]) {
    let memory = MemorySettings { capacity: Some(Amount::Bytes(30 * GIB)), ..MemorySettings::default() };
    let mut w = World::with(xsched_engine::Settings { memory, ..settings(policy) });
    let both = weights.map(|weight| {
        let client = w.attach_as(|arrival| {
            arrival.wishes.memory_swap = true;
            arrival.wishes.hints = Hints { weight: Some(weight), ..Hints::default() };
        });
        w.say(&client, Message::MemoryDevice { slot: 0, device: DEVICE.into(), capacity_bytes: CAPACITY });
        w.cuda(&client, 0, DEVICE);
        w.ready(&client, 0);
        client
    });
    ask(&mut w, &both[0], 20 * GIB, false, false);
    assert!(both[0].segment.account(0).take(20 * GIB));
    both[0].segment.account(0).movable_bytes.store(20 * GIB, SeqCst);
    both[1].segment.account(0).away_bytes.store(20 * GIB, SeqCst);
    w.effects.clear();
    (w, both)
}

/// Time that each of two rivals has its memory on the device over so many turns, in ns, looked at in such steps, with a second for each
/// move; and the number of moves.
fn turns(w: &mut World, both: &[Client; 2], turns: usize, step_ns: u64) -> ([u64; 2], u64) {
    let (mut at, mut held, mut moves) = (0, [0; 2], 0);
    for _ in 0..turns {
        ask(w, &both[1 - at], 20 * GIB, false, true);
        assert_eq!(answer(w, &both[1 - at]), None, "the other's turn");
        let begin = w.now_ns;
        while !w
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::Send(to, DaemonMsg::MemoryMove { .. }) if *to == both[at].id))
        {
            later(w, step_ns);
            assert!(w.now_ns - begin < 400 * SECOND_NS, "the turn ends");
        }
        held[at] += w.now_ns - begin;
        w.now_ns += SECOND_NS;
        leaves(w, &both[at]);
        assert_eq!(answer(w, &both[1 - at]), Some(true));
        w.now_ns += SECOND_NS;
        returns(&both[1 - at]);
        w.effects.clear();
        (at, moves) = (1 - at, moves + 2);
    }
    (held, moves)
}

#[test]
fn turns_follow_the_weights_of_the_policy() {
    for policy in ["fair", "pup"] {
        // Looks that come late, so that turns are too long.
        for step_ns in [SECOND_NS / 4, 7 * SECOND_NS / 3] {
            let (mut w, both) = rivals(policy, [100, 300]);
            let (held, moves) = turns(&mut w, &both, 20, step_ns);
            let ratio = held[1] as f64 / held[0] as f64;
            assert!((2.7..=3.3).contains(&ratio), "{policy}, {step_ns}: {ratio}, {held:?}");
            // A second each, 20 GiB at 20 GiB/s.
            let all_ns = held[0] + held[1] + moves * SECOND_NS;
            assert!(moves * SECOND_NS <= all_ns / 10, "{moves} moves in {all_ns} ns");
        }
    }
    // Without weights in force, parts are equal.
    let (mut w, both) = rivals("hpf", [100, 300]);
    let (held, _) = turns(&mut w, &both, 20, SECOND_NS / 4);
    let ratio = held[1] as f64 / held[0] as f64;
    assert!((0.95..=1.05).contains(&ratio), "{held:?}");
    // A program with very little weight has turns that are worth their moves, and the other ones are no longer than minutes.
    let (mut w, both) = rivals("pup", [1, 10_000]);
    let (held, moves) = turns(&mut w, &both, 4, SECOND_NS / 4);
    assert!(held[0] >= 2 * 3 * SECOND_NS && held[1] <= 2 * 301 * SECOND_NS && moves == 8, "{held:?}");
}
