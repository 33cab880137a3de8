//! A program that says nonsense is dropped, one that asks for too much is refused, and the others are served as before: tables in virtual time.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::support::memory::Segment;
use crate::support::{Client, OWN, World, arrival, new_group, terms};
use xsched_engine::{Bounds, Ceilings, Effect, Input, Inventory, Message, NewGroup, Rank, User};
use xsched_proto::hint::Hints;
use xsched_proto::segment::{GROUPS, QUEUES, state};
use xsched_proto::wire::{DaemonMsg, Levels};

/// A user without privilege.
const OTHER: User = User { uid: 60_001, rank: Rank::Other, within: 0 };

/// A world with a good program that wants its device.
fn with_a_good_program() -> (World, Client) {
    let mut w = World::new();
    let good = w.attach(0);
    w.group(&good, 0, "sim:0");
    w.ready(&good, 0);
    (w, good)
}

/// A program of priority `high` comes, gets the device from the good program, and gives it back.
fn assert_still_serves(w: &mut World, good: &Client) {
    let high = w.attach(128);
    w.group(&high, 0, "sim:0");
    w.ready(&high, 0);
    assert!(!good.is_open(0) && high.is_open(0));
    w.idle(&high, 0);
    assert!(good.is_open(0));
    w.leave(&high);
}

#[test]
fn slots_and_names_that_make_no_sense() {
    let group = |slot, device: &str| {
        Message::GroupAdd(NewGroup { steps: i32::MIN, levels: Levels::NONE, ..new_group(slot, device) })
    };
    let hints = |weight| Hints { weight: Some(weight), ..Hints::default() };
    let table = [
        (group(GROUPS as u16, "sim:0"), "slot 64 of 64"),
        (group(u16::MAX, "sim:0"), "slot 65535 of 64"),
        (group(1, "sim:0"), "slot 1, which is taken"),
        (group(2, ""), "device key has 1 to 256 bytes"),
        (group(2, &"x".repeat(257)), "device key has 1 to 256 bytes"),
        (group(2, "a\nb"), "device key"),
        (Message::GroupAdd(NewGroup { fixed: Some(1_000), ..new_group(2, "sim:0") }), "priority out of range"),
        (Message::GroupRemove(7), "a group that it does not have"),
        (Message::Levels { slot: 7, levels: Levels::ONE }, "a group that it does not have"),
        (Message::GroupHint { slot: 7, priority: None, hints: Hints::default() }, "a group that it does not have"),
        (Message::GroupHint { slot: 1, priority: Some(256), hints: Hints::default() }, "is no priority"),
        (Message::ProgramHint(hints(0)), "weight is out of range"),
        (Message::QueueAdd { slot: QUEUES as u16, group: 1 }, "slot 32768 of 32768"),
        (Message::QueueAdd { slot: 0, group: 60 }, "a group that it does not have"),
        (Message::QueueRemove(3), "a queue that it does not have"),
    ];
    let (mut w, good) = with_a_good_program();
    for (message, why) in table {
        let client = w.attach(0);
        w.group(&client, 1, "sim:1");
        let before = w.engine.inventory();
        w.say(&client, message.clone());
        let fault = w.fault(&client).unwrap_or_else(|| panic!("{message:?} is taken"));
        assert!(fault.contains(why), "{message:?}: {fault}");
        assert_eq!(w.engine.inventory(), before, "{message:?} leaves something behind");
        w.input(Input::Left { program: client.id, by_itself: false });
    }
    // Steps out of all proportion are only bounded by the scale.
    let client = w.attach(130);
    w.say(&client, group(1, "sim:2"));
    assert_eq!((w.fault(&client), w.priorities(&client)), (None, vec![-255]));
    w.leave(&client);
    assert_still_serves(&mut w, &good);
    assert_eq!(w.engine.programs().len(), 1);
}

#[test]
fn words_full_of_nonsense_cost_their_program_its_connection_and_nobody_else() {
    let (mut w, good) = with_a_good_program();
    let client = w.attach(0);
    for slot in 0..GROUPS as u16 {
        w.group(&client, slot, "sim:0");
    }
    for (slot, queue) in (0..).zip(&client.segment.queues) {
        queue.group.store(u32::MAX, SeqCst);
        queue.shared.launches.store(u64::MAX, SeqCst);
        w.say(&client, Message::QueueAdd { slot, group: 0 });
    }
    client.words(0).inherited_priority.store(i32::MAX, SeqCst);
    client.words(1).launches_retired.store(u64::MAX, SeqCst);
    for slot in 0..GROUPS as u16 {
        let words = client.words(slot);
        words.bursts.store(u64::MAX, Relaxed);
        words.burst_us.store(u64::MAX, Relaxed);
        words.longest_us.store(u64::MAX, Relaxed);
        words.ready_at_ns.store(u64::MAX, Relaxed);
        words.unheard_ready_ns.store(1, Relaxed);
    }
    w.set_state(&client, 0, state::READY);
    assert_eq!(w.engine.programs()[&client.id].groups.len(), GROUPS);
    w.pass_us(100_000);
    assert_eq!(w.fault(&client), None, "figures are only believed");
    w.set_state(&client, 3, 12_345);
    assert!(w.fault(&client).expect("a reason").contains("state word"));
    w.input(Input::Left { program: client.id, by_itself: false });
    assert!((0..GROUPS as u16).all(|slot| client.is_open(slot)), "one that is dropped while it lives goes on");
    assert_still_serves(&mut w, &good);
}

