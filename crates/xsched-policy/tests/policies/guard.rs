//! Help for a group that others keep waiting.

use xsched_policy::{GroupId, GroupSpec, Micros, PoolId};
use xsched_proto::hint::Hints;

use crate::world::{Work, World, spec};
use crate::{group, hinted};

/// When a group had its gate open, from and to.
fn turns(w: &mut World, id: u64, until: Micros) -> Vec<(Micros, Micros)> {
    let mut turns = Vec::new();
    let mut since = None;
    while w.now < until {
        w.run(w.arbiter.next_timer().unwrap_or(until).min(until));
        match (w.sims[&id].open, since) {
            (true, None) => since = Some(w.now),
            (false, Some(from)) => {
                turns.push((from, w.now));
                since = None;
            }
            _ => (),
        }
    }
    turns
}

#[test]
fn guard_an_urgent_group_that_never_ends_leaves_the_others_a_turn_each_period() {
    let mut w = World::new("hpf");
    w.arbiter.set_guard(Some(100_000));
    w.add_ready(group(2, 128), 200);
    w.run(500_000);
    let slow = Hints { timeslice_us: Some(3_000), ..Hints::default() };
    w.add_ready(hinted(1, slow), 200);
    let turns = turns(&mut w, 1, 3_000_000);
    assert_eq!(turns[0], (600_000, 603_000), "to the microsecond, though the other one reports progress all the time");
    assert!(turns.windows(2).all(|two| two[1].0 == two[0].1 + 100_000), "{turns:?}");
    assert_eq!(turns.len(), 24);
}

#[test]
fn guard_each_of_several_has_its_turn() {
    let mut w = World::new("hpf");
    w.arbiter.set_guard(Some(100_000));
    w.add_ready(group(9, 128), 200);
    for id in 1..=4 {
        w.add_ready(group(id, 10 * id as i32), 200);
    }
    w.run(2_001_000);
    for id in 1..=4 {
        // One of 5 ms each 100 ms, and those of the others.
        assert!((60_000.0..110_000.0).contains(&w.used(id)), "{id}: {}", w.used(id));
    }
}

/// The group has the device whenever the urgent one pauses, and nothing else happens in between.
#[test]
fn guard_one_that_has_the_device_again_and_again_does_not_wait() {
    let mut w = World::new("hpf");
    w.arbiter.set_guard(Some(100_000));
    w.add_ready(group(1, 0), 0);
    w.add_work(group(2, 128), 0, Work::new(10_000, 25_000, 10_000));
    w.run(3_000_000);
    assert_eq!(w.sims[&1].preemptions, 120);
    assert_eq!(w.sims[&2].preemptions, 0, "the other one never waited for long");
}

/// The urgent group pauses for moments only, too short for a turn.
#[test]
fn guard_moments_of_the_device_are_no_turn() {
    let mut w = World::new("hpf");
    w.arbiter.set_guard(Some(100_000));
    w.add_ready(group(1, 0), 0);
    w.add_work(group(2, 128), 0, Work::with_pauses(10_000, 1_000, 100));
    w.run(3_000_000);
    assert!((25..30).contains(&w.sims[&2].preemptions), "{} turns", w.sims[&2].preemptions);
}

/// The first to have a turn had all of them: nothing was decided in the middle of it, and at its end it was still the oldest.
#[test]
fn guard_turns_go_round_where_nothing_happens_in_between() {
    let mut w = World::new("hpf");
    w.arbiter.set_guard(Some(100_000));
    let pooled = |id, priority| GroupSpec { spatial: Some(PoolId(1)), ..group(id, priority) };
    w.add_ready(pooled(3, 129), 0);
    w.add_ready(group(2, 50), 0);
    w.add_ready(pooled(1, 0), 0);
    w.run(1_001_000);
    assert!(w.used(1) > 20_000.0 && w.used(2) > 40_000.0, "{} {}", w.used(1), w.used(2));
}

#[test]
fn guard_off_the_policy_alone_decides() {
    let mut w = World::new("hpf");
    w.arbiter.set_guard(None);
    w.add_ready(group(1, 0), 200);
    w.add_ready(group(2, 128), 200);
    w.run(60_000_000);
    assert_eq!(w.used(1), 100.0, "what it had in flight");
}

#[test]
fn guard_taken_off_in_mid_turn_it_ends_and_put_on_it_counts_from_then() {
    let mut w = World::new("hpf");
    w.arbiter.set_guard(Some(100_000));
    w.add_ready(group(1, 0), 0);
    w.add_ready(group(2, 128), 0);
    w.run(101_500);
    assert_eq!(w.open(), [1]);
    w.arbiter.set_guard(None);
    w.add(group(3, -1), 0);
    assert_eq!(w.open(), [2]);
    w.run(5_000_000);
    assert_eq!(w.open(), [2]);
    w.arbiter.set_guard(Some(100_000));
    w.add(group(4, -1), 0);
    w.run(5_099_999);
    assert_eq!(w.open(), [2]);
    w.run(5_100_000);
    assert_eq!(w.open(), [1]);
}

#[test]
fn guard_unless_configured_a_group_waits_for_ten_seconds() {
    let mut w = World::new("hpf");
    w.add_ready(group(2, 128), 0);
    w.add_ready(group(1, 0), 0);
    assert_eq!(turns(&mut w, 1, 25_000_000), [(10_001_000, 10_006_000), (20_006_000, 20_011_000)]);
}

#[test]
fn guard_a_job_on_several_devices_is_not_helped_on_one() {
    let mut w = World::new("hpf");
    w.arbiter.set_guard(Some(50_000));
    for (id, device) in [(1, "d0"), (2, "d1")] {
        w.add_ready(GroupSpec { job: Some("j".into()), ..spec(id, device) }, 0);
    }
    w.add_ready(GroupSpec { priority: 128, ..spec(3, "d1") }, 0);
    for _ in 0..500 {
        w.run(w.now + 1_000);
        w.assert_jobs();
    }
    assert_eq!(w.arbiter.status(w.now, GroupId(2)).unwrap().used_us, 0.0);
    // A lower one beside it on the first device is.
    w.add_ready(GroupSpec { priority: -10, ..spec(4, "d0") }, 0);
    assert!(w.sims[&4].open, "the job is refused there");
    w.idle(3);
    let before = w.used(4);
    for _ in 0..500 {
        w.run(w.now + 1_000);
        w.assert_jobs();
    }
    assert!((w.used(4) - before) > 40_000.0);
}
