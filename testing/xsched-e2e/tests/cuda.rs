//! CUDA programs under the scheduler, with the software driver of `xsched-fakecuda` as `libcuda.so.1`: the same results as without it,
//! every launch counted, gates that hold, and time slices that follow the class.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;
use xsched_e2e::{Gpu, Process, now_ns, one_of, signal, until};
use xsched_proto::class::SHORT_SLICE_US;

const PROGRAMS: [&str; 13] = [
    "basics",
    "streams",
    "events",
    "memops",
    "hostfuncs",
    "capture",
    "graphs",
    "errors",
    "contexts",
    "multithread",
    "memory",
    "vmm",
    "pools",
];

/// Output of each program without xsched, and its intended errors.
fn bare(gpu: &Gpu) -> BTreeMap<&'static str, (PathBuf, Vec<String>, Value)> {
    let run = |name: &'static str| {
        let program = gpu.program(name);
        let process = gpu.bare(&program, &[]);
        let pid = process.pid();
        let lines = process.finish();
        assert!(lines.len() >= 5 && lines.iter().all(|line| line.starts_with("ok ")), "{name}: {lines:?}");
        (name, (program, lines, gpu.driver_stats(pid)["illegal"].clone()))
    };
    PROGRAMS.into_iter().map(run).collect()
}

fn same_as_bare(policy: &str, level: &str) {
    let gpu = Gpu::new();
    let bare = bare(&gpu);
    let _daemon = gpu.place.daemon(&["--policy", policy]);
    for (name, (program, lines, illegal)) in bare {
        println!("{name}, {policy}, level {level}");
        let process = gpu.run(&["--level", level], &program, &[]);
        let pid = process.pid();
        let (code, found, errors) = process.wait();
        // Some find the device full, which is reported.
        let errors: Vec<&str> = errors.lines().filter(|line| !line.contains("out of GPU memory")).collect();
        assert_eq!((code, found, errors), (0, lines, Vec::new()), "{name}, {policy}, level {level}");
        gpu.assert_counts(pid);
        assert_eq!(gpu.driver_stats(pid)["illegal"], illegal, "{name}: {}", gpu.driver_stats(pid));
    }
}

#[test]
fn programs_print_the_same_alone_under_the_scheduler() {
    same_as_bare("hpf", "auto");
}

#[test]
fn programs_print_the_same_under_chaos_at_level_1() {
    same_as_bare("chaos", "1");
}

#[test]
fn programs_print_the_same_under_chaos_at_level_2() {
    same_as_bare("chaos", "2");
}

#[test]
fn programs_print_the_same_under_chaos_at_level_3() {
    same_as_bare("chaos", "3");
}

#[test]
fn names_looked_up_under_the_scheduler_are_the_drivers_or_stand_for_them() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    let names = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/ladders/cuda/names.txt");
    let program = gpu.program("procaddress");
    let lines = gpu.run(&[], &program, &[names.to_str().unwrap()]).finish();
    assert!(lines.len() >= 5 && lines.iter().all(|line| line.starts_with("ok ")), "{lines:?}");
}

/// Suspends a program beside a rival many times. Returns how often commands in the driver were held.
fn held_on_the_device(level: &str) -> usize {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "chaos"]);
    let steady = gpu.program("steady");
    let start = || {
        let mut program = gpu.run(&["--level", level], &steady, &["50", "64"]);
        program.expect("ready");
        program.progress_after(0);
        program
    };
    let (mut rival, mut program) = (start(), start());
    let (pid, mut times) = (program.pid(), 0);
    for _ in 0..20 {
        gpu.place.ask(&["suspend", "--pid", &pid.to_string()]);
        gpu.place.await_state(pid, "suspended");
        // Commands that may run have run when the rival has made progress, a good deal of work later.
        for _ in 0..3 {
            rival.progress_after(now_ns());
        }
        let held = program.count();
        rival.progress_after(now_ns());
        assert_eq!(program.count(), held, "nothing of it runs");
        times += usize::from(held.0 > held.1);
        gpu.place.ask(&["resume", "--pid", &pid.to_string()]);
        program.progress_after(now_ns());
    }
    let (low, high) = (program.pid(), rival.pid());
    gpu.end(program);
    gpu.end(rival);
    let gates = [low, high].map(|pid| gpu.driver_stats(pid)["waits"].as_u64().unwrap());
    assert_eq!(gates.iter().any(|&n| n > 0), level != "1", "gates on the device: {gates:?}");
    println!("level {level}: held on the device {times} times of 20, gates {gates:?}");
    times
}

