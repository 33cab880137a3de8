//! Shares inside a pool.

use std::collections::BTreeMap;

use xsched_policy::{Action, GroupId, GroupSpec, Micros, PoolId};
use xsched_proto::hint::Hints;

use crate::group;
use crate::world::{Kernels, Work, World};

const S: Micros = 1_000_000;

fn pooled(id: u64, priority: i32) -> GroupSpec {
    GroupSpec { pool: Some(PoolId(1)), ..group(id, priority) }
}

fn weighted(id: u64, weight: u32) -> GroupSpec {
    GroupSpec { hints: Hints { weight: Some(weight), ..Hints::default() }, ..pooled(id, 0) }
}

fn gemm() -> Kernels {
    Kernels::new(100_000, 100)
}

fn resnet() -> Kernels {
    Kernels::new(1_000, 100)
}

/// A step of a network: layers of all lengths.
fn step() -> Kernels {
    Kernels::cycle((0..80).map(|layer| [2_400, 150, 60, 900, 40][layer % 5] + 10 * layer as u64).collect(), 100)
}

/// A step that begins with long layers and ends with short ones, as those of convolutional networks do.
fn convolutions() -> Kernels {
    Kernels::cycle([vec![2_000; 20], vec![400; 50], vec![60; 400]].concat(), 100)
}

fn assert_shares(shares: &BTreeMap<u64, f64>, wanted: &[(u64, f64)]) {
    for (id, share) in wanted {
        assert!((shares[id] - share).abs() <= 0.05, "{shares:?} instead of {wanted:?}");
    }
}

fn beside_a_gemm(evenness: u32) -> (BTreeMap<u64, f64>, f64) {
    let mut w = World::new("hpf");
    w.arbiter.set_evenness(evenness);
    w.add_kernels(pooled(1, 0), gemm());
    w.add_kernels(pooled(2, 0), resnet());
    w.run(60 * S);
    w.shares(5 * S, 60 * S)
}

#[test]
fn shares_a_gemm_and_a_resnet_have_half_each() {
    let (free, _) = beside_a_gemm(0);
    assert!((0.005..=0.1).contains(&free[&2]), "{free:?}");
    let (shares, sum) = beside_a_gemm(100);
    println!("{shares:?} {sum}");
    assert_shares(&shares, &[(1, 0.5), (2, 0.5)]);
    assert!(sum > 0.95, "{sum}");
}

#[test]
fn shares_the_curve_from_first_come_first_served_to_even() {
    let mut before = 0.0;
    for evenness in [0, 25, 50, 75, 100] {
        let (shares, sum) = beside_a_gemm(evenness);
        println!("evenness {evenness}: {shares:?} {sum}");
        assert!(shares[&2] > before);
        before = shares[&2];
    }
}

#[test]
fn shares_go_by_weights() {
    for swapped in [false, true] {
        let (gemm_weight, resnet_weight) = if swapped { (25, 75) } else { (75, 25) };
        let mut w = World::new("hpf");
        w.add_kernels(weighted(1, gemm_weight), gemm());
        w.add_kernels(weighted(2, resnet_weight), resnet());
        w.run(60 * S);
        let (shares, sum) = w.shares(5 * S, 60 * S);
        println!("{shares:?} {sum}");
        assert_shares(&shares, &[(1, f64::from(gemm_weight) / 100.0), (2, f64::from(resnet_weight) / 100.0)]);
    }
}

#[test]
fn shares_small_kernels_keep_what_they_get_done_together() {
    let total = |evenness| {
        let mut w = World::new("hpf");
        w.arbiter.set_evenness(evenness);
        for id in 1..=5 {
            w.add_kernels(pooled(id, 0), Kernels::cycle(vec![150 + 50 * id, 300, 200], 20));
        }
        w.run(30 * S);
        w.shares(3 * S, 30 * S)
    };
    let (_, free) = total(0);
    let (shares, even) = total(100);
    println!("{shares:?} {even} of {free}");
    assert!(even > 0.95 * free, "{even} of {free}");
    assert_shares(&shares, &[(1, 0.2), (2, 0.2), (3, 0.2), (4, 0.2), (5, 0.2)]);
}

#[test]
fn shares_long_kernels_that_leave_room_run_beside_others() {
    let run = |evenness| {
        let mut w = World::new("hpf");
        w.arbiter.set_evenness(evenness);
        w.add_kernels(pooled(1, 0), Kernels::new(100_000, 50));
        w.add_kernels(pooled(2, 0), Kernels::new(1_000, 50));
        w.run(60 * S);
        w.shares(10 * S, 60 * S)
    };
    let (_, free) = run(0);
    let (shares, even) = run(100);
    println!("{shares:?} {even} of {free}");
    assert!(even > 0.9 * free, "{even} of {free}");
    assert_shares(&shares, &[(1, 0.5), (2, 0.5)]);
}

