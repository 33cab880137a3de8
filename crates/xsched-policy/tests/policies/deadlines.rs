//! `kedf`: the requests that are due next have the device.

use xsched_policy::{Event, GroupId, GroupSpec};
use xsched_proto::hint::Hints;

use crate::hinted;
use crate::world::{Work, World};

fn due_in(us: u64) -> Hints {
    Hints { deadline_us: Some(us), ..Hints::default() }
}

/// Of three periodic programs that need 98 % of the device together, how many of 1,400 requests miss their period.
fn misses(policy: &str, priorities: [i32; 3], drain_us: u64) -> usize {
    let mut w = World::new(policy);
    for (id, (period_us, device_us)) in (1..).zip([(10_000, 4_000), (14_000, 4_200), (35_000, 9_800)]) {
        let spec = GroupSpec { priority: priorities[id as usize - 1], ..hinted(id, due_in(period_us)) };
        w.add_work(spec, drain_us, Work::new(1_000, period_us, device_us));
    }
    w.run(7_001_000);
    let periods = [10_000, 14_000, 35_000];
    let late = w.sims.values().zip(periods).map(|(sim, period)| {
        let due = sim.requests.iter().filter(|r| r.came + period <= w.now);
        due.filter(|r| r.took_us().is_none_or(|us| us > period)).count()
    });
    assert_eq!(w.sims[&1].requests.len(), 701);
    late.sum()
}

#[test]
fn kedf_meets_all_deadlines_of_a_feasible_set_that_no_priorities_meet() {
    assert_eq!(misses("kedf", [0; 3], 0), 0);
    assert_eq!(misses("kedf", [0; 3], 50), 0);
    let equal = misses("hpf", [0; 3], 0);
    let by_rate = misses("hpf", [3, 2, 1], 0);
    let blind = misses("hpf", [1, 2, 3], 0);
    println!("hpf misses {equal} with equal priorities, {by_rate} by rate, {blind} the other way round");
    assert!(equal > 0 && by_rate > 0 && blind > 0);
}

#[test]
fn kedf_runs_k_at_a_time() {
    let mut w = World::with("kedf k=2");
    for (id, us) in [(1, 30_000), (2, 10_000), (3, 20_000)] {
        w.add(hinted(id, due_in(us)), 0);
    }
    w.add(hinted(4, Hints::default()), 0);
    (1..=4).for_each(|id| w.ready(id));
    assert_eq!(w.open(), [2, 3]);
    w.idle(2);
    assert_eq!(w.open(), [1, 2, 3], "an idle one whose next request would be due first keeps its gate open");
    w.idle(3);
    w.idle(1);
    assert_eq!(w.open(), [1, 2, 3, 4]);
    w.ready(2);
    w.ready(1);
    assert_eq!(w.open(), [1, 2, 3], "one without a deadline comes last");
}

#[test]
fn kedf_the_k_of_one_group_limits_those_beside_it() {
    let mut w = World::with("kedf k=3");
    let k = |k| Hints { k: Some(k), ..due_in(10_000) };
    w.add(hinted(1, due_in(30_000)), 0);
    w.add(hinted(2, k(1)), 0);
    w.add(hinted(3, due_in(20_000)), 0);
    [1, 3].into_iter().for_each(|id| w.ready(id));
    assert_eq!(w.open(), [1, 2, 3]);
    w.ready(2);
    assert_eq!(w.open(), [2], "it accepts no other beside it");
    w.send(Event::Hint { group: GroupId(2), priority: None, hints: k(2) });
    assert_eq!(w.open(), [2, 3]);
    w.send(Event::Hint { group: GroupId(2), priority: None, hints: k(0) });
    assert_eq!(w.open(), [1, 2, 3], "none: that of the policy");
}
