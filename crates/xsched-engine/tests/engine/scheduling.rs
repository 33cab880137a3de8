//! Attached programs get and lose their devices as the policy says: tables in virtual time. Each row is an instant, in ms, a step, and the
//! gates that stand open after it.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::support::{Client, OWN, ROOT, World, hint, new_group, settings};
use xsched_engine::{Changes, Effect, Input, Message, NewGroup, Rank, Seat, Settings, Side, User, What, check_hint};
use xsched_policy::{Choice, PoolId};
use xsched_proto::Error;
use xsched_proto::backlog::PAGES;
use xsched_proto::class::SHORT_SLICE_US;
use xsched_proto::gate::Gate;
use xsched_proto::hint::Hints;
use xsched_proto::segment::{device_place, length, state};
use xsched_proto::wire::{DaemonMsg, Levels, Platform, Sharing, Target};

const GPU: &str = "pci:0000:01:00.0";

/// A step of a table. Programs are named by their places.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A program's first group wants its device.
    Ready(usize),
    /// A program's first group wants nothing more.
    Idle(usize),
    /// A program's first group waits at its closed gate, and has nothing on the device.
    Drained(usize),
    /// A program's first group completes something and launches again.
    GetsOn(usize),
    /// The program leaves.
    Leaves(usize),
    /// Time passes.
    Nothing,
}

/// Plays a table: at each time a step, and then these programs have their devices and no others.
fn play(w: &mut World, programs: &[&Client], rows: &[(u64, Step, &[usize])]) {
    for (row, (at_ms, step, open)) in rows.iter().enumerate() {
        w.at_ms(*at_ms);
        match *step {
            Step::Ready(n) => w.ready(programs[n], 0),
            Step::Idle(n) => w.idle(programs[n], 0),
            Step::Drained(n) => w.set_state(programs[n], 0, state::DRAINED),
            Step::GetsOn(n) => w.gets_on(programs[n], 0),
            Step::Leaves(n) => w.leave(programs[n]),
            Step::Nothing => (),
        }
        let now: Vec<usize> = (0..programs.len()).filter(|n| programs[*n].is_open(0)).collect();
        assert_eq!(now, *open, "row {row}: {step:?} at {at_ms} ms");
    }
}

/// Programs with these priorities, with a group each on one device.
fn programs<const N: usize>(w: &mut World, priorities: [i32; N]) -> [Client; N] {
    priorities.map(|priority| {
        let client = w.attach(priority);
        w.group(&client, 0, "sim:0");
        client
    })
}

use Step::{Drained, GetsOn, Idle, Leaves, Nothing, Ready};

#[test]
fn a_more_urgent_program_closes_the_gate_of_another_until_it_is_idle() {
    let mut w = World::new();
    let [low, high] = [-128, 128].map(|priority| w.attach(priority));
    w.group(&low, 0, "sim:0");
    assert_eq!(low.gate(0), Gate::GRANTED, "the answer comes after the gate; alone, nothing else is set");
    assert_eq!(low.words(0).budget_us.load(SeqCst), 0);
    w.group(&high, 5, "sim:0");
    let shared = Gate::GRANTED | Gate::CONTENDED | Gate::EXCLUSIVE;
    assert_eq!([high.gate(5), low.gate(0)], [shared; 2], "watched as soon as the other registers");
    assert_eq!([&low, &high].map(|c| c.words(if c.id == low.id { 0 } else { 5 }).budget_us.load(SeqCst)), [500, 0]);
    w.ready(&low, 0);
    assert!(!high.gate(5).is_exclusive(), "the other is not alone");
    for n in 0..50 {
        w.at_ms(1 + n);
        w.ready(&high, 5);
        assert!(!low.is_open(0) && high.is_open(5));
        w.pass_us(300);
        w.idle(&high, 5);
        assert!(low.is_open(0));
    }
    let other = w.attach(128);
    w.group(&other, 0, "sim:1");
    w.ready(&other, 0);
    assert_eq!(w.engine.programs().len(), 3);
    assert!(low.is_open(0), "another device is another matter");
}

#[test]
fn programs_that_share_the_budget_have_the_least_each() {
    let mut w = World::new();
    let [first, second, _high] = programs(&mut w, [0, 0, 128]);
    let budgets = || [&first, &second].map(|client| client.words(0).budget_us.load(SeqCst));
    w.ready(&first, 0);
    assert_eq!(budgets(), [500; 2], "one alone has all of it");
    w.ready(&second, 0);
    assert_eq!(budgets(), [400; 2], "not half each");
}

#[test]
fn a_program_that_leaves_frees_its_device_at_once() {
    let mut w = World::new();
    let [low, high] = programs(&mut w, [0, 128]);
    let rows: [(u64, Step, &[usize]); 2] = [(0, Ready(0), &[0, 1]), (1, Ready(1), &[1])];
    play(&mut w, &[&low, &high], &rows);
    w.leave(&high);
    assert_eq!(low.gate(0), Gate::GRANTED, "it is no longer watched");
    assert_eq!(w.engine.programs().len(), 1);
}

