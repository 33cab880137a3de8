//! The burst-level model beside the kernel-level one, on random scenarios on which nobody tuned it: its error, as it is.
//!
//! `HELD_OUT=400 cargo test -p xsched-simulate --test simulate held_out -- --nocapture` takes more of them and prints the worst; `SHOW=7` adds the
//! scenario with that number.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngSeed, TestRunner};
use xsched_simulate::{Detail, Outcome, Run, Scenario};

use crate::common::{File, any_scenario};

/// Seed of the scenarios.
const SEED: u64 = 52;
const SCENARIOS: usize = 60;
/// Length of each, in ms of virtual time.
const TIME_MS: u64 = 4_000;
/// Largest median and P90 of errors, in percent: of times of requests, of their number, and of device time. The worst is far beyond: in a
/// pool the share of a program follows from few measurements of its completions, which commands of different lengths make uneven.
const MOST_OF_TIMES: (f64, f64) = (2.5, 9.0);
const MOST_OF_REQUESTS: (f64, f64) = (0.5, 5.5);
const MOST_OF_DEVICE: (f64, f64) = (2.0, 8.0);
/// Fewest requests of a program whose times count.
const FEWEST: u64 = 20;

fn play(scenario: &Scenario, detail: Detail) -> Outcome {
    let scenario = Scenario { detail, ..scenario.clone() };
    Run::new(&scenario, &scenario.policy, scenario.placement.strategy).expect("a policy").play()
}

/// Errors of one figure over all programs, in percent, each with the place of its scenario.
#[derive(Default)]
struct Errors(Vec<(f64, usize, String)>);

impl Errors {
    fn add(&mut self, at: usize, name: &str, exact: f64, fluid: f64) {
        self.0.push(((fluid / exact - 1.0) * 100.0, at, format!("{name} {exact:.1} -> {fluid:.1}")));
    }

    /// Median, P90 and worst, without their signs.
    fn summary(&mut self) -> [f64; 3] {
        self.0.sort_by(|one, other| one.0.abs().total_cmp(&other.0.abs()));
        let at = |part: f64| self.0[((self.0.len() - 1) as f64 * part) as usize].0.abs();
        [at(0.5), at(0.9), at(1.0)]
    }
}

#[test]
fn its_error_on_scenarios_that_nobody_tuned_on() {
    let number = std::env::var("HELD_OUT").ok().and_then(|number| number.parse().ok()).unwrap_or(SCENARIOS);
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(SEED), ..Config::default() });
    let any = any_scenario(TIME_MS);
    let scenarios: Vec<File> = (0..number).map(|_| any.new_tree(&mut runner).expect("a scenario").current()).collect();
    let [mut times, mut requests, mut shares] = [(); 3].map(|()| Errors::default());
    let mut events = (0, 0);
    for (at, File(scenario)) in scenarios.iter().enumerate() {
        let [exact, fluid] = [Detail::Kernels, Detail::Bursts].map(|detail| play(scenario, detail));
        events = (events.0 + exact.events, events.1 + fluid.events);
        for (one, other) in exact.programs.iter().zip(&fluid.programs) {
            // Times of a program that does not keep up grow without end.
            let keeps_up = one.open_requests.max(other.open_requests) <= 3;
            if one.requests.count().min(other.requests.count()) >= FEWEST {
                if keeps_up {
                    let [one, other] = [one, other].map(|program| program.requests.mean_ns() as f64 / 1e6);
                    times.add(at, &exact.policy, one, other);
                }
                let [one, other] = [one, other].map(|program| program.requests.count() as f64);
                requests.add(at, &exact.policy, one, other);
            }
            let [one, other] = [one, other].map(|program| program.share_percent());
            if one > 5.0 {
                shares.add(at, &exact.policy, one, other);
            }
        }
    }
    println!("{number} scenarios, {} events in place of {}", events.1, events.0);
    for (what, errors, bounds) in [
        ("mean time", &mut times, MOST_OF_TIMES),
        ("requests", &mut requests, MOST_OF_REQUESTS),
        ("device time", &mut shares, MOST_OF_DEVICE),
    ] {
        let [median, most, worst] = errors.summary();
        println!("{what}: median {median:.1} %, P90 {most:.1} %, worst {worst:.1} %, of {}", errors.0.len());
        for (percent, at, words) in errors.0.iter().rev().take(5) {
            println!("    {percent:+.0} % in scenario {at}, policy {words}");
        }
        assert!(median <= bounds.0 && most <= bounds.1, "{what}: {median:.1} % and {most:.1} %, not {bounds:?}");
    }
    if let Some(at) = std::env::var("SHOW").ok().and_then(|at| at.parse::<usize>().ok()) {
        println!("{:?}", scenarios[at]);
    }
}
