//! Failures of vendor calls: each call that the preload library makes by itself fails, one after the other, with each kind of error. The
//! program gets the results that it would have without the library, or runs unscheduled and a line says so; it does not crash, hang or
//! compute something else.
//!
//! What fails is chosen by the software CUDA driver and HIP runtime (`fakecuda::Failures`) and by an OpenCL layer
//! (`testing/ladders/opencl/fail_layer.c`): the functions that the program calls when it runs bare are spared, the others count.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use xsched_e2e::{Gpu, HipGpu, Place, Process, TIMEOUT, so_within};

/// Number of calls that fail one after the other in a short run, and the time after which no further one does, for one platform and level.
/// All of them, each in every way: `cargo test -p xsched-e2e --test faults -- --ignored --nocapture`.
const SHORT: (u64, Duration) = (30, Duration::from_secs(6));

/// Name of a failure, the code that the call returns, and whether later calls return it too.
type Kind = (&'static str, i32, &'static str);

/// Failures that are tried. CUDA and HIP use equal numbers for them.
const KINDS: [Kind; 5] = [
    ("out of memory", 2, "once"),
    ("invalid handle", 400, "once"),
    ("not supported", 801, "once"),
    ("a sticky error of the library's calls", 700, "on"),
    ("a sticky error of all calls", 700, "all"),
];

const OPENCL_KINDS: [Kind; 4] = [
    ("out of memory", -6, "once"),
    ("invalid handle", -36, "once"),
    ("not supported", -59, "once"),
    ("a sticky error of the library's calls", -5, "on"),
];

/// Vendor's library with a program that uses everything, in a place with a daemon that suspends at random.
enum Vendor {
    Cuda(Gpu),
    Hip(HipGpu),
    OpenCl { place: Place, layer: PathBuf },
}

/// Result of a run.
struct Outcome {
    code: i32,
    lines: Vec<String>,
    errors: String,
    /// Counts of the vendor's library; none if it did not get that far.
    counted: Option<Value>,
    /// Counts of the preload library.
    stats: Option<Value>,
}

impl Outcome {
    fn number(&self) -> u64 {
        self.counted.as_ref().and_then(|c| c["counted"].as_u64()).unwrap_or(0)
    }

    /// Function that failed, if one did.
    fn failed(&self) -> Option<&str> {
        self.counted.as_ref()?["failed"].as_str()
    }

    fn launches(&self) -> Option<u64> {
        self.stats.as_ref()?["launches"].as_u64()
    }

    /// Reports whether all launches were seen, and none passed unscheduled.
    fn is_scheduled(&self, launches: u64) -> bool {
        let none = json!({"attach": 0, "passthrough": 0, "error": 0});
        self.launches() == Some(launches) && self.stats.as_ref().is_some_and(|stats| stats["unscheduled"] == none)
    }
}

impl Vendor {
    fn place(&self) -> &Place {
        match self {
            Vendor::Cuda(gpu) => &gpu.place,
            Vendor::Hip(gpu) => &gpu.place,
            Vendor::OpenCl { place, .. } => place,
        }
    }

    fn opencl() -> Vendor {
        let place = Place::new();
        let layer = place.compile("ladders/opencl/fail_layer.c", &["-shared", "-fPIC", "-Wno-unused-parameter"]);
        Vendor::OpenCl { place, layer }
    }

    fn program(&self, name: &str) -> PathBuf {
        match self {
            Vendor::Cuda(gpu) => gpu.program(name),
            Vendor::Hip(gpu) => gpu.program(name, 7),
            Vendor::OpenCl { place, .. } => place.opencl_program(&format!("{name}_cl")),
        }
    }

    fn kinds(&self) -> &'static [Kind] {
        match self {
            Vendor::OpenCl { .. } => &OPENCL_KINDS,
            _ => &KINDS,
        }
    }

    fn start(&self, mut command: Command, fails: &str, spared: &str) -> Process {
        let variable = match self {
            Vendor::Cuda(_) => "FAKECUDA_FAIL",
            Vendor::Hip(_) => "FAKEHIP_FAIL",
            Vendor::OpenCl { .. } => "FAIL_LAYER",
        };
        command.env(variable, fails).env(format!("{variable}_SPARED"), spared);
        match self {
            Vendor::Cuda(gpu) => gpu.with_driver(command),
            Vendor::Hip(gpu) => gpu.with_runtime(command),
            Vendor::OpenCl { place, layer } => {
                command.env("OPENCL_LAYERS", layer).env("FAIL_LAYER_OUT", place.join("layer"));
                Process::start(command)
            }
        }
    }

    /// Counts of its library in a process.
    fn counted(&self, pid: u32) -> Option<Value> {
        let file = match self {
            Vendor::Cuda(_) => "driver-stats",
            Vendor::Hip(_) => "runtime-stats",
            Vendor::OpenCl { .. } => "layer",
        };
        let text = std::fs::read_to_string(self.place().join(file)).unwrap_or_default();
        let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.find(|line| line["pid"] == pid)
    }

    fn outcome(&self, mut process: Process) -> Outcome {
        let pid = process.pid();
        let ended = so_within(TIMEOUT, || process.has_ended().is_some());
        assert!(ended, "it hangs: {}", process.errors());
        let (code, lines, errors) = process.wait();
        let stats = self.place().stats().into_iter().find(|(p, _)| *p == pid).map(|(_, stats)| stats);
        Outcome { code, lines, errors, counted: self.counted(pid), stats }
    }
}

