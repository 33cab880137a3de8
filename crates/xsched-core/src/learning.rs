//! Lessons on how long commands take, from fences that the device reaches. Tests, in virtual time.

use core::sync::atomic::Ordering::*;
use core::time::Duration;

use xsched_proto::gate::Gate;
use xsched_proto::segment::GroupSlot;

use crate::clock::virtual_time::{self, pass};
use crate::fast_path::{self, Entered};
use crate::{Registration, Runtime, Work, XQueue, nothing};

/// Time that a launch takes the program itself.
const LAUNCH: Duration = Duration::from_micros(5);

/// Makes a queue whose gate stands open beside rivals, with an in-flight budget in µs (0 = none) and further bits of the gate.
fn contended(budget_us: u32, bits: Gate) -> (&'static Runtime, &'static GroupSlot, &'static XQueue) {
    virtual_time::begin();
    let rt = nothing::runtime();
    rt.queue(16, || nothing::spec(16, 0)).expect("a queue");
    rt.attach(std::ptr::null_mut());
    let words = &rt.segment().groups[0];
    words.budget_us.store(budget_us, SeqCst);
    words.gate.mark(Gate::CONTENDED | bits, true);
    words.gate.grant();
    rt.groups().next().expect("its group").set_registration(rt, Registration::Attached);
    (rt, words, rt.remember(16, || None).expect("a queue"))
}

/// Launches a command of this kind. If it has a fence, the device has reached that at once, and the completion is seen.
fn launch(rt: &'static Runtime, key: u64) {
    pass(LAUNCH);
    let Entered::Slow(queue, counter) = fast_path::enter(16) else { panic!("it is watched") };
    let admission = nothing::admit(rt, queue, Work { key, ..Work::default() }, counter);
    if let Some(fence) = queue.commit(rt, &admission, true, counter) {
        queue.slot(rt).completed_word.store(fence.number, SeqCst);
    }
}

/// A command that was not seen complete by itself once stayed unknown for long: it counted as 100 µs each time, however long it was,
/// and had a fence of its own each time.
#[test]
fn a_command_that_completes_together_with_others_is_known_at_once() {
    let (rt, _, queue) = contended(1_000_000, Gate::default());
    let look = || assert!(!queue.is_held_on_device(rt));
    let known = [11, 12, 13, 14];
    for _ in 0..50 {
        known.iter().for_each(|key| {
            launch(rt, *key);
            look();
        });
    }
    let takes = |key| rt.expected_ns(key).unwrap_or(0);
    assert!(known.iter().all(|key| (1..2_000_000).contains(&takes(*key))));
    // Long commands among them: the device reaches the last fence of all before any poll.
    let round = |key| {
        known.iter().for_each(|key| launch(rt, *key));
        launch(rt, key);
        pass(Duration::from_millis(20));
        launch(rt, 11);
        launch(rt, key);
        look();
    };
    round(15);
    assert!((5_000_000..).contains(&takes(15)), "{} ns", takes(15));
    // A command cannot take longer than all those that it completed with.
    known.iter().for_each(|key| launch(rt, *key));
    launch(rt, 15);
    look();
    assert!(takes(15) < 5_000_000, "{} ns", takes(15));
}

/// A program of long commands once delayed all others for long, under MPS, before it was found out.
#[test]
fn long_commands_are_found_out_in_company_though_short_ones_follow_at_once() {
    let (rt, words, queue) = contended(0, Gate::default());
    // Each command has a fence of its own.
    let give = |key| {
        pass(LAUNCH);
        let Entered::Slow(queue, counter) = fast_path::enter(16) else { panic!("it is followed") };
        let admission = nothing::admit(rt, queue, Work { key, ..Work::default() }, counter);
        queue.commit(rt, &admission, true, counter).expect("its fence").number
    };
    let passes = |last| {
        queue.slot(rt).completed_word.store(last, SeqCst);
        assert!(!queue.is_held_on_device(rt));
    };
    let (long, short) = (21, 22);
    let mut rounds = 0;
    while words.longest_us.load(SeqCst) == 0 && rounds <= 10 {
        rounds += 1;
        // After a wait the device reaches the short one at once.
        passes(give(short));
        give(long);
        let last = give(short);
        // The completion word is polled often.
        for _ in 0..200 {
            pass(Duration::from_micros(100));
            assert!(!queue.is_held_on_device(rt));
        }
        passes(last);
    }
    assert!((4..=10).contains(&rounds), "{rounds}");
    let (long, short) = (rt.expected_ns(long).unwrap(), rt.expected_ns(short).unwrap());
    assert!(long > 10_000_000 && short < 5_000_000, "{long} and {short} ns");
    // Part of the command's time, to be sure of it.
    assert!((4_000..20_000).contains(&words.longest_us.load(SeqCst)), "{}", words.longest_us.load(SeqCst));
}

/// A program that waits for its own commands, and not for the budget, is polled now and then. A kind of command that had once been
/// measured too short stayed so, and much more than the budget was in flight.
#[test]
fn commands_that_are_longer_than_expected_are_known_by_the_pace_at_which_they_complete() {
    let (rt, _, queue) = contended(1_000_000, Gate::EXCLUSIVE);
    let give = |key| {
        let Entered::Slow(queue, counter) = fast_path::enter(16) else { panic!("it is watched") };
        let admission = nothing::admit(rt, queue, Work { key, ..Work::default() }, counter);
        queue.commit(rt, &admission, true, counter).map(|fence| fence.number)
    };
    let look = || assert!(!queue.is_held_on_device(rt));
    // These commands are seen complete by themselves, some time ago: 50 µs.
    for _ in 0..100 {
        let number = give(31);
        pass(Duration::from_micros(50));
        queue.slot(rt).completed_word.store(number.unwrap_or(0), SeqCst);
        look();
    }
    assert!(rt.expected_ns(31).is_some_and(|ns| ns <= 70_000), "{:?} ns", rt.expected_ns(31));
    // Now commands take 250 µs, eight are in flight, and polls are as frequent.
    let mut fences = std::collections::VecDeque::new();
    for _ in 0..500 {
        while fences.len() < 8 {
            fences.push_back(give(31));
        }
        pass(Duration::from_micros(250));
        let passed = fences.pop_front().flatten();
        passed.inspect(|number| queue.slot(rt).completed_word.store(*number, SeqCst));
        look();
    }
    assert!(rt.expected_ns(31).unwrap() >= 150_000, "{:?} ns", rt.expected_ns(31));
}