/// A prefill of 30 ms, then 31 steps.
fn decoder() -> Kernels {
    Kernels::cycle([vec![30_000], vec![1_200; 31]].concat(), 100)
}

#[test]
fn shares_commands_may_vary_in_length() {
    let others: [fn() -> Kernels; 4] = [resnet, gemm, || Kernels::new(300, 30), convolutions];
    for (other, varied) in
        others.into_iter().flat_map(|other| [(other, decoder as fn() -> Kernels), (other, convolutions)])
    {
        let mut w = World::new("hpf");
        w.add_kernels(pooled(1, 0), varied());
        w.add_kernels(pooled(2, 0), other());
        w.run(120 * S);
        let (shares, sum) = w.shares(20 * S, 120 * S);
        println!("{shares:?} {sum}");
        assert_shares(&shares, &[(1, 0.5), (2, 0.5)]);
    }
}

#[test]
fn shares_two_with_long_kernels_and_one_with_short_ones() {
    let mut w = World::new("hpf");
    w.add_kernels(pooled(1, 0), gemm());
    w.add_kernels(pooled(2, 0), Kernels::new(60_000, 100));
    w.add_kernels(pooled(3, 0), Kernels::new(200, 100));
    w.run(120 * S);
    let (shares, sum) = w.shares(20 * S, 120 * S);
    println!("{shares:?} {sum}");
    assert_shares(&shares, &[(1, 0.333), (2, 0.333), (3, 0.333)]);
    assert!(sum > 0.95);
}

#[test]
fn shares_what_a_driver_has_already_counts_too() {
    let mut w = World::new("hpf");
    w.add_kernels(pooled(1, 0), gemm().deep(2));
    w.add_kernels(pooled(2, 0), resnet().deep(8));
    w.run(60 * S);
    let (shares, sum) = w.shares(10 * S, 60 * S);
    println!("{shares:?} {sum}");
    assert_shares(&shares, &[(1, 0.5), (2, 0.5)]);
}

#[test]
fn shares_a_pause_gives_no_credit_and_leaves_the_device_to_the_others() {
    let mut w = World::with("hpf interactive=off");
    w.add_kernels(pooled(1, 0), resnet());
    w.add_kernels(pooled(2, 0), Kernels::new(2_000, 100));
    w.run(10 * S);
    w.pause(1);
    w.run(11 * S);
    w.run(30 * S);
    let speed = w.speeds(11 * S, 30 * S)[&2];
    assert!(speed > 0.999, "all that there is: {speed}");
    assert!(w.sims[&2].bound == 0, "and no bound");
    w.ready(1);
    w.run(32 * S);
    let (shares, _) = w.shares(30 * S, 32 * S);
    assert_shares(&shares, &[(1, 0.5), (2, 0.5)]);
    // Equal shares for a group that comes late, too.
    w.add_kernels(pooled(3, 0), gemm());
    w.run(33 * S);
    w.run(40 * S);
    let (shares, _) = w.shares(33 * S, 40 * S);
    assert_shares(&shares, &[(1, 0.333), (2, 0.333), (3, 0.333)]);
}

#[test]
fn shares_the_device_is_never_idle_while_a_program_wants_it() {
    let mut w = World::new("hpf");
    w.add_kernels(pooled(1, 0), Kernels::new(2_500, 100));
    w.add_kernels(pooled(2, 0), resnet());
    w.add_kernels(pooled(3, 0), Kernels::new(500, 100));
    let mut random = 7_u64;
    for _ in 0..2_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let id = 1 + (random >> 33) % 3;
        if w.sims[&id].ready && !w.sims[&id].drains {
            w.pause(id)
        } else if !w.sims[&id].ready {
            w.ready(id)
        }
        w.run(w.now + (random >> 40) % 20_000);
        if w.sims.values().any(|s| s.ready) {
            let open = w.sims.values().any(|s| s.ready && s.open);
            let runs = w.sims.values().any(|s| s.kernels.as_ref().is_some_and(Kernels::is_running));
            assert!(open || runs, "at {}: {:?}", w.now, w.sims);
        }
    }
}

/// Programs that wait for each result leave the device for a moment after each.
#[test]
fn shares_a_program_with_short_pauses_is_not_at_the_mercy_of_long_kernels() {
    let mut w = World::new("hpf");
    w.add_kernels(pooled(1, 0), gemm());
    w.add_kernels(pooled(2, 0), resnet());
    w.run(5 * S);
    while w.now < 60 * S {
        w.run(w.now + 18_000);
        w.pause(2);
        w.run(w.now + 2_000);
        w.ready(2);
    }
    let (shares, sum) = w.shares(10 * S, 60 * S);
    println!("{shares:?} {sum}");
    assert!(shares[&2] > 0.4, "{shares:?}");
}

