//! Scenarios of [`xsched_flow::activity`].

use xsched_flow::tuning::GRACE_NS;

use crate::shared::{Do, World};
use crate::{MS, Rule, US, earns};

#[test]
fn drained_a_group_that_waits_at_its_gate_is_not_charged_for_the_device() {
    earns(Rule::Drained, |off| {
        let mut world = World::new(off, "up");
        let plan = [Do::Launch(0, 50 * US)];
        let (heavy, light) = (world.add(0, 75, &[&plan]), world.add(0, 25, &[&plan]));
        world.run(300 * MS);
        world.part(light) > 0.22 && world.part(heavy) > 0.7
    });
}

/// Runs an urgent program that rests for `rest_ns` between requests of 1 ms beside a program that fills the device. Where the rule is off,
/// the grace time is always `fixed_ns`. Returns the number of requests, and the rival's part of the device.
fn beside(off: Rule, rest_ns: u64, fixed_ns: u64) -> (usize, f64) {
    let mut world = World::new(off, "hpf");
    let plan = [Do::Each(0), Do::Launch(0, MS), Do::Sync(0), Do::End, Do::Rest(rest_ns)];
    let urgent = world.add(128, 100, &[&plan]);
    let rival = world.add(-128, 100, &[&[Do::Launch(0, 100 * US)]]);
    world.programs[urgent].fixed_grace_ns = (off == Rule::Grace).then_some(fixed_ns);
    world.run(500 * MS);
    (world.programs[urgent].took_ns.len(), world.part(rival))
}

#[test]
fn grace_a_decode_loop_does_not_give_the_device_away_between_two_tokens() {
    earns(Rule::Grace, |off| beside(off, 300 * US, GRACE_NS.0).0 > 350);
}

#[test]
fn grace_a_slow_server_does_not_keep_the_device_between_two_requests() {
    earns(Rule::Grace, |off| beside(off, 5 * MS, GRACE_NS.1).1 > 0.78);
}

#[test]
fn gaps_a_server_of_tokens_does_not_give_the_device_away_for_little() {
    earns(Rule::Gaps, |off| {
        let mut world = World::new(off, "hpf");
        let plan = [Do::Each(0), Do::Launch(0, MS), Do::Sync(0), Do::End, Do::Rest(600 * US)];
        let urgent = world.add(128, 100, &[&plan]);
        world.add(-128, 100, &[&[Do::Launch(0, 100 * US)]]);
        world.run(1_000 * MS);
        // 1.6 ms each, alone.
        world.programs[urgent].took_ns.len() > 600
    });
}

#[test]
fn gaps_longer_ones_are_given_away_as_the_budget_pays_for() {
    let mut world = World::new(Rule::None, "hpf");
    let plan = [Do::Each(0), Do::Launch(0, MS), Do::Sync(0), Do::End, Do::Rest(2 * MS)];
    let urgent = world.add(128, 100, &[&plan]);
    let rival = world.add(-128, 100, &[&[Do::Launch(0, 100 * US)]]);
    world.run(2_000 * MS);
    let (requests, part) = (world.programs[urgent].took_ns.len(), world.part(rival));
    assert!(requests as f64 > 0.95 * 2_000.0 / 3.0 && part > 0.2, "{requests}, {part}");
}

#[test]
fn stopped_time_an_interrupted_program_is_not_taken_for_idle() {
    earns(Rule::StoppedTime, |off| {
        // The rival's kernel began while the rival was alone, so that no fence follows it. The rival polls memory until the kernel is
        // complete.
        let mut world = World::new(off, "up");
        let long = world.add(0, 10, &[&[Do::Each(0), Do::Launch(0, 80 * MS), Do::Poll(0), Do::End]]);
        world.programs[long].interrupts = true;
        world.run(10 * MS);
        world.add(0, 90, &[&[Do::Launch(0, 100 * US)]]);
        world.run(1_000 * MS);
        !world.programs[long].took_ns.is_empty()
    });
}
