//! `hpf` among equals: a program that pauses goes before one that never does, and gains no device time by it.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use xsched_policy::{GroupId, GroupSpec, Micros};
use xsched_proto::hint::Hints;

use crate::group;
use crate::world::{Work, World};

const MS: u64 = 1_000;
const S: u64 = 1_000_000;
const BEGIN: Micros = 1_000;
/// As in the policy: device time that a group may get beyond its part, and that it may save up.
const LEAD: f64 = 50_000.0;
const CREDIT: f64 = 200_000.0;
/// A lead is looked at each 2 ms as it comes near to its limit; what a group has in flight when its gate closes comes on top.
const LATE: f64 = 3_000.0;

fn weighted(id: u64, weight: u32) -> GroupSpec {
    GroupSpec { hints: Hints { weight: Some(weight), ..Hints::default() }, ..group(id, 0) }
}

fn is_interactive(w: &World, id: u64) -> bool {
    w.arbiter.status(w.now, GroupId(id)).unwrap().interactive
}

/// Durations of the requests that came after `from`, in µs.
fn took(w: &World, id: u64, from: Micros) -> Vec<u64> {
    w.sims[&id].ended().filter(|r| r.came >= from).filter_map(|r| r.took_us()).collect()
}

fn worst(w: &World, id: u64, from: Micros) -> u64 {
    took(w, id, from).into_iter().max().unwrap()
}

#[test]
fn pauses_a_program_that_serves_requests_goes_before_one_that_never_pauses() {
    let worst = |policy: &str, priority| {
        let mut w = World::with(policy);
        w.add_ready(group(1, 0), 300);
        w.add_work(group(2, priority), 0, Work::new(10 * MS, 50 * MS, 5 * MS));
        w.run(S);
        assert_eq!(is_interactive(&w, 2), policy == "hpf", "known within a second");
        assert!(!is_interactive(&w, 1));
        w.run(10 * S);
        assert_eq!(w.sims[&2].ended().count(), 200);
        worst(&w, 2, S)
    };
    assert_eq!(worst("hpf", 0), worst("hpf", 128), "as with a higher priority");
    assert!(worst("hpf interactive=off", 0) >= 10 * MS, "they share the device");
}

#[test]
fn pauses_one_that_loads_data_between_steps_is_no_program_that_pauses() {
    for (step_ms, pause_ms) in [(100, 4), (20, 1), (1_000, 50)] {
        let mut w = World::new("hpf");
        w.add_ready(group(1, 0), 0);
        w.add_work(group(2, 0), 0, Work::with_pauses(BEGIN, step_ms * MS, pause_ms * MS));
        while w.now < 10 * S {
            w.run(w.now + 7 * MS);
            assert!(!is_interactive(&w, 2) || w.now < 3 * S, "{step_ms}: {}", w.now);
            assert!(!is_interactive(&w, 1));
        }
        assert_eq!(w.sims[&1].preemptions, 0, "{step_ms}");
    }
}

#[test]
fn pauses_one_that_has_just_come_has_no_place_before_others() {
    let mut w = World::new("hpf");
    w.add_ready(group(1, 0), 0);
    w.add(group(2, 0), 0);
    w.run(2 * S);
    assert!(!is_interactive(&w, 2), "it had no burst");
    w.ready(2);
    assert_eq!(w.open(), [1, 2]);
}

#[test]
fn pauses_one_that_has_left_binds_nobody_and_goes_first_when_it_is_back() {
    let mut w = World::new("hpf");
    w.add_ready(group(1, 0), 0);
    w.add_work(group(2, 0), 0, Work { device_us: 5_000.0, ..Work::new(BEGIN, 60 * S, 5 * MS) });
    w.run(10 * S);
    assert!(is_interactive(&w, 2) && w.sims[&1].bound > 0);
    w.run(11 * S);
    assert!(!is_interactive(&w, 2) && w.sims[&1].bound == 0);
    w.run(61 * S);
    assert_eq!(worst(&w, 2, 30 * S), 5 * MS);
}

#[test]
fn pauses_two_that_pause_are_equals() {
    let mut w = World::new("hpf");
    w.add_ready(group(1, 0), 0);
    for id in [2, 3] {
        w.add_work(group(id, 0), 0, Work::new(10 * MS, 50 * MS, 5 * MS));
    }
    w.run(10 * S);
    for id in [2, 3] {
        assert_eq!(worst(&w, id, S), 10 * MS, "both at once, each half as fast");
        assert_eq!(w.sims[&id].preemptions, 0);
    }
}

#[test]
fn pauses_change_nothing_across_priorities() {
    let mut w = World::new("hpf");
    w.add_ready(group(1, 1), 0);
    w.add_work(group(2, 0), 0, Work::new(10 * MS, 50 * MS, 5 * MS));
    w.run(S);
    w.idle(1);
    w.run(5 * S);
    assert!(is_interactive(&w, 2));
    w.ready(1);
    w.run(6 * S);
    assert_eq!(w.open(), [1], "however it pauses");
    w.assert_priorities();
}

