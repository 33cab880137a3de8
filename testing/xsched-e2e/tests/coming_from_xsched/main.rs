//! Trials of docs/guide/coming-from-xsched.md: each row of its tables is tried. A row without a trial fails, and so does a trial without a
//! row.

mod commands;
mod functions;
mod libraries;
#[path = "../../../../crates/xsched-cli/tests/common/markdown.rs"]
mod markdown;
mod values;
mod variables;

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
use xsched_e2e::{Place, Process, beside, until};

/// First cells of a section's tables, as they stand in backquotes, each with its whole row.
fn rows(heading: &str) -> Vec<(String, String)> {
    let page = markdown::page("docs/guide/coming-from-xsched.md");
    let (_, section) = page.text.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("{heading}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `").map(|row| (row, line)));
    rows.map(|(row, line)| (row.split('`').next().unwrap_or_default().to_owned(), line.to_owned())).collect()
}

/// Asserts that each row has its trial, by name, and each trial its row.
#[track_caller]
fn all_are_tried<'a>(heading: &str, tried: impl IntoIterator<Item = &'a str>) {
    let there: Vec<String> = rows(heading).into_iter().map(|(name, _)| name).collect();
    let tried: BTreeSet<String> = tried.into_iter().map(str::to_owned).collect();
    assert_eq!(there.iter().cloned().collect::<BTreeSet<_>>(), tried, "{heading}");
    assert_eq!(there.len(), tried.len(), "{heading}: a row stands twice");
}

/// Command under its names of the original.
fn original(place: &Place, name: &str, args: &[&str]) -> Command {
    let link = place.join(name);
    if !link.is_symlink() {
        std::os::unix::fs::symlink(beside("xsched"), &link).unwrap();
    }
    place.command(link, args)
}

/// Result of a command: exit code, stdout, stderr.
fn said(mut command: Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[track_caller]
fn quiet(command: Command) -> String {
    let shown = format!("{command:?}");
    let (code, out, err) = said(command);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{shown}: {out}");
    out
}

/// Starts a program without end on the simulated device, with the library preloaded as XSched's users do it.
fn preloaded(place: &Place, variables: &[(&str, &str)]) -> Process {
    let mut command = place.command(place.sim_program("steady"), &[]);
    command.env("LD_PRELOAD", beside("libxsched.so")).envs(variables.iter().copied());
    Process::start(command)
}

/// Starts a program, and waits until it has begun to launch.
fn running(place: &Place, variables: &[(&str, &str)]) -> Process {
    let mut program = preloaded(place, variables);
    program.expect("ready");
    program
}

/// Ends a program: its output on stderr, and its counts.
fn end(place: &Place, mut program: Process) -> (String, Value) {
    program.tell("end");
    let pid = program.pid();
    let (code, lines, errors) = program.wait();
    assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")), "{errors}");
    (errors, place.stats_of(pid))
}

/// Name of the program's only queue, once the daemon knows it.
fn queue(place: &Place, pid: u32) -> String {
    let mut found = None;
    until("it has a queue", || {
        let groups = place.program(pid).and_then(|p| p["groups"].as_array().cloned()).unwrap_or_default();
        found = groups.iter().find_map(|g| g["queues"][0]["id"].as_str().map(str::to_owned));
        found.is_some()
    });
    found.unwrap_or_default()
}
