//! `xsched doctor`: what works here, and what to do if not.

mod cuda;
mod machine;
pub(crate) mod probe;
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

/// Check what works on this machine, or look into a running program
#[derive(clap::Args, Debug)]
#[command(after_help = "Exit code 3 if a check failed; with --strict, also if there is a note.")]
pub(crate) struct Args {
    /// Look into this program: the functions it calls and who owns them, its queues
    #[arg(long, value_name = "PID", value_parser = values::pid, add = candidates::pids())]
    pid: Option<u32>,

    /// Also what is only worth a note counts as failed
    #[arg(long)]
    strict: bool,

    /// The answer as JSON
    #[arg(long)]
    json: bool,

    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Note,
    Fail,
}

/// One check.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    /// What was found.
    found: String,
    /// What to do, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, status: Status::Ok, found: found.into(), advice: None }
    }

    fn note(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, status: Status::Note, found: found.into(), advice: Some(advice.into()) }
    }

    fn fail(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, status: Status::Fail, found: found.into(), advice: Some(advice.into()) }
    }
}

/// Checks as lines.
fn lines(checks: &[Check]) -> String {
    let mut out = String::new();
    for check in checks {
        let mark = match check.status {
            Status::Ok => "ok  ",
            Status::Note => "note",
            Status::Fail => "FAIL",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{mark}  {:<13} {}", check.name, escaped(&check.found));
        if let Some(advice) = &check.advice {
            let _ = writeln!(out, "{:<20}→ {}", "", escaped(advice));
        }
    }
    out
}

/// A report: prints as lines or as JSON.
trait Report: Serialize {
    fn checks(&self) -> &[Check];
    fn text(&self) -> String;
}

/// Examines the machine or a program.
pub(crate) fn main(args: Args) -> Result {
    match args.pid {
        None => show(&machine::examine(args.socket.as_deref()), &args),
        Some(pid) => show(&program::examine(pid, args.socket.as_deref()), &args),
    }
}

/// Exit code when something that programs need does not work: the environment's fault.
const FAILED: u8 = 3;

fn show(report: &impl Report, args: &Args) -> Result {
    if args.json {
        print_json(report)?
    } else {
        print(&report.text())?
    };
    let fails = |c: &Check| c.status == Status::Fail || args.strict && c.status == Status::Note;
    let failed = report.checks().iter().any(fails);
    Ok(if failed { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}
