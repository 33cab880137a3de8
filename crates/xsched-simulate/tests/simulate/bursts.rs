//! The burst-level model beside the kernel-level one, on the scenarios of the examples.

use std::path::Path;

use xsched_simulate::{Detail, Outcome, Run, Scenario};

fn scenarios() -> Vec<(String, Scenario)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios");
    let mut all: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path()).collect();
    all.sort();
    let read = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).expect("a file");
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        (name, Scenario::read(&text, |_| unreachable!()).expect("a scenario"))
    };
    all.iter().map(read).collect()
}

fn play(scenario: &Scenario, policy: &str, detail: Detail) -> Outcome {
    let scenario = Scenario { detail, ..scenario.clone() };
    Run::new(&scenario, policy, scenario.placement.strategy).expect("a policy").play()
}

/// Largest difference of the mean time of requests, and of their number, in percent.
const MOST_PERCENT: f64 = 5.0;
/// Largest difference in a pool, where the share of each program follows from few measurements of how fast it is alone.
const MOST_PERCENT_IN_POOL: f64 = 7.0;

#[test]
fn it_shows_the_same_within_its_error() {
    for (name, scenario) in scenarios() {
        let most = if scenario.devices[0].pool { MOST_PERCENT_IN_POOL } else { MOST_PERCENT };
        for policy in [&scenario.policy].into_iter().chain(&scenario.compare) {
            let [exact, fluid] = [Detail::Kernels, Detail::Bursts].map(|detail| play(&scenario, policy, detail));
            assert!(fluid.events * 3 < exact.events, "{name}: {} events in place of {}", fluid.events, exact.events);
            let off = |exact: f64, fluid: f64| (fluid / exact - 1.0) * 100.0;
            let used = off(exact.device_use_percent(), fluid.device_use_percent());
            assert!(used.abs() < 2.0, "{name}, {policy}: use of devices {used:+.1} %");
            for (one, other) in exact.programs.iter().zip(&fluid.programs) {
                for (what, exact, fluid) in [
                    ("mean", one.requests.mean_ns(), other.requests.mean_ns()),
                    ("requests", one.requests.count(), other.requests.count()),
                ] {
                    let percent = off(exact as f64, fluid as f64);
                    println!("{name}, {policy}: {} {what} {percent:+.1} %", one.name);
                    assert!(percent.abs() <= most, "{name}, {policy}: {} {what} {percent:+.1} %", one.name);
                }
            }
        }
    }
}
