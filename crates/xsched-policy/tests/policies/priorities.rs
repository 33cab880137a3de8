//! `hpf`, `hhpf`, `chpf`, `lax` and `awf`: the one that ranks highest runs.

use xsched_policy::{Event, GroupId, GroupSpec, ProgramId};
use xsched_proto::class::Class;
use xsched_proto::hint::{Hints, Laxity};

use crate::world::{Work, World, spec};
use crate::{group, hinted, of_program};

#[test]
fn hpf_an_urgent_request_waits_for_no_more_than_what_is_in_flight() {
    let mut w = World::new("hpf");
    w.add_ready(group(1, 0), 300);
    w.add_work(group(2, 128), 0, Work::new(10_000, 10_000, 2_000));
    w.run(1_009_000);
    let took: Vec<u64> = w.sims[&2].ended().filter_map(|r| r.took_us()).collect();
    assert_eq!(took.len(), 100);
    // 300 µs of draining, of which it has half.
    assert!(took.iter().all(|us| (2_150..=2_151).contains(us)), "{took:?}");
    assert_eq!(w.sims[&1].preemptions, 100);
    assert!((w.used(1) - (1_008_000.0 - 200_000.0)).abs() < 200.0, "all that is left");
}

#[test]
fn hhpf_a_program_between_two_devices_never_finds_the_other_one_taken() {
    // The urgent program's requests go to each device in turn, without a pause.
    let longest_wait = |policy: &str| {
        let mut w = World::new(policy);
        for (at, device) in ["d0", "d1"].into_iter().enumerate() {
            let at = at as u64;
            w.add_ready(GroupSpec { priority: -5, ..spec(10 + at, device) }, 400);
            w.add(of_program(7, GroupSpec { priority: 128, ..spec(1 + at, device) }), 0);
        }
        w.add_ready(GroupSpec { priority: -5, ..spec(20, "d2") }, 400);
        let mut taken = 0;
        w.ready(1);
        w.run(w.now + 2_000);
        for turn in 0..200 {
            let (from, to) = if turn % 2 == 0 { (1, 2) } else { (2, 1) };
            // Work of the next device is launched before that of the last one is over.
            let lower = if to == 1 { 10 } else { 11 };
            taken += u64::from(w.sims[&lower].open || w.sims[&lower].drains_until.is_some());
            w.ready(to);
            w.idle(from);
            w.run(w.now + 2_000);
        }
        assert!(w.used(20) > 401_000.0, "a device that the urgent program does not use is left alone");
        assert!(w.sims[&20].preemptions == 0);
        w.idle(1);
        w.run(w.now + 1);
        assert!(w.sims[&10].open && w.sims[&11].open, "at rest it keeps no device");
        taken
    };
    assert_eq!(longest_wait("hpf"), 200);
    assert_eq!(longest_wait("hhpf"), 0);
}

#[test]
fn hhpf_a_program_that_ends_leaves_its_devices() {
    let mut w = World::new("hhpf");
    w.add_ready(GroupSpec { priority: 0, ..spec(1, "d0") }, 0);
    w.add(of_program(7, group(2, 128)), 0);
    w.add(of_program(7, GroupSpec { priority: 128, ..spec(3, "d1") }), 0);
    w.ready(3);
    assert_eq!(w.open(), [2, 3]);
    w.remove(3);
    assert_eq!(w.open(), [1, 2], "the last group of the other device is gone");
}

#[test]
fn hhpf_what_an_operator_holds_keeps_no_device() {
    let mut w = World::new("hhpf");
    w.add_ready(group(1, 0), 0);
    w.add(of_program(3, group(2, 128)), 0);
    w.add_ready(of_program(3, GroupSpec { priority: 128, ..spec(3, "d1") }), 0);
    assert_eq!(w.open(), [2, 3]);
    w.send(Event::Hold(ProgramId(3)));
    assert_eq!(w.open(), [1]);
    w.send(Event::Release(ProgramId(3)));
    assert_eq!(w.open(), [2, 3]);
}

#[test]
fn hhpf_a_group_without_progress_keeps_no_other_device_for_its_rest() {
    let mut w = World::new("hhpf");
    w.add_ready(group(1, 0), 0);
    w.add(of_program(7, group(2, 128)), 0);
    w.add(of_program(7, GroupSpec { priority: 128, ..spec(3, "d1") }), 0);
    w.add_ready(GroupSpec { priority: 0, ..spec(4, "d1") }, 0);
    w.ready(3);
    assert_eq!(w.open(), [2, 3]);
    // A second without progress while another waits: it lets that one go on for a while.
    while w.arbiter.next_timer().is_some_and(|at| at <= 1_001_000) {
        w.now = w.arbiter.next_timer().unwrap();
        w.send(Event::Timer);
    }
    assert_eq!(w.now, 1_001_000);
    assert_eq!(w.open(), [1, 2, 3, 4]);
}

