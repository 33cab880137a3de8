//! Properties that hold on every platform, written once: each property below runs on the simulated device, OpenCL, CUDA and HIP, with the
//! same workload (`testing/programs/suite/work.c`). Where a platform's device is missing, its tests are skipped and give the reason.
//!
//! Compared are counts, order and results. Where a part of the device is compared, it is the program's own count in a time that the program
//! measures itself. The way to add a platform: `docs/internals/adding.md`.

mod platforms;

use platforms::{Device, PLATFORMS, Platform, pid_of};
use rustix::process::Signal;
use serde_json::Value;
use xsched_e2e::{Process, now_ns, one_of, signal, until};

/// Arguments of a program that ends by itself.
const FIXED: &[&str] = &["fixed", "250", "100"];
/// Line that a program prints when its daemon has ended.
const GONE: &str = "xsched: runs unscheduled until a daemon answers: the daemon is gone\n";
/// Arguments of a program that goes on and on, with commands of 0.2 ms.
const STEADY: &[&str] = &["steady", "200", "8"];

/// Lines of a program about its result and its launches, without its process id.
fn result(lines: &[String]) -> Vec<String> {
    let pid = format!("launched {} ", pid_of(lines));
    lines.iter().map(|line| line.replace(&pid, "launched ")).collect()
}

/// Number of commands that a program has launched, by its own count.
fn given(program: &mut Process) -> u64 {
    program.tell("count");
    program.find("its count", |line| line.strip_prefix("given ")?.parse().ok())
}

/// Number of commands that it launched between two times, in ns.
fn given_between(program: &mut Process, from: u64, to: u64) -> u64 {
    program.tell(&format!("between {from} {to}"));
    program.find("its count", |line| line.strip_prefix("between ")?.parse().ok())
}

/// Starts an endless program, and waits for its first progress.
fn steady(device: &Device, options: &[&str]) -> Process {
    let mut program = device.run(options, STEADY);
    program.expect("ready");
    program.progress_after(0);
    program
}

/// Ends a program that had a daemon all along, and checks that its result is right, and its launches are all counted and scheduled.
#[track_caller]
fn end_well(device: &Device, mut program: Process) {
    program.tell("end");
    let lines = program.finish();
    assert_eq!(lines.last().map(String::as_str), Some("ok"), "{lines:?}");
    device.assert_counts(&lines);
}

/// Waits for the end of a program that lost its daemon and prints so: its result must be right, its launches all counted, and some
/// unscheduled. Returns its lines and counts.
#[track_caller]
fn end_without_daemon(device: &Device, program: Process) -> (Vec<String>, Value) {
    let (code, lines, errors) = program.wait();
    assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")), "{lines:?} {errors}");
    assert_eq!(errors, GONE);
    let pid = pid_of(&lines);
    let stats = device.place().stats_of(pid);
    assert!(lines.contains(&format!("launched {pid} {}", stats["launches"])), "{lines:?} {stats}");
    assert!(stats["unscheduled"]["attach"].as_u64() > Some(0), "{stats}");
    (lines, stats)
}

/// Asserts that a program suspended at level 1 has completed its commands and launches no others, however far another program gets
/// meanwhile.
#[track_caller]
fn assert_still(device: &Device, program: &mut Process, clock: &mut Process) {
    device.place().await_state(program.pid(), "suspended");
    until("what it gave is done", || {
        program.tell("drained");
        program.find("an answer", |line| line.strip_prefix("drained ").map(|done| done == "1"))
    });
    let held = given(program);
    for _ in 0..3 {
        clock.progress_after(now_ns());
    }
    assert_eq!(given(program), held, "commands given while suspended");
}

fn suspend(device: &Device, program: &Process) {
    device.place().ask(&["suspend", "--pid", &program.pid().to_string()]);
}

fn resume(device: &Device, program: &Process) {
    device.place().ask(&["resume", "--pid", &program.pid().to_string()]);
}

/// Runs are bare, switched off by a variable, scheduled alone, and suspended at random at each level.
fn results_and_counts_are_those_of_a_bare_run(device: &Device) {
    let bare = device.bare(FIXED).finish();
    assert_eq!(bare.last().map(String::as_str), Some("ok"), "{bare:?}");
    let off = device.preloaded(&[("XSCHED_DISABLE", "1")], FIXED).finish();
    assert_eq!(result(&off), result(&bare), "with the library, switched off");
    assert!(device.place().stats().is_empty(), "a program that is switched off leaves no counts");
    {
        let _daemon = device.place().daemon(&["--policy", "hpf"]);
        let alone = device.run(&[], FIXED).finish();
        assert_eq!(result(&alone), result(&bare), "alone");
        device.assert_counts(&alone);
    }
    let _daemon = device.place().daemon(&["--policy", "chaos"]);
    for level in device.levels() {
        let both = [0, 1].map(|_| device.run(&["--level", level], FIXED));
        for program in both {
            let lines = program.finish();
            assert_eq!(result(&lines), result(&bare), "level {level}");
            device.assert_counts(&lines);
        }
    }
}

