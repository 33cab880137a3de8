//! Scenarios of [`xsched_flow::admission`].

use crate::flat_out::FlatOut;
use crate::shared::{Do, World};
use crate::{MS, Rule, US, earns};

#[test]
fn budget_a_gate_that_closes_finds_little_in_flight() {
    earns(Rule::Budget, |off| {
        let mut world = FlatOut::new(off).knows(7, 20 * US);
        world.run(50 * MS, 20 * US);
        world.most_ahead_ns <= MS
    });
}

#[test]
fn lead_the_device_finds_its_next_command_when_it_ends_one() {
    earns(Rule::Lead, |off| {
        // A host that takes 50 µs for a launch, which is possible with Python.
        let mut world = FlatOut::new(off).knows(7, 600 * US).with(|world| world.host_ns = 50 * US);
        world.run(100 * MS, 600 * US) > 0.95
    });
}

#[test]
fn consumed_what_the_running_command_has_used_up_is_not_in_flight() {
    earns(Rule::Consumed, |off| {
        let mut world = FlatOut::new(off).knows(7, 600 * US).with(|world| world.host_ns = 50 * US);
        world.run(100 * MS, 600 * US) > 0.95
    });
}

#[test]
fn awake_a_thread_about_to_launch_does_not_sleep() {
    earns(Rule::Awake, |off| {
        let mut world = FlatOut::new(off).knows(7, 450 * US);
        world.run(100 * MS, 450 * US) > 0.97
    });
}

#[test]
fn fences_by_time_a_budget_of_long_commands_is_known_to_be_used_up() {
    earns(Rule::TimeFences, |off| {
        let mut world = FlatOut::new(off).knows(7, 300 * US);
        world.run(100 * MS, 300 * US);
        world.most_ahead_ns <= MS
    });
}

#[test]
fn gates_let_more_be_in_flight_than_a_slow_host_could_keep_up_with() {
    earns(Rule::Gates, |off| {
        let mut world = FlatOut::new(off).knows(7, 100 * US).with(|world| world.has_gates = true);
        world.run(20 * MS, 100 * US);
        // Now and then the host does something else for 1.5 ms.
        let (began, busy) = (world.now, world.busy_ns);
        for _ in 0..50 {
            world.run(3 * MS, 100 * US);
            world.now += 3 * MS / 2;
        }
        (world.busy_ns - busy) as f64 / (world.now - began) as f64 > 0.9 && world.drain_gated_ns(100 * US) <= MS
    });
}

#[test]
fn sampling_kernels_that_become_longer_are_measured_anew() {
    earns(Rule::Sampling, |off| {
        let mut world = FlatOut::new(off).knows(7, 10 * US).with(|world| world.beside_others = true);
        world.run(50 * MS, 10 * US);
        world.run(500 * MS, 30 * US);
        world.drain_ns() <= MS
    });
}

/// Builds a program that launches kernels of `ns` at level 2 and calls the driver once each ms, beside an urgent one that has the device
/// for 20 of each 40 ms.
fn held_half_the_time(off: Rule, host_ns: u64, ns: u64) -> (World, usize) {
    let mut world = World::new(off, "hpf");
    world.add(128, 100, &[&[Do::Each(40 * MS), Do::Launch(0, 20 * MS), Do::Sync(0), Do::End]]);
    let held = world.add(-128, 100, &[&[Do::Launch(0, ns)], &[Do::Query, Do::Rest(MS)]]);
    world.programs[held].has_gates = true;
    world.programs[held].host_ns = host_ns;
    world.run(400 * MS);
    (world, held)
}

#[test]
fn prequeue_a_slow_host_gets_ahead_while_it_is_held() {
    earns(Rule::Prequeue, |off| {
        let (world, held) = held_half_the_time(off, 100 * US, 50 * US);
        world.part(held) > 0.4
    });
}

#[test]
fn prequeue_no_further_than_the_driver_takes_without_a_wait() {
    earns(Rule::PrequeueLimit, |off| {
        let (world, held) = held_half_the_time(off, 5 * US, 10 * US);
        world.programs[held].longest_query_ns < MS
    });
}