/// The daemon's own user may have more than others, but not any number.
#[test]
fn more_groups_on_a_device_than_a_user_may_have() {
    let (mut w, good) = with_a_good_program();
    let full: Vec<Client> = (0..16).map(|_| w.attach(0)).collect();
    for (at, client) in full.iter().enumerate() {
        // One of the 1,024 is the good program's.
        (0..GROUPS - usize::from(at == 0)).for_each(|slot| _ = w.group(client, slot as u16, "sim:0"));
    }
    let client = w.attach(0);
    let before = w.engine.inventory();
    w.say(&client, Message::GroupAdd(new_group(0, "sim:0")));
    let why = w.fault(&client).expect("a reason");
    assert!(why.contains("has 1024 groups on sim:0, as many as a user may have: see xsched ps"), "{why}");
    assert_eq!(w.engine.inventory(), before);
    assert_eq!(client.gate(0), xsched_proto::gate::Gate::default(), "its gate was not touched");
    w.leave(&client);
    let next = w.attach(0);
    w.group(&next, 0, "sim:1");
    full.iter().chain([&next]).for_each(|client| w.leave(client));
    assert_eq!(w.engine.programs().len(), 1, "those that left are forgotten");
    assert_still_serves(&mut w, &good);
}

/// Each bound of a user, the messages that meet it, and the words by which the next one is refused.
#[test]
fn a_user_has_so_much_of_each_thing_and_room_again_once_a_program_has_left() {
    let none = terms().bounds;
    let group = |slot, device: &str| Message::GroupAdd(new_group(slot, device));
    let queue = |slot| Message::QueueAdd { slot, group: 0 };
    let table: [(Bounds, Vec<Message>, Message, &str); 5] = [
        (Bounds { groups: 2, ..none }, vec![group(0, "a"), group(1, "b")], group(2, "c"), "has 2 groups"),
        (Bounds { device_groups: 1, ..none }, vec![group(0, "a")], group(1, "a"), "has 1 groups on a"),
        (Bounds { queues: 2, ..none }, vec![group(0, "a"), queue(0), queue(1)], queue(2), "has 2 queues"),
        (Bounds { devices: 1, ..none }, vec![group(0, "a")], group(1, "b"), "has 1 devices with time"),
        (Bounds { jobs: 0, ..none }, vec![group(0, "a")], group(1, "b"), "has 0 jobs on several devices"),
    ];
    for (bounds, fill, next, why) in table {
        let mut w = World::new();
        let attach = |w: &mut World| {
            w.attach_as(|arrival| {
                arrival.user = OTHER;
                arrival.terms.bounds = bounds;
                arrival.wishes.job = Some("job".into());
            })
        };
        let first = attach(&mut w);
        let one = fill.last().expect("something").clone();
        for message in fill {
            w.say(&first, message);
            assert_eq!(w.fault(&first), None, "{why}: there is room");
        }
        let before = w.engine.inventory();
        w.say(&first, next);
        let fault = w.fault(&first).expect("a reason");
        assert!(fault.contains(why) && fault.contains("as many as a user may have"), "{fault}");
        assert_eq!(w.engine.inventory(), before, "{why}");
        w.leave(&first);
        assert_eq!(w.engine.inventory(), Inventory::default(), "nothing was ever charged");
        let second = attach(&mut w);
        w.group(&second, 0, "a");
        if let Message::QueueAdd { .. } = one {
            w.say(&second, one);
        }
        assert_eq!(w.fault(&second), None, "{why}: there is room again");
    }
}

#[test]
fn a_queue_that_is_told_again_has_moved_also_where_the_bound_is_met() {
    let mut w = World::new();
    let [first, second] = [0, 1].map(|_| {
        let client = w.attach_as(|arrival| arrival.terms.bounds.queues = 3);
        w.group(&client, 0, "sim:0");
        client
    });
    let add = |w: &mut World, client: &Client, slot| {
        w.say(client, Message::QueueAdd { slot, group: 0 });
        w.fault(client)
    };
    // Program, slot, and the queues of both then.
    for (client, slot, all) in [(&first, 0, 1), (&first, 1, 2), (&second, 0, 3), (&second, 0, 3)] {
        assert_eq!((add(&mut w, client, slot), w.engine.queue_count()), (None, all));
    }
    w.say(&second, Message::QueueRemove(0));
    assert_eq!(add(&mut w, &second, 1), None);
    let line = add(&mut w, &second, 2).expect("a line");
    assert!(line.contains("has 3 queues, as many as a user may have"), "{line}");
    w.leave(&second);
    assert_eq!(add(&mut w, &first, 2), None, "the other has room for one");
    assert_eq!(w.engine.queue_count(), 3);
}

