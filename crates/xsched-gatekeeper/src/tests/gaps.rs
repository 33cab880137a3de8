//! Gaps that an urgent group keeps the device through.

use xsched_proto::hint::Slo;

use super::*;

/// Longest hold of a group, in µs, and its slowdown budget, in percent.
fn allowed(world: &World, id: GroupId) -> (u32, u32) {
    let words = &world.words[&id];
    (words.hold_us.load(SeqCst), words.slowdown_percent.load(SeqCst))
}

#[test]
fn a_group_above_all_others_may_keep_gaps_and_no_other_may() {
    let mut world = World::low_and_high();
    assert_eq!(allowed(&world, HIGH), (HOLD_US, 105));
    assert_eq!(allowed(&world, LOW), (0, 0));
    // An equal would have to wait for it.
    let other = GroupId(3);
    world.add(spec(other, 128, 5_000));
    assert_eq!((allowed(&world, HIGH), allowed(&world, other)), ((0, 0), (0, 0)));
    world.keeper.remove(world.now, other);
    world.carry_out();
    assert_eq!(allowed(&world, HIGH), (HOLD_US, 105));
    world.keeper.remove(world.now, LOW);
    world.carry_out();
    assert_eq!(allowed(&world, HIGH), (0, 0), "it has no rivals");
}

#[test]
fn the_slowdown_budget_follows_the_target_of_the_group() {
    let mut world = World::low_and_high();
    let hints = Hints { slo: Some(Slo::Slowdown(120)), ..Hints::default() };
    world.keeper.event(world.now, Event::Hint { group: HIGH, priority: None, hints });
    world.carry_out();
    assert_eq!(allowed(&world, HIGH), (HOLD_US, 120));
}

#[test]
fn gaps_are_kept_by_urgent_groups_where_the_most_urgent_has_the_device() {
    for policy in ["fair", "slo", "kedf", "lax", "up"] {
        let mut world = World::new(policy, BUDGET_DEFAULT_US);
        world.add(spec(LOW, -128, 5_000));
        world.add(spec(HIGH, 128, 5_000));
        assert_eq!(allowed(&world, HIGH), (0, 0), "{policy}");
    }
    let mut world = World::new("hpf", BUDGET_DEFAULT_US);
    world.add(spec(LOW, -128, 5_000));
    world.add(spec(HIGH, 0, 5_000));
    assert_eq!(allowed(&world, HIGH), (0, 0), "class normal");
}

/// The group stays ready from its first request to its last, and tells of each that has ended when the next one begins.
#[test]
fn held_time_is_charged_to_no_one_and_ends_requests() {
    let mut world = World::low_and_high();
    let words = world.words[&HIGH].clone();
    world.keeper.keep_outcomes();
    for request in 0..10 {
        let at_us = 100_000 + request * 3_000;
        world.now = at_us;
        if request > 0 {
            words.burst_us.store(1_000, SeqCst);
            words.bursts.fetch_add(1, SeqCst);
        }
        words.ready_at_ns.store(at_us * 1_000, SeqCst);
        world.state(HIGH, state::READY);
    }
    words.burst_us.store(1_000, SeqCst);
    words.bursts.fetch_add(1, SeqCst);
    world.now = 129_000;
    world.state(HIGH, state::IDLE);
    assert_eq!(charged_us(&mut world, HIGH), 10_000, "2 ms of each 3 are a gap");
    let ends_of_bursts =
        world.keeper.outcomes().filter(|(_, outcome)| matches!(outcome, Outcome::Burst { .. })).count();
    assert_eq!(ends_of_bursts, 10);
    let (_, group) = world.keeper.arbiter().groups().find(|(_, group)| group.id == HIGH).expect("a group");
    assert_eq!((group.bursts, group.burst_us), (10, 1_000), "policies know of each");
}