#[test]
fn a_stream_that_nobody_ever_waits_for_does_not_keep_its_program_busy_for_ever() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let mut program = gpu.run(&["--priority", "high"], &gpu.program("forgets"), &[]);
    program.expect("ready");
    let pid = program.pid();
    let mut rival = gpu.run(&["--priority", "low"], &gpu.program("steady"), &["100", "4"]);
    rival.expect("ready");
    rival.progress_after(0);
    program.tell("go");
    until("it is idle between its requests", || gpu.place.group(pid).is_some_and(|g| g["state"] == "idle"));
    // Repeated, since once may be chance.
    for _ in 0..3 {
        until("it works", || gpu.place.group(pid).is_some_and(|g| g["state"] != "idle"));
        until("it is idle again", || gpu.place.group(pid).is_some_and(|g| g["state"] == "idle"));
    }
    program.tell("end");
    assert_eq!(program.finish().last().map(String::as_str), Some("ok it has worked"));
    gpu.assert_counts(pid);
    rival.tell("end");
    rival.finish();
}

#[test]
fn a_device_gate_holds_what_the_driver_has_already() {
    assert_eq!(held_on_the_device("1"), 0, "level 1 has no gate there");
    assert!(held_on_the_device("2") > 0, "level 2 has");
}

/// Starts a program whose gate stays closed, because a more urgent one has the device, and that rival. All commands launched before the
/// program was held are complete, so those launched since wait on the device.
fn held(gpu: &Gpu, level: &str) -> (Process, Process) {
    // With kernels of 200 us, few are in flight when the gate closes.
    held_with(gpu, level, &["200", "2000"])
}

fn held_with(gpu: &Gpu, level: &str, arguments: &[&str]) -> (Process, Process) {
    let steady = gpu.program("steady");
    let mut program = gpu.run(&["--priority", "low", "--level", level], &steady, arguments);
    program.expect("ready");
    let pid = program.pid();
    until("it works", || program.count().1 > 0);
    // The rival has much on the device all the time, so that it does not count as idle where its thread gets no processor for a while.
    let mut rival = gpu.run(&["--priority", "high"], &steady, &["200", "128"]);
    rival.expect("ready");
    // Commands that the program launched without a budget are complete before it is held.
    let rival_id = rival.pid().to_string();
    gpu.place.ask(&["suspend", "--pid", &rival_id]);
    let given = program.count().0;
    until("it works beside the other", || program.count().1 > given + 50);
    assert_eq!(gpu.place.group(pid).unwrap()["liveness_overrides"], 0, "the bound holds whatever was given before it");
    gpu.place.ask(&["resume", "--pid", &rival_id]);
    // The state must be seen three times in a row.
    (0..3).for_each(|_| gpu.place.await_state(pid, "ready"));
    rival.progress_after(now_ns());
    (program, rival)
}

/// Numbers of a program's launched and completed kernels, once neither changes any more while the program's rival makes progress. On a busy
/// machine the rival may be idle for a moment all the same, and leave the program a turn.
fn at_rest(program: &mut Process, rival: &mut Process) -> (u64, u64) {
    let mut count = program.count();
    until("nothing of it runs, or is given", || {
        rival.progress_after(now_ns());
        std::mem::replace(&mut count, program.count()) == count
    });
    count
}

