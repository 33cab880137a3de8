//! The in-flight budget never brings a correct program to a stop.

use std::path::Path;

use xsched_e2e::{Place, Process, until};

/// Time that a program took to launch its commands, in ms: its first line.
fn milliseconds(lines: &[String]) -> u64 {
    lines[0].strip_suffix(" ms").expect("a time").parse().expect("a number")
}

/// Runs a program that waits for work that it launches itself later, at low priority beside a busy program. Returns its lines, and how
/// often the budget let a command pass.
fn beside_a_rival(place: &Place, rival: &Path, program: &Path, args: &[&str]) -> (Vec<String>, u64) {
    let mut rival = place.run(&["--priority", "low"], rival, &["200", "4"]);
    rival.expect("ready");
    let mut program: Process = place.run(&["--priority", "low", "--threshold", "2"], program, args);
    program.expect("ready");
    program.tell("go");
    let pid = program.pid();
    let lines = program.finish();
    let escapes = place.stats_of(pid)["liveness_overrides"].as_u64().expect("a number");
    // If commands passed one at a time, each after a wait of its own, the program would take half a minute.
    assert!(milliseconds(&lines) < 5_000, "{}", lines[0]);
    rival.tell("end");
    assert_eq!(rival.finish().last().map(String::as_str), Some("ok"));
    (lines, escapes)
}

#[test]
fn a_kernel_waits_for_what_follows_five_thousand_commands_on_another_stream() {
    let place = Place::new();
    let _daemon = place.daemon(&["--policy", "hpf"]);
    let (steady, program) = (place.sim_program("steady"), place.sim_program("provides_later"));
    let (lines, escapes) = beside_a_rival(&place, &steady, &program, &["beside"]);
    println!("5,000 commands beside a waiting stream, threshold 2: {}, {escapes} let through", lines[0]);
    assert!(escapes > 0);
    assert_eq!(lines.last().unwrap(), "ok");
    place.assert_counts(&lines);
}

#[test]
fn a_kernel_waits_for_what_follows_eight_hundred_commands_on_its_own_stream() {
    let place = Place::new();
    let _daemon = place.daemon(&["--policy", "hpf"]);
    let (steady, program) = (place.sim_program("steady"), place.sim_program("provides_later"));
    let (lines, escapes) = beside_a_rival(&place, &steady, &program, &["behind"]);
    println!("800 commands behind a waiting stream, threshold 2: {}, {escapes} let through", lines[0]);
    assert!(escapes > 0);
    assert_eq!(lines.last().unwrap(), "ok");
    place.assert_counts(&lines);
}

#[test]
fn commands_behind_a_user_event_that_the_same_thread_sets() {
    let place = Place::new();
    let _daemon = place.daemon(&["--policy", "hpf"]);
    let program = place.opencl_program("provides_later_cl");
    // The rival runs the same program: registered, and busy until the test lets it go on.
    let mut rival = place.run(&["--priority", "low"], &program, &[]);
    rival.expect("ready");
    let (rival_pid, mut lines) = (rival.pid(), Vec::new());
    let mut other = place.run(&["--priority", "low", "--threshold", "2"], &program, &[]);
    other.expect("ready");
    until("both are there", || place.program(rival_pid).is_some() && place.program(other.pid()).is_some());
    other.tell("go");
    rival.tell("go");
    let pid = other.pid();
    lines.extend(other.finish());
    assert_eq!(rival.finish().last().map(String::as_str), Some("ok"));
    assert_eq!(lines.last().map(String::as_str), Some("ok"));
    let stats = place.stats_of(pid);
    println!("OpenCL, 500 commands behind a user event, threshold 2: {}, {}", lines[0], stats["liveness_overrides"]);
    assert!(milliseconds(&lines) < 5_000, "{}", lines[0]);
    // The program makes two fills, 500 and 499 steps, and two reads.
    assert_eq!((&stats["launches"], &stats["unscheduled"]["attach"]), (&1003.into(), &0.into()), "{stats}");
    // A queue that waits for a user event is exempt from the budget: at most the commands of the other queue were let through.
    assert!(stats["liveness_overrides"].as_u64() < Some(500), "{stats}");
}
