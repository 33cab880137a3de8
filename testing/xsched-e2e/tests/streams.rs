//! Queues of different priority in one process: they wait for each other, but not for ever.

use std::time::Instant;

use xsched_e2e::{Gpu, Place, Process, now_ns, until};

#[test]
fn streams_of_three_priorities_that_wait_for_each_other_finish() {
    let place = Place::new();
    let program = place.sim_program("streams");
    let _daemon = place.daemon(&["--policy", "hpf"]);
    let begin = Instant::now();
    let alone = place.run(&[], &program, &[]).finish();
    println!("one process, daemon: {:?}", begin.elapsed());
    assert_eq!(alone.last().unwrap(), "ok");
    place.assert_counts(&alone);
}

#[test]
fn streams_that_wait_for_each_other_finish_beside_a_program_of_higher_priority() {
    let place = Place::new();
    let (program, steady) = (place.sim_program("streams"), place.sim_program("steady"));
    let _daemon = place.daemon(&["--policy", "hpf"]);
    let mut high = place.run(&["--priority", "high"], &steady, &["2000", "2"]);
    high.expect("ready");
    let other = place.run(&[], &program, &[]);
    // The program makes no progress while the other is busy; then it must complete everything.
    until("it is there", || place.program(other.pid()).is_some());
    high.tell("end");
    assert_eq!(high.finish().last().unwrap(), "ok");
    let lines = other.finish();
    assert_eq!(lines.last().unwrap(), "ok");
    place.assert_counts(&lines);
}

#[test]
fn streams_that_wait_for_each_other_finish_under_every_policy_inside_the_process_and_out() {
    let place = Place::new();
    let program = place.sim_program("streams");
    for policy in ["hpf", "up", "pup", "chaos"] {
        let begin = Instant::now();
        let lines = place.run(&["--local", policy], &program, &[]).finish();
        println!("--local {policy}: {:?}", begin.elapsed());
        assert_eq!(lines.last().unwrap(), "ok", "{policy}");
        place.assert_counts(&lines);
    }
    for policy in ["up", "pup", "chaos"] {
        let _daemon = place.daemon(&["--policy", policy]);
        let begin = Instant::now();
        let lines = place.run(&[], &program, &[]).finish();
        println!("daemon, {policy}: {:?}", begin.elapsed());
        assert_eq!(lines.last().unwrap(), "ok", "{policy}");
        place.assert_counts(&lines);
    }
}

/// Kernels too short to be followed one by one, on streams that take turns: a group must give the device back as soon as its kernels are
/// complete, although no thread waits for the last of them. The test counts that, so that the machine's own speed does not matter; turns
/// are too long to end by themselves.
#[test]
fn streams_that_wait_for_each_other_finish_soon_under_a_fair_share() {
    let place = Place::new();
    let program = place.sim_program("streams");
    let ends = |options: &[&str]| {
        let begin = Instant::now();
        let process = place.run(&[options, &["--timeslice", "1000000"]].concat(), &program, &["cycle"]);
        let pid = process.pid();
        let lines = process.finish();
        println!("{options:?}: {:?}", begin.elapsed());
        assert_eq!(lines.last().unwrap(), "ok");
        place.assert_counts(&lines);
        let stats = place.stats_of(pid);
        println!("{stats}");
        let [waits, idles] = ["gate_waits", "idles"].map(|name| stats[name].as_u64().unwrap());
        // 120 launches, each behind that of another group; some are late enough to find it complete.
        assert!(waits >= 10, "they take turns: {stats}");
        assert!(idles * 10 >= waits * 7, "{stats}");
    };
    ends(&["--local", "up"]);
    let _daemon = place.daemon(&["--policy", "up"]);
    ends(&[]);
}

#[test]
fn a_queue_that_is_given_another_priority_again_and_again_loses_nothing() {
    let place = Place::new();
    let steady = place.sim_program("steady");
    let _daemon = place.daemon(&["--policy", "hpf"]);
    let mut program = place.run(&[], &steady, &["100", "10"]);
    program.expect("ready");
    let mut rival = place.run(&["--priority", "10"], &steady, &["500", "2"]);
    rival.expect("ready");
    let pid = program.pid();
    for round in 0..20 {
        let queues = || -> Vec<String> {
            let groups = place.program(pid).map(|p| p["groups"].as_array().unwrap().clone()).unwrap_or_default();
            let queues = groups.iter().flat_map(|g| g["queues"].as_array().unwrap().clone());
            queues.map(|q| q["id"].as_str().unwrap().to_owned()).collect()
        };
        let begin = Instant::now();
        let mut found = Vec::new();
        until("it has a queue", || {
            found = queues();
            !found.is_empty()
        });
        // Priorities above the rival, level with it, and below it.
        let priority = ["20", "10", "-5", "0"][round % 4];
        place.ask(&["hint", "--queue", &found[0], "--priority", priority]);
        if round % 4 == 0 {
            program.progress_after(now_ns());
        }
        println!("priority {priority}: {:?}", begin.elapsed());
    }
    rival.tell("end");
    assert_eq!(rival.finish().last().unwrap(), "ok");
    program.progress_after(now_ns());
    program.tell("end");
    let lines = program.finish();
    assert_eq!(lines.last().unwrap(), "ok");
    place.assert_counts(&lines);
}

/// Many queues are introduced at once, to the first daemon while they are made and to the second all together. Neither daemon takes that
/// for an attack, and every launch is scheduled.
fn attaches_and_stays(
    place: &Place,
    threads: &str,
    streams: &str,
    start: impl Fn(&[&str]) -> Process,
) -> (u32, Vec<String>) {
    let all = threads.parse::<usize>().unwrap() * streams.parse::<usize>().unwrap();
    let first = place.daemon(&["--policy", "hpf"]);
    let mut process = start(&[threads, streams, "4"]);
    process.expect("ready");
    let pid = process.pid();
    let queues = || -> usize {
        let groups = place.program(pid).map(|p| p["groups"].as_array().unwrap().clone()).unwrap_or_default();
        groups.iter().map(|g| g["queues"].as_array().unwrap().len()).sum()
    };
    until("the first daemon knows them all", || queues() >= all);
    drop(first);
    let _second = place.daemon(&["--policy", "hpf"]);
    until("the second knows them all", || queues() >= all);
    process.tell("go");
    let (code, lines, errors) = process.wait();
    assert_eq!(code, 0, "{lines:?} {errors}");
    assert_eq!(place.ps().unwrap()["daemon"]["dropped_clients"], 0);
    (pid, lines)
}

#[test]
fn programs_with_ten_thousand_streams_attach_and_stay() {
    let place = Place::new();
    let program = place.sim_program("many_streams");
    for (threads, streams) in [("1", "1000"), ("200", "50")] {
        let (_, lines) = attaches_and_stays(&place, threads, streams, |args| place.run(&[], &program, args));
        assert_eq!(lines.last().unwrap(), "ok");
        place.assert_counts(&lines);
    }
}

#[test]
fn programs_with_ten_thousand_streams_attach_and_stay_on_the_software_cuda_driver() {
    let gpu = Gpu::new();
    let program = gpu.program("many_streams");
    let (pid, lines) = attaches_and_stays(&gpu.place, "200", "50", |args| gpu.run(&[], &program, args));
    assert!(lines.iter().all(|line| line.starts_with("ok ")), "{lines:?}");
    gpu.assert_counts(pid);
}
