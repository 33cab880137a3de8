//! `xsched compare` with programs that are not written for it.

use std::process::{Command, Output};

use rustix::process::Signal;
use serde_json::Value;
use xsched_e2e::{Place, Process, TIMEOUT, finish, one_of, signal, until};

/// Tries at measurements that other work on the machine can spoil, see [`one_of`].
const TRIES: u32 = 3;

/// Command with these arguments.
fn compare(place: &Place, high: &str, low: &str, options: &[&str]) -> Command {
    let mut command = place.xsched(&["compare", "--high", high, "--low", low, "--warm-up", "0.2"]);
    command.args(options).current_dir(place.join(""));
    command
}

/// Reports whether a line is one about the progress.
fn is_progress(line: &str) -> bool {
    [" plays ", ": round ", ": note: "].iter().any(|part| line.starts_with(&format!("xsched: compare{part}")))
}

fn complaints(said: &str) -> String {
    said.lines().filter(|line| !is_progress(line)).map(|line| format!("{line}\n")).collect()
}

/// Runs the command to its good end, and returns the table and the JSON. Where a busy machine does next to nothing in a second, it runs for
/// as long as the command's advice says.
#[track_caller]
fn report(place: &Place, command: impl Fn(&str) -> Command) -> (String, Value) {
    let json = place.join("report.json");
    let run = |secs| {
        let mut command = command(secs);
        command.arg("--json").arg(&json).arg("--svg").arg(place.join("report.svg"));
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        finish(command.spawn().expect("xsched runs"), 6 * TIMEOUT)
    };
    let is_too_short = |output: &Output| String::from_utf8_lossy(&output.stderr).contains("; raise --secs\n");
    let output = ["1", "3"].into_iter().map(run).find(|output| !is_too_short(output)).unwrap_or_else(|| run("9"));
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.success() && said.lines().all(is_progress), "{said}");
    let svg = std::fs::read_to_string(place.join("report.svg")).expect("a picture");
    assert!(svg.starts_with("<svg") && svg.contains("together, under xsched: P50"), "{svg}");
    let table = String::from_utf8(output.stdout).expect("text");
    (table, serde_json::from_str(&std::fs::read_to_string(json).expect("a file")).expect("JSON"))
}

/// Asserts that each situation of each round has requests and work where it should.
#[track_caller]
fn assert_played(v: &Value, rounds: usize) {
    let raw = v["raw"].as_array().expect("rounds");
    assert_eq!(raw.len(), rounds);
    for round in raw {
        for (case, is_high, is_low) in
            [("alone", true, false), ("native", true, true), ("xsched", true, true), ("low_alone", false, true)]
        {
            let played = &round[case];
            assert_eq!(played["latencies_ms"].as_array().expect("a list").len() >= 2, is_high, "{case}: {played}");
            assert_eq!(played["work"].as_f64().expect("a number") > 0.0, is_low, "{case}: {played}");
            assert!(played["seconds"].as_f64().expect("a number") >= 1.0, "{case}: {played}");
        }
    }
    for case in ["alone", "native", "xsched"] {
        let all: usize = raw.iter().map(|round| round[case]["latencies_ms"].as_array().unwrap().len()).sum();
        assert_eq!(v[case]["requests"], all, "{case}");
        assert_eq!(v[case]["work"].is_null(), case == "alone");
    }
    assert!(v["launches"].as_u64() > Some(0), "{v}");
}

#[test]
fn bursts_of_programs_that_say_nothing_are_compared() {
    let place = Place::new();
    let load = place.compile("programs/sim/simload.c", &["-lsimdev", "-lpthread", "-lm"]);
    place.device();
    let load = load.display();
    let high = format!("{load} lc --kernels 5 --us 1000 --period-us 40000 --requests 1000000");
    let low = format!("{load} be --us 200 --secs 1000");
    let mut last = None;
    one_of(TRIES, "slices of 2 ms shared with a rival, and none under xsched", || {
        let (table, v) = report(&place, |secs| compare(&place, &high, &low, &["--secs", secs, "--rounds", "2"]));
        assert_played(&v, 2);
        assert_eq!((&v["requests"], &v["work"]), (&"bursts".into(), &"launches".into()));
        let p50 = |case: &str| v[case]["p50_ms"].as_f64().unwrap();
        for case in ["alone", "native", "xsched"] {
            assert!(p50(case) >= 5.0, "five kernels of 1 ms keep the device busy for 5 ms: {}", v[case]);
        }
        let is_less = p50("native") > p50("xsched");
        let said = table.clone();
        last = Some((table, v));
        if is_less { Ok(()) } else { Err(said) }
    });
    let (table, v) = last.expect("a comparison");
    // The program does not end by itself, and its processes were measured.
    assert!(v["observing"]["run_time"].is_null() && v["observing"]["processors"].as_f64() >= Some(0.0), "{v}");
    assert!(table.contains("together, under xsched") && table.contains("the low program alone"), "{table}");
    assert!(place.ps().is_none(), "the user's own daemon is not started");
}