#[test]
fn the_policy_changes_while_programs_run() {
    let mut w = World::new();
    let [low, high] = programs(&mut w, [0, 128]);
    play(&mut w, &[&low, &high], &[(0, Ready(0), &[0, 1]), (0, Ready(1), &[1])]);
    w.input(Input::Policy(None, Choice::named("up").expect("a policy")));
    for (n, client) in [&low, &high].into_iter().cycle().take(10).enumerate() {
        let since_ns = w.now_ns;
        while !client.is_open(0) {
            w.pass_us(100);
            w.gets_on(&low, 0);
            w.gets_on(&high, 0);
            assert!(w.now_ns - since_ns <= 20_000_000, "turn {n} comes within 20 ms");
        }
        assert!(low.is_open(0) != high.is_open(0), "they take turns");
    }
    assert!([&low, &high].iter().all(|client| client.words(0).budget_us.load(SeqCst) > 0));
    w.input(Input::Policy(None, Choice::named("priority").expect("a policy")));
    assert!(!low.is_open(0) && high.is_open(0));
}

#[test]
fn chaos_opens_and_closes_everybody() {
    let mut w = World::of("chaos");
    let [client] = programs(&mut w, [0]);
    w.ready(&client, 0);
    let mut changes = 0;
    let mut was = client.is_open(0);
    for _ in 0..2_000 {
        w.pass_us(100);
        changes += usize::from(std::mem::replace(&mut was, client.is_open(0)) != client.is_open(0));
    }
    assert!(changes >= 10, "{changes} in 200 ms, a phase has 20 ms at most");
}

#[test]
fn an_operator_suspends_and_resumes() {
    let mut w = World::new();
    let [client] = programs(&mut w, [0]);
    w.ready(&client, 0);
    let own = || vec![Target::Pid(client.pid)];
    w.order(own(), What::Hold(true)).expect("its own");
    assert!(!client.is_open(0), "closed when the command is answered");
    assert!(w.engine.programs()[&client.id].held);
    let first = w.engine.heartbeat().beat_ns.load(SeqCst);
    assert_eq!(first, w.now_ns, "a closed gate comes with a beat");
    w.pass_us(50_000);
    assert_eq!(w.engine.heartbeat().beat_ns.load(SeqCst), w.now_ns, "it beats again");
    w.group(&client, 1, "sim:1");
    assert!(!client.is_open(1), "what it adds is suspended too");
    w.order(own(), What::Hold(false)).expect("its own");
    assert!(client.is_open(0) && client.is_open(1));
    for (user, whose) in [(ROOT, ""), (OWN, " of yours")] {
        let why = format!("no process 1{whose} is attached, nor one that it started: see xsched ps");
        assert_eq!(w.order_of(user, vec![Target::Pid(1)], What::Hold(true)), Err(Error::environment(why)));
    }
}

#[test]
fn hints_change_priorities_at_once_and_queues_move_by_their_program() {
    let mut w = World::new();
    let [a, b] = [0, 100].map(|priority| w.attach(priority));
    w.group_with(&a, 0, "sim:0", 0, Levels::ONE.with(Levels::TWO));
    w.group(&b, 0, "sim:0");
    w.queue(&a, 7, 0);
    let queue = w.queue_number(&a, 7);
    play(&mut w, &[&a, &b], &[(0, Ready(0), &[0, 1]), (0, Ready(1), &[1])]);
    let of = |priority, weight, level| {
        let hints = Hints { weight, ..Hints::default() };
        hint(Changes { priority, hints, level, threshold: Some(3), batch: Some(2), by_root: false })
    };
    let both = || vec![Target::Pid(a.pid), Target::Pid(b.pid)];
    w.order(both(), of(Some(5), Some(50), None)).expect("in range");
    assert!(a.is_open(0) && b.is_open(0), "they are equal now");
    assert_eq!(a.words(0).budget_commands.load(SeqCst), 3);
    assert_eq!(a.words(0).batch_commands.load(SeqCst), 2);
    for client in [&a, &b] {
        let program = &w.engine.programs()[&client.id];
        assert_eq!((program.priority(), program.hints.weight()), (5, 50));
        assert_eq!(w.priorities(client), [5]);
    }
    assert_eq!(a.words(0).level.load(SeqCst), 2, "the highest that its device can do");
    w.told(a.id);
    w.order(vec![Target::Queue(queue)], of(Some(-9), None, Some(1))).expect("in range");
    assert_eq!(w.told(a.id), [DaemonMsg::QueuePriority { slot: 7, priority: -9 }]);
    assert_eq!([&a, &b].map(|client| client.words(0).level.load(SeqCst)), [1, 1]);
    let none = Hints::default();
    let light = Hints { weight: Some(0), ..none };
    for (priority, hints, level) in [(Some(256), none, None), (None, light, None), (None, none, Some(4))] {
        assert_eq!(check_hint(priority, &hints, level).expect_err("out of range").exit_code(), 2);
    }
    let unknown = w.order(vec![Target::Queue(99_999)], of(None, None, None));
    assert_eq!(unknown.expect_err("no queue").exit_code(), 3);
}

