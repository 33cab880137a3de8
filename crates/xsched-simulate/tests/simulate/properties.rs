//! Rules that hold in every scenario. The same cases each time; `PROPTEST_RNG_SEED=2 PROPTEST_CASES=1000` tries others, and more. A case that
//! breaks a rule is made smaller, and printed as a scenario file for `xsched simulate`.

mod broken;

use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngSeed, TestCaseResult};
use xsched_simulate::{Arrivals, Kernels, Outcome, Program, Run, Scenario, Time, Times};

use crate::common::{ALL, File, MS, US, any_scenario, plain, program, scenario};

fn config(cases: u32) -> ProptestConfig {
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        max_shrink_iters: 2_000,
        failure_persistence: None::<Box<FileFailurePersistence>>.map(|one| one as _),
        ..ProptestConfig::default()
    }
}

fn play(scenario: &Scenario) -> Outcome {
    Run::new(scenario, &scenario.policy, scenario.placement.strategy).expect("a policy").play()
}

/// Commands of so many µs each, given one after the other.
fn work(count: u32, us: u64) -> Vec<Kernels> {
    vec![Kernels {
        count,
        time: Some(Times::Fixed(us * US)),
        total: None,
        copy: None,
        launch: Times::Fixed(5 * US),
        wait: false,
        steady: false,
        each: false,
    }]
}

/// Some programs, of which one always has work.
fn with_a_greedy_one() -> impl Strategy<Value = File> {
    proptest::collection::vec(program(), 0..3).prop_flat_map(|mut programs| {
        programs.push(plain("", work(200, 200)));
        scenario(1_000, &ALL, programs)
    })
}

/// Two programs that differ in their class alone, the urgent one first, beside others.
fn two_alike() -> impl Strategy<Value = File> {
    (program(), proptest::collection::vec(program(), 0..2)).prop_flat_map(|(one, rest)| {
        let arrivals = Arrivals { every: Some(Time(50 * MS)), ..Arrivals::default() };
        let alike =
            |class: &str| Program { class: Some(class.into()), arrivals: arrivals.clone(), level: None, ..one.clone() };
        let programs = [vec![alike("high"), alike("low")], rest].concat();
        scenario(2_000, &["hpf"], programs)
    })
}

/// Two programs with weights that always have work.
fn two_that_share() -> impl Strategy<Value = File> {
    let all = (1..6_u32, 1..6_u32, 50..400_u64).prop_flat_map(|(one, other, us)| {
        let weighing = |weight: u32| Program { weight: Some(weight * 100), ..plain("", work(100, us)) };
        scenario(3_000, &["fair", "cfs"], vec![weighing(one), weighing(other)])
    });
    all.prop_filter("side by side in a pool there is no share of time", |file| !file.0.devices[0].pool)
}

/// A group that waits has its device once in a while, whatever others do.
fn none_is_forgotten(_: &Scenario, outcome: &Outcome) -> TestCaseResult {
    for program in &outcome.programs {
        let is_done = program.device_ns > 0 || program.requests.count() == 0 && program.open_requests == 0;
        prop_assert!(is_done, "{} never had the device", program.name);
    }
    Ok(())
}

/// Some program always has work, and every policy here lets one go on.
fn the_device_works(scenario: &Scenario, outcome: &Outcome) -> TestCaseResult {
    let switches_ns = outcome.switches * scenario.devices[0].switch.0;
    let busy_ns = outcome.devices_busy_ns[0];
    let ms = |ns: u64| ns / MS;
    prop_assert!(
        busy_ns + switches_ns >= outcome.time_ns / 100 * 93,
        "the device works for {} ms, and switches for {} ms",
        ms(busy_ns),
        ms(switches_ns)
    );
    Ok(())
}

/// Of two programs that differ in their class alone, the urgent one waits no longer.
fn the_urgent_one_comes_first(_: &Scenario, outcome: &Outcome) -> TestCaseResult {
    let [high, low] = [0, 1].map(|at| &outcome.programs[at]);
    let mean = |at: usize| {
        let program = &outcome.programs[at];
        program.requests.mean_ns().max(if program.requests.count() < 5 { program.longest_open_ns } else { 0 })
    };
    let (many, few) = (high.requests.count(), low.requests.count());
    prop_assert!(many + 2 >= few, "{many} and {few} requests");
    let slack_ns = 2 * MS + mean(1) / 5;
    prop_assert!(mean(0) <= mean(1) + slack_ns, "high {} us, low {} us", mean(0) / US, mean(1) / US);
    Ok(())
}

/// Programs that always have work share by their weights.
fn weights_count(scenario: &Scenario, outcome: &Outcome) -> TestCaseResult {
    let [one, other] = [0, 1].map(|at| outcome.programs[at].device_ns as f64);
    let weight = |at: usize| f64::from(scenario.programs[at].weight.unwrap_or(100));
    let (share, wanted) = (one / (one + other), weight(0) / (weight(0) + weight(1)));
    prop_assert!((share - wanted).abs() < 0.04, "{share:.3} of the device, not {wanted:.3}");
    Ok(())
}

proptest! {
    #![proptest_config(config(24))]

    #[test]
    fn a_scenario_is_read_as_it_was_written(file in any_scenario(100)) {
        let text = file.0.to_string();
        let read = Scenario::read(&text, |_| unreachable!());
        prop_assert_eq!(read.map(|read| read.to_string()), Ok(text));
    }

    #[test]
    fn no_program_is_forgotten(file in any_scenario(1_500)) {
        none_is_forgotten(&file.0, &play(&file.0))?;
    }

    #[test]
    fn a_device_works_while_a_program_has_work(file in with_a_greedy_one()) {
        the_device_works(&file.0, &play(&file.0))?;
    }

    #[test]
    fn the_urgent_one_of_two_alike_waits_no_longer(file in two_alike()) {
        the_urgent_one_comes_first(&file.0, &play(&file.0))?;
    }

    #[test]
    fn shares_follow_weights(file in two_that_share()) {
        weights_count(&file.0, &play(&file.0))?;
    }
}
