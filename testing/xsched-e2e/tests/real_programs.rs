//! Schedulers from outside, classes and scheduling domains in programs that do not use the simulated device directly: OpenCL programs on
//! PoCL, a real device, and HIP programs on the software runtime.

mod chain;

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use xsched_e2e::{HipGpu, Place, Process, one_of, signal, until};

/// Builds the example scheduler that reverses priorities.
fn reverse(place: &Place) -> String {
    let (root, output) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), place.join("libreverse.so"));
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-I"]).arg(root.join("include")).arg("-o").arg(&output);
    let done = cc.arg(root.join("examples/reverse-scheduler/reverse.c")).output().expect("a C compiler");
    assert!(done.status.success(), "cc: {}", String::from_utf8_lossy(&done.stderr));
    output.to_str().expect("text").to_owned()
}

/// Starts two programs that want the device all the time, and asserts that they go by priority, or in the reverse order, as the policy is.
fn reversed(place: &Place, start: impl Fn(&str) -> Process) -> (Process, [Process; 2]) {
    let daemon = place.daemon(&["--scheduler", &reverse(place)]);
    let programs = [start("high"), start("low")];
    let [high, low] = programs.each_ref().map(Process::pid);
    until("both are known", || [high, low].iter().all(|pid| place.group(*pid).is_some()));
    place.assert_ahead(low, high, 500);
    place.ask(&["policy", "set", "hpf"]);
    place.assert_ahead(high, low, 500);
    place.ask(&["policy", "set", "external"]);
    place.assert_ahead(low, high, 500);
    assert!(daemon.complaints().is_empty(), "{}", daemon.complaints());
    (daemon, programs)
}

/// Starts a daemon that guarantees the low class a part beside a program of a higher class, and two programs.
fn promised(place: &Place, start: impl Fn(&str) -> Process) -> (Process, [Process; 2]) {
    let config = place.join("config.toml");
    let text = "[[rule]]\nexe = \"*\"\npriority = \"low\"\n[classes.low]\nguarantee_percent = 40\nquantum_us = 3000\n";
    std::fs::write(&config, text).expect("a file");
    let daemon = place.daemon(&["--config", config.to_str().expect("text")]);
    let programs = [start("high"), start("")];
    let [high, low] = programs.each_ref().map(Process::pid);
    until("both are known", || [high, low].iter().all(|pid| place.group(*pid).is_some()));
    // OpenCL programs compile their kernel first.
    until("both work", || [high, low].iter().all(|pid| place.launches(*pid) > 50));
    let entry = place.program(low).expect("attached");
    assert_eq!((&entry["class"], &entry["class_from"]), (&json!("low"), &json!("rule")));
    let used = || place.groups_at_once([high, low]).map(|group| group["device_us"].as_f64().expect("a number"));
    one_of(5, "device time of low", || {
        let (before, used_before) = ([high, low].map(|pid| place.launches(pid)), used());
        until("both get on", || place.launches(high) >= before[0] + 2000 && place.launches(low) >= before[1] + 2000);
        let made = [place.launches(high) - before[0], place.launches(low) - before[1]];
        let now = used();
        let time = [now[0] - used_before[0], now[1] - used_before[1]];
        let share = 100.0 * time[1] / (time[0] + time[1]);
        let what = format!("launches of high and low: {made:?}; device time of low: {share:.1} %");
        println!("{what}");
        // Within two points: a window of this length begins and ends within a turn. The number of launches depends on the device, and on
        // other work on the processors: from 22 to 41 % were seen.
        if share >= 38.0 && made[1] * 7 > made[0] { Ok(()) } else { Err(what) }
    });
    (daemon, programs)
}

fn priority(class: &str) -> Vec<&str> {
    if class.is_empty() { Vec::new() } else { vec!["--priority", class] }
}