#[test]
fn what_a_program_says_of_its_groups_counts_within_its_ceiling() {
    let mut w = World::new();
    let client = w.attach_as(|arrival| {
        arrival.wishes.priority = Some(0);
        arrival.terms.given.ceiling = Some(191);
    });
    w.group(&client, 0, "sim:0");
    w.group(&client, 1, "sim:0");
    let say = |w: &mut World, slot, priority| {
        w.say(&client, Message::GroupHint { slot, priority, hints: Hints::default() });
    };
    // The wish of the second, and what both have then.
    for (wish, priorities) in [(Some(30), [0, 30]), (Some(250), [0, 191]), (None, [0, 0])] {
        say(&mut w, 1, wish);
        assert_eq!(w.priorities(&client), priorities, "{wish:?}");
    }
    w.ready(&client, 0);
    w.ready(&client, 1);
    say(&mut w, 1, Some(1));
    assert!(!client.is_open(0) && client.is_open(1));
    w.say(&client, Message::ProgramHint(Hints { weight: Some(7), ..Hints::default() }));
    assert_eq!(w.engine.programs()[&client.id].hints.weight(), 7, "a hint for all");
    assert_eq!(w.fault(&client), None);
    say(&mut w, 1, Some(256));
    assert!(w.fault(&client).is_some(), "nonsense ends the connection");
}

/// A program with a group of NVIDIA's.
fn cuda(w: &mut World, priority: i32) -> Client {
    let client = w.attach(priority);
    w.cuda(&client, 0, GPU);
    client
}

fn slice(us: u64) -> Vec<DaemonMsg> {
    vec![DaemonMsg::Timeslice { slot: 0, us }]
}

#[test]
fn several_best_effort_programs_on_a_gpu_get_longer_time_slices_than_one() {
    let mut w = World::new();
    let (one, high) = (cuda(&mut w, -128), cuda(&mut w, 128));
    // The maker of a context looks how many there are on its device.
    let on = |w: &World, device| w.engine.heartbeat().best_effort[device_place(device)].load(SeqCst);
    assert_eq!((on(&w, GPU), on(&w, "pci:0000:02:00.0")), (1, 0), "another device");
    let two = cuda(&mut w, -128);
    assert_eq!(on(&w, GPU), 2);
    // The first message either gets: alone, each had chosen its slice itself.
    assert_eq!([&one, &two].map(|client| w.told(client.id)), [slice(500), slice(500)]);
    w.leave(&two);
    assert_eq!(w.told(one.id), slice(SHORT_SLICE_US));
    assert_eq!(on(&w, GPU), 1);
    let hints = Hints { timeslice_us: Some(700), ..Hints::default() };
    w.order(vec![Target::All], hint(Changes { hints, ..Changes::default() })).expect("in range");
    // The urgent one's slice was never touched before.
    assert_eq!([&high, &one].map(|client| w.told(client.id)), [slice(700), slice(700)]);
}

#[test]
fn slices_of_several_best_effort_programs_follow_what_is_known_of_their_commands() {
    let mut w = World::new();
    let (one, _two, high) = (cuda(&mut w, -128), cuda(&mut w, -128), cuda(&mut w, 128));
    assert_eq!(w.told(one.id), slice(500), "nothing is known yet");
    w.ready(&one, 0);
    // A change comes with the next turn; turns that follow closely may bring none.
    let turn = |w: &mut World| {
        w.pass_us(5_000);
        w.ready(&high, 0);
        assert!(!one.is_open(0));
        w.idle(&high, 0);
        assert!(one.is_open(0));
        w.told(one.id)
    };
    turn(&mut w);
    let words = one.words(0);
    words.longest_us.store(40, SeqCst);
    assert_eq!(turn(&mut w).last(), slice(4_096).last());
    words.longest_us.store(5_000, SeqCst);
    assert_eq!(turn(&mut w).last(), slice(500).last());
    // Held to a budget, what it does now counts.
    words.lengths.store(length::SHORT, SeqCst);
    assert_eq!(turn(&mut w).last(), slice(4_096).last());
    words.lengths.store(length::LONG, SeqCst);
    assert_eq!(turn(&mut w).last(), slice(500).last());
}

#[test]
fn a_time_slice_that_was_not_told_is_told_with_a_later_turn() {
    let mut w = World::new();
    let (one, _two, high) = (cuda(&mut w, -128), cuda(&mut w, -128), cuda(&mut w, 128));
    w.told(one.id);
    w.ready(&one, 0);
    one.words(0).longest_us.store(40, SeqCst);
    let turn = |w: &mut World| {
        w.pass_us(5_000);
        w.ready(&high, 0);
        w.idle(&high, 0);
        w.told(one.id)
    };
    w.deaf.insert(one.id);
    assert_eq!([turn(&mut w), turn(&mut w)], [vec![], vec![]]);
    assert_eq!(w.engine.programs()[&one.id].told_timeslice_us, Some(500), "the one before");
    w.deaf.clear();
    assert_eq!(turn(&mut w), slice(4_096));
}