/// Largest number of kernels that a program launches while a more urgent one has the device, beyond those launched before.
fn given_while_suspended(level: &str) -> u64 {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let (mut program, mut rival) = held(&gpu, level);
    let pid = program.pid();
    // A thread that gets no processor for a while is not at rest. A thread that may launch no more batches waits inside the driver for
    // those that are held.
    let (mut last, mut looks) = (program.count(), 0);
    until("it waits at the host's gate, or for a batch", || {
        looks = if std::mem::replace(&mut last, program.count()) == last { looks + 1 } else { 0 };
        looks >= 20 || gpu.place.group(pid).is_some_and(|group| group["waits"]["now"] == 1)
    });
    let before = at_rest(&mut program, &mut rival);
    gpu.end(rival);
    until("it goes on", || program.count().1 > before.0);
    // The program checks that every kernel has run once.
    gpu.end(program);
    gpu.assert_counts(pid);
    before.0 - before.1
}

#[test]
fn a_suspended_program_gets_ahead_with_commands_that_wait_on_the_device() {
    // The rival may be idle for a moment on a busy machine; then the program gets a turn, in which its thread may not launch anything in
    // place of its completed commands.
    one_of(5, "kernels given ahead", || {
        let (without, with) = (given_while_suspended("1"), given_while_suspended("3"));
        println!("{without} without, {with} with gates on the device");
        // Two commands for each kernel, so at most 256, less those that are complete but not known to be.
        assert!(without < 20 && with <= 256, "{without} {with}");
        if with >= 50 { Ok(()) } else { Err(format!("{with} with gates on the device")) }
    });
}

#[test]
fn a_program_with_commands_that_wait_on_the_device_ends_at_once_by_a_signal_or_by_itself() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    for by in [Some(Signal::INT), Some(Signal::TERM), None] {
        let (mut program, mut rival) = held(&gpu, "3");
        match by {
            Some(by) => signal(program.pid(), by),
            None => program.tell("exit"),
        }
        until(&format!("it has ended: {by:?}"), || program.has_ended().is_some());
        let (status, ..) = program.wait();
        assert_eq!(status, by.map_or(0, |by| -by.as_raw()));
        rival.progress_after(now_ns());
        gpu.end(rival);
    }
}

#[test]
fn a_program_with_commands_that_wait_on_the_device_goes_on_when_its_daemon_is_killed() {
    let gpu = Gpu::new();
    let daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let (mut program, rival) = held(&gpu, "3");
    let (given, done) = program.count();
    assert!(given > done + 20, "{given} {done}");
    signal(daemon.pid(), Signal::KILL);
    until("it goes on", || program.count().1 > given);
    for mut process in [program, rival] {
        process.tell("end");
        let (code, lines, _) = process.wait();
        assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok every kernel has run once")));
    }
}

/// The driver's work for a load keeps the device while commands are held there: see `device_gates.rs` of the core.
#[test]
fn code_is_not_loaded_while_commands_wait_on_the_device() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    // On a busy machine the rival may be idle for a moment, in which all of it is done.
    one_of(5, "commands wait on the device", || {
        let (mut program, mut rival) = held_with(&gpu, "3", &["200", "2000", "loading"]);
        let (given, done) = at_rest(&mut program, &mut rival);
        let mut loaded = || {
            program.tell("count");
            let lines = std::iter::from_fn(|| Some(program.line()).filter(|line| !line.starts_with("given ")));
            lines.filter(|line| line == "loaded").count()
        };
        // Otherwise code is loaded every 2 ms.
        until("nothing is loaded", || {
            rival.progress_after(now_ns());
            loaded() == 0
        });
        gpu.end(rival);
        program.expect("loaded");
        gpu.end(program);
        if given > done { Ok(()) } else { Err(format!("{given} given, {done} done")) }
    });
}

/// A rival that is never idle may be so because of held commands: see `device_gates.rs` of the core.
#[test]
fn what_is_held_on_the_device_for_long_is_let_go_on_and_no_more_is_given() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let (mut program, mut rival) = held(&gpu, "auto");
    // On a busy machine this begins anew each time that the rival is idle for a moment.
    one_of(50, "all of it is done, and it waits at the host's gate", || {
        let (given, done) = at_rest(&mut program, &mut rival);
        if given == done { Ok(()) } else { Err(format!("{} given, {} done", given, done)) }
    });
    let (given, _) = program.count();
    gpu.end(rival);
    until("it goes on", || program.count().1 > given);
    gpu.end(program);
}

