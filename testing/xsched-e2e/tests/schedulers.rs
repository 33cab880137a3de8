//! Schedulers from outside: one that reverses priorities reverses the P99 of two unmodified programs; one that crashes or hangs affects
//! only itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use xsched_e2e::{Place, Process, is_alive, one_of, quantile, until};

/// Tries at measurements that other work on the machine can spoil, see [`one_of`].
const TRIES: u32 = 5;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn library(place: &Place, file: &str, flags: &[&str], name: &str) -> String {
    let output = place.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(&output);
    cc.arg(root().join(file)).arg("-I").arg(root().join("include")).args(flags);
    let done = cc.output().expect("a C compiler");
    assert!(done.status.success(), "cc: {}", String::from_utf8_lossy(&done.stderr));
    output.to_str().expect("text").to_owned()
}

/// P99 in ms of two equal programs, one high and one low, side by side. A third program is present and idle, so that both are followed
/// closely from their first launch on.
fn high_and_low(place: &Place, options: &[&str]) -> (f64, f64) {
    let hazards = root().join("testing/programs/hazards");
    let load = place.compile("programs/sim/simload.c", &["-lsimdev", "-lpthread", "-lm"]);
    let args = ["lc", "--kernels", "8", "--us", "1000", "--period-us", "14000", "--requests", "150"];
    let idle = place.compile("programs/domains/idle.c", &["-I", hazards.to_str().expect("text"), "-lsimdev", "-lm"]);
    let mut company = place.run(&["--priority", "normal"], &idle, &[]);
    company.expect("ready");
    let start = |class: &str| place.run(&[options, &["--priority", class]].concat(), &load, &args);
    let (high, low) = (start("high"), start("low"));
    let p99 = |program: Process| {
        let lines = program.finish();
        let result: Value = serde_json::from_str(lines.last().expect("a line")).expect("JSON");
        assert_eq!(result["check"], "ok");
        result["p99_ms"].as_f64().expect("a number")
    };
    (p99(high), p99(low))
}

#[test]
fn a_scheduler_that_reverses_priorities_reverses_the_p99_of_two_programs() {
    let place = Place::new();
    place.device();
    let reverse = library(&place, "examples/reverse-scheduler/reverse.c", &[], "libreverse.so");
    {
        let _daemon = place.daemon(&[]);
        one_of(TRIES, "hpf: P99 of low clearly above that of high", || {
            let (high, low) = high_and_low(&place, &[]);
            if high * 1.4 < low { Ok(()) } else { Err(format!("{low} and {high} ms")) }
        });
    }
    let mut daemon = place.daemon(&["--scheduler", &reverse]);
    assert_eq!(place.ps().unwrap()["daemon"]["policy"], "external");
    one_of(TRIES, "reversed: P99 of high clearly above that of low", || {
        let (high, low) = high_and_low(&place, &[]);
        if low * 1.4 < high { Ok(()) } else { Err(format!("{high} and {low} ms")) }
    });
    // The policy is changed while the scheduler runs, and back.
    place.ask(&["policy", "set", "hpf"]);
    place.ask(&["policy", "set", "external"]);
    assert_eq!(place.ask(&["policy", "get"]).trim(), "external");
    assert!(daemon.has_ended().is_none() && daemon.complaints().is_empty(), "{}", daemon.complaints());
}

#[test]
fn a_scheduler_runs_without_the_daemons_rights() {
    let place = Place::new();
    place.device();
    let (file, told) =
        (place.join("written"), library(&place, "testing/programs/domains/rights_scheduler.c", &[], "librights.so"));
    let daemon = place.daemon_with(&["--scheduler", &told], &[("RIGHTS_FILE", file.as_os_str())]);
    assert_eq!(place.ps().unwrap()["daemon"]["policy"], "external");
    until("it has told", || daemon.errors().contains("rights write"));
    let said = daemon.errors();
    for wanted in ["CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "write no"] {
        assert!(said.contains(&format!("rights {wanted}\n")), "{wanted}: {said}");
    }
    assert!(!file.exists());
}

/// Runs `body` beside a daemon with this scheduler, and once more if the machine was so busy that an answer took longer than the 100 ms
/// that a scheduler has. Returns its result, and the lines that the scheduler printed on stderr, without their first word.
fn beside_scheduler<T>(place: &Place, library: &str, mut body: impl FnMut() -> T) -> (T, Vec<String>) {
    for _ in 0..10 {
        let daemon = place.daemon(&["--scheduler", library]);
        let result = body();
        let (policy, errors) = (place.ps().expect("a daemon")["daemon"]["policy"].clone(), daemon.complaints());
        let is_told = |line: &&str| line.starts_with("told ");
        if policy == "external" {
            assert_eq!(errors.lines().find(|line| !is_told(line)), None, "{errors}");
            return (
                result,
                daemon.errors().lines().filter(is_told).map(|line| line["told ".len()..].to_owned()).collect(),
            );
        }
        assert!(errors.contains("did not answer within 100 ms"), "{errors}");
    }
    panic!("the scheduler never answers in time");
}