/// Weights and turns out of all proportion are cut to the limits of their user: a rival has its share of the device.
#[test]
fn a_weight_and_turns_beyond_the_limits_are_cut() {
    let mut w = World::of("up");
    let ceilings = Ceilings { priority: 191, weight: 100, timeslice_us: 20_000 };
    let asked = Hints { weight: Some(10_000), timeslice_us: Some(10_000_000), ..Hints::default() };
    let greedy = w.attach_as(|arrival| {
        arrival.user = OTHER;
        arrival.terms.ceilings = ceilings;
    });
    let rival = w.attach(128);
    for client in [&greedy, &rival] {
        w.group(client, 0, "sim:0");
    }
    // In each way in which a program can say so itself.
    w.say(&greedy, Message::ProgramHint(asked));
    w.say(&greedy, Message::GroupHint { slot: 0, priority: None, hints: asked });
    assert_eq!(w.fault(&greedy), None);
    let of_group = w.engine.arbiter().groups().find(|(_, group)| group.program.0 == greedy.id);
    let (_, group) = of_group.expect("its group");
    assert_eq!((group.hints.weight(), group.hints.turn_us()), (100, 20_000));
    w.ready(&greedy, 0);
    w.ready(&rival, 0);
    let (mut waited_us, mut longest_us) = (0, 0);
    for _ in 0..20_000 {
        w.pass_us(100);
        for client in [&greedy, &rival] {
            let word = if client.is_open(0) { state::READY } else { state::DRAINED };
            w.gets_on(client, 0);
            w.set_state(client, 0, word);
        }
        waited_us = if rival.is_open(0) { 0 } else { waited_us + 100 };
        longest_us = longest_us.max(waited_us);
    }
    assert!((1_000..=21_000).contains(&longest_us), "it waits for a turn of 20 ms: {longest_us} us");
}

#[test]
fn programs_that_come_and_go_leave_nothing_and_disturb_nobody() {
    let (mut w, good) = with_a_good_program();
    let before = w.engine.inventory();
    for _ in 0..100 {
        let client = w.attach(7);
        w.leave(&client);
    }
    for _ in 0..30 {
        let client = w.attach(7);
        w.group(&client, 0, "sim:0");
        w.ready(&client, 0);
        assert!(!good.is_open(0));
        w.leave(&client);
        assert!(good.is_open(0));
    }
    let after = w.engine.inventory();
    assert_eq!(Inventory { books: before.books, ..after }, before);
    // Books stay open until they are recorded.
    assert!(after.books <= before.books + 30);
    assert_still_serves(&mut w, &good);
}

/// Messages, wake-ups and outcomes of programs that are gone, or were never there.
#[test]
fn inputs_about_nobody_change_nothing() {
    let (mut w, good) = with_a_good_program();
    let before = w.engine.inventory();
    let inputs = [
        Input::Left { program: 99, by_itself: true },
        Input::Message(99, Message::GroupAdd(new_group(0, "sim:0"))),
        Input::Message(99, Message::QueueAdd { slot: 0, group: 0 }),
        Input::Message(99, Message::QueueRemove(0)),
        Input::Message(99, Message::ProgramHint(Hints::default())),
        Input::Words(99),
        Input::Look(99),
        Input::Nice(vec![(99, 5)]),
        Input::Start(99, Some(1)),
        Input::Continue(99),
        Input::TimesliceUnsent { program: 99, before_us: None },
        Input::PageFailed(99),
        Input::BookClosed(99, "sim:0".into()),
        Input::Restored { program: 99, changes: Default::default(), held: true },
        Input::ActiveWindow { user: OWN, pid: Some(99) },
        Input::Device("sim:9".into(), None),
        Input::Memory("sim:9".into(), 1, vec![(99, Some(1))]),
    ];
    for input in inputs {
        let what = format!("{input:?}");
        w.input(input);
        assert_eq!(w.engine.inventory(), before, "{what}");
        let sent = w.effects.iter().filter(|effect| matches!(effect, Effect::Send(..) | Effect::Finish(..)));
        assert_eq!(sent.count(), 0, "{what}");
    }
    // A number that was spoken of is as good as any other.
    let memory = Segment::default();
    w.input(Input::Attached(99, Box::new(arrival(7, memory.clone()))));
    w.input(Input::Message(99, Message::GroupAdd(new_group(0, "sim:1"))));
    let told = w.told(99);
    assert!(matches!(told[..], [DaemonMsg::GroupAdded { slot: 0, .. }]), "{told:?}");
    assert!(memory.slot(0).gate.load().is_granted());
    assert_still_serves(&mut w, &good);
}
