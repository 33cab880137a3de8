//! `mlfq` and `cfs`: a mix of short and long work without hints.

use xsched_proto::hint::Hints;

use crate::random::Random;
use crate::world::{Work, World, spec};
use crate::{GroupSpec, group, hinted};

#[test]
fn mlfq_short_work_waits_for_no_more_than_what_is_in_flight_and_the_rest_is_shared_evenly() {
    for timeslice_us in [500, 2_000, 5_000] {
        for drain_us in [0, 300, 1_000] {
            let mut w = World::new("mlfq");
            let hints = Hints { timeslice_us: Some(timeslice_us), ..Hints::default() };
            w.add_ready(hinted(1, hints), drain_us);
            w.add_ready(hinted(2, hints), drain_us);
            w.run(150_000);
            let before = (w.used(1), w.used(2));
            w.add_work(group(3, 0), 0, Work::new(151_000, 20_000, 1_000));
            w.run(4_151_000);
            let worst = w.sims[&3].ended().filter_map(|r| r.took_us()).max().unwrap();
            let had = (w.used(1) - before.0, w.used(2) - before.1);
            println!("mlfq timeslice {timeslice_us} drain {drain_us}: worst {worst} µs, batch {had:.0?}");
            assert_eq!(w.sims[&3].ended().count(), 200);
            assert!(worst <= 1_000 + drain_us, "{worst}");
            let part = had.0 / (had.0 + had.1);
            assert!((part - 0.5).abs() < 0.02, "timeslice {timeslice_us}, drain {drain_us}: {part}");
            assert!(had.0 + had.1 > 3_790_000.0);
        }
    }
}

#[test]
fn mlfq_what_turns_long_goes_down_and_what_rests_rises() {
    let mut w = World::new("mlfq");
    w.add_ready(group(1, 0), 0);
    w.add_ready(group(2, 0), 0);
    w.run(200_000);
    // The two groups are at the lowest level; a newcomer has the device for the quanta of the upper ones: 5, 10 and 20 ms.
    w.add_ready(group(3, 0), 0);
    w.run(235_000);
    assert_eq!(w.used(3), 35_000.0);
    w.run(300_000);
    assert!(w.used(3) < 76_000.0, "then it takes turns: {}", w.used(3));
    w.idle(3);
    w.run(1_000_000);
    w.ready(3);
    assert_eq!(w.open(), [3], "it has left the device alone for long enough");
}

#[test]
fn mlfq_periodic_recovery_lifts_all_to_the_top_once_a_period() {
    let mut w = World::with("mlfq recovery=periodic period_us=200000");
    w.add_ready(group(1, 0), 0);
    w.add_ready(group(2, 0), 0);
    // A turn at the top is 5 ms, at the lowest level 40 ms.
    let mut short_turns = Vec::new();
    let (mut since, mut running) = (w.now, w.open());
    while w.now < 2_100_000 {
        w.run(w.arbiter.next_timer().unwrap());
        if w.open() != running {
            if w.now - since == 5_000 {
                short_turns.push(w.now);
            }
            (since, running) = (w.now, w.open());
        }
    }
    for period in 0..10 {
        let begin = 1_000 + period * 200_000;
        let here = short_turns.iter().filter(|at| (begin..begin + 15_000).contains(*at)).count();
        assert!(here >= 1, "none after {begin}: {short_turns:?}");
    }
    assert!((w.used(1) - w.used(2)).abs() <= 40_000.0);
    assert!(short_turns.len() <= 22, "{short_turns:?}");
}

#[test]
fn mlfq_periodic_recovery_does_not_forgive_in_between() {
    let mut w = World::with("mlfq recovery=periodic period_us=1000000");
    w.add_ready(group(1, 0), 0);
    w.run(100_000);
    w.idle(1);
    w.add_ready(group(2, 0), 0);
    w.run(400_000);
    w.ready(1);
    // The two groups are at the lowest level, where a turn is 40 ms.
    assert_eq!(w.open(), [1]);
    w.run(439_999);
    assert_eq!(w.open(), [1]);
    w.run(440_000);
    assert_eq!(w.open(), [2]);
}