/// Median latencies of the requests of one program, in ms: on its least urgent streams and on its most urgent ones.
fn low_and_high_streams(place: &Place) -> (f64, f64) {
    let groups = place.compile("programs/hazards/groups.c", &["-lsimdev", "-lpthread", "-lm"]);
    let lines = place.run(&[], &groups, &["2.5"]).finish();
    let median = |priority: &str| {
        let of = |line: &String| line.strip_prefix(priority)?.strip_prefix(' ')?.parse().ok();
        let all: Vec<f64> = lines.iter().filter_map(of).collect();
        assert!(all.len() > 10, "{} requests of {priority}", all.len());
        quantile(&all, 0.5)
    };
    (median("-1"), median("1"))
}

#[test]
fn a_scheduler_for_streams_reverses_two_priorities_of_one_program() {
    let place = Place::new();
    place.device();
    let reverse = library(&place, "examples/reverse-scheduler/streams.c", &[], "libreverse-streams.so");
    // A busy machine lengthens both: in one of a few tries the device decides.
    one_of(5, "one after the other by priority, and the other way round", &mut || {
        let (low, high) = {
            let _daemon = place.daemon(&[]);
            low_and_high_streams(&place)
        };
        let ((low_reversed, high_reversed), _) = beside_scheduler(&place, &reverse, || low_and_high_streams(&place));
        let what = format!("low {low} ms, high {high} ms; reversed: low {low_reversed} ms, high {high_reversed} ms");
        if high * 1.4 < low && low_reversed * 1.4 < high_reversed { Ok(()) } else { Err(what) }
    });
}

#[test]
fn a_scheduler_for_streams_is_told_of_each_stream_with_its_priority_and_launches() {
    let place = Place::new();
    place.device();
    let told = library(&place, "testing/programs/domains/told_streams.c", &[], "libtold.so");
    let groups = place.compile("programs/hazards/groups.c", &["-lsimdev", "-lpthread", "-lm"]);
    let (pid, lines) = beside_scheduler(&place, &told, || {
        let program = place.run(&[], &groups, &["0.5"]);
        let pid = program.pid();
        assert_eq!(program.finish().last().expect("a line"), "ok");
        pid
    });
    // Fields of a `submit` line: pid, stream, its priority, the group's priority, launches.
    let mut streams = std::collections::BTreeMap::new();
    for line in &lines {
        let words: Vec<i64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
        let [of, stream, steps, priority, launches] = words[..] else { panic!("{line}") };
        assert_eq!((of, priority), (pid.into(), steps * 10), "{line}");
        let known = streams.entry(stream).or_insert((steps, 0));
        assert!(known.0 == steps && known.1 <= launches, "{line}: {known:?}");
        known.1 = launches;
    }
    let mut steps: Vec<i64> = streams.values().map(|(steps, _)| *steps).collect();
    steps.sort_unstable();
    assert_eq!(steps, [-1, -1, 0, 0, 1, 1], "{lines:?}");
    assert!(streams.values().all(|(_, launches)| *launches > 8), "{streams:?}");
    let stats = place.stats_of(pid);
    let sum: i64 = streams.values().map(|(_, launches)| *launches).sum();
    assert!(sum <= stats["launches"].as_i64().expect("a number"), "{stats} {streams:?}");
}

#[test]
fn streams_of_a_program_that_finds_a_scheduler_for_streams_later_are_set_apart() {
    let place = Place::new();
    place.device();
    let reverse = library(&place, "examples/reverse-scheduler/streams.c", &[], "libreverse-streams.so");
    let many = place.sim_program("many_streams");
    let queues = |pid: u32| -> Vec<usize> {
        let program = place.program(pid);
        let groups = program.as_ref().map_or(&[][..], |p| p["groups"].as_array().expect("groups"));
        groups.iter().map(|g| g["queues"].as_array().expect("queues").len()).filter(|n| *n > 0).collect()
    };
    let daemon = place.daemon(&[]);
    let mut program = place.run(&[], &many, &["3", "20", "50"]);
    program.expect("ready");
    let pid = program.pid();
    until("they are a group", || queues(pid) == [60]);
    drop(daemon);
    let _daemon = place.daemon(&["--scheduler", &reverse]);
    // The last streams share the first group: a process may not have so many groups.
    until("most are set apart", || {
        let queues = queues(pid);
        queues.len() == 48 && queues.iter().filter(|n| **n == 1).count() == 47
    });
    program.tell("go");
    let (code, lines, errors) = program.wait();
    assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")), "{errors}");
    assert!(errors.ends_with("the daemon is gone\n") && errors.lines().count() == 1, "{errors}");
    let stats = place.stats_of(pid);
    assert_eq!(stats["unscheduled"], json!({"attach": 0, "passthrough": 0, "error": 0}), "{stats}");
    assert_eq!(stats["launches"], 60 * (1 + 50 + 1), "a set, kernels and a copy each: {stats}");
}

