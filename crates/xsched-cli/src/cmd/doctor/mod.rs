//! `xsched doctor`: checks what works here, and gives advice.

mod arbiters;
mod calls;
mod cuda;
mod machine;
pub(crate) mod probe;
mod process;
mod program;
mod shadow;

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use xsched_proto::text::escaped;

use crate::candidates;
use crate::failure::{Result, print, print_json};
use crate::values;
use crate::width::{self, Width};

/// Check what works on this machine, or why a running program is not scheduled
#[derive(clap::Args, Debug)]
#[command(after_help = "Exit code 3 if a check failed; with --strict, also if there is a note.")]
pub(crate) struct Args {
    /// Look into this program: is it scheduled, and if not, why; the functions it calls and who owns them, its queues
    #[arg(value_name = "PID", value_parser = values::pid, add = candidates::pids())]
    program: Option<u32>,

    /// As PID
    #[arg(long, value_name = "PID", value_parser = values::pid, conflicts_with = "program", add = candidates::pids())]
    pid: Option<u32>,

    /// Also what is only worth a note counts as failed
    #[arg(long)]
    strict: bool,

    /// The answer as JSON
    #[arg(long)]
    json: bool,

    /// The JSON Schema of `--json`
    #[arg(long, exclusive = true)]
    schema: bool,

    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,
}

/// Published schema of the answer.
const SCHEMA: &str = include_str!("../../../../../docs/reference/doctor.schema.json");

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Note,
    Fail,
}

/// Fault of a check that is not `ok`: a word that stays the same in all versions, for scripts and for the table of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(clap::ValueEnum))]
enum Cause {
    // Causes about the machine.
    NoLibrary,
    LibraryNotLoadable,
    OldGlibc,
    NoAnswer,
    OtherVersion,
    SwitchedOff,
    BadVariable,
    UselessVariable,
    BadConfiguration,
    OddConfiguration,
    OtherDaemon,
    OtherArbiter,
    LateDaemon,
    SchedulerFailed,
    Preloaded,
    NoState,
    NoPermission,
    NoDevice,
    NotAttached,
    // Causes about a program.
    NoProcess,
    Stopped,
    NotReadable,
    NotPreloadable,
    Secure,
    NoScheduler,
    NotPreloaded,
    FileMissing,
    NotLoaded,
    Shadowed,
    PassedBy,
    NoDaemon,
    NoCall,
    Held,
    Unscheduled,
}

/// Result of one check.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    /// Cause; none where the check is `ok`.
    cause: Option<Cause>,
    /// Finding, in one line.
    found: String,
    /// Advice, if there is any.
    advice: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, status: Status::Ok, cause: None, found: found.into(), advice: None }
    }

    fn note(name: &'static str, cause: Cause, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, status: Status::Note, cause: Some(cause), found: found.into(), advice: Some(advice.into()) }
    }

    fn fail(name: &'static str, cause: Cause, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, status: Status::Fail, cause: Some(cause), found: found.into(), advice: Some(advice.into()) }
    }
}

/// Report on the machine or a program.
#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    /// True if no check failed.
    ok: bool,
    /// Program that was examined; none = the machine.
    pid: Option<u32>,
    checks: Vec<Check>,
    platforms: Vec<machine::Platform>,
    functions: Vec<program::Function>,
    queues: Vec<program::Queue>,
    notes: Vec<String>,
}

impl Report {
    fn new(pid: Option<u32>, checks: Vec<Check>) -> Report {
        let (platforms, functions, queues, notes) = Default::default();
        Report {
            version: 2,
            ok: checks.iter().all(|c| c.status != Status::Fail),
            pid,
            checks,
            platforms,
            functions,
            queues,
            notes,
        }
    }

    fn text(&self, width: Width) -> String {
        let mut out = String::new();
        for check in &self.checks {
            let mark = match check.status {
                Status::Ok => "ok  ",
                Status::Note => "note",
                Status::Fail => "FAIL",
            };
            out += &width.fill(&format!("{mark}  {:<14} {}", check.name, escaped(&check.found)), 21);
            if let Some(advice) = &check.advice {
                out += &width.fill(&format!("{:<21}→ {}", "", escaped(advice)), 23);
            }
        }
        out += &machine::platforms(&self.platforms, width);
        // Writing to a String cannot fail.
        if !self.functions.is_empty() {
            let _ = writeln!(out, "\n{:<40} {:>18}  {:<8} OWNER", "FUNCTION", "ADDRESS", "FOUND BY");
            for f in &self.functions {
                let _ = writeln!(out, "{:<40} {:>18}  {:<8} {}", f.name, f.address, f.via, f.file);
            }
        }
        if !self.queues.is_empty() {
            let _ = writeln!(out, "\n{:>18}  {:>6} {:>6}", "QUEUE", "XQUEUE", "GROUP");
            for q in &self.queues {
                let _ = writeln!(out, "{:>18}  {:>6} {:>6}", q.handle, q.slot, q.group);
            }
        }
        if !self.notes.is_empty() {
            out.push('\n');
        }
        for note in &self.notes {
            out += &width.fill(&format!("note  {note}"), 6);
        }
        out
    }
}

/// Exit code when something that programs need does not work: the environment is at fault.
const FAILED: u8 = 3;

/// Examines the machine or a program.
pub(crate) fn main(args: Args) -> Result {
    if args.schema {
        return print(SCHEMA);
    }
    let report = match args.program.or(args.pid) {
        None => machine::examine(args.socket.as_deref()),
        Some(pid) => program::examine(pid, args.socket.as_deref()),
    };
    if args.json {
        print_json(&report)?
    } else {
        print(&report.text(width::of_output()))?
    };
    let fails = |c: &Check| c.status == Status::Fail || args.strict && c.status == Status::Note;
    let failed = report.checks.iter().any(fails);
    Ok(if failed { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn the_reference_has_every_cause_and_no_other() {
        let text = include_str!("../../../../../docs/reference/doctor.md");
        let of = |heading| crate::reference::rows(text, heading).into_iter().map(|row| crate::reference::bare(&row[0]));
        let mut named: Vec<String> = of("Of the machine").chain(of("Of a program")).collect();
        named.sort();
        named.dedup();
        let mut there: Vec<String> =
            Cause::value_variants().iter().filter_map(|c| Some(c.to_possible_value()?.get_name().to_owned())).collect();
        there.sort();
        assert_eq!(named, there);
    }
}
