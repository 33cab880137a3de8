//! Scenarios of [`xsched_flow::watchdog`].

use crate::flat_out::FlatOut;
use crate::shared::{Do, World};
use crate::{MS, Rule, US, earns};

/// Runs a kernel that spins until another kernel has run, which the same thread launches as its `commands`th. Returns the time at which
/// that one is launched, in ns; none = the program hangs.
fn until_provided(off: Rule, commands: u64) -> Option<u64> {
    let mut world = FlatOut::new(off).knows(7, 50 * US).with(|world| world.spins_until = commands);
    let began = world.now;
    while world.launches < commands && !world.hangs {
        world.launch(7, 50 * US, 0);
    }
    (!world.hangs).then(|| world.now - began)
}

#[test]
fn override_a_program_that_waits_for_itself_gets_on() {
    earns(Rule::Override, |off| until_provided(off, 12).is_some_and(|ns| ns < 100 * MS));
}

#[test]
fn overrides_in_a_row_a_thousand_commands_do_not_take_a_thousand_waits() {
    earns(Rule::OverridesInARow, |off| until_provided(off, 1_000).is_some_and(|ns| ns < 500 * MS));
}

#[test]
fn patience_long_commands_are_not_taken_for_a_deadlock() {
    earns(Rule::Patience, |off| {
        let mut world = FlatOut::new(off).knows(7, 100 * MS);
        world.run(1_000 * MS, 100 * MS);
        world.most_ahead_ns <= 210 * MS
    });
}

/// Builds an urgent program that receives requests of 5 ms each 10 ms, beside `programs` programs that follow `plan` at level 2.
fn requests_beside(off: Rule, programs: usize, plan: &[Do]) -> World {
    let mut world = World::new(off, "hpf");
    world.add(128, 100, &[&[Do::Each(10 * MS), Do::Launch(0, 5 * MS), Do::Sync(0), Do::End]]);
    for _ in 0..programs {
        let program = world.add(-128, 100, &[plan]);
        world.programs[program].has_gates = true;
    }
    world.run(500 * MS);
    world
}

fn waits_for_another_queue(known: bool) -> [Do; 4] {
    let after = Do::LaunchAfter { stream: 1, other: 0, ns: 200 * US, known };
    [Do::Launch(0, 200 * US), Do::Launch(0, 200 * US), after, Do::Sync(1)]
}

#[test]
fn release_what_is_held_for_long_goes_on_though_it_keeps_a_rival_from_ever_being_idle() {
    earns(Rule::Release, |off| {
        let mut world = requests_beside(off, 3, &waits_for_another_queue(false));
        // The first release comes only after the full release timeout.
        world.run(9_500 * MS);
        println!("{} {}", world.part(1), world.median_ns(0));
        world.part(1) > 0.01 && world.median_ns(0) < 30 * MS
    });
}

#[test]
fn bypass_queues_that_wait_for_each_other_are_not_held_on_the_device() {
    earns(Rule::Bypass, |off| {
        let world = requests_beside(off, 3, &waits_for_another_queue(true));
        world.median_ns(0) < 7 * MS
    });
}

#[test]
fn bypass_nothing_is_held_while_code_is_loaded() {
    earns(Rule::Bypass, |off| {
        let world = requests_beside(off, 1, &[Do::Launch(0, 200 * US), Do::Launch(0, 200 * US), Do::Load]);
        world.median_ns(0) < 7 * MS
    });
}

#[test]
fn lease_a_program_behind_a_closed_gate_goes_on_without_its_daemon() {
    earns(Rule::Lease, |off| {
        let mut world = World::new(off, "hpf");
        world.add(128, 100, &[&[Do::Launch(0, MS)]]);
        let held = world.add(-128, 100, &[&[Do::Launch(0, MS)]]);
        // One minute without a closed gate, and so without a beat, has passed: that silence proves nothing.
        world.run(1_000 * MS);
        assert_eq!(world.part(held), 0.0);
        world.stopped_at = world.now;
        world.run(1_000 * MS);
        world.part(held) > 0.0
    });
}