#[test]
fn what_a_suspended_program_still_executes_gets_the_device_for_a_moment() {
    let mut w = World::new();
    let (low, high) = (cuda(&mut w, -128), cuda(&mut w, 128));
    w.queue(&low, 0, 0);
    w.queue(&high, 0, 0);
    let words = low.words(0);
    words.longest_us.store(40, SeqCst);
    words.held_inside.store(1, SeqCst);
    let queue = &low.segment.queues[0];
    queue.fence.store(8, SeqCst);
    queue.completed_word.store(6, SeqCst);
    let both = [&low, &high];
    play(&mut w, &both, &[(0, Ready(0), &[0, 1]), (1, Ready(1), &[1])]);
    // While a gate inside a command holds it, it executes nothing. Four times as long as a moment is waited for.
    let opened = || high.words(0).grants.load(SeqCst);
    let before = opened();
    for at_ms in 2..=17 {
        play(&mut w, &both, &[(at_ms, GetsOn(1), &[1])]);
    }
    assert_eq!(opened(), before);
    play(&mut w, &both, &[(18, Idle(1), &[0, 1])]);
    words.held_inside.store(0, SeqCst);
    play(&mut w, &both, &[(19, Ready(1), &[1])]);
    let gets_on_until = |w: &mut World, so: &dyn Fn() -> bool, most_us: u64| {
        let since_ns = w.now_ns;
        while !so() {
            w.pass_us(50);
            w.gets_on(&high, 0);
            assert!(w.now_ns - since_ns <= most_us * 1_000);
        }
    };
    gets_on_until(&mut w, &|| !high.is_open(0), 4_100);
    assert!(!low.is_open(0), "what is under way ends, and nothing new begins");
    gets_on_until(&mut w, &|| opened() > before, 3_100);
    assert!(high.is_open(0) && !low.is_open(0));
}

#[test]
fn a_program_that_does_not_notice_its_turn_counts_as_off_the_device_when_it_ends() {
    let mut w = World::of("pup");
    let [busy, slow] = programs(&mut w, [0, 0]);
    w.ready(&busy, 0);
    w.ready(&slow, 0);
    let until = |w: &mut World, open: bool| {
        let since_ns = w.now_ns;
        while slow.is_open(0) != open {
            w.pass_us(100);
            w.gets_on(&busy, 0);
            // The busy one is off the device as soon as its gate is closed.
            w.set_state(&busy, 0, if busy.is_open(0) { state::READY } else { state::DRAINED });
            assert!(w.now_ns - since_ns <= 6_000_000, "a turn has 5 ms");
        }
    };
    until(&mut w, false);
    // A program says so whose thread waits at the gate, and sleeps through the turn that comes.
    w.set_state(&slow, 0, state::DRAINED);
    until(&mut w, true);
    until(&mut w, false);
    assert!(busy.gate(0).is_exclusive(), "only the busy one is on the device");
}

/// A program that wants to be interrupted.
fn at_level_3(w: &mut World, levels: Levels, device: &str) -> Client {
    let client = w.attach_as(|arrival| {
        arrival.wishes.level = Some(3);
        arrival.wishes.priority = Some(0);
    });
    w.group_with(&client, 0, device, 0, levels);
    client
}

#[test]
fn a_group_at_level_3_is_interrupted_when_its_gate_closes() {
    let mut w = World::new();
    let low = at_level_3(&mut w, Levels::ALL, "sim:0");
    assert_eq!(low.words(0).level.load(SeqCst), 3);
    let [high] = programs(&mut w, [128]);
    let both = [&low, &high];
    play(&mut w, &both, &[(0, Ready(0), &[0, 1]), (1, Ready(1), &[1])]);
    assert_eq!(w.told(low.id), [DaemonMsg::Interrupt { slot: 0, on: true }]);
    play(&mut w, &both, &[(2, Idle(1), &[0, 1])]);
    assert_eq!(w.told(low.id), [DaemonMsg::Interrupt { slot: 0, on: false }]);
    let lacks = at_level_3(&mut w, Levels::ONE.with(Levels::TWO), "sim:9");
    assert_eq!(lacks.words(0).level.load(SeqCst), 2, "the next lower level that the device can do");
}

#[test]
fn a_group_that_loses_level_3_while_it_is_interrupted_is_let_go_on() {
    let mut w = World::new();
    let low = at_level_3(&mut w, Levels::ALL, "sim:0");
    let [high] = programs(&mut w, [128]);
    let both = [&low, &high];
    play(&mut w, &both, &[(0, Ready(0), &[0, 1]), (1, Ready(1), &[1])]);
    assert_eq!(w.told(low.id), [DaemonMsg::Interrupt { slot: 0, on: true }]);
    // Its gate stays closed: nothing but this tells it to go on, whatever it was asked for meanwhile.
    w.say(&low, Message::Levels { slot: 0, levels: Levels::ONE });
    assert_eq!(w.told(low.id), [DaemonMsg::Interrupt { slot: 0, on: false }]);
    assert_eq!(low.words(0).level.load(SeqCst), 1);
    assert!(!low.is_open(0));
    play(&mut w, &both, &[(2, Idle(1), &[0, 1])]);
    assert_eq!(w.told(low.id), [], "once");
    w.say(&low, Message::GroupRemove(0));
    w.group(&low, 0, "sim:0");
}