/// Tries every `n` and kind of failure of a platform at a level. `all`: each kind for each call; otherwise the kinds take turns and the
/// first calls come first.
fn every_call_fails(vendor: &Vendor, what: &str, level: &str, all: bool) {
    let place = vendor.place();
    let program = vendor.program("faults");
    let bare = vendor.outcome(vendor.start(place.command(&program, &[]), "0 0 once", ""));
    assert_eq!((bare.code, bare.errors.as_str()), (0, ""), "{:?}", bare.lines);
    let calls = bare.counted.as_ref().expect("the vendor's counts")["calls"].clone();
    let bare_calls = calls.as_object().expect("calls");
    let mut spared: Vec<&str> = bare_calls.keys().map(String::as_str).collect();
    // Level 3 adds calls of the resource manager, which set another time slice for this class than the driver's.
    let of_manager = level == "3";
    let options: &[&str] = if of_manager { &["--level", "3", "--priority", "low"] } else { &["--level", level] };

    let _daemon = place.daemon(&["--policy", "chaos"]);
    let mut rival =
        vendor.start(place.run_command(&[], &vendor.program(rival(vendor)), &arguments(vendor)), "0 0 once", "");
    let run = |fails: &str, spared: &str| {
        vendor.outcome(vendor.start(place.run_command(options, &program, &[]), fails, spared))
    };
    rival.expect("ready");
    if let Vendor::OpenCl { .. } = vendor {
        rival.tell("turns 40");
        rival.expect("turns");
    }
    let mut good = run("0 0 once", &spared.join(" "));
    assert_eq!((good.code, good.errors.as_str()), (0, ""));
    assert_eq!(good.lines, bare.lines);
    let launches = good.launches().expect("counts");
    assert!(good.is_scheduled(launches), "{:?}", good.stats);
    let calls = good.counted.as_ref().expect("counts")["calls"].as_object().expect("calls").clone();
    let mut own: Vec<&str> = calls.keys().map(String::as_str).filter(|name| !bare_calls.contains_key(*name)).collect();
    if of_manager {
        spared.append(&mut own);
        good = run("0 0 once", &spared.join(" "));
    }
    let told: Vec<String> = own.iter().map(|name| format!("{} {name}", calls[*name])).collect();
    println!("{what}, level {level}: {} calls of the library's own: {}", good.number(), told.join(", "));
    assert!(good.number() > 0, "none was reached");

    let mut tally = Tally::default();
    let begin = Instant::now();
    let mut attempt = |what_fails: String, (name, code, how): Kind, n: u64, spared: &str| {
        let outcome = run(&format!("{n} {code} {how}"), spared);
        let verdict = judge(&outcome, &bare, launches, how);
        tally.add(&format!("{what}, level {level}, {what_fails}, {name}"), &outcome, verdict);
    };
    // Two cases: a function that never works, and one failing call after the other.
    let (unsupported, after) = (vendor.kinds()[2], vendor.kinds()[3].2);
    for name in &own {
        let others = own.iter().filter(|other| *other != name).copied();
        let spared = spared.iter().copied().chain(others).collect::<Vec<_>>().join(" ");
        attempt(name.to_string(), (unsupported.0, unsupported.1, after), 1, &spared);
    }
    let spared = spared.join(" ");
    for n in 1..=good.number() {
        for (turn, kind) in vendor.kinds().iter().enumerate() {
            if all || turn as u64 == n % vendor.kinds().len() as u64 {
                attempt(format!("call {n}"), *kind, n, &spared);
            }
        }
        if !all && (n >= SHORT.0 || begin.elapsed() > SHORT.1) {
            break;
        }
    }
    let Tally { reached, unreached, told, functions, wrong } = tally;
    let took = begin.elapsed().as_secs_f64();
    println!(
        "{what}, level {level}: {reached} failures reached, {unreached} not, {told} told, {took:.1} s: {functions:?}"
    );
    assert!(wrong.is_empty(), "{} of {reached}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(reached > 0, "none was reached");
    rival.skip_lines();
    assert!(rival.has_ended().is_none(), "the rival goes on");
}

/// Result of many failures.
#[derive(Default)]
struct Tally {
    /// Numbers of runs in which a call failed, and of runs with fewer calls than were to come before the failure: the number of calls
    /// depends on when the program was held.
    reached: u32,
    unreached: u32,
    /// Number of runs that printed a line.
    told: u32,
    /// Functions that failed, with their numbers.
    functions: BTreeMap<String, u32>,
    wrong: Vec<String>,
}

impl Tally {
    fn add(&mut self, what: &str, outcome: &Outcome, verdict: Result<(), String>) {
        match outcome.failed() {
            Some(name) => {
                self.reached += 1;
                *self.functions.entry(name.to_owned()).or_default() += 1;
            }
            None => self.unreached += 1,
        }
        self.told += u32::from(!outcome.errors.is_empty());
        if let Err(why) = verdict {
            self.wrong.push(format!("{what} ({}): {why}", outcome.failed().unwrap_or("none failed")));
        }
    }
}

/// Program that shares the device all the time.
fn rival(vendor: &Vendor) -> &'static str {
    match vendor {
        Vendor::OpenCl { .. } => "passes",
        _ => "steady",
    }
}

