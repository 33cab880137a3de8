//! Recordings of simulated runs, simulated again: the same figures must come.

use xsched_simulate::{Outcome, ProgramOutcome, Run, Scenario, Written};

fn read(text: &str) -> Scenario {
    Scenario::read(text, |_| unreachable!()).expect(text)
}

/// Plays a scenario under its policy, and makes a scenario of what its daemon has seen.
fn record(scenario: &Scenario, each: Option<&str>) -> (Outcome, Written) {
    let mut run = Run::new(scenario, &scenario.policy, scenario.placement.strategy).expect("a policy");
    run.records = true;
    let outcome = run.play();
    let written = run.recording(&outcome).scenario(each);
    (outcome, written)
}

/// The scenario of a recording as a user has it: written to files, and read from them.
fn reread(written: &Written) -> Scenario {
    let file = |name: &str| Ok(written.files[name].clone());
    Scenario::read(&written.scenario.to_string(), file).unwrap_or_else(|e| panic!("{e}\n{}", written.scenario))
}

fn play(scenario: &Scenario, policy: &str) -> Outcome {
    Run::new(scenario, policy, scenario.placement.strategy).expect("a policy").play()
}

fn of<'a>(outcome: &'a Outcome, name: &str) -> &'a ProgramOutcome {
    let found = outcome.programs.iter().find(|program| program.name.split('-').next() == Some(name));
    found.unwrap_or_else(|| panic!("no {name}"))
}

fn us(program: &ProgramOutcome, part: f64) -> f64 {
    program.requests.quantile_ns(part).unwrap_or(0) as f64 / 1e3
}

/// Servers and trainings of several kinds.
const CASES: [(&str, &str); 4] = [
    (
        "poisson",
        "arrivals = { poisson = \"25ms\" }\nkernels = [{ count = 60, time = \"60us +- 20%\", launch = \"5us\" }]",
    ),
    (
        "periodic",
        "arrivals = { every = \"12ms\" }\nkernels = [{ count = 20, time = \"100us..200us\", launch = \"5us\" }]",
    ),
    (
        "host-bound",
        "arrivals = { gaps = [\"8ms\", \"20ms\"] }\nkernels = [{ count = 50, time = \"20us\", launch = \"50us\" }]",
    ),
    (
        "pauses",
        "arrivals = { pause = \"8ms..10ms\" }\nkernels = [{ count = 30, time = \"80us +- 30%\", launch = \"5us\" }]",
    ),
];

fn case(server: &str, training: bool) -> Scenario {
    let beside = "[[program]]\nname = \"training\"\nclass = \"low\"\nkernels = [{ count = 100, time = \"200us\", launch = \"5us\" }]\n";
    let beside = if training { beside } else { "" };
    read(&format!("time = \"20s\"\n[[device]]\n[[program]]\nname = \"server\"\nclass = \"high\"\n{server}\n{beside}"))
}

/// Alone, the requests of a recording take as long and come as often as those that were recorded.
#[test]
fn a_recording_of_a_program_alone_has_its_figures() {
    for (name, server) in CASES {
        let scenario = case(server, false);
        for each in [None, Some("a")] {
            let (measured, written) = record(&scenario, each);
            let predicted = play(&reread(&written), "hpf");
            let (measured, predicted) = (of(&measured, "server"), of(&predicted, "server"));
            for part in [0.5, 0.9, 0.99] {
                let (was, is) = (us(measured, part), us(predicted, part));
                assert!(
                    (is / was - 1.0).abs() < 0.1,
                    "{name} {each:?} at {part}: {was} us were recorded, {is} us came"
                );
            }
            let (was, is) = (measured.requests.count() as f64, predicted.requests.count() as f64);
            assert!((is / was - 1.0).abs() < 0.08, "{name} {each:?}: {was} requests were recorded, {is} came");
        }
    }
}

/// One request of 180 that takes 20 times as long is no tail of the others.
#[test]
fn a_rare_long_request_stays_rare() {
    let request = |n: u64| format!("{} 10 {} 0.1\n", n * 20, if n == 90 { 20.0 } else { 1.0 });
    let requests: String = (0..180).map(request).collect();
    let text = "time = \"4s\"\n[[device]]\n[[program]]\nname = \"server\"\nrequests = \"all\"\n";
    let scenario = Scenario::read(text, |_| Ok(requests.clone())).expect(text);
    let (measured, written) = record(&scenario, None);
    let recorded = read(&written.scenario.to_string().replace("time = \"4s\"", "time = \"60s\""));
    let foretold = play(&recorded, "hpf");
    let (measured, foretold) = (of(&measured, "server"), of(&foretold, "server"));
    for part in [0.5, 0.95, 0.985] {
        let (was, is) = (us(measured, part), us(foretold, part));
        assert!((is / was - 1.0).abs() < 0.1, "at {part}: {was} us were recorded, {is} us came");
    }
}

/// Beside a training, the recording tells how it would be under another policy.
#[test]
fn a_recording_beside_a_training_foretells_another_policy() {
    for (name, server) in CASES {
        let scenario = case(server, true);
        let (_, written) = record(&scenario, None);
        let recorded = reread(&written);
        for policy in ["hpf", "native"] {
            let (truth, foretold) = (play(&scenario, policy), play(&recorded, policy));
            for part in [0.5, 0.99] {
                let (was, is) = (us(of(&truth, "server"), part), us(of(&foretold, "server"), part));
                assert!(
                    (is / was - 1.0).abs() < 0.15 || (is - was).abs() < 300.0,
                    "{name} {policy} at {part}: {was} us, foretold {is} us"
                );
            }
            let share = |outcome| of(outcome, "training").share_percent();
            assert!(
                (share(&truth) - share(&foretold)).abs() < 5.0,
                "{name} {policy}: {} %, foretold {} %",
                share(&truth),
                share(&foretold)
            );
        }
    }
}