#[test]
fn cfs_nothing_lags_by_more_than_a_period() {
    let mut worst: f64 = 0.0;
    for seed in 1..=40 {
        let mut random = Random::new(seed);
        let count = 2 + random.below(6);
        let mut w = World::new("cfs");
        let mut weights = Vec::new();
        let longest = if seed % 2 == 0 { 0 } else { 500 };
        for id in 1..=count {
            let priority = random.below(511) as i32 - 255;
            let part = 1 + random.below(300) as u32;
            let hints = Hints { weight: Some(part), ..Hints::default() };
            weights.push(1.25_f64.powf((f64::from(priority) / 12.75).round()) * f64::from(part));
            let drain_us = random.below(longest + 1);
            w.add_ready(GroupSpec { priority, ..hinted(id, hints) }, drain_us);
        }
        let all: f64 = weights.iter().sum();
        let begin = w.now;
        let start: Vec<f64> = w.sims.values().map(|s| s.used_us).collect();
        while w.now < 3_000_000 {
            w.run(w.arbiter.next_timer().unwrap());
            for ((sim, weight), start) in w.sims.values().zip(&weights).zip(&start) {
                let lag = (sim.used_us - start - (w.now - begin) as f64 * weight / all).abs();
                let bound = 20_000.0 + longest as f64 * count as f64;
                worst = worst.max(lag / bound);
                assert!(lag <= bound, "seed {seed}: {lag:.0} µs at {}: {weights:.2?}", w.now);
            }
        }
    }
    println!("cfs: the worst lag is {worst:.2} of what is allowed");
}

#[test]
fn cfs_timers_are_a_turn_apart() {
    // One of a hundred times the weight stays the first for many turns.
    let mut w = World::new("cfs");
    w.add_ready(group(1, 0), 0);
    w.add_ready(group(2, 255), 0);
    let mut looks = 0;
    while w.now < 1_001_000 {
        w.run(w.arbiter.next_timer().unwrap());
        looks += 1;
    }
    assert!(looks < 300, "{looks} looks in a second");
}

#[test]
fn cfs_a_newcomer_has_no_past_to_make_up() {
    for late in [0, 300_000] {
        let mut w = World::new("cfs");
        w.add_ready(group(1, 0), 100);
        w.add_ready(group(2, 0), 100);
        w.run(1_001_000);
        // Added long before it wants the device first, or at once.
        w.add(group(3, 0), 100);
        w.run(w.now + late);
        w.ready(3);
        let before: Vec<f64> = (1..=3).map(|id| w.used(id)).collect();
        w.run(w.now + 1_200_000);
        let had: Vec<f64> = (1..=3).map(|id| w.used(id) - before[id as usize - 1]).collect();
        println!("cfs newcomer after {late}: {had:.0?}");
        assert!(had.iter().all(|us| (us - 400_000.0).abs() <= 20_000.0), "{had:?}");
    }
}

#[test]
fn cfs_one_that_slept_runs_soon() {
    let mut w = World::new("cfs");
    w.add_ready(group(1, 0), 200);
    w.add_ready(group(2, 0), 200);
    w.add_work(group(3, 0), 0, Work::new(30_000, 50_000, 2_000));
    w.run(5_000_000);
    let worst = w.sims[&3].ended().filter_map(|r| r.took_us()).max().unwrap();
    println!("cfs: 2 ms of work each 50 ms take {worst} µs at most");
    // The shortest turn of the one that runs, 2 ms, and what is in flight.
    assert!(worst <= 2_000 + 2_000 + 200, "{worst}");
    assert!((w.used(1) - w.used(2)).abs() < 40_000.0);
    w.add_ready(spec(4, "d1"), 0);
    assert!(w.sims[&4].open);
}
