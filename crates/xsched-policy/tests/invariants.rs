//! What holds whatever happens. The same cases each time; `PROPTEST_RNG_SEED=2 PROPTEST_CASES=60000` tries others, and more;
//! `cargo xtask test --long` does.

mod world;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use world::{World, spec};
use xsched_policy::{ClassRule, Event, GroupId, GroupSpec, PoolId, ProgramId, registry};
use xsched_proto::hint::Hints;

#[derive(Clone, Debug)]
enum Step {
    Add { device: u8, priority: i32, weight: u32, drain_us: u64, job: Option<u8> },
    Remove(usize),
    Ready(usize),
    Idle(usize),
    Hint(usize, i32, u32),
    Hold(usize),
    Release(usize),
    Pass(u64),
}

fn step(jobs: bool) -> impl Strategy<Value = Step> {
    let job = if jobs { proptest::option::of(0..2u8).boxed() } else { Just(None).boxed() };
    prop_oneof![
        2 => (0..2u8, -255..=255i32, 1..=10_000u32, 0..=1_000u64, job)
            .prop_map(|(device, priority, weight, drain_us, job)| Step::Add { device, priority, weight, drain_us, job }),
        1 => any::<usize>().prop_map(Step::Remove),
        4 => any::<usize>().prop_map(Step::Ready),
        3 => any::<usize>().prop_map(Step::Idle),
        1 => (any::<usize>(), -255..=255i32, 1..=10_000u32).prop_map(|(g, p, w)| Step::Hint(g, p, w)),
        1 => any::<usize>().prop_map(Step::Hold),
        1 => any::<usize>().prop_map(Step::Release),
        4 => (0..30_000u64).prop_map(Step::Pass),
    ]
}

/// One rule or none for each class; all guarantees together stay below the whole.
fn class_rules() -> impl Strategy<Value = Vec<ClassRule>> {
    let ranges = [(-255, -1), (0, 127), (128, 191), (192, 254), (255, 255)];
    let rules = ranges.map(|(lowest, highest)| {
        proptest::option::of((1_000..=20_000u64, any::<bool>(), 0..=18u32).prop_map(
            move |(quantum_us, preemptible, guarantee_percent)| ClassRule {
                lowest,
                highest,
                quantum_us,
                preemptible,
                guarantee_percent,
            },
        ))
    });
    rules.prop_map(|rules| rules.into_iter().flatten().collect())
}

/// Every group that wants the device gets it sooner or later once those served before have left.
fn assert_nobody_is_lost(w: &mut World) {
    let ids: Vec<_> = w.sims.keys().copied().collect();
    for &id in &ids {
        w.ready(id);
    }
    let mut left: Vec<_> = ids.iter().map(|&id| (id, w.used(id))).collect();
    while !left.is_empty() {
        w.run(w.now + 3_000_000);
        let (served, rest): (Vec<_>, Vec<_>) = left.into_iter().partition(|&(id, before)| w.used(id) > before);
        assert!(!served.is_empty(), "nobody gets the device");
        for (id, _) in served {
            w.idle(id);
        }
        left = rest;
    }
}