#[test]
fn shares_class_order_comes_first() {
    let mut w = World::new("hpf");
    w.add_kernels(pooled(1, -128), resnet());
    w.add_kernels(pooled(2, -128), gemm());
    w.add_kernels(pooled(3, 0), resnet());
    for _ in 0..20 {
        w.run(w.now + S / 10);
        assert_eq!(w.open(), [3]);
    }
    w.pause(3);
    w.run(w.now + 20 * S);
    let (shares, _) = w.shares(w.now - 15 * S, w.now);
    assert_shares(&shares, &[(1, 0.5), (2, 0.5)]);
    w.ready(3);
    assert_eq!(w.open(), [3], "at once, whatever is held or alone");
    w.add_kernels(pooled(4, 0), Kernels::new(500, 100));
    let before = w.now;
    w.run(w.now + 20 * S);
    let (shares, _) = w.shares(before + 2 * S, w.now);
    assert_shares(&shares, &[(1, 0.0), (2, 0.0), (3, 0.5), (4, 0.5)]);
}

#[test]
fn shares_what_is_learned_follows_the_phases_of_a_program() {
    let mut w = World::new("hpf");
    w.add_kernels(pooled(1, 0), resnet());
    w.add_kernels(pooled(2, 0), Kernels::new(4_000, 100));
    w.run(20 * S);
    w.sims.get_mut(&2).unwrap().kernels.as_mut().unwrap().lengths = vec![500];
    let changed = w.now;
    w.run(changed + 60 * S);
    let (shares, _) = w.shares(changed + 10 * S, w.now);
    println!("{shares:?}");
    assert_shares(&shares, &[(1, 0.5), (2, 0.5)]);
}

#[test]
fn shares_spells_cost_a_few_per_cent() {
    let mut w = World::new("hpf");
    for id in 1..=4 {
        w.add_kernels(pooled(id, 0), Kernels::new(1_000, 25));
    }
    w.run(2 * S);
    w.run(62 * S);
    let (_, sum) = w.shares(2 * S, 62 * S);
    println!("{sum} of 4");
    assert!(sum > 0.96 * 4.0, "{sum}");
}

/// Policies that take turns let no two run at a time: there is nothing to compare.
#[test]
fn shares_change_nothing_where_programs_take_turns() {
    for policy in ["up", "fair", "cfs", "mlfq", "kedf"] {
        let log = |pool: Option<PoolId>| {
            let mut w = World::new(policy);
            for id in 1..=3 {
                let spec = GroupSpec { pool, ..group(id, 0) };
                w.add_kernels(spec, Kernels::new(300 * id, 100));
            }
            w.run(3 * S);
            w.log
        };
        assert!(log(Some(PoolId(1))) == log(None), "{policy}");
    }
}

#[test]
fn shares_a_program_that_gets_nowhere_keeps_the_others_back_for_a_moment_only() {
    let mut w = World::new("hpf");
    w.add_kernels(pooled(1, 0), resnet());
    w.add_kernels(pooled(2, 0), resnet());
    w.run(10 * S);
    // The group waits on the device for something that does not come.
    w.sims.get_mut(&2).unwrap().kernels.as_mut().unwrap().lengths = vec![1_000 * S];
    w.sims.get_mut(&2).unwrap().kernels.as_mut().unwrap().width = 0;
    w.run(12 * S);
    w.run(20 * S);
    let speed = w.speeds(12 * S, 20 * S)[&1];
    assert!(speed > 0.95, "{speed}");
}

#[test]
fn shares_a_job_on_several_devices_is_never_held() {
    let mut w = World::new("hpf");
    let of_job = |spec: GroupSpec| GroupSpec { job: Some("j".into()), ..spec };
    w.add_kernels(of_job(pooled(1, 0)), gemm());
    w.add_ready(of_job(crate::spec(5, "d1")), 0);
    w.add_kernels(pooled(2, 0), resnet());
    w.run(20 * S);
    w.assert_jobs();
    assert!(!w.log.iter().any(|(_, action)| matches!(action, Action::Close(GroupId(1 | 2 | 5)))));
}

/// A group that may have next to nothing has a turn all the same.
#[test]
fn shares_the_guard_against_starvation_helps_those_held_too() {
    let mut w = World::new("hpf");
    w.arbiter.set_guard(Some(S));
    w.add_kernels(weighted(1, 1), gemm());
    w.add_kernels(weighted(2, 10_000), resnet());
    w.run(5 * S);
    w.run(35 * S);
    let speeds = w.speeds(5 * S, 35 * S);
    println!("{speeds:?}");
    assert!(speeds[&1] > 0.01 && speeds[&2] > 0.8, "{speeds:?}");
}