#[test]
fn pauses_one_that_pauses_has_its_part_by_weight_first() {
    for (weight, other, burst_ms) in [(100, 300, 10), (300, 100, 35)] {
        let mut w = World::new("hpf");
        // Known before the other one comes: slowed down by an equal, 35 ms of each 50 would leave no pause.
        w.add(weighted(1, other), 0);
        w.add_work(weighted(2, weight), 0, Work::new(10 * MS, 50 * MS, burst_ms * MS));
        w.run(S);
        w.ready(1);
        w.run(20 * S);
        assert_eq!(worst(&w, 2, S), burst_ms * MS, "{weight}");
    }
    // A quarter is what a weight of one beside three is worth: beyond that it shares as equals do.
    let mut w = World::new("hpf");
    w.add_ready(weighted(1, 300), 0);
    w.add_work(weighted(2, 100), 0, Work::new(10 * MS, 50 * MS, 20 * MS));
    w.run(20 * S);
    let late = took(&w, 2, 10 * S);
    assert!(late.iter().filter(|us| **us > 30 * MS).count() > late.len() / 2, "{late:?}");
}

/// Ten servers that together want more than there is, each of them within its own limit.
#[test]
fn pauses_of_many_leave_the_one_that_never_pauses_its_part() {
    let mut w = World::new("hpf");
    w.arbiter.set_guard(None);
    w.add(group(1, 0), 0);
    for id in 2..=11 {
        w.add_work(group(id, 0), 0, Work::new(id * 10 * MS, 100 * MS, 10_500));
    }
    w.run(2 * S);
    w.ready(1);
    let mut had = Vec::new();
    while w.now < 20 * S {
        w.run(w.now + 100 * MS);
        had.push(w.used(1));
    }
    for from in 0..had.len() - 50 {
        let had = had[from + 50] - had[from];
        assert!(had >= 5e6 / 11.0 - LEAD - CREDIT - LATE, "{had} from {from}");
    }
    let all = had[had.len() - 1];
    assert!(all >= 18e6 / 11.0 - LEAD - CREDIT - LATE, "{all}");
}

/// Two that never pause run side by side whatever their weights: none of them lags for a pause of another one.
#[test]
fn pauses_are_not_to_blame_for_weights_that_equals_do_not_have() {
    let mut w = World::new("hpf");
    w.add_ready(weighted(1, 100), 0);
    w.add_ready(weighted(2, 300), 0);
    w.add_work(group(3, 0), 0, Work::new(10 * MS, 50 * MS, 5 * MS));
    w.run(20 * S);
    assert_eq!(worst(&w, 3, S), 5 * MS);
}

#[test]
fn pauses_one_that_was_too_far_ahead_goes_first_again_once_half_of_that_is_left() {
    let mut w = World::new("hpf");
    w.add_ready(group(1, 0), 0);
    // Each pause takes 15 ms off its lead of 50.
    w.add_work(group(2, 0), 0, Work::with_pauses(BEGIN, 50 * MS, 30 * MS));
    w.run(S);
    let before = (w.sims[&1].preemptions, w.sims[&2].ended().count() as u64);
    w.run(20 * S);
    let preempted = w.sims[&1].preemptions - before.0;
    let bursts = w.sims[&2].ended().count() as u64 - before.1;
    assert!((bursts / 4..bursts * 3 / 4).contains(&preempted), "{preempted} of {bursts}");
}

#[test]
fn pauses_need_no_timer_where_none_pauses_and_few_where_one_does() {
    let mut w = World::new("hpf");
    w.arbiter.set_guard(None);
    w.add_ready(group(1, 0), 0);
    w.add_ready(group(2, 0), 0);
    assert_eq!(w.arbiter.next_timer(), None);
    w.add_work(group(3, 0), 0, Work::new(10 * MS, 50 * MS, 5 * MS));
    w.run(S);
    let looks = w.looks;
    w.run(11 * S);
    assert!(w.looks - looks < 200 * 4, "{} looks for 200 requests", w.looks - looks);
}

/// A program that pretends to serve requests: bursts and pauses of any length, up to twice that at random.
#[derive(Clone, Debug)]
struct Fake {
    first_ms: u64,
    burst_us: u64,
    pause_us: u64,
    is_random: bool,
    one_by_one: bool,
    weight: u32,
    seed: u64,
}

impl Fake {
    fn work(&self) -> Work {
        let more = |us| if self.is_random { us } else { 0 };
        Work {
            jitter_us: more(self.burst_us),
            late_us: more(self.pause_us),
            one_by_one: self.one_by_one,
            period_us: self.pause_us + if self.one_by_one { 0 } else { self.burst_us },
            random: self.seed,
            ..Work::new(BEGIN + self.first_ms * MS, 0, self.burst_us)
        }
    }
}