/// Number of gates on the device that a program gets beside a rival.
fn gates_beside_a_rival(arguments: &[&str]) -> u64 {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let steady = gpu.program("steady");
    let mut rival = gpu.run(&["--priority", "high"], &steady, &["200", "4"]);
    rival.expect("ready");
    let rival_id = rival.pid().to_string();
    gpu.place.ask(&["suspend", "--pid", &rival_id]);
    let mut program = gpu.run(&["--priority", "low"], &steady, arguments);
    program.expect("ready");
    until("it works", || program.count().1 > 200);
    let pid = program.pid();
    gpu.end(program);
    gpu.place.ask(&["resume", "--pid", &rival_id]);
    gpu.end(rival);
    gpu.driver_stats(pid)["waits"].as_u64().expect("a count")
}

#[test]
fn streams_that_wait_for_each_other_get_no_gates_on_the_device() {
    let (alone, joined) = (gates_beside_a_rival(&["200", "4"]), gates_beside_a_rival(&["200", "4", "joined"]));
    println!("{alone} alone, {joined} joined");
    // The gates are those of the first batch, which comes before any thread waits for it.
    assert!(alone > 50 && joined <= 8, "{alone} {joined}");
}

#[test]
fn the_time_slice_follows_the_class() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    let program = gpu.program("timeslice");
    let slice = |options: &[&str]| -> u64 { gpu.run(options, &program, &[]).finish()[0].parse().unwrap() };
    let natural: u64 = gpu.bare(&program, &[]).finish()[0].parse().unwrap();
    assert_eq!(natural, 2048, "as the driver likes");
    let [low, normal, high, realtime, system] =
        ["low", "normal", "high", "realtime", "system"].map(|class| slice(&["--priority", class]));
    println!("{low} {normal} {high} {realtime} {system}");
    assert!(low < normal && normal <= high && high < realtime && realtime < system);
    assert_eq!(normal, natural, "as the driver likes");
    assert_eq!(slice(&["--priority", "low", "--level", "2"]), natural, "only level 3 touches it");
}

#[test]
fn the_time_slice_of_a_running_program_follows_a_hint_and_its_company() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    let program = gpu.program("timeslice");
    let start = || {
        let mut process = gpu.run(&["--priority", "low"], &program, &["again"]);
        let first = process.line();
        (process, first)
    };
    // Waits until its context has this time slice: the change comes by way of the daemon and the program's agent.
    let becomes = |process: &mut Process, wanted: &str| {
        until(&format!("the slice is {wanted} us"), || {
            process.tell("again");
            process.line() == wanted
        });
    };
    let (mut one, first) = start();
    assert_eq!(first, SHORT_SLICE_US.to_string(), "a lone best-effort program's");
    until("the daemon knows of it", || gpu.place.group(one.pid()).is_some());
    let (mut two, first) = start();
    assert_eq!(first, "500", "one that is made in company");
    becomes(&mut one, "500");
    becomes(&mut two, "500");
    one.tell("context");
    assert_eq!(one.line(), "500", "another context of the same program");
    gpu.place.ask(&["hint", "--pid", &one.pid().to_string(), "--priority", "realtime"]);
    becomes(&mut one, "4096");
    becomes(&mut two, &SHORT_SLICE_US.to_string());
}

#[test]
fn the_time_slices_of_idle_programs_are_not_set_again_and_again() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let (steady, paced) = (gpu.program("steady"), gpu.program("forgets"));
    let mut busy = gpu.run(&["--priority", "low"], &steady, &["2000", "4"]);
    busy.expect("ready");
    let mut idle = gpu.run(&["--priority", "low"], &paced, &[]);
    idle.expect("ready");
    let mut urgent = gpu.run(&["--priority", "high"], &paced, &[]);
    urgent.expect("ready");
    urgent.tell("go");
    let (pid, idle_pid) = (busy.pid(), idle.pid());
    until("it was suspended often", || gpu.place.group(pid).is_some_and(|g| g["suspensions"].as_u64() > Some(40)));
    urgent.tell("end");
    urgent.finish();
    idle.tell("go");
    until("it works for once", || gpu.place.group(idle_pid).is_some_and(|g| g["state"] != "idle"));
    idle.tell("end");
    idle.finish();
    gpu.end(busy);
    let set = |pid| gpu.place.stats_of(pid)["slices"]["by_daemon"].as_u64().expect("a count");
    println!("{} of the busy one, {} of the idle one", set(pid), set(idle_pid));
    assert!(set(pid) > 20 && set(idle_pid) <= 4, "{} {}", set(pid), set(idle_pid));
}