/// An interruption stops all that the program has on the device.
#[test]
fn a_program_is_not_interrupted_while_it_has_another_group() {
    let mut w = World::new();
    let low = at_level_3(&mut w, Levels::ALL, "sim:0");
    let [high] = programs(&mut w, [128]);
    let both = [&low, &high];
    let interrupt = |on| DaemonMsg::Interrupt { slot: 0, on };
    play(&mut w, &both, &[(0, Ready(0), &[0, 1]), (1, Ready(1), &[1])]);
    assert_eq!(w.told(low.id), [interrupt(true)]);
    // One of its queues moves to a group that is as urgent as its rival, as `hint --queue` has it.
    w.add(&low, NewGroup { fixed: Some(128), levels: Levels::ALL, ..new_group(1, "sim:0") });
    assert_eq!(w.told(low.id), [interrupt(false)], "what it has there could not run");
    w.ready(&low, 1);
    assert!(!low.is_open(0) && low.is_open(1));
    play(&mut w, &both, &[(2, Idle(1), &[1])]);
    w.idle(&low, 1);
    play(&mut w, &both, &[(3, Nothing, &[0, 1]), (4, Ready(1), &[1])]);
    let level = hint(Changes { level: Some(3), ..Changes::default() });
    w.order(vec![Target::Pid(low.pid)], level).expect("its device has it");
    assert_eq!(w.told(low.id), [], "nor by a hint");
    w.say(&low, Message::GroupRemove(1));
    play(&mut w, &both, &[(5, Idle(1), &[0, 1]), (6, Ready(1), &[1])]);
    assert_eq!(w.told(low.id), [interrupt(true)], "it has one group again");
    // The rest of the program could never go on.
    w.say(&low, Message::GroupRemove(0));
    assert_eq!(w.told(low.id), [interrupt(false)]);
}

#[test]
fn a_level_that_is_not_there_is_refused_by_name() {
    let mut w = World::new();
    let client = w.attach(0);
    let ask = |w: &mut World, level| -> Result<Vec<DaemonMsg>, Error> {
        let changes = Changes { priority: Some(7), level: Some(level), ..Changes::default() };
        let answer = w.order(vec![Target::Pid(client.pid)], hint(changes))?;
        Ok(answer.into_iter().filter(|message| !matches!(message, DaemonMsg::Changed(_))).collect())
    };
    w.add(&client, NewGroup { platform: Platform::Opencl, ..new_group(0, "cpu:host") });
    let why = ask(&mut w, 2).expect_err("its device has level 1");
    assert_eq!(why.exit_code(), 3);
    assert_eq!(why.line(), "preemption level 2 is not available on cpu:host through opencl: use 1");
    assert_eq!(w.engine.programs()[&client.id].priority(), 0, "nothing changes");
    assert_eq!(ask(&mut w, 1), Ok(vec![]));
    // Where one device has it and another has not, it is told of the other.
    w.group_with(&client, 1, "sim:0", 0, Levels::ONE.with(Levels::TWO));
    let line = "preemption level 2 is not available on cpu:host through opencl: using level 1";
    assert_eq!(ask(&mut w, 2), Ok(vec![DaemonMsg::Note { text: line.into() }]));
    assert_eq!([0, 1].map(|slot| client.words(slot).level.load(SeqCst)), [1, 2]);
}

#[test]
fn who_neither_issues_nor_completes_anything_counts_as_idle_until_it_does() {
    let mut w = World::new();
    let [low, high] = programs(&mut w, [0, 128]);
    w.queue(&low, 0, 0);
    w.queue(&high, 0, 0);
    let both = [&low, &high];
    let launches = &high.segment.queues[0].shared.launches;
    // Looks come each 20 ms; at the second one without anything new it is found out. An idle group may begin at once.
    let rows: [(u64, Step, &[usize]); 5] = [
        (0, Ready(0), &[0, 1]),
        (0, Ready(1), &[1]),
        (1, Drained(0), &[1]),
        (39, Nothing, &[1]),
        (41, Nothing, &[0, 1]),
    ];
    play(&mut w, &both, &rows);
    assert!(high.gate(0).is_stalled());
    // A launch shows in a counter.
    launches.store(1, SeqCst);
    play(&mut w, &both, &[(61, Nothing, &[1]), (62, Drained(0), &[1]), (102, Nothing, &[0, 1])]);
    high.words(0).completed.store(1, SeqCst);
    play(&mut w, &both, &[(122, Nothing, &[1])]);
}

#[test]
fn a_waiter_lends_its_priority_to_a_group_of_its_own_program() {
    let mut w = World::new();
    let [one, other] = [0, 5].map(|priority| w.attach(priority));
    w.group(&one, 0, "sim:0");
    w.group_with(&one, 1, "sim:0", 2, Levels::ONE);
    w.group(&other, 0, "sim:0");
    let both = [&one, &other];
    play(&mut w, &both, &[(0, Ready(0), &[0, 1]), (0, Ready(1), &[1])]);
    for (lent, open) in [(20, [true, false]), (i32::MIN, [false, true])] {
        one.words(0).inherited_priority.store(lent, Relaxed);
        w.wake(&one);
        assert_eq!(both.map(|client| client.is_open(0)), open);
    }
}

/// A program that was alone goes idle unseen: it still counts as ready when a rival comes. The rival has the device once the program shows no
/// progress, and the program's next launch has to be heard of at once, not at the next look.
#[test]
fn a_launch_after_a_stall_closes_the_gate_of_the_rival_at_once() {
    let mut w = World::new();
    let high = w.attach(128);
    w.group(&high, 0, "sim:0");
    w.ready(&high, 0);
    let low = w.attach(-128);
    w.group(&low, 0, "sim:0");
    let both = [&low, &high];
    play(&mut w, &both, &[(0, Ready(0), &[1]), (1, Drained(0), &[1]), (45, Nothing, &[0, 1])]);
    assert!(high.gate(0).is_stalled());
    play(&mut w, &both, &[(46, Ready(0), &[0, 1])]);
    assert!(high.words(0).gate.go_on(), "the launch announces itself");
    w.wake(&high);
    assert!(high.is_open(0) && !low.is_open(0), "at once: no counter has moved");
}