fn suspending_stops_launches_and_resuming_continues_them(device: &Device) {
    let _daemon = device.place().daemon(&["--policy", "up"]);
    let mut program = steady(device, &["--level", "1"]);
    // The first time the program is alone on the device, without a rival that makes it check its gate.
    suspend(device, &program);
    device.place().await_state(program.pid(), "suspended");
    let mut clock = steady(device, &["--level", "1"]);
    for _ in 0..3 {
        suspend(device, &program);
        assert_still(device, &mut program, &mut clock);
        resume(device, &program);
        program.progress_after(now_ns());
    }
    assert!(device.place().group(program.pid()).unwrap()["suspensions"].as_u64() >= Some(3));
    end_well(device, program);
    end_well(device, clock);
}

fn an_urgent_program_goes_first_and_lets_others_go_on_after_it(device: &Device) {
    let _daemon = device.place().daemon(&["--policy", "hpf"]);
    let mut low = steady(device, &["--priority", "low"]);
    let urgent = steady(device, &["--priority", "high"]);
    device.place().assert_ahead(urgent.pid(), low.pid(), 400);
    end_well(device, urgent);
    low.progress_after(now_ns());
    end_well(device, low);
}

/// The first request of an urgent program beside a best-effort program that has just started. While the urgent program was alone none of
/// its launches took the slow path, and the rival comes before its agent has seen that it is idle. Requests are short, so that late
/// protection shows; a few of them together average out other activity on the machine. Where other activity keeps the urgent program
/// from launching, the best-effort one rightly goes on, beside the next request as well: that one is the control.
fn the_first_request_beside_a_new_program_is_protected(device: &Device) {
    const ROUNDS: u32 = 8;
    /// Time in which the best-effort program's launches are counted afterwards, in ns, as a measure of the launches possible beside a
    /// request.
    const ALONE_NS: u64 = 50_000_000;
    let _daemon = device.place().daemon(&["--policy", "hpf"]);
    let mut urgent = device.run(&["--priority", "high"], &["requests", "500", "20"]);
    urgent.expect("ready");
    let mut request = || {
        urgent.tell("request");
        urgent.find("the end of a request", |line| {
            let (begin, end) = line.strip_prefix("done ")?.split_once(' ')?;
            Some((begin.parse::<u64>().ok()?, end.parse::<u64>().ok()?))
        })
    };
    let mut rounds = || {
        let (mut beside, mut control, mut unhindered) = (0, 0, 0.0);
        for round in 0..ROUNDS {
            let mut low = device.run(&["--priority", "low"], STEADY);
            request();
            low.expect("ready");
            low.progress_after(0);
            let (begin, end) = request();
            let given = given_between(&mut low, begin, end);
            low.progress_after(now_ns());
            let (next_begin, next_end) = request();
            let given_next = given_between(&mut low, next_begin, next_end);
            let started = now_ns();
            while u128::from(ALONE_NS) > low.progress_after(started).as_nanos() {}
            let alone = given_between(&mut low, started, started + ALONE_NS);
            println!(
                "round {round}: {given} commands in {} ns beside a request, {given_next} beside the next, {alone} in {ALONE_NS} ns alone",
                end - begin
            );
            beside += given;
            control += given_next;
            unhindered += alone as f64 * (end - begin) as f64 / ALONE_NS as f64;
            end_well(device, low);
        }
        let what = format!("{beside} commands beside first requests, {control} beside next ones, {unhindered} without");
        if beside as f64 * 4.0 < unhindered || beside < 2 * control { Ok(()) } else { Err(what) }
    };
    one_of(6, "requests beside new programs", &mut rounds);
    end_well(device, urgent);
}

/// Covers a wait that begins while its program is suspended, for commands launched before; and a request that is made meanwhile.
fn a_wait_of_a_suspended_program_returns_after_it_is_resumed(device: &Device) {
    for level in device.levels() {
        let _daemon = device.place().daemon(&["--policy", "up"]);
        let mut clock = steady(device, &["--level", "1"]);
        let mut program = device.run(&["--level", level], &["requests", "1000", "20"]);
        program.expect("ready");
        program.tell("give");
        program.expect("given");
        suspend(device, &program);
        program.tell("sync");
        program.tell("request");
        for _ in 0..3 {
            clock.progress_after(now_ns());
        }
        let resumed = now_ns();
        resume(device, &program);
        program.expect("synced");
        let end =
            program.find("the end of the request", |line| line.strip_prefix("done ")?.split_once(' ')?.1.parse().ok());
        assert!(resumed < end, "level {level}: the request ended before it might");
        end_well(device, program);
        end_well(device, clock);
    }
}