/// Its requests come more often than a long kernel of the pool takes, at any time, and take the pool off the device.
#[test]
fn shares_hold_beside_an_urgent_program_that_asks_again_and_again() {
    for other in [resnet, step, convolutions] {
        for (period_us, device_us) in [(25_000, 3_000), (14_000, 5_000), (110_000, 50_000)] {
            let mut w = World::new("hpf");
            w.add_kernels(pooled(1, -128), gemm());
            w.add_kernels(pooled(2, -128), other());
            w.add_work(group(9, 128), 100, Work { jitter_us: 1_000, ..Work::new(7_000, period_us, device_us) });
            w.run(60 * S);
            let (early, _) = w.shares(2 * S, 6 * S);
            let (shares, sum) = w.shares(5 * S, 60 * S);
            println!("{period_us}: {shares:?} {sum}, at first {early:?}");
            assert_shares(&shares, &[(1, 0.5), (2, 0.5)]);
        }
    }
}

#[test]
fn shares_a_program_that_serves_requests_is_not_held_so_that_others_are_alone() {
    let mut w = World::new("hpf");
    w.add_kernels(pooled(1, 0), resnet());
    w.add_kernels(pooled(2, 0), Kernels::new(500, 100));
    while w.now < 20 * S {
        w.run(w.now + 10_000);
        w.pause(2);
        w.run(w.now + 15_000);
        w.ready(2);
    }
    let held = w.log.iter().filter(|(_, action)| matches!(action, Action::Close(GroupId(2)))).count();
    assert_eq!(held, 0);
}

/// Each leaves room for the others and is as fast beside them as alone; what differs is how fast their hosts are at the time.
#[test]
fn shares_programs_that_others_do_not_slow_down_are_not_waited_for() {
    let mut w = World::new("hpf");
    for id in 1..=5 {
        w.add_kernels(pooled(id, 0), Kernels::new(1_000, 20));
    }
    let mut random = 11_u64;
    while w.now < 30 * S {
        for id in 1..=5 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let slower = 900 + (random >> 33) % 300;
            w.sims.get_mut(&id).unwrap().kernels.as_mut().unwrap().lengths = vec![slower];
        }
        w.run(w.now + 300_000);
    }
    let ended = |s: &crate::world::Sim| s.kernels.as_ref().unwrap().ended.iter().filter(|at| **at > 5 * S).count();
    let done: Vec<f64> = w.sims.values().map(|s| ended(s) as f64 / 25_000.0 * 1.05).collect();
    println!("{done:?}");
    assert!(done.iter().sum::<f64>() > 0.93 * 5.0, "{done:?}");
}

/// A neighbour on the host makes all of them slower for some seconds, one more than another: none for the sake of the others.
#[test]
fn shares_a_host_that_is_slow_for_a_while_gives_no_claim() {
    let mut w = World::new("hpf");
    for id in 1..=5 {
        w.add_kernels(pooled(id, 0), Kernels::new(1_000, 20));
    }
    let (mut natural, mut begin) = (0.0, 0);
    for spell in 0..12 {
        for id in 1..=5 {
            let us = if spell % 2 == 0 { 1_000 } else { 1_400 + 100 * id };
            w.sims.get_mut(&id).unwrap().kernels.as_mut().unwrap().lengths = vec![us];
            natural += if spell > 0 { 5.0 * S as f64 / us as f64 } else { 0.0 };
        }
        w.run(w.now + 5 * S);
        begin = if spell == 0 { w.now } else { begin };
    }
    let ended = |s: &crate::world::Sim| s.kernels.as_ref().unwrap().ended.iter().filter(|at| **at > begin).count();
    let done = w.sims.values().map(ended).sum::<usize>() as f64;
    println!("{done} of {natural}");
    assert!(done > 0.93 * natural, "{done} of {natural}");
}

#[test]
fn shares_a_program_that_was_not_slowed_down_has_no_claim_when_it_is() {
    let mut w = World::new("hpf");
    w.add_kernels(pooled(1, 0), Kernels::new(1_000, 30));
    w.add_kernels(pooled(2, 0), Kernels::new(1_000, 30));
    w.run(5 * S);
    // Its host is slow for long.
    w.sims.get_mut(&1).unwrap().kernels.as_mut().unwrap().lengths = vec![1_200];
    w.run(60 * S);
    // Now there is no room for both.
    for id in [1, 2] {
        w.sims.get_mut(&id).unwrap().kernels.as_mut().unwrap().width = 100;
    }
    w.run(63 * S);
    let speeds = w.speeds(60 * S, 63 * S);
    println!("{speeds:?}");
    assert!(speeds[&2] > 0.4, "{speeds:?}");
}