/// Asks for what it may not have in every way there is.
#[test]
fn nothing_lifts_a_program_above_its_ceiling() {
    let mut w = World::new();
    let client = w.attach_as(|arrival| {
        arrival.wishes.priority = Some(191);
        arrival.terms.given.ceiling = Some(-100);
    });
    let group = |slot, steps, fixed, system| NewGroup { steps, fixed, system, ..new_group(slot, "sim:0") };
    w.add(&client, group(0, 0, Some(191), false));
    w.add(&client, group(1, 20, None, false));
    w.add(&client, group(2, 0, Some(255), true));
    w.add(&client, group(3, -5, None, false));
    assert_eq!(w.priorities(&client), [-100, -100, -100, -150]);
    client.words(3).inherited_priority.store(255, Relaxed);
    w.wake(&client);
    assert_eq!(w.priorities(&client), [-100; 4], "the last is lent one");
    let program = &w.engine.programs()[&client.id];
    assert_eq!((program.priority(), program.entitlement.limited), (-100, true));
    let to = |priority, by_root| hint(Changes { priority: Some(priority), by_root, ..Changes::default() });
    let own = vec![Target::Pid(client.pid)];
    assert_eq!(w.order(own.clone(), to(-90, false)).expect_err("above its ceiling").exit_code(), 3);
    w.queue(&client, 0, 3);
    let queue = vec![Target::Queue(w.queue_number(&client, 0))];
    assert_eq!(w.order(queue.clone(), to(20, false)).expect_err("above its ceiling").exit_code(), 3);
    // A priority that root gives counts all the same, for the program and for a queue.
    w.order_of(ROOT, own, to(-90, true)).expect("root's");
    assert_eq!((w.engine.programs()[&client.id].priority(), w.priorities(&client)[1]), (-90, -90));
    w.told(client.id);
    w.order_of(ROOT, queue, to(20, true)).expect("root's");
    assert_eq!(w.told(client.id), [DaemonMsg::QueuePriority { slot: 0, priority: 20 }]);
    w.add(&client, group(4, 0, Some(20), false));
    assert_eq!(w.priorities(&client)[4], 20);
}

#[test]
fn a_change_is_for_a_job_a_user_a_tree_or_all_and_says_what_it_was() {
    let mut w = World::new();
    // Process 50 started both, and process 40 that one.
    let job = |w: &mut World, job: &str| {
        let client = w.attach_as(|arrival| {
            arrival.wishes.job = Some(job.into());
            arrival.wishes.priority = Some(-128);
            arrival.ancestors = vec![arrival.pid, 50, 40, 1];
        });
        w.group(&client, 0, "sim:0");
        w.ready(&client, 0);
        client
    };
    let (one, two) = (job(&mut w, "night"), job(&mut w, "day"));
    let of = |what: &str, was: &str, now: &str| (what.to_owned(), was.to_owned(), now.to_owned());
    let state = |was: &str, now: &str| of("state", was, now);
    let night = || vec![Target::Job("night".into())];
    assert_eq!(w.changed(night(), What::Hold(true)), [state("scheduled", "suspended")]);
    assert!(!one.is_open(0) && two.is_open(0), "the other one is of another job");
    let both = [state("suspended", "suspended"), state("scheduled", "suspended")];
    assert_eq!(w.changed(vec![Target::All], What::Hold(true)), both);
    assert!(!one.is_open(0) && !two.is_open(0));
    assert_eq!(w.changed(vec![Target::User(OWN.uid)], What::Hold(false)).len(), 2);
    let hints = Hints { weight: Some(300), ..Hints::default() };
    let urgent = || hint(Changes { priority: Some(128), hints, ..Changes::default() });
    let values = w.changed(vec![Target::Pid(50)], urgent());
    let change = [of("priority", "low", "high"), of("weight", "100", "300")];
    assert_eq!(values, [change.clone(), change].concat());
    assert_eq!(w.changed(vec![Target::Tree(40)], urgent())[0], of("priority", "high", "high"));
    for nothing in [Target::Job("weekend".into()), Target::User(OWN.uid + 1), Target::Tree(u32::MAX / 4)] {
        assert_eq!(w.order(vec![nothing], urgent()).expect_err("nothing").exit_code(), 3);
    }
    // A target that means nothing leaves the others as they were.
    let mixed = vec![Target::All, Target::Job("weekend".into())];
    assert_eq!(w.order(mixed, What::Hold(true)).expect_err("nothing").exit_code(), 3);
    assert!(one.is_open(0) && two.is_open(0));
}