fn opencl(place: &Place) -> impl Fn(&str) -> Process {
    let program = place.compile("ladders/opencl/clload.c", &["-DCL_TARGET_OPENCL_VERSION=300", "-lOpenCL", "-lm"]);
    let measured = place.join("calibration").to_str().expect("text").to_owned();
    let words = |words: &[&str]| -> Vec<String> {
        [words, &["--calibrate-file", &measured]].concat().iter().map(|w| (*w).to_owned()).collect()
    };
    let (calibrate, load) = (words(&["calibrate"]), words(&["be", "--us", "200", "--batch", "32", "--secs", "0"]));
    let texts = |words: &[String]| -> Process {
        Process::start(place.command(&program, &words.iter().map(String::as_str).collect::<Vec<_>>()))
    };
    assert_eq!(texts(&calibrate).wait().0, 0);
    move |class| place.run(&priority(class), &program, &load.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Ends OpenCL programs, and checks that their results are right and that all their commands were seen.
fn end_opencl(place: &Place, programs: [Process; 2]) {
    for program in programs {
        let pid = program.pid();
        signal(pid, Signal::TERM);
        let (code, lines, errors) = program.wait();
        assert_eq!((code, errors.as_str()), (0, "clload: ready\n"));
        let said: Value = serde_json::from_str(lines.last().expect("a line")).expect("JSON");
        assert_eq!(place.stats_of(pid)["launches"], said["enqueues"], "{said}");
    }
}

fn hip(gpu: &HipGpu) -> impl Fn(&str) -> Process {
    let steady = gpu.program("steady", 6);
    move |class| {
        let mut program = gpu.run(&priority(class), &steady, &["100", "8"]);
        program.expect("ready");
        program
    }
}

#[test]
fn a_scheduler_that_reverses_priorities_reverses_opencl_programs() {
    let place = Place::new();
    let (_daemon, [high, low]) = reversed(&place, opencl(&place));
    // In this order, since the first would otherwise wait for the second.
    end_opencl(&place, [low, high]);
}

#[test]
fn a_scheduler_that_reverses_priorities_reverses_hip_programs() {
    let gpu = HipGpu::new();
    let (_daemon, [high, low]) = reversed(&gpu.place, hip(&gpu));
    gpu.end(low);
    gpu.end(high);
}

#[test]
fn a_class_of_opencl_programs_has_what_it_is_promised() {
    let place = Place::new();
    let (_daemon, programs) = promised(&place, opencl(&place));
    end_opencl(&place, programs);
}

#[test]
fn a_class_of_hip_programs_has_what_it_is_promised() {
    let gpu = HipGpu::new();
    let (_daemon, programs) = promised(&gpu.place, hip(&gpu));
    programs.into_iter().for_each(|program| gpu.end(program));
}

/// Runs the chain over HIP with these words, in mode report; returns its lines and the counts.
fn chain_of(gpu: &HipGpu, words: &[&str]) -> (Vec<String>, Value) {
    let mut command = gpu.place.run_command(&[], &gpu.place.join("chain"), words);
    command.env("XSCHED_DOMAINS", "report");
    let process = gpu.with_runtime(command);
    let pid = process.pid();
    let lines = process.finish();
    assert_eq!(lines.last().map(String::as_str), Some("ok every launch ran once"));
    gpu.assert_counts(pid);
    (lines, gpu.place.stats_of(pid))
}

/// Number of copies of the program itself, beside the launches that the test asks for.
const COPIES: u64 = 3;

#[test]
fn hip_launches_are_told_apart_by_call_site_through_seven_libraries() {
    let gpu = HipGpu::new();
    chain::over_hip(&gpu);
    let _daemon = gpu.place.daemon(&[]);
    let (_, stats) = chain_of(&gpu, &["own=10", "vendor=7", "own=1", "vendor=5"]);
    assert_eq!(stats["domains"], json!({"system": 12, "application": 11 + COPIES}), "{stats}");
    assert_eq!(stats["libraries"], json!({"chain": 11 + COPIES, "libhipblaslt-1a2b3c4d.so.0": 12}), "{stats}");
}

#[test]
fn a_domain_that_a_hip_library_sets_is_its_own() {
    let gpu = HipGpu::new();
    chain::over_hip(&gpu);
    let _daemon = gpu.place.daemon(&[]);
    // The numbers are 0 = system, 1 = application, 2 = automatic.
    for init in ["init", "init_plain"] {
        let words = ["set=1", init, "domain", "vendor_domain", "own=10", "vendor=5", "reset", "vendor_domain"];
        let (lines, stats) = chain_of(&gpu, &words);
        let said = ["set 0", &format!("{init} 0"), "domain 1", "vendor_domain 0"];
        assert_eq!(lines[..4], said, "{lines:?}");
        assert_eq!(lines[7], "vendor_domain 2");
        assert_eq!(stats["domains"], json!({"system": 5, "application": 10 + COPIES}), "{stats}");
    }
    // A pushed domain holds for all launches of the thread, whatever library they come from.
    let (_, stats) = chain_of(&gpu, &["push=1", "vendor=5", "own=2", "push=0", "own=3", "vendor=4", "pop", "pop"]);
    assert_eq!(stats["domains"], json!({"system": 7, "application": 7 + COPIES}), "{stats}");
}

#[test]
fn a_hip_stream_made_under_system_is_a_group_of_its_own() {
    let gpu = HipGpu::new();
    chain::over_hip(&gpu);
    let _daemon = gpu.place.daemon(&[]);
    let words = ["own=1", "init", "stream", "on=4", "wait", "own=2"];
    let mut process = gpu.run(&[], &gpu.place.join("chain"), &words);
    for line in ["own 0", "init 0", "stream 0", "on 0"] {
        process.expect(line);
    }
    let pid = process.pid();
    let program = gpu.place.program(pid).expect("attached");
    let groups = program["groups"].as_array().expect("groups").iter();
    let shown: Vec<_> = groups
        .map(|g| (g["platform"].clone(), g["domain"].clone(), g["priority"].clone(), g["launches"].clone()))
        .collect();
    let wanted = [("application", 1 + 2), ("system", 4)].map(|(d, n)| (json!("hip"), json!(d), json!(0), json!(n)));
    assert_eq!(shown, wanted, "never above its class");
    process.tell("on");
    assert_eq!(process.finish().last().map(String::as_str), Some("ok every launch ran once"));
    gpu.assert_counts(pid);
}