fn fake() -> impl Strategy<Value = Fake> {
    // Evenly spread over the orders of magnitude.
    let us = || (2.0..6.3_f64).prop_map(|log| 10_f64.powf(log) as u64);
    (0..2_000u64, us(), us(), any::<[bool; 2]>(), prop_oneof![2 => Just(100u32), 1 => 30..=300u32], 1..=u64::MAX)
        .prop_map(|(first_ms, burst_us, pause_us, [is_random, one_by_one], weight, seed)| Fake {
            first_ms,
            burst_us,
            pause_us,
            is_random,
            one_by_one,
            weight,
            seed,
        })
}

/// The device time of all at each 100 ms.
fn uses(policy: &str, trainers: &[u32], fakes: &[Fake], drain_us: u64, until: Micros) -> (World, Vec<Vec<f64>>) {
    let mut w = World::with(policy);
    w.arbiter.set_guard(None);
    let mut id = 0;
    for weight in trainers {
        id += 1;
        w.add_ready(weighted(id, *weight), drain_us);
    }
    for fake in fakes {
        id += 1;
        w.add_work(weighted(id, fake.weight), drain_us, fake.work());
    }
    let mut all = Vec::new();
    while w.now < until {
        w.run(w.now + 100 * MS);
        all.push(w.sims.values().map(|s| s.used_us).collect());
    }
    (w, all)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn pauses_that_are_faked_gain_nothing_over_ten_seconds(
        fake in fake(),
        trainers in proptest::collection::vec(Just(100u32), 1..4),
        drain_us in 0..=500u64,
    ) {
        let part = f64::from(fake.weight) / (f64::from(fake.weight) + 100.0 * trainers.len() as f64);
        let gained = |policy: &str| {
            let (_, uses) = uses(policy, &trainers, std::slice::from_ref(&fake), drain_us, 14 * S);
            uses.iter().map(|all| all[trainers.len()]).collect::<Vec<_>>()
        };
        let (on, off) = (gained("hpf"), gained("hpf interactive=off"));
        // From the start it has no credit, later what it saved up.
        let equal = 1.0 / (1.0 + trainers.len() as f64);
        prop_assert!(on[99] <= (part * 10e6).max(off[99]) + LEAD + LATE, "{} of {part}, off: {}", on[99], off[99]);
        for from in 0..=39 {
            let (had, without) = (on[from + 99] - on[from], off[from + 99] - off[from]);
            let most = (part.max(equal) * 9.9e6).max(without);
            prop_assert!(had <= most + LEAD + CREDIT + LATE, "{had} of {most} from {from}, off: {without}");
        }
    }

    #[test]
    fn pauses_keep_no_equal_from_its_part_for_five_seconds(
        fakes in proptest::collection::vec(fake(), 1..10),
        trainers in 1..3usize,
        drain_us in 0..=500u64,
    ) {
        let fakes: Vec<Fake> = fakes.into_iter().map(|fake| Fake { weight: 100, ..fake }).collect();
        let (w, uses) = uses("hpf", &vec![100; trainers], &fakes, drain_us, 15 * S);
        let part = 1.0 / (trainers + fakes.len()) as f64;
        for id in 1..=trainers {
            let had: Vec<f64> = uses.iter().map(|all| all[id - 1]).collect();
            for from in 0..had.len() - 50 {
                let had = had[from + 50] - had[from];
                prop_assert!(had >= part * 5e6 - LEAD - CREDIT - LATE, "{had} of {part} from {from}");
            }
            let mut since = 0;
            let mut longest = 0;
            for (at, action) in w.log.iter().filter(|(at, _)| *at > BEGIN) {
                match action {
                    xsched_policy::Action::Close(g) if g.0 == id as u64 => since = *at,
                    xsched_policy::Action::Open(g) if g.0 == id as u64 => longest = longest.max(at - since),
                    _ => (),
                }
            }
            let most = (LEAD + CREDIT) / part + 2.0 * LATE / part;
            prop_assert!(longest as f64 <= most, "kept off for {longest}, of {most}");
        }
    }

    #[test]
    fn pauses_a_server_goes_first_in_all_of_its_bursts(
        use_permille in 40..=100u64,
        seed in 1..=u64::MAX,
        others in 1..6u64,
    ) {
        let mut w = World::new("hpf");
        for id in 1..=others {
            w.add_ready(group(id, 0), 0);
        }
        let period = 10 * MS * 1_000 / use_permille;
        // At any time in twice the mean period.
        let work = Work { late_us: 2 * period, random: seed, ..Work::new(20 * MS, 0, 10 * MS) };
        w.add_work(group(9, 0), 0, work);
        w.run(30 * S);
        prop_assert!(w.sims[&9].ended().count() > 80);
        // A request that comes while the last one runs waits for that one only.
        let mut free = 0;
        for r in w.sims[&9].ended() {
            let ended = r.ended.unwrap();
            prop_assert!(r.came < S || ended == r.came.max(free) + 10 * MS, "{} {free} {ended}", r.came);
            free = ended;
        }
    }
}