/// Programs are changed some at a time: in the end each is, and is told of once.
#[test]
fn a_command_changes_any_number_of_programs() {
    let mut w = World::new();
    let clients: Vec<Client> = (0..11)
        .map(|_| {
            let client = w.attach_as(|arrival| arrival.wishes.job = Some("many".into()));
            w.group(&client, 0, "sim:0");
            w.ready(&client, 0);
            client
        })
        .collect();
    let weight =
        |weight| hint(Changes { hints: Hints { weight: Some(weight), ..Hints::default() }, ..Changes::default() });
    let told = |w: &mut World, what| {
        let answer = w.order(vec![Target::Job("many".into())], what).expect("its own");
        answer.iter().filter(|message| matches!(message, DaemonMsg::Changed(_))).count()
    };
    assert_eq!(told(&mut w, weight(7)), clients.len());
    assert!(w.engine.programs().values().all(|program| program.hints.weight() == 7));
    assert_eq!(told(&mut w, What::Hold(true)), clients.len());
    assert!(clients.iter().all(|client| !client.is_open(0)));
    assert_eq!(told(&mut w, What::Hold(false)), clients.len());
    assert!(clients.iter().all(|client| client.is_open(0)));
}

/// Progress that is only claimed keeps others away for the guard's time, and no longer.
#[test]
fn a_program_that_never_leaves_its_device_lets_another_have_a_turn_each_ten_seconds() {
    let mut w = World::new();
    let [low, high] = programs(&mut w, [-128, 128]);
    let both = [&low, &high];
    play(&mut w, &both, &[(0, Ready(0), &[0, 1]), (0, Ready(1), &[1])]);
    let grants = || low.words(0).grants.load(SeqCst);
    let begin = grants();
    for second in 1..=31 {
        for ms in (0..1_000).step_by(10) {
            w.at_ms(second * 1_000 - 1_000 + ms);
            w.gets_on(&high, 0);
        }
        assert_eq!(grants() - begin, second as u32 / 10 - u32::from(second % 10 == 0), "after {second} s");
    }
}

#[test]
fn the_guard_is_as_long_as_it_is_configured() {
    for (guard_us, turns) in [(Some(1_000_000), 9), (None, 0)] {
        let mut w = World::with(xsched_engine::Settings { guard_us, ..settings("hpf") });
        let [low, high] = programs(&mut w, [-128, 128]);
        play(&mut w, &[&low, &high], &[(0, Ready(0), &[0, 1]), (0, Ready(1), &[1])]);
        let begin = low.words(0).grants.load(SeqCst);
        for ms in (0..10_000).step_by(10) {
            w.at_ms(ms);
            w.gets_on(&high, 0);
        }
        assert_eq!(low.words(0).grants.load(SeqCst) - begin, turns, "{guard_us:?}");
    }
}

/// A found case: while the first of two waiting programs has its turn, the policy would let the second run as well, which the turn
/// prevents. The second waited anew from then on.
#[test]
fn a_turn_that_is_taken_away_before_it_begins_ends_no_wait() {
    let mut w = World::with(xsched_engine::Settings { guard_us: Some(99_000), ..settings("hpf") });
    let [first, second, high] = programs(&mut w, [-128, -128, 128]);
    let all = [&first, &second, &high];
    play(&mut w, &all, &[(0, Ready(2), &[2]), (0, Ready(0), &[2]), (0, Ready(1), &[2])]);
    for ms in 1..=98 {
        play(&mut w, &all, &[(ms, GetsOn(2), &[2])]);
    }
    // A moment in which the urgent one wants nothing.
    let rows: [(u64, Step, &[usize]); 6] = [
        (99, Nothing, &[0]),
        (100, Idle(2), &[0]),
        (101, Ready(2), &[0]),
        (103, GetsOn(0), &[0]),
        (104, Nothing, &[1]),
        (109, Nothing, &[2]),
    ];
    play(&mut w, &all, &rows);
}

#[test]
fn a_program_that_leaves_gives_what_it_had_to_the_next_one() {
    let mut w = World::new();
    let [a, b, c] = programs(&mut w, [0, 128, 200]);
    let rows: [(u64, Step, &[usize]); 5] = [
        (0, Ready(0), &[0, 1, 2]),
        (1, Ready(1), &[1, 2]),
        (2, Ready(2), &[2]),
        // A gate that is given up stands open.
        (3, Leaves(2), &[1, 2]),
        (4, Idle(1), &[0, 1, 2]),
    ];
    play(&mut w, &[&a, &b, &c], &rows);
}

/// A group in a pool, by its server and the side of that.
fn pooled(server: u64, side: Side) -> NewGroup {
    let seat = Some(Seat { server: PoolId(server), side });
    NewGroup { platform: Platform::Cuda, sharing: Sharing::Pool, pool: seat, ..new_group(0, GPU) }
}

/// Pages that programs were told of since the last call: who was told, whose.
fn pages(w: &mut World) -> Vec<(u64, u64)> {
    let told = |effect: &Effect| match effect {
        Effect::Page { to, owner, .. } => Some((*to, *owner)),
        _ => None,
    };
    let found = w.effects.iter().filter_map(told).collect();
    w.effects.clear();
    found
}

