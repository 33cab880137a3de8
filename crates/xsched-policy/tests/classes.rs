//! Fairness between classes, and domains within a program.

mod world;

use world::{World, spec};
use xsched_policy::{ClassRule, Event, GroupId, GroupSpec, ProgramId};

const LOW: ClassRule =
    ClassRule { lowest: -255, highest: -1, quantum_us: 2_000, preemptible: true, guarantee_percent: 0 };

fn g(id: u64, priority: i32) -> GroupSpec {
    GroupSpec { priority, ..spec(id, "d0") }
}

/// Low and high want the device all the time under hpf; the part of it that low gets, in percent.
fn share_of_low(rule: ClassRule, drain_us: u64) -> f64 {
    let mut w = World::new("hpf");
    w.set_classes(vec![rule]);
    w.add(g(1, -128), drain_us);
    w.add(g(2, 128), drain_us);
    w.ready(1);
    w.ready(2);
    w.run(2_001_000);
    100.0 * w.used(1) / (w.used(1) + w.used(2))
}

#[test]
fn a_guaranteed_part_is_had_even_under_hpf() {
    assert_eq!(share_of_low(LOW, 0), 0.0, "without a guarantee the more urgent one has it all");
    for percent in [5, 20, 50] {
        for drain_us in [0, 300] {
            let share = share_of_low(ClassRule { guarantee_percent: percent, ..LOW }, drain_us);
            assert!((share - f64::from(percent)).abs() < 1.0, "{percent} % promised, {share} % had");
        }
    }
}

#[test]
fn a_guarantee_is_no_limit_and_idle_time_earns_no_claim() {
    let mut w = World::new("hpf");
    w.set_classes(vec![ClassRule { guarantee_percent: 10, ..LOW }]);
    w.add(g(1, -128), 0);
    w.add(g(2, 128), 0);
    w.ready(1);
    w.run(1_001_000);
    assert!(w.used(1) > 999_000.0, "alone it has all");
    w.idle(1);
    w.ready(2);
    w.run(5_001_000);
    w.ready(1);
    let before = w.used(1);
    w.run(5_011_000);
    assert_eq!(w.used(1), before, "no turn at once, for time in which it wanted nothing");
    w.run(7_011_000);
    let share = (w.used(1) - before) / 2_010_000.0;
    assert!((0.08..0.11).contains(&share), "{share}");
}

#[test]
fn a_class_that_is_not_preemptible_is_taken_off_at_the_end_of_a_quantum() {
    let mut w = World::new("hpf");
    w.set_classes(vec![ClassRule { preemptible: false, ..LOW }]);
    w.add(g(1, -128), 0);
    w.add(g(2, 128), 0);
    assert_eq!(w.open(), [1, 2]);
    w.ready(1);
    let begin = w.now;
    assert_eq!(w.open(), [1], "the gate of the idle one is closed: its first launch must not come in between");
    w.run(begin + 2_500);
    w.ready(2);
    assert_eq!(w.open(), [1]);
    w.run(begin + 3_999);
    assert_eq!(w.open(), [1], "to the end of its second quantum");
    w.run(begin + 4_000);
    assert_eq!(w.open(), [2]);
    w.idle(2);
    assert_eq!(w.open(), [1]);
    w.idle(1);
    assert_eq!(w.open(), [1, 2], "nobody wants it: whoever comes first starts at once");
}

#[test]
fn a_guarantee_holds_against_a_class_that_is_not_preemptible() {
    let mut w = World::new("hpf");
    let high = ClassRule { lowest: 128, highest: 191, preemptible: false, ..LOW };
    w.set_classes(vec![ClassRule { guarantee_percent: 20, ..LOW }, high]);
    w.add(g(1, -128), 0);
    w.add(g(2, 128), 0);
    w.ready(2);
    w.ready(1);
    let begin = w.now;
    w.run(begin + 1_999);
    assert_eq!(w.open(), [2], "a quantum is never cut short");
    w.run(begin + 2_000_000);
    let share = 100.0 * w.used(1) / (w.used(1) + w.used(2));
    assert!((share - 20.0).abs() < 2.0, "20 % promised, {share} % had");
}

#[test]
fn where_a_quantum_ends_exactly_nothing_of_the_next_is_kept() {
    let mut w = World::new("hpf");
    w.set_classes(vec![ClassRule { preemptible: false, ..LOW }]);
    w.add(g(1, -128), 0);
    w.add(g(2, 128), 0);
    for quanta in [1, 3] {
        w.ready(1);
        w.run(w.now + quanta * LOW.quantum_us);
        w.ready(2);
        assert_eq!(w.open(), [2], "after {quanta} quanta");
        w.idle(2);
        w.idle(1);
    }
}

#[test]
fn a_turn_by_guarantee_of_a_class_that_is_not_preemptible_lasts_one_quantum() {
    let mut w = World::new("hpf");
    w.set_classes(vec![ClassRule { preemptible: false, guarantee_percent: 20, ..LOW }]);
    w.add(g(1, -128), 0);
    w.add(g(2, 128), 0);
    w.ready(2);
    w.ready(1);
    while w.open() != [1] {
        w.run(w.arbiter.next_timer().unwrap());
    }
    let begin = w.now;
    w.run(begin + LOW.quantum_us - 1);
    assert_eq!(w.open(), [1]);
    w.run(begin + LOW.quantum_us);
    assert_eq!(w.open(), [2]);
}