#[test]
fn programs_held_to_a_bound_are_told_apart_by_how_long_their_commands_are() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    let _urgent = {
        let mut process = gpu.run(&["--priority", "high"], &gpu.program("timeslice"), &["again"]);
        process.line();
        process
    };
    let steady = gpu.program("steady");
    // Started together, so that no commands are ever measured alone.
    let mut short = gpu.run(&["--priority", "low"], &steady, &["50", "8"]);
    let mut long = gpu.run(&["--priority", "low"], &steady, &["3000", "4"]);
    short.expect("ready");
    long.expect("ready");
    let said = |process: &Process| gpu.place.group(process.pid()).and_then(|group| group["short"].as_bool());
    until("the one's commands are short, the other's long", || {
        said(&short) == Some(true) && said(&long) == Some(false)
    });
    for mut process in [short, long] {
        process.tell("end");
        process.finish();
    }
}

#[test]
fn programs_that_never_drain_share_by_weight_under_either_fair_policy() {
    for policy in ["up", "pup"] {
        let gpu = Gpu::new();
        let _daemon = gpu.place.daemon(&["--policy", policy]);
        let steady = gpu.program("steady");
        // Large batches: a thread that a busy machine wakes late does not leave the device to the other program.
        let mut light = gpu.run(&["--weight", "30"], &steady, &["200", "64"]);
        let mut heavy = gpu.run(&["--weight", "70"], &steady, &["200", "64"]);
        light.expect("ready");
        heavy.expect("ready");
        one_of(5, policy, || {
            // Counted from a time at which both are there: the first may have run alone for a while.
            let begin = [light.count().1, heavy.count().1];
            let mut done = [0, 0];
            until("both have done enough to compare", || {
                done = [light.count().1 - begin[0], heavy.count().1 - begin[1]];
                done[0] + done[1] >= 6_000
            });
            let share = done[0] as f64 / (done[0] + done[1]) as f64;
            let what = format!("{done:?}, {:.1} % for a weight of 30 of 100", 100.0 * share);
            println!("{policy}: {what}");
            if (0.2..0.4).contains(&share) { Ok(()) } else { Err(what) }
        });
        gpu.end(light);
        gpu.end(heavy);
    }
}

/// Each program numbers its visible devices by itself: the first of one is the second of another.
#[test]
fn programs_that_number_their_devices_differently_share_the_one_that_is_the_same() {
    let gpu = Gpu::with_devices(2);
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let program = gpu.program("steady");
    let start = |visible: &str, class: &str| {
        let mut command = gpu.place.run_command(&["--priority", class], &program, &["200", "64"]);
        command.env("CUDA_VISIBLE_DEVICES", visible);
        let mut process = gpu.with_driver(command);
        process.expect("ready");
        process.progress_after(0);
        process
    };
    let mut low = start("1", "low");
    let mut elsewhere = start("0,1", "low");
    let high = start("1,0", "high");
    let device = |process: &Process| gpu.place.group(process.pid()).expect("a group")["device"].clone();
    assert_eq!(device(&low), device(&high));
    assert_ne!(device(&low), device(&elsewhere));
    // The urgent program is never idle: it holds the program on its device, and no other.
    gpu.place.await_state(low.pid(), "ready");
    // The program has two batches in flight at most, which may still complete, while the other one does twelve.
    let (_, before) = low.count();
    for _ in 0..12 {
        elsewhere.progress_after(now_ns());
    }
    let (_, after) = low.count();
    assert!(after - before <= 2 * 64, "it goes on: {before}, {after}");
    gpu.end(high);
    low.progress_after(now_ns());
    gpu.end(low);
    gpu.end(elsewhere);
}