fn arguments(vendor: &Vendor) -> Vec<&'static str> {
    match vendor {
        Vendor::OpenCl { .. } => vec![],
        _ => vec!["100", "4"],
    }
}

/// Checks that a program's results are as without the library.
fn judge(outcome: &Outcome, bare: &Outcome, launches: u64, how: &str) -> Result<(), String> {
    let Outcome { code, lines, errors, counted, .. } = outcome;
    let said: Vec<&str> = errors.lines().collect();
    let ours = said.iter().all(|line| line.starts_with("xsched: "));
    let once = said.iter().all(|line| said.iter().filter(|other| *other == line).count() == 1);
    if !ours || !once {
        return Err(format!("it says {said:?}"));
    }
    if how == "all" && outcome.failed().is_some() {
        // The program's own calls fail, too, and it exits with its own error.
        let ended = *code == 1 && lines.last().is_some_and(|line| line.starts_with("FAIL ") && line.contains("700"));
        return if ended || *code == 0 { Ok(()) } else { Err(format!("status {code}, {:?}", lines.last())) };
    }
    if *code != 0 || *lines != bare.lines {
        let differs: Vec<&String> = lines.iter().filter(|line| !bare.lines.contains(line)).collect();
        return Err(format!("status {code}, {differs:?}"));
    }
    let Some(counted) = counted else { return Err("it left no counts".into()) };
    for misuse in ["illegal_calls", "misused"] {
        if counted[misuse].as_array().is_some_and(|all| !all.is_empty()) {
            return Err(format!("{misuse}: {}", counted[misuse]));
        }
    }
    if !outcome.is_scheduled(launches) && said.is_empty() {
        let stats = outcome.stats.as_ref().map(|s| (s["launches"].clone(), s["unscheduled"].clone()));
        return Err(format!("unscheduled in silence: {stats:?} of {launches} launches"));
    }
    Ok(())
}

fn cuda(level: &str, all: bool) {
    every_call_fails(&Vendor::Cuda(Gpu::new()), "CUDA", level, all);
}

fn hip(level: &str, all: bool) {
    every_call_fails(&Vendor::Hip(HipGpu::new()), "HIP", level, all);
}

#[test]
fn a_call_of_cuda_fails_at_level_1() {
    cuda("1", false);
}

#[test]
fn a_call_of_cuda_fails_at_level_2() {
    cuda("2", false);
}

#[test]
fn a_call_of_the_resource_manager_fails_at_level_3() {
    cuda("3", false);
}

#[test]
fn a_call_of_hip_fails_at_level_1() {
    hip("1", false);
}

#[test]
fn a_call_of_hip_fails_at_level_2() {
    hip("2", false);
}

#[test]
fn a_call_of_opencl_fails() {
    every_call_fails(&Vendor::opencl(), "OpenCL", "1", false);
}

#[test]
#[ignore = "minutes: `cargo test -p xsched-e2e --test faults -- --ignored`, as `cargo xtask test --long` does"]
fn every_call_of_cuda_fails_in_every_way() {
    ["1", "2", "3"].into_iter().for_each(|level| cuda(level, true));
}

#[test]
#[ignore = "minutes: `cargo test -p xsched-e2e --test faults -- --ignored`, as `cargo xtask test --long` does"]
fn every_call_of_hip_fails_in_every_way() {
    ["1", "2"].into_iter().for_each(|level| hip(level, true));
}

#[test]
#[ignore = "a minute: `cargo test -p xsched-e2e --test faults -- --ignored`, as `cargo xtask test --long` does"]
fn every_call_of_opencl_fails_in_every_way() {
    every_call_fails(&Vendor::opencl(), "OpenCL", "1", true);
}
