//! Rules that hold in every scenario. The same cases each time; `PROPTEST_RNG_SEED=2 PROPTEST_CASES=1000` tries others, and more. A case that
//! breaks a rule is made smaller, and printed as a scenario file for `xsched simulate`.

use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngSeed};
use xsched_simulate::{
    Arrivals, Daemon, Detail, Device, Kernels, NATIVE, Outcome, Placement, Preemption, Program, Run, Scenario, Time,
    Times,
};

/// A scenario that is shown as its file.
#[derive(Clone)]
struct File(Scenario);

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\n{}", self.0)
    }
}

fn config(cases: u32) -> ProptestConfig {
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None::<Box<FileFailurePersistence>>.map(|one| one as _),
        ..ProptestConfig::default()
    }
}

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn times(least_us: u64, most_us: u64) -> impl Strategy<Value = Times> {
    let us = least_us..=most_us;
    prop_oneof![
        us.clone().prop_map(|us| Times::Fixed(us * US)),
        (us.clone(), us.clone()).prop_map(|(a, b)| Times::Between(a.min(b) * US, a.max(b) * US)),
        (us.clone(), 0..40_u32).prop_map(|(us, part)| Times::Normal(us * US, f64::from(part) / 100.0)),
        us.prop_map(|us| Times::Exponential(us * US)),
    ]
}

fn kernels() -> impl Strategy<Value = Kernels> {
    (1..80_u32, times(20, 2_000), 1..20_u64, any::<bool>()).prop_map(|(count, time, launch_us, wait)| Kernels {
        count,
        time: Some(time),
        total: None,
        copy: None,
        launch: Times::Fixed(launch_us * US),
        wait,
    })
}

fn arrivals() -> impl Strategy<Value = Arrivals> {
    let none = Arrivals::default();
    prop_oneof![
        Just(none.clone()),
        (5..200_u64).prop_map(|ms| Arrivals { every: Some(Time(ms * MS)), ..Arrivals::default() }),
        (5..200_u64).prop_map(|ms| Arrivals { poisson: Some(Time(ms * MS)), ..Arrivals::default() }),
        times(100, 50_000).prop_map(|pause| Arrivals { pause: Some(pause), ..Arrivals::default() }),
    ]
}

/// A program with nothing but a name and its work.
fn plain(name: &str, kernels: Vec<Kernels>) -> Program {
    Program {
        name: name.into(),
        count: 1,
        class: None,
        weight: None,
        timeslice: None,
        utilization: None,
        deadline: None,
        slo: None,
        level: None,
        user: None,
        namespace: None,
        device: Vec::new(),
        devices: 1,
        memory: 0.0,
        width: 100,
        start: Time(0),
        end: None,
        arrivals: Arrivals::default(),
        host: Times::Fixed(0),
        kernels,
        requests: None,
        traced: Vec::new(),
    }
}

const CLASSES: [Option<&str>; 5] = [None, Some("low"), Some("normal"), Some("high"), Some("realtime")];

fn program() -> impl Strategy<Value = Program> {
    let level = prop_oneof![3 => Just(None), 1 => (1..=3_u8).prop_map(Some)];
    let kinds = proptest::collection::vec(kernels(), 1..3);
    (kinds, proptest::sample::select(&CLASSES[..]), arrivals(), level, 0..2_000_u64).prop_map(
        |(kernels, class, arrivals, level, host_us)| Program {
            class: class.map(str::to_owned),
            arrivals,
            level,
            host: Times::Fixed(host_us * US),
            ..plain("", kernels)
        },
    )
}

fn scenario(time_ms: u64, policies: &'static [&'static str], programs: Vec<Program>) -> impl Strategy<Value = File> {
    use Preemption::{Gates, Host, Interrupt, Slices};
    let preemption = proptest::sample::select(vec![Host, Gates, Slices, Interrupt]);
    (proptest::sample::select(policies), preemption, any::<bool>(), 0..1_000_u64).prop_map(
        move |(policy, preemption, pool, seed)| {
            let mut programs = programs.clone();
            programs.iter_mut().enumerate().for_each(|(at, program)| program.name = format!("p{at}"));
            File(Scenario {
                question: String::new(),
                time: Time(time_ms * MS),
                policy: (*policy).to_owned(),
                compare: Vec::new(),
                seed,
                detail: Detail::Kernels,
                daemon: Daemon { guard: Time(200 * MS), ..Daemon::default() },
                devices: vec![Device { preemption, pool, ..Device::default() }],
                programs,
                events: Vec::new(),
                placement: Placement::default(),
            })
        },
    )
}