#[test]
fn chpf_the_lowest_nice_value_goes_first_and_a_new_one_counts_at_once() {
    let mut w = World::new("chpf");
    for (id, nice) in [(1, 0), (2, -5), (3, 10)] {
        // Priorities say the contrary, and do not count.
        w.add_ready(GroupSpec { nice, ..group(id, 10 * nice) }, 0);
    }
    assert_eq!(w.open(), [2]);
    w.send(Event::Nice(ProgramId(3), -6));
    assert_eq!(w.open(), [3]);
    w.send(Event::Nice(ProgramId(3), 19));
    assert_eq!(w.open(), [2]);
    w.idle(2);
    assert_eq!(w.open(), [1, 2]);
    w.send(Event::Nice(ProgramId(3), 0));
    assert_eq!(w.open(), [1, 2, 3], "equals run beside each other");
}

fn lax(us: u64, lax: Option<i32>, critical: Option<i32>) -> Hints {
    Hints { laxity: Some(Laxity { us, lax, critical }), ..Hints::default() }
}

#[test]
fn lax_a_group_waits_to_the_microsecond_for_its_laxity_and_then_goes_first() {
    let mut w = World::new("lax");
    w.add_ready(group(1, 0), 0);
    w.add(hinted(2, lax(7_000, Some(Class::Low.nominal()), Some(200))), 0);
    w.run(50_123);
    w.ready(2);
    assert_eq!(w.open(), [1]);
    w.run(57_122);
    assert_eq!(w.open(), [1]);
    w.run(57_123);
    assert_eq!(w.open(), [2]);
    w.run(90_000);
    assert_eq!(w.open(), [2], "to the end of its request");
    w.idle(2);
    assert_eq!(w.open(), [1]);
    w.ready(2);
    assert_eq!(w.open(), [1], "the next one waits anew");
}

#[test]
fn lax_a_request_that_ends_in_time_preempts_nothing() {
    let mut w = World::new("lax");
    w.add_work(group(1, 0), 0, Work::new(5_000, 10_000, 6_000));
    // Has the device in the pauses of the other one: 4 ms of each 10.
    w.add_work(hinted(2, lax(16_500, Some(-100), Some(100))), 0, Work::new(5_000, 20_000, 5_000));
    w.run(2_004_000);
    assert_eq!(w.sims[&1].preemptions, 0);
    assert!(w.sims[&2].ended().count() >= 98);
    let took = w.sims[&2].ended().filter_map(|r| r.took_us()).max().unwrap();
    assert!(took <= 17_000, "{took}");
    w.send(Event::Hint { group: GroupId(2), priority: None, hints: lax(2_000, Some(-100), Some(100)) });
    w.run(2_100_000);
    assert_eq!(w.sims[&1].preemptions, 5, "one for each of its requests");
}

#[test]
fn lax_without_its_two_priorities_a_group_waits_at_its_own_and_ends_in_class_high() {
    let mut w = World::new("lax");
    w.add_ready(group(1, 100), 0);
    w.add(GroupSpec { priority: 50, ..hinted(2, lax(3_000, None, None)) }, 0);
    w.add(GroupSpec { priority: 127, ..hinted(3, Hints::default()) }, 0);
    w.ready(2);
    w.run(w.now + 2_999);
    assert_eq!(w.open(), [1, 3]);
    w.run(w.now + 1);
    assert_eq!(w.open(), [2]);
    w.ready(3);
    assert_eq!(w.open(), [2], "class high is above 127");
    w.send(Event::Hint { group: GroupId(2), priority: None, hints: lax(0, None, None) });
    assert_eq!(w.open(), [3], "a laxity of 0 is none");
}

#[test]
fn awf_the_active_window_goes_first_and_a_new_one_counts_at_once() {
    let mut w = World::new("awf");
    w.add_ready(group(1, 255), 0);
    w.add_ready(GroupSpec { active: true, ..group(2, -255) }, 0);
    w.add_ready(of_program(2, GroupSpec { active: true, ..spec(3, "d1") }), 0);
    w.add_ready(GroupSpec { program: ProgramId(1), priority: 255, ..spec(4, "d1") }, 0);
    assert_eq!(w.open(), [2, 3]);
    w.send(Event::Active(ProgramId(2), false));
    assert_eq!(w.open(), [1, 4], "by priority; on all devices");
    w.send(Event::Active(ProgramId(2), true));
    assert_eq!(w.open(), [2, 3]);
    w.send(Event::Active(ProgramId(1), true));
    assert_eq!(w.open(), [1, 4]);
}

#[test]
fn awf_a_hint_overrides_what_the_desktop_says() {
    let mut w = World::new("awf");
    w.add_ready(GroupSpec { active: true, ..group(1, 0) }, 0);
    w.add_ready(group(2, 0), 0);
    let hint = |id, active| Event::Hint {
        group: GroupId(id),
        priority: None,
        hints: Hints { active: Some(active), ..Hints::default() },
    };
    assert_eq!(w.open(), [1]);
    w.send(hint(1, false));
    assert_eq!(w.open(), [1, 2], "neither is active");
    w.send(hint(2, true));
    assert_eq!(w.open(), [2]);
    w.send(Event::Active(ProgramId(2), false));
    assert_eq!(w.open(), [2]);
}
