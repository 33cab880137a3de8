//! Random scenarios.

use proptest::prelude::*;
use xsched_simulate::{
    Arrivals, Daemon, Detail, Device, Kernels, NATIVE, Placement, Preemption, Program, Scenario, Time, Times,
};

/// A scenario that is shown as its file.
#[derive(Clone)]
pub(crate) struct File(pub(crate) Scenario);

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\n{}", self.0)
    }
}

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;

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
        steady: false,
        each: false,
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
pub(crate) fn plain(name: &str, kernels: Vec<Kernels>) -> Program {
    Program { kernels, ..Program::named(name) }
}

const CLASSES: [Option<&str>; 5] = [None, Some("low"), Some("normal"), Some("high"), Some("realtime")];

pub(crate) fn program() -> impl Strategy<Value = Program> {
    let level = prop_oneof![3 => Just(None), 1 => (1..=3_u8).prop_map(Some)];
    let kinds = proptest::collection::vec(kernels(), 1..3);
    (kinds, proptest::sample::select(&CLASSES[..]), arrivals(), level, 0..2_000_u64, 20..101_u32).prop_map(
        |(kernels, class, arrivals, level, host_us, width)| Program {
            class: class.map(str::to_owned),
            arrivals,
            level,
            width,
            host: Times::Fixed(host_us * US),
            ..plain("", kernels)
        },
    )
}

pub(crate) fn scenario(
    time_ms: u64,
    policies: &'static [&'static str],
    programs: Vec<Program>,
) -> impl Strategy<Value = File> {
    use Preemption::{Gates, Host, Interrupt, Slices};
    let preemption = proptest::sample::select(vec![Host, Gates, Slices, Interrupt]);
    (proptest::sample::select(policies), preemption, any::<bool>(), any::<bool>(), 0..1_000_u64).prop_map(
        move |(policy, preemption, pool, saves, seed)| {
            let mut programs = programs.clone();
            programs.iter_mut().enumerate().for_each(|(at, program)| program.name = format!("p{at}"));
            File(Scenario {
                question: String::new(),
                time: Time(time_ms * MS),
                policy: (*policy).to_owned(),
                compare: Vec::new(),
                seed,
                detail: Detail::Kernels,
                interval: None,
                daemon: Daemon { guard: Time(200 * MS), ..Daemon::default() },
                devices: vec![Device {
                    preemption,
                    pool,
                    save: Time(if saves { 120 * US } else { 0 }),
                    ..Device::default()
                }],
                programs,
                events: Vec::new(),
                placement: Placement::default(),
            })
        },
    )
}

pub(crate) const ALL: [&str; 12] =
    ["hpf", "up", "pup", "fair", "cfs", "mlfq", "slo", "awf", "kedf", "lax", "observe", NATIVE];

pub(crate) fn any_scenario(time_ms: u64) -> impl Strategy<Value = File> {
    proptest::collection::vec(program(), 1..5).prop_flat_map(move |programs| scenario(time_ms, &ALL, programs))
}