const ALL: [&str; 12] = ["hpf", "up", "pup", "fair", "cfs", "mlfq", "slo", "awf", "kedf", "lax", "observe", NATIVE];

fn any_scenario(time_ms: u64) -> impl Strategy<Value = File> {
    proptest::collection::vec(program(), 1..5).prop_flat_map(move |programs| scenario(time_ms, &ALL, programs))
}

fn play(scenario: &Scenario) -> Outcome {
    Run::new(scenario, &scenario.policy, scenario.placement.strategy).expect("a policy").play()
}

proptest! {
    #![proptest_config(config(24))]

    #[test]
    fn a_scenario_is_read_as_it_was_written(file in any_scenario(100)) {
        let text = file.0.to_string();
        let read = Scenario::read(&text, |_| unreachable!());
        prop_assert_eq!(read.map(|read| read.to_string()), Ok(text));
    }

    /// A group that waits has its device once in a while, whatever others do.
    #[test]
    fn no_program_is_forgotten(file in any_scenario(1_500)) {
        let outcome = play(&file.0);
        for program in &outcome.programs {
            let is_done = program.device_ns > 0 || program.requests.count() == 0 && program.open_requests == 0;
            prop_assert!(is_done, "{} never had the device in 1.5 s", program.name);
        }
    }

    /// Some program always has work, and every policy here lets one go on.
    #[test]
    fn a_device_works_while_a_program_has_work(
        file in proptest::collection::vec(program(), 0..3).prop_flat_map(|mut programs| {
            let greedy = Kernels { count: 200, time: Some(Times::Fixed(200 * US)), total: None, copy: None, launch: Times::Fixed(5 * US), wait: false };
            programs.push(plain("", vec![greedy]));
            scenario(1_000, &ALL, programs)
        })
    ) {
        let outcome = play(&file.0);
        let switches_ns = outcome.switches * file.0.devices[0].switch.0;
        let used_ns = outcome.devices_busy_ns[0] + switches_ns;
        prop_assert!(used_ns >= outcome.time_ns / 100 * 93, "the device works for {} ms, and switches for {} ms", outcome.devices_busy_ns[0] / MS, switches_ns / MS);
    }

    /// Of two programs that differ in their class alone, the urgent one waits no longer.
    #[test]
    fn the_urgent_one_of_two_alike_waits_no_longer(
        file in (program(), proptest::collection::vec(program(), 0..2)).prop_flat_map(|(one, rest)| {
            let arrivals = Arrivals { every: Some(Time(50 * MS)), ..Arrivals::default() };
            let alike = |class: &str| Program { class: Some(class.into()), arrivals: arrivals.clone(), level: None, ..one.clone() };
            let programs = [vec![alike("high"), alike("low")], rest].concat();
            scenario(2_000, &["hpf"], programs)
        })
    ) {
        let outcome = play(&file.0);
        let [high, low] = [0, 1].map(|at| &outcome.programs[at]);
        let mean = |at: usize| {
            let program = &outcome.programs[at];
            program.requests.mean_ns().max(if program.requests.count() < 5 { program.longest_open_ns } else { 0 })
        };
        prop_assert!(high.requests.count() + 2 >= low.requests.count(), "{} and {} requests", high.requests.count(), low.requests.count());
        let slack_ns = 2 * MS + mean(1) / 5;
        prop_assert!(mean(0) <= mean(1) + slack_ns, "high {} us, low {} us", mean(0) / US, mean(1) / US);
    }

    /// Programs that always have work share by their weights.
    #[test]
    fn shares_follow_weights(
        file in (1..6_u32, 1..6_u32, 50..400_u64).prop_flat_map(|(one, other, us)| {
            let work = Kernels { count: 100, time: Some(Times::Fixed(us * US)), total: None, copy: None, launch: Times::Fixed(5 * US), wait: false };
            let weighing = |weight: u32| Program { weight: Some(weight * 100), ..plain("", vec![work.clone()]) };
            scenario(3_000, &["fair", "cfs"], vec![weighing(one), weighing(other)])
        }).prop_filter("side by side in a pool there is no share of time", |file| !file.0.devices[0].pool)
    ) {
        let outcome = play(&file.0);
        let [one, other] = [0, 1].map(|at| outcome.programs[at].device_ns as f64);
        let weight = |at: usize| f64::from(file.0.programs[at].weight.unwrap_or(100));
        let (share, wanted) = (one / (one + other), weight(0) / (weight(0) + weight(1)));
        prop_assert!((share - wanted).abs() < 0.04, "{share:.3} of the device, not {wanted:.3}");
    }
}