fn play(world: &mut World, steps: &[Step], check: impl Fn(&World)) {
    for step in steps {
        let pick = |n: usize| world.sims.keys().nth(n % world.sims.len().max(1)).copied();
        match step.clone() {
            Step::Add { device, priority, weight, drain_us, job } if world.sims.len() < 8 => {
                let device = format!("d{device}");
                let job = job.map(|j| format!("j{j}"));
                world.ids += 1;
                world.add(GroupSpec { priority, weight, job, ..spec(world.ids, &device) }, drain_us);
            }
            Step::Add { .. } => (),
            Step::Remove(n) => pick(n).into_iter().for_each(|id| world.remove(id)),
            Step::Ready(n) => pick(n).into_iter().for_each(|id| world.ready(id)),
            Step::Idle(n) => pick(n).into_iter().for_each(|id| world.idle(id)),
            Step::Hint(n, priority, weight) => {
                if let Some(id) = pick(n) {
                    world.sims.get_mut(&id).unwrap().priority = priority;
                    let (priority, weight) = (Some(priority), Some(weight));
                    world.send(Event::Hint { group: GroupId(id), priority, weight, timeslice_us: None });
                }
            }
            Step::Hold(n) => pick(n).into_iter().for_each(|id| world.send(Event::Hold(ProgramId(id)))),
            Step::Release(n) => pick(n).into_iter().for_each(|id| world.send(Event::Release(ProgramId(id)))),
            Step::Pass(us) => world.run(world.now + us),
        }
        for sim in world.sims.values().filter(|s| s.held) {
            assert!(!sim.open, "a held program runs");
        }
        check(world);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_device_that_somebody_wants_is_never_left_idle(
        policy in prop_oneof![Just("hpf"), Just("up"), Just("pup")],
        steps in proptest::collection::vec(step(false), 1..60),
    ) {
        play(&mut World::new(policy), &steps, World::assert_work_conserving);
    }

    #[test]
    fn hpf_never_runs_a_group_beside_a_more_urgent_one(steps in proptest::collection::vec(step(false), 1..60)) {
        play(&mut World::new("hpf"), &steps, World::assert_priorities);
    }

    #[test]
    fn jobs_run_on_all_their_devices_or_on_none(
        policy in prop_oneof![Just("hpf"), Just("up"), Just("pup"), Just("chaos")],
        rules in class_rules(),
        steps in proptest::collection::vec(step(true), 1..60),
    ) {
        let mut w = World::new(policy);
        w.set_classes(rules);
        play(&mut w, &steps, World::assert_jobs);
    }

    #[test]
    fn shares_follow_the_weights_within_two_points(
        policy in prop_oneof![Just("up"), Just("pup")],
        contenders in proptest::collection::vec((1..=100u32, 0..=1_000u64), 2..=3),
    ) {
        let mut w = World::new(policy);
        for (at, &(weight, drain_us)) in contenders.iter().enumerate() {
            let id = at as u64 + 1;
            w.add(GroupSpec { weight, ..spec(id, "d0") }, drain_us);
            w.ready(id);
        }
        w.run(20_000_000);
        let all: f64 = w.sims.values().map(|s| s.used_us).sum();
        let weights: u32 = contenders.iter().map(|c| c.0).sum();
        for (at, &(weight, _)) in contenders.iter().enumerate() {
            let (share, wanted) = (w.used(at as u64 + 1) / all, f64::from(weight) / f64::from(weights));
            prop_assert!((share - wanted).abs() < 0.02, "{share} instead of {wanted}");
        }
    }

    #[test]
    fn a_policy_changed_in_mid_run_loses_nobody(
        (from, to) in (0..4usize, 0..4usize),
        steps in proptest::collection::vec(step(false), 1..40),
        more in proptest::collection::vec(step(false), 1..20),
    ) {
        let names = ["hpf", "up", "pup", "chaos"];
        let mut w = World::new(names[from]);
        play(&mut w, &steps, |_| ());
        w.set_policy(names[to]);
        prop_assert_eq!(w.arbiter.policy().name, names[to]);
        let known = w.arbiter.groups().count();
        prop_assert_eq!(known, w.sims.len());
        if names[to] == "hpf" {
            w.assert_priorities();
        }
        if names[to] != "chaos" {
            w.assert_work_conserving();
        }
        for id in w.sims.keys().copied().collect::<Vec<_>>() {
            w.send(Event::Release(ProgramId(id)));
        }
        assert_nobody_is_lost(&mut w);
        play(&mut w, &more, |_| ());
    }

    #[test]
    fn classes_domains_and_programs_side_by_side_leave_no_device_idle_and_lose_nobody(
        policy in prop_oneof![Just("hpf"), Just("up"), Just("pup")],
        rules in class_rules(),
        groups in proptest::collection::vec((0..2u8, -255..=255i32, any::<bool>(), any::<bool>(), 0..=1_000u64), 1..8),
        steps in proptest::collection::vec(step(false), 1..40),
    ) {
        let mut w = World::new(policy);
        w.set_classes(rules);
        for &(program, priority, system, side_by_side, drain_us) in &groups {
            w.ids += 1;
            // Groups of a program differ in priority, or in their domain.
            let priority = if program == 0 { 0 } else { priority };
            let program = ProgramId(1_000 + u64::from(program));
            w.add(GroupSpec { program, priority, system, side_by_side, ..spec(w.ids, "d0") }, drain_us);
        }
        let kept = |s: &Step| !matches!(s, Step::Hold(_) | Step::Release(_) | Step::Hint(..));
        let steps: Vec<_> = steps.into_iter().filter(kept).collect();
        play(&mut w, &steps, World::assert_work_conserving);
        assert_nobody_is_lost(&mut w);
        for id in w.sims.keys().copied().collect::<Vec<_>>() {
            w.send(Event::TooLong(GroupId(id)));
        }
        play(&mut w, &steps, World::assert_work_conserving);
    }

    #[test]
    fn chaos_never_keeps_anybody_closed_for_more_than_20_ms(steps in proptest::collection::vec(step(false), 1..40)) {
        let mut w = World::new("chaos");
        // Held programs are closed for another reason.
        let steps: Vec<_> = steps.into_iter().filter(|s| !matches!(s, Step::Hold(_))).collect();
        play(&mut w, &steps, |w| {
            for sim in w.sims.values().filter(|s| !s.open) {
                assert!(w.now - sim.closed_since <= 20_000);
            }
        });
    }
}