#[test]
fn programs_of_a_pool_yield_to_an_urgent_one_there_which_gets_a_page_for_that() {
    let mut w = World::with(Settings { yields: true, ..settings("hpf") });
    let [low, high, outer] = [-128, 128, -128].map(|priority| w.attach(priority));
    w.add(&low, pooled(1, Side::Inner));
    w.add(&high, pooled(1, Side::Inner));
    w.add(&outer, pooled(2, Side::Outer));
    for client in [&low, &outer] {
        w.ready(client, 0);
    }
    assert_eq!(pages(&mut w), [], "it keeps nobody from the device");
    w.ready(&high, 0);
    assert_eq!(pages(&mut w), [(high.id, high.id), (low.id, high.id)]);
    assert!(!low.gate(0).yields(), "its device stores nothing there yet");
    high.words(0).publishes.store(1, SeqCst);
    w.input(Input::Decide);
    assert!(low.gate(0).yields() && !outer.gate(0).yields() && !outer.is_open(0), "another context");
    // A program that comes later is told of the page when it comes.
    let late = w.attach(-128);
    w.add(&late, pooled(1, Side::Inner));
    assert_eq!(pages(&mut w), [(late.id, high.id)]);
    w.ready(&late, 0);
    assert!(late.gate(0).yields());
    let off = Settings { yields: false, ..settings("hpf") };
    let configured = |settings| Input::Configured { settings: Box::new(settings), policies: vec![], terms: vec![] };
    w.input(configured(off));
    assert!(!low.gate(0).yields() && !late.gate(0).yields() && !low.is_open(0), "its pool's gates close as ever");
    w.input(configured(Settings { yields: true, ..settings("hpf") }));
    assert!(low.gate(0).yields() && late.gate(0).yields());
    w.leave(&high);
    assert!(low.is_open(0) && w.engine.inventory().pages == 0);
}

/// A program of a user in an MPS server that it names by a number.
fn in_server(w: &mut World, user: User, priority: i32, server: u64) -> Client {
    let client = w.attach_as(|arrival| {
        arrival.user = user;
        arrival.wishes.priority = Some(priority);
    });
    w.add(&client, NewGroup { platform: Platform::Cuda, sharing: Sharing::Spatial(server), ..new_group(0, GPU) });
    client
}

#[test]
fn a_user_takes_no_pages_of_another_and_sees_none_in_a_server_that_both_name() {
    let mut w = World::with(Settings { yields: true, ..settings("hpf") });
    let [one, other] = [60_001, 60_002].map(|uid| User { uid, rank: Rank::Other, within: 0 });
    let mut owners = Vec::new();
    for server in 0..PAGES as u64 + 2 {
        let (low, high) = (in_server(&mut w, one, -128, server), in_server(&mut w, one, 128, server));
        w.ready(&low, 0);
        w.ready(&high, 0);
        owners.extend(pages(&mut w).into_iter().filter(|(to, owner)| to == owner));
        w.idle(&high, 0);
        w.idle(&low, 0);
    }
    assert_eq!((owners.len(), w.engine.inventory().pages), (PAGES, PAGES), "all places of the user");
    let (low, high) = (in_server(&mut w, other, -128, 3), in_server(&mut w, other, 128, 3));
    assert_eq!(pages(&mut w), [], "those of the user that names the same server are not shown");
    w.ready(&low, 0);
    w.ready(&high, 0);
    assert_eq!(pages(&mut w), [(high.id, high.id), (low.id, high.id)]);
    let stranger = in_server(&mut w, one, -128, 3);
    assert!(pages(&mut w).iter().all(|(to, owner)| *to == stranger.id && *owner != high.id));
}

#[test]
fn a_stranger_that_names_a_users_server_does_not_run_beside_it() {
    let mut w = World::with(Settings { yields: false, ..settings("hpf") });
    let [one, other] = [60_001, 60_002].map(|uid| User { uid, rank: Rank::Other, within: 0 });
    let [low, high] = [-128, 128].map(|priority| in_server(&mut w, one, priority, 7));
    let stranger = in_server(&mut w, other, -128, 7);
    for client in [&low, &high, &stranger] {
        w.ready(client, 0);
    }
    assert!(low.is_open(0) && high.is_open(0) && !stranger.is_open(0));
}

/// The time slices of both differ, so that only shares can make them even.
#[test]
fn both_pools_of_a_user_are_one_to_the_shares_and_those_of_another_user_are_not() {
    let mut w = World::new();
    let mut other = None;
    for (pool, side, user) in [(1, Side::Inner, OWN), (2, Side::Outer, OWN), (3, Side::Outer, ROOT)] {
        let client = w.attach_as(|arrival| arrival.user = user);
        w.add(&client, pooled(pool, side));
        other = Some(client);
    }
    let pools: Vec<_> = w.engine.arbiter().groups().map(|(_, group)| group.pool).collect();
    assert_eq!(pools[0], pools[1]);
    assert!(pools[0].is_some() && pools[2].is_some() && pools[2] != pools[0]);
    w.leave(&other.expect("three came"));
}

#[test]
fn those_of_a_server_that_is_not_ours_run_side_by_side_where_gates_do_not_yield() {
    let spatial = || NewGroup { platform: Platform::Cuda, sharing: Sharing::Spatial(7), ..new_group(0, GPU) };
    let mut w = World::with(Settings { yields: true, ..settings("hpf") });
    let [low, high] = [-128, 128].map(|priority| w.attach(priority));
    w.add(&low, spatial());
    w.add(&high, spatial());
    w.ready(&low, 0);
    w.ready(&high, 0);
    assert!(!low.is_open(0));
    let configured = |yields| Input::Configured {
        settings: Box::new(Settings { yields, ..settings("hpf") }),
        policies: vec![],
        terms: vec![],
    };
    w.input(configured(false));
    assert!(low.is_open(0));
    w.input(configured(true));
    assert!(!low.is_open(0));
}
