//! The daemon dies or stops while it holds a program: the program goes on, and is scheduled again by the next one.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use xsched_e2e::{Lateness, Place, Process, least_of, now_ns, signal, until};

/// What is promised: gates open so long after a daemon hung up, and after it fell silent. The first takes some ms and the second
/// 0.8 to 0.9 s where the machine is quiet, a batch of kernels included, so that one try of a few is within it on a busy one.
const HANG_UP: Duration = Duration::from_millis(100);
const SILENCE: Duration = Duration::from_secs(1);
/// Until the next batch of a program that nothing is in the way of.
const LONGEST_GAP: Duration = Duration::from_millis(500);
/// Tries at either, see [`least_of`].
const TRIES: u32 = 5;

/// Starts an endless program and holds it.
fn held(place: &Place) -> Process {
    let steady = place.sim_program("steady");
    let mut program = place.run(&[], &steady, &[]);
    program.expect("ready");
    program.progress_after(0);
    place.ask(&["suspend", "--pid", &program.pid().to_string()]);
    place.await_state(program.pid(), "suspended");
    program.until_quiet();
    program
}

fn unscheduled(group: &serde_json::Value) -> u64 {
    group["unscheduled"]["attach"].as_u64().unwrap()
}

/// A daemon is there: waits until it schedules the program, by the program's own count.
fn assert_scheduled_again(place: &Place, program: &mut Process) -> Duration {
    let pid = program.pid();
    let took = until("it attaches", || {
        place.group(pid).is_some_and(|g| ["running", "ready", "idle"].contains(&g["state"].as_str().unwrap()))
    });
    // From here on launches pass by the gate: all that are added are scheduled ones.
    let begin = place.group(pid).unwrap();
    assert!(unscheduled(&begin) > 0, "what went by without a daemon is counted: {begin}");
    until("it launches", || place.group(pid).unwrap()["launches"].as_u64() > begin["launches"].as_u64());
    let end = place.group(pid).unwrap();
    assert_eq!(unscheduled(&end), unscheduled(&begin), "{end}");
    // And it can be held again.
    place.ask(&["suspend", "--pid", &pid.to_string()]);
    place.await_state(pid, "suspended");
    place.ask(&["resume", "--pid", &pid.to_string()]);
    program.progress_after(now_ns());
    took
}

/// How long after a signal to the daemon a program that an operator holds has done another batch.
fn time_until_a_held_program_goes_on(sent: Signal) -> Duration {
    let place = Place::new();
    let daemon = place.daemon(&[]);
    let mut program = held(&place);
    let when = now_ns();
    signal(daemon.pid(), sent);
    program.progress_after(when)
}

#[test]
fn gates_open_within_a_tenth_of_a_second_after_a_hang_up() {
    least_of(TRIES, HANG_UP, "daemon killed: the held program's next batch was done after", || {
        time_until_a_held_program_goes_on(Signal::KILL)
    });
}

#[test]
fn gates_open_within_a_second_of_silence() {
    least_of(TRIES, SILENCE, "daemon stopped: the held program's next batch was done after", || {
        time_until_a_held_program_goes_on(Signal::STOP)
    });
}

#[test]
fn all_programs_of_a_killed_daemon_go_on() {
    least_of(TRIES, HANG_UP, "daemon killed: the program held for another's sake went on after", || {
        let place = Place::new();
        let daemon = place.daemon(&["--policy", "hpf"]);
        let (mut low, mut high) = place.low_held_by_high();
        let when = now_ns();
        signal(daemon.pid(), Signal::KILL);
        let after = low.progress_after(when);
        high.progress_after(when);
        for mut program in [low, high] {
            program.tell("end");
            assert_eq!(program.wait().0, 0);
        }
        after
    });
}

/// Processor time that the agent thread of a program has used, in ticks of 10 ms.
fn agent_ticks(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|task| task.unwrap().path());
    let is_agent = |task: &PathBuf| std::fs::read_to_string(task.join("comm")).unwrap() == "xsched-agent\n";
    let stat = std::fs::read_to_string(tasks.into_iter().find(is_agent).expect("its agent").join("stat")).unwrap();
    // utime and stime, the 14th and 15th field; the second one, in parentheses, may hold anything.
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
    fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Agents once waited without pause for a decision though no program was left.
#[test]
fn agents_of_a_killed_daemon_sleep() {
    let place = Place::new();
    let daemon = place.daemon(&["--policy", "hpf"]);
    place.device();
    let load = place.compile("sim/simload.c", &["-lsimdev", "-lpthread", "-lm"]);
    // Together more than the device can do, so that one of them wants it whenever the daemon dies, and each often waits
    // for its own commands.
    let requests = ["lc", "--us", "100", "--period-us", "800", "--requests", "1000000"];
    // The low one has begun before the high one comes, which on a busy machine may leave it nothing.
    let programs = ["low", "high"].map(|priority| {
        let program = place.run(&["--priority", priority], &load, &requests);
        let launches = || place.group(program.pid()).and_then(|g| g["launches"].as_u64());
        until("it is at work", || launches().is_some_and(|n| n > 100));
        program
    });
    signal(daemon.pid(), Signal::KILL);
    assert_eq!(daemon.wait().0, -9);
    for program in &programs {
        until("it knows", || program.errors().contains("runs unscheduled until a daemon answers"));
        let (begin, before) = (now_ns(), agent_ticks(program.pid()));
        until("a second has passed", || now_ns() > begin + 1_000_000_000);
        let used = agent_ticks(program.pid()) - before;
        assert!(used < 10, "the agent ran for {used} of 100 ticks");
    }
}

#[test]
fn a_program_goes_on_when_the_daemon_stops_and_a_late_daemon_closes_nothing() {
    let place = Place::new();
    let daemon = place.daemon(&["--policy", "hpf"]);
    let (mut low, mut high) = place.low_held_by_high();
    let when = now_ns();
    signal(daemon.pid(), Signal::STOP);
    let after = low.progress_after(when);
    println!("daemon stopped: the held program's next batch was done after {after:?}");
    // Nothing is left that it would have to wait for.
    high.tell("end");
    assert_eq!(high.wait().0, 0);
    low.skip_lines();
    low.progress_after(now_ns());
    let control = Lateness::begin();
    signal(daemon.pid(), Signal::CONT);
    // While the daemon is back and the program attaches anew.
    let (gap, allowed) = (low.longest_gap(Duration::from_secs(3)), control.allows(LONGEST_GAP));
    assert!(gap < allowed, "a gap of {gap:?}, allowed {allowed:?}");
    let took = assert_scheduled_again(&place, &mut low);
    println!("attached again {took:?} later than 3 s after the daemon went on");
    low.tell("end");
    let (code, lines, errors) = low.wait();
    assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")), "{errors}");
}

#[test]
fn a_suspended_program_is_suspended_again_once_the_stopped_daemon_goes_on() {
    let place = Place::new();
    let daemon = place.daemon(&[]);
    let mut program = held(&place);
    let when = now_ns();
    signal(daemon.pid(), Signal::STOP);
    program.progress_after(when);
    signal(daemon.pid(), Signal::CONT);
    place.await_state(program.pid(), "suspended");
    place.ask(&["resume", "--pid", &program.pid().to_string()]);
    program.progress_after(now_ns());
    program.tell("end");
    assert_eq!(program.wait().0, 0);
}