#[test]
fn a_group_that_goes_behind_its_system_sibling_is_not_kept_instead_of_anybody() {
    let mut w = World::new("hpf");
    w.set_classes(vec![ClassRule { preemptible: false, ..LOW }]);
    w.add(GroupSpec { program: ProgramId(7), ..g(1, -1) }, 0);
    w.add(GroupSpec { program: ProgramId(7), system: true, ..g(2, -1) }, 0);
    w.add(g(3, 0), 0);
    w.ready(1);
    w.run(w.now + 500);
    w.ready(3);
    assert_eq!(w.open(), [1], "within its quantum");
    w.ready(2);
    assert_eq!(w.open(), [3], "its quantum is over when its sibling wants the device");
}

/// A rank of a job; its other one is on another device.
fn rank(id: u64, device: &str, priority: i32) -> GroupSpec {
    GroupSpec { priority, job: Some("j".into()), ..spec(id, device) }
}

#[test]
fn where_a_job_waits_for_another_device_a_quantum_is_not_cut_short_either() {
    let mut w = World::new("hpf");
    w.set_classes(vec![ClassRule { preemptible: false, ..LOW }]);
    w.add(rank(1, "d0", -128), 0);
    w.add(rank(2, "d1", 10), 0);
    w.add(g(3, -128), 0);
    w.add(g(4, 10), 0);
    w.add(GroupSpec { priority: 128, ..spec(5, "d1") }, 0);
    let begin = w.now;
    [1, 2, 3].into_iter().for_each(|id| w.ready(id));
    assert_eq!(w.open(), [1, 2, 3, 5], "beside each other, being equals");
    w.run(begin + 500);
    w.ready(4);
    assert_eq!(w.open(), [1, 2, 3, 5], "both are within their quantum");
    w.ready(5);
    assert_eq!(w.open(), [3, 5], "the job goes as a whole, who was beside it stays");
    w.run(begin + 1_999);
    assert_eq!(w.open(), [3, 5]);
    w.run(begin + 2_000);
    assert_eq!(w.open(), [4, 5]);
}

#[test]
fn a_guarantee_holds_beside_that_of_a_job_that_waits_for_another_device() {
    let mut w = World::new("hpf");
    let normal = ClassRule { lowest: 0, highest: 127, ..LOW };
    w.set_classes([LOW, normal].map(|rule| ClassRule { guarantee_percent: 20, ..rule }).into());
    w.add(rank(1, "d0", 0), 0);
    w.add(rank(2, "d1", 128), 0);
    w.add(g(3, -128), 0);
    w.add(g(4, 128), 0);
    w.add(GroupSpec { priority: 200, ..spec(5, "d1") }, 0);
    (1..=5).for_each(|id| w.ready(id));
    w.run(2_001_000);
    assert_eq!((w.used(1), w.used(2)), (0.0, 0.0), "kept from d1, where its class has no guarantee");
    let share = 100.0 * w.used(3) / (w.used(3) + w.used(4));
    assert!((share - 20.0).abs() < 1.0, "20 % promised, {share} % had");
    w.idle(5);
    let (low, job) = (w.used(3), w.used(1));
    w.run(4_001_000);
    let shares = [w.used(3) - low, w.used(1) - job].map(|used| used / 20_000.0);
    assert!(shares.iter().all(|s| (s - 20.0).abs() < 2.0), "20 % promised to each, {shares:?} had");
}

#[test]
fn the_other_classes_are_preempted_at_once() {
    let mut w = World::new("hpf");
    w.set_classes(vec![ClassRule { preemptible: false, ..LOW }]);
    w.add(g(1, 0), 0);
    w.add(g(2, 128), 0);
    w.ready(1);
    w.ready(2);
    assert_eq!(w.open(), [2]);
}

/// A program with a group of each domain, and a rival of the same priority.
fn domains(policy: &str) -> World {
    let mut w = World::new(policy);
    w.add(GroupSpec { program: ProgramId(7), ..g(1, 0) }, 0);
    w.add(GroupSpec { program: ProgramId(7), system: true, ..g(2, 0) }, 0);
    w.add(g(3, 0), 0);
    w
}

#[test]
fn system_streams_go_before_those_of_their_own_program_only() {
    let mut w = domains("hpf");
    w.ready(1);
    w.ready(3);
    assert_eq!(w.open(), [1, 2, 3]);
    w.ready(2);
    assert_eq!(w.open(), [2, 3], "the rival of the same priority is not moved");
    w.send(Event::Inherit { group: GroupId(1), priority: Some(0) });
    assert_eq!(w.open(), [1, 2, 3], "whoever waits for it lends it a priority");
    w.send(Event::Inherit { group: GroupId(1), priority: None });
    assert_eq!(w.open(), [2, 3]);
    w.idle(2);
    assert_eq!(w.open(), [1, 2, 3]);
    w.ready(2);
    w.add(g(4, 128), 0);
    w.ready(4);
    assert_eq!(w.open(), [4], "and never before another's higher class");
}

#[test]
fn a_group_that_goes_behind_takes_no_turn() {
    let mut w = domains("up");
    for id in [1, 2, 3] {
        w.ready(id);
    }
    w.run(1_001_000);
    assert_eq!(w.used(1), 0.0);
    assert!((w.used(2) - w.used(3)).abs() < 20_000.0, "{} {}", w.used(2), w.used(3));
    assert!(w.used(2) + w.used(3) > 990_000.0, "the device is never idle for it");
}
