//! `XSCHED_LOG=debug`: a healthy program and its daemon report events, and are silent without it.

use std::process::Command;

use xsched_e2e::{Place, Process, TIMEOUT, so_within, until};

/// Log of a daemon that `run` has started, without the time in each line.
fn daemon_log(place: &Place) -> Vec<String> {
    let text = std::fs::read_to_string(place.join("x.sock.log")).unwrap_or_default();
    text.lines().map(|line| line.split_once(' ').map_or(line, |(_, rest)| rest).to_owned()).collect()
}

/// Runs a program of five launches to its end: its process id and its output on stderr.
fn ended(mut command: Command, level: Option<&str>) -> (u32, String) {
    command.envs(level.map(|level| ("XSCHED_LOG", level)));
    let program = Process::start(command);
    let pid = program.pid();
    let (code, _, errors) = program.wait();
    assert_eq!(code, 0, "{errors}");
    (pid, errors)
}

#[test]
fn a_program_and_the_daemon_that_run_starts_say_what_goes_on() {
    let place = Place::new();
    let launches = place.sim_program("launches");
    let (pid, errors) = ended(place.run_command(&["--priority", "low"], &launches, &[]), Some("debug"));
    let expected = [
        format!("xsched: debug: process {pid}: looks for its daemon at {}", place.socket().display()),
        format!("xsched: debug: process {pid}: the daemon answers: class low, priority -128"),
        format!(
            "xsched: debug: process {pid}: first XQueue of a group on sim:0 through sim, which can do levels 1, 2, 3"
        ),
        "xsched: attached: sim:0, level 3, policy hpf, priority -128".to_owned(),
        format!("xsched: debug: process {pid}: ends: 7 launches, 0 of them unscheduled; "),
    ];
    let mut lines = errors.lines();
    for line in &expected {
        assert!(lines.next().is_some_and(|said| said.starts_with(line)), "{line}: {errors}");
    }
    assert_eq!(lines.next(), None);
    let has = |line: &str| daemon_log(&place).iter().any(|said| said.contains(line));
    let told = so_within(TIMEOUT, || has(&format!("of process {pid} ends: 7 launches, ")));
    assert!(told, "process {pid}: {:#?}", daemon_log(&place));
    assert!(has(&format!("listens at {}, policy hpf, configuration none", place.socket().display())));
    assert!(has(&format!(" of process {pid}: sim:0 through sim, levels 1, 2, 3, level 3, priority -128, policy hpf")));
    // The daemon keeps its first log level.
    let daemon = place.ps().unwrap()["daemon"]["pid"].as_u64().unwrap() as u32;
    xsched_e2e::signal(daemon, rustix::process::Signal::TERM);
    until("it says why it ends", || has("debug: ends: it was told to by a signal"));
}

#[test]
fn without_the_variable_nothing_of_it_is_said() {
    let place = Place::new();
    let launches = place.sim_program("launches");
    let (pid, errors) = ended(place.run_command(&[], &launches, &[]), None);
    assert_eq!(errors, "");
    let left = format!("process {pid} of user ");
    until("the daemon has told that it left", || {
        daemon_log(&place).iter().any(|line| line.starts_with(&left) && line.ends_with(" has left"))
    });
    assert!(daemon_log(&place).iter().all(|line| !line.contains("debug")), "{:?}", daemon_log(&place));
}

#[test]
fn a_program_that_schedules_itself_or_asks_nothing_says_so() {
    let place = Place::new();
    let launches = place.sim_program("launches");
    let (pid, errors) = ended(place.run_command(&["--local", "up"], &launches, &[]), Some("debug"));
    assert!(
        errors.starts_with(&format!("xsched: debug: process {pid}: schedules itself, by the policy up\n")),
        "{errors}"
    );
    assert!(errors.contains("ends: 7 launches, 0 of them unscheduled"), "{errors}");
    let (pid, errors) = ended(place.run_command(&["--no-daemon"], &launches, &[]), Some("debug"));
    assert!(errors.contains(&format!("xsched: debug: process {pid}: asks no scheduler\n")), "{errors}");
}
