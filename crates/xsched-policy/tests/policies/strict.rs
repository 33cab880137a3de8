//! `spup`: a program has its percentage, and no more.

use crate::part;
use crate::turns::Stretches;
use crate::world::{Work, World};

/// The part of the device that each had, in percent.
fn shares(w: &mut World, us: u64) -> Vec<f64> {
    let before: Vec<f64> = w.sims.values().map(|s| s.used_us).collect();
    w.run(w.now + us);
    w.sims.values().zip(before).map(|(s, before)| 100.0 * (s.used_us - before) / us as f64).collect()
}

#[test]
fn spup_shares_hold_within_a_point_over_any_twenty_rounds() {
    for drains in [[0, 0, 0], [300, 300, 300], [0, 1_000, 300], [1_000, 0, 50]] {
        for aims in [vec![75, 25], vec![25, 75], vec![50, 30, 20]] {
            let mut w = World::new("spup");
            for (id, (aim, drain_us)) in (1..).zip(aims.iter().zip(drains)) {
                w.add_ready(part(id, *aim), drain_us);
            }
            let aims: Vec<(u64, f64)> = (1..).zip(aims.iter().map(|aim| f64::from(*aim))).collect();
            let worst = Stretches::of(&mut w, 6_000_000, |id| id).worst(20, &aims);
            println!("spup {aims:?} drains {drains:?}: {worst:.2}");
            assert!(worst <= 1.0, "{aims:?}, drains {drains:?}: {worst} points");
        }
    }
}

#[test]
fn spup_an_unused_share_stays_idle_where_pup_gives_it_away() {
    for (policy, aim) in [("spup", 25.0), ("pup", 100.0)] {
        for drain_us in [0, 300, 2_000] {
            let mut w = World::new(policy);
            w.add_ready(part(1, 25), drain_us);
            w.add(part(2, 75), drain_us);
            let share = shares(&mut w, 2_000_000)[0];
            println!("{policy} alone, drain {drain_us}: {share:.2}");
            assert!((share - aim).abs() <= 1.0, "{policy}: {share} %");
        }
    }
}

#[test]
fn spup_long_commands_are_given_back_in_full() {
    let mut w = World::new("spup");
    // Four turns of one of 5 % are 4 ms: what is in flight when it has to leave takes far longer.
    w.add_ready(part(1, 5), 12_000);
    let share = shares(&mut w, 4_000_000)[0];
    println!("spup 5 % with commands of 12 ms: {share:.2}");
    assert!((share - 5.0).abs() <= 1.0, "{share} %");
}

#[test]
fn spup_more_than_the_whole_is_scaled_down() {
    let mut w = World::new("spup");
    for (id, percent) in [(1, 100), (2, 60), (3, 40)] {
        w.add_ready(part(id, percent), 200);
    }
    let shares = shares(&mut w, 4_000_000);
    for (share, aim) in shares.iter().zip([50.0, 30.0, 20.0]) {
        assert!((share - aim).abs() <= 1.0, "{shares:?}");
    }
}

#[test]
fn spup_a_busy_neighbour_is_not_noticed() {
    let took = |neighbour: bool| {
        let mut w = World::new("spup");
        w.add_work(part(1, 40), 0, Work::new(2_000, 50_000, 10_000));
        w.add(part(2, 60), 0);
        if neighbour {
            w.ready(2);
        }
        w.run(5_000_000);
        let took: Vec<f64> = w.sims[&1].ended().filter_map(|r| r.took_us()).map(|us| us as f64).collect();
        assert!(took.len() >= 99);
        took.iter().sum::<f64>() / took.len() as f64
    };
    let (alone, beside) = (took(false), took(true));
    println!("spup requests of 10 ms at 40 %: {alone:.0} µs alone, {beside:.0} µs beside another");
    // 20 % of the device, of 40: it waits for a turn of the other one at most.
    assert!(beside <= alone + 15_000.0, "{alone} {beside}");
}

#[test]
fn spup_timers_are_a_turn_apart_or_so() {
    let mut w = World::new("spup");
    w.add_ready(part(1, 25), 100);
    w.add(part(2, 50), 100);
    let mut looks = 0;
    while w.now < 1_001_000 {
        w.run(w.arbiter.next_timer().unwrap().min(1_001_000));
        looks += 1;
    }
    assert!(looks < 500, "{looks} looks in a second");
}