#[test]
fn run_starts_a_daemon_with_a_scheduler_and_finds_one_without_it() {
    let place = Place::new();
    let reverse = library(&place, "examples/reverse-scheduler/reverse.c", &[], "libreverse.so");
    let steady = place.sim_program("steady");
    {
        let mut program = place.run(&["--scheduler", &reverse], &steady, &["100", "1"]);
        program.expect("ready");
        assert_eq!(place.ps().unwrap()["daemon"]["policy"], "external");
        program.tell("end");
        assert_eq!(program.finish().last().unwrap(), "ok");
        let pid = place.ps().unwrap()["daemon"]["pid"].as_u64().unwrap() as u32;
        xsched_e2e::signal(pid, rustix::process::Signal::TERM);
        // Not only its socket must be gone, since the next daemon would find its lock.
        until("it is gone", || place.ps().is_none() && !is_alive(pid));
    }
    let _daemon = place.daemon(&[]);
    let out = place.xsched(&["run", "--scheduler", &reverse, "--", "true"]).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!((out.status.code(), said.lines().count()), (Some(3), 1), "{said}");
    assert!(said.contains("without this scheduler"), "{said}");
}

#[test]
fn a_crash_or_a_hang_costs_only_the_scheduler() {
    for (flags, says) in [
        (&["-DCRASH"][..], "failed: it ended: the policy is hpf"),
        (&["-DHANG"], "did not answer within 100 ms"),
        (&["-DCRASH", "-DSTREAMS"], "failed: it ended: the policy is hpf"),
        (&["-DHANG", "-DSTREAMS"], "did not answer within 100 ms"),
    ] {
        let place = Place::new();
        place.device();
        let bad = library(&place, "testing/programs/domains/bad_scheduler.c", flags, "libbad.so");
        let mut daemon = place.daemon(&["--scheduler", &bad]);
        // Their results are right. Their wait for the scheduler, 100 ms, is as long as one's wait for the other: the P99 of the next two
        // counts.
        high_and_low(&place, &[]);
        assert_eq!(place.ps().unwrap()["daemon"]["policy"], "hpf");
        if flags.len() == 1 {
            one_of(TRIES, &format!("{flags:?}: P99 of low above that of high"), || {
                let (high, low) = high_and_low(&place, &[]);
                if high < low { Ok(()) } else { Err(format!("{low} and {high} ms")) }
            });
        }
        let told = place.ask(&["daemon", "status"]);
        assert!(told.contains("trouble        the scheduler ") && told.contains(": the policy is hpf"), "{told}");
        assert!(daemon.has_ended().is_none());
        let errors = daemon.complaints();
        assert!(errors.contains(says) && errors.matches("xsched: ").count() == 1, "{errors}");
        let out = place.xsched(&["policy", "set", "external"]).output().unwrap();
        assert_eq!(out.status.code(), Some(3));
    }
}

#[test]
fn a_library_that_is_no_scheduler_costs_only_the_scheduler() {
    let place = Place::new();
    let refused = |arguments: &[&str], code: i32, says: &str| {
        let out = place.xsched(&[&["daemon"], arguments].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let last = said.lines().last().unwrap_or_default();
        assert_eq!(out.status.code(), Some(code), "{said}");
        assert!(last.contains(says), "{said}");
    };
    refused(&["--scheduler", "/nowhere/libx.so"], 2, "is no file");
    refused(&["--policy", "external"], 2, "needs a scheduler");
    let bad = |flag: &str, name: &str| library(&place, "testing/programs/domains/bad_scheduler.c", &[flag], name);
    let text = place.join("text.so");
    std::fs::write(&text, "no library").unwrap();
    let text = text.to_str().expect("text").to_owned();
    for (library, says) in [
        (bad("-DNONE", "libnone.so"), "it registers no scheduler"),
        (bad("-DOLD", "libold.so"), "returned 1"),
        (text, "text.so"),
    ] {
        let daemon = place.daemon(&["--scheduler", &library]);
        let told = place.ps().expect("a daemon")["daemon"].clone();
        assert_eq!(told["policy"], "hpf");
        let why = told["scheduler_failure"].as_str().expect("a reason");
        assert!(why.contains(says) && why.ends_with(": the policy is hpf from here on"), "{why}");
        assert!(daemon.complaints().contains(says), "{}", daemon.complaints());
    }
}
