//! `xsched record`: two programs of the simulated device become a scenario, and `xsched simulate` foretells of it what they did.

use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use xsched_e2e::{Place, Process, TIMEOUT, finish, one_of, signal, until};

/// Tries at a measurement that other work on the machine can spoil, see [`one_of`].
const TRIES: u32 = 3;
const REQUESTS: u64 = 150;

/// Figures that a program prints at its end.
fn result(program: Process) -> Value {
    serde_json::from_str(program.finish().last().expect("a line")).expect("JSON")
}

/// Asserts that the command is refused with this code and one line.
fn refused(place: &Place, args: &[&str], code: i32, line: &str) {
    let output = place.xsched(args).output().expect("xsched runs");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(line) && said.lines().count() == 1, "{said}");
}

/// Records a server beside a training until both have ended. Returns what they measured.
fn record(place: &Place, load: &Path, file: &str, options: &[&str]) -> (Value, Value) {
    let args = [&["record", "-o", file, "--for", "10m"], options].concat();
    let mut command = place.xsched(&args);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let recorder = command.spawn().expect("xsched runs");
    until("the recording begins", || Path::new(file).exists());
    let stop = place.join("stop");
    let _ = std::fs::remove_file(&stop);
    let until_file = stop.display().to_string();
    let training =
        place.run(&["--priority", "low"], load, &["be", "--us", "200", "--batch", "64", "--until", &until_file]);
    let launches = || place.group(training.pid()).and_then(|group| group["launches"].as_u64());
    until("the training trains", || launches() > Some(500));
    let count = REQUESTS.to_string();
    let args = ["lc", "--kernels", "5", "--us", "1000", "--period-us", "20000", "--requests", &count];
    let server = result(place.run(&["--priority", "high"], load, &args));
    std::fs::write(&stop, "").expect("a file");
    let training = result(training);
    signal(recorder.id(), Signal::INT);
    let output = finish(recorder, TIMEOUT);
    let table = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(table.starts_with("PROGRAM ") && table.contains("play it with `xsched simulate "), "{table}");
    (server, training)
}

/// Figures of the programs of a scenario, by name.
fn simulate(place: &Place, file: &str) -> [Value; 2] {
    let json = place.join("figures.json").display().to_string();
    place.ask(&["simulate", file, "--json", &json]);
    let v: Value = serde_json::from_str(&std::fs::read_to_string(json).expect("a file")).expect("JSON");
    let all = v["runs"][0]["programs"].as_array().expect("programs").clone();
    // The program with the requests is the more urgent one, and came last.
    let of = |name: &str| all.iter().find(|program| program["name"] == name).unwrap_or_else(|| panic!("{v}")).clone();
    [of("simload"), of("simload-2")]
}

/// Commands of a request of the training, on average.
fn commands_of_a_request(place: &Place, scenario: &str) -> f64 {
    let training = scenario.split("[[program]]").find(|part| part.contains("class = \"low\"")).expect("the training");
    let number = |text: &str| text.parse::<f64>().unwrap_or_else(|_| panic!("'{text}' in {training}"));
    // A training that a busy machine keeps from its device is a row of bursts, each of which has a line.
    if let Some((_, rest)) = training.split_once("requests = \"") {
        let file = std::fs::read_to_string(place.join(rest.split('"').next().expect("a file"))).expect("requests");
        let all: Vec<f64> =
            file.lines().skip(1).map(|line| number(line.split(' ').nth(1).expect("commands"))).collect();
        return all.iter().sum::<f64>() / all.len() as f64;
    }
    number(training.split("count = ").nth(2).and_then(|rest| rest.split(',').next()).expect("a count"))
}

/// Compares two figures within a part of the first.
fn near(what: &str, measured: f64, foretold: f64, within: f64) -> Result<(), String> {
    let is_near = (foretold / measured - 1.0).abs() <= within;
    if is_near { Ok(()) } else { Err(format!("{what}: {measured} measured, {foretold} foretold")) }
}

#[test]
fn a_recording_foretells_what_was_recorded() {
    let place = Place::new();
    let load = place.compile("programs/sim/simload.c", &["-lsimdev", "-lpthread", "-lm"]);
    place.device();
    let file = place.join("a.toml").display().to_string();
    refused(&place, &["record", "-o", &file], 3, "no daemon answers");
    let _daemon = place.daemon(&[]);
    refused(&place, &["record", "-o", &file, "--pid", "2147483646"], 2, "no process 2147483646 of yours is attached");
    refused(&place, &["record", "-o", &file, "--job", "none"], 2, "no program has the job 'none'");
    assert!(!Path::new(&file).exists(), "a file of nothing");
    for options in [&[][..], &["--full"]] {
        one_of(TRIES, "what is foretold is near what was measured", || {
            let (server, training) = record(&place, &load, &file, &[options, &["--force"]].concat());
            let scenario = std::fs::read_to_string(&file).expect("a scenario");
            let names = |class: &str| {
                scenario
                    .split("[[program]]")
                    .find(|part| part.contains(class))
                    .map(|part| part.contains("\"simload-2\""))
            };
            let [one, two] = simulate(&place, &file);
            let (of_server, of_training) =
                if names("class = \"high\"") == Some(true) { (two, one) } else { (one, two) };
            near("requests", REQUESTS as f64, of_server["requests"].as_f64().expect("a number"), 0.15)?;
            let p50_us = of_server["latency_us"]["p50"].as_f64().expect("a time");
            near("P50", server["p50_ms"].as_f64().expect("ms"), p50_us / 1e3, 0.25)?;
            let commands =
                of_training["requests"].as_f64().expect("a number") * commands_of_a_request(&place, &scenario);
            near("work", training["done"].as_f64().expect("a number"), commands, 0.25)
        });
    }
}
