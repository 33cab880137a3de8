//! What `--require` means inside a program: it is scheduled from its first launch or ends there, and nothing later ends it.

use rustix::process::Signal;
use xsched_e2e::{Place, Process, beside, signal, until};

/// A program that has not used the device yet.
fn started(place: &Place, options: &[&str]) -> Process {
    let program = place.sim_program("starts_later");
    let mut program = place.run(options, &program, &[]);
    program.expect("ready");
    program
}

#[track_caller]
fn ends_unscheduled(mut program: Process, why: &str) {
    program.tell("begin");
    let (code, lines, errors) = program.wait();
    assert_eq!((code, lines.len()), (3, 0), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.starts_with("xsched: ") && errors.contains(why) && errors.contains("--require"), "{errors}");
}

#[test]
fn a_daemon_that_stops_before_the_first_launch_ends_the_program_there() {
    let place = Place::new();
    let daemon = place.daemon(&[]);
    let programs = [started(&place, &["--require"]), started(&place, &[])];
    signal(daemon.pid(), Signal::STOP);
    let [required, mut other] = programs;
    ends_unscheduled(required, "the daemon does not answer");
    other.tell("begin");
    other.expect("done");
    let (code, _, errors) = other.wait();
    assert_eq!(code, 0, "never without --require: {errors}");
    signal(daemon.pid(), Signal::CONT);
}

#[test]
fn a_daemon_that_is_lost_later_is_said_and_the_program_goes_on() {
    let place = Place::new();
    let daemon = place.daemon(&[]);
    let mut program = started(&place, &["--require"]);
    program.tell("begin");
    program.expect("done");
    signal(daemon.pid(), Signal::KILL);
    drop(daemon);
    until("the loss is said", || program.errors().contains("runs unscheduled until a daemon answers"));
    program.tell("go on");
    program.expect("done");
    let (code, lines, errors) = program.wait();
    assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")));
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn a_required_program_that_never_launches_is_left_alone() {
    let place = Place::new();
    let daemon = place.daemon(&[]);
    let program = started(&place, &["--require"]);
    signal(daemon.pid(), Signal::KILL);
    drop(daemon);
    assert_eq!(program.finish(), ["ok"]);
}

#[test]
fn the_variable_alone_guards_a_preloaded_program() {
    let place = Place::new();
    let program = place.sim_program("starts_later");
    let preloaded = |name: &str, value: &str| {
        let mut command = place.command(&program, &[]);
        command.env("LD_PRELOAD", beside("libxsched.so")).env("XSCHED_REQUIRE", "1").env(name, value);
        let mut program = Process::start(command);
        program.expect("ready");
        program
    };
    ends_unscheduled(preloaded("XSCHED_LOG", "info"), "no daemon at");
    ends_unscheduled(preloaded("XSCHED_NO_DAEMON", "1"), "XSCHED_NO_DAEMON");
    ends_unscheduled(preloaded("XSCHED_POLICY", "no-such-policy"), "no-such-policy");
    for (name, value) in [("XSCHED_DISABLE", "1"), ("XSCHED_POLICY", "hpf")] {
        let mut program = preloaded(name, value);
        program.tell("begin");
        program.expect("done");
        assert_eq!(program.finish(), ["ok"], "{name}");
    }
}

#[test]
fn a_misspelt_platform_is_said_once_and_the_program_goes_on() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let program = place.opencl_program("passes_cl");
    let mut command = place.command(&program, &[]);
    command.env("LD_PRELOAD", beside("libxsched.so")).env("XSCHED_PLATFORMS", "opncl");
    let mut program = Process::start(command);
    program.expect("ready");
    program.tell("kernels 3");
    let (code, lines, errors) = program.wait();
    assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")));
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("no platform opncl") && errors.contains("use cuda, hip, opencl, sim, hsa"), "{errors}");
}