/// Runs the programs of `examples/opencl`, on PoCL.
#[test]
fn lines_that_programs_print_are_compared() {
    let place = Place::new();
    for name in ["serve", "batch"] {
        place.compile(&format!("../examples/opencl/{name}.c"), &["-lOpenCL"]);
    }
    let requests = "^request [0-9]+: ([0-9.]+) ms$";
    let (table, v) = report(&place, |secs| {
        let options = ["--requests", requests, "--work", "^step", "--secs", secs, "--rounds", "1"];
        compare(&place, "./serve", "./batch", &options)
    });
    assert_played(&v, 1);
    assert_eq!((&v["requests"], &v["work"], &v["observing"]), (&requests.into(), &"^step".into(), &Value::Null));
    assert!(table.contains("a line of the high program that '^request"), "{table}");
}

#[test]
fn a_program_that_fails_or_ends_or_does_nothing_is_told() {
    let place = Place::new();
    let load = place.compile("programs/sim/simload.c", &["-lsimdev", "-lpthread", "-lm"]);
    place.device();
    let low = format!("test -e once || {{ touch once; exec {} be --secs 0.1; }}", load.display());
    let high = format!("{} lc --requests 1000000", load.display());
    for (high, low, options, expected) in [
        ("echo no device >&2; exit 7", "true", &[][..], "the high program failed (exit status: 7): no device"),
        ("true", "true", &[], "the high program ended before it was seen to work"),
        ("exec sleep 1000", "true", &["--start", "1"], "the high program gave no device any work within 1 s (--start)"),
        ("echo ready; exec sleep 1000", "true", &["--requests", "(ready)"], "the high program printed 'ready'"),
        (
            &high,
            &low,
            &["--gap", "0.1", "--secs", "1"],
            "the low program was started again, and ended before it was seen to work",
        ),
    ] {
        let mut command = compare(&place, high, low, options);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let output = finish(command.spawn().expect("xsched runs"), 3 * TIMEOUT);
        let said = complaints(&String::from_utf8(output.stderr).expect("text"));
        assert!(said.starts_with("xsched: compare: ") && said.contains(expected), "{expected}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        let bad_input = expected.ends_with("'ready'");
        assert_eq!(output.status.code(), Some(if bad_input { 2 } else { 3 }), "{said}");
    }
}

#[test]
fn programs_that_end_are_started_again_and_the_result_is_one_sentence() {
    let place = Place::new();
    let load = place.compile("programs/sim/simload.c", &["-lsimdev", "-lpthread", "-lm"]);
    place.device();
    let load = load.display();
    let high = format!("{load} lc --kernels 5 --us 1000 --period-us 20000 --requests 15");
    let low = format!("{load} be --us 200 --secs 0.3");
    let (table, v) = report(&place, |secs| compare(&place, &high, &low, &["--secs", secs, "--rounds", "1"]));
    assert_played(&v, 1);
    assert!(v["started_again"].as_u64() >= Some(4), "each ends several times a second: {v}");
    let verdict = v["verdict"].as_str().expect("a sentence");
    assert!(verdict.starts_with("Verdict: ") && verdict.contains("programs ended and were started again"), "{verdict}");
    assert_eq!(table.trim_end().lines().last(), Some(verdict));
    assert!(table.contains("programs that ended while they were measured were started again, "), "{table}");
}

#[test]
fn an_interrupted_comparison_ends_its_programs() {
    let place = Place::new();
    let file = place.join("pid");
    let high = format!("echo $$ > {0}.new && mv {0}.new {0}; exec sleep 1000", file.display());
    let comparison = Process::start(compare(&place, &high, "true", &[]));
    until("the program runs", || file.exists());
    let pid: u32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    signal(comparison.pid(), Signal::INT);
    let (code, _, said) = comparison.wait();
    assert_eq!((code, complaints(&said).as_str()), (130, "xsched: compare: interrupted\n"));
    assert!(!xsched_e2e::is_alive(pid));
}