/// The program goes on without a daemon, unscheduled, and the next daemon holds it again.
fn a_held_program_outlives_its_daemon_and_finds_the_next_one(device: &Device) {
    let place = device.place();
    let daemon = place.daemon(&["--policy", "up"]);
    let mut program = steady(device, &["--level", "1"]);
    let mut clock = steady(device, &["--level", "1"]);
    let pid = program.pid();
    suspend(device, &program);
    assert_still(device, &mut program, &mut clock);
    until("its suspension is kept", || place.kept().contains("held = true"));
    let killed = now_ns();
    signal(daemon.pid(), Signal::KILL);
    program.progress_after(killed);
    assert_eq!(daemon.wait().0, -9);
    let without = given(&mut program);
    until("it goes on", || given(&mut program) > without + 50);
    let _next = place.daemon(&["--policy", "up"]);
    // An operator's settings outlive the daemon.
    place.await_state(pid, "suspended");
    assert_still(device, &mut program, &mut clock);
    let before = place.group(pid).unwrap();
    resume(device, &program);
    program.progress_after(now_ns());
    program.tell("end");
    let (_, stats) = end_without_daemon(device, program);
    assert_eq!(
        stats["unscheduled"], before["unscheduled"],
        "from there on every launch is scheduled: {before} {stats}"
    );
    clock.tell("end");
    end_without_daemon(device, clock);
}

/// A daemon that is killed while a program does a fixed amount of work does not change the result.
fn a_killed_daemon_changes_no_result(device: &Device) {
    const LONGER: &[&str] = &["fixed", "3090", "200"];
    let bare = device.bare(LONGER).finish();
    one_of(5, "both programs outlive the daemon", || {
        let daemon = device.place().daemon(&["--policy", "chaos"]);
        let programs = [0, 1].map(|_| device.run(&["--level", "1"], LONGER));
        until("both have begun", || {
            let launches = |p: &Process| device.place().group(p.pid()).and_then(|g| g["launches"].as_u64());
            programs.iter().all(|p| launches(p) > Some(50))
        });
        signal(daemon.pid(), Signal::KILL);
        let ends = programs.map(Process::wait);
        daemon.wait();
        for (code, lines, errors) in &ends {
            assert_eq!((code, lines.last().map(String::as_str)), (&0, Some("ok")), "{lines:?} {errors}");
            assert_eq!(result(lines), result(&bare));
            assert!(errors.is_empty() || errors == GONE, "{errors}");
        }
        // On a busy machine one program may end before it sees that the daemon is gone.
        if ends.iter().all(|(.., errors)| errors == GONE) { Ok(()) } else { Err("one was done before".into()) }
    });
}

/// Tests of all properties on one platform.
macro_rules! suite {
    ($($platform:ident: $properties:tt;)*) => { $( suite! { @one $platform $properties } )* };
    (@one $platform:ident [$($property:ident)*]) => {
        mod $platform {
            $(
                #[test]
                fn $property() {
                    super::on(stringify!($platform), stringify!($property), super::$property);
                }
            )*
        }
    };
}

macro_rules! on_each {
    ($($platform:ident)*) => {
        suite! {
            $(
                $platform: [
                    results_and_counts_are_those_of_a_bare_run
                    suspending_stops_launches_and_resuming_continues_them
                    an_urgent_program_goes_first_and_lets_others_go_on_after_it
                    the_first_request_beside_a_new_program_is_protected
                    a_wait_of_a_suspended_program_returns_after_it_is_resumed
                    a_held_program_outlives_its_daemon_and_finds_the_next_one
                    a_killed_daemon_changes_no_result
                ];
            )*
        }
    };
}

on_each! { sim opencl cuda hip }

/// Runs a property where a platform's device exists.
fn on(name: &str, what: &str, property: fn(&Device)) {
    let platform: &Platform = PLATFORMS.iter().find(|p| p.name == name).expect("a platform of the table");
    match Device::new(platform) {
        Ok(device) => property(&device),
        Err(missing) => xsched_e2e::skipped(&format!("{what} on {name}: {missing}")),
    }
}

#[test]
fn no_platform_of_the_table_is_left_out() {
    assert_eq!(PLATFORMS.iter().map(|p| p.name).collect::<Vec<_>>(), ["sim", "opencl", "cuda", "hip"]);
}
