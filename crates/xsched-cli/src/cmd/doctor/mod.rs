//! `xsched doctor`: checks what works here, and gives advice.

mod arbiters;
mod calls;
mod cuda;
mod machine;
pub(crate) mod probe;
mod process;
mod program;
mod report;
mod shadow;

use std::path::PathBuf;
use std::process::ExitCode;

use self::report::{Check, Status};
use crate::candidates;
use crate::failure::{Result, print, print_json};
use crate::values;
use crate::width;

/// Check what works on this machine, or why a running program is not scheduled
#[derive(clap::Args, Debug)]
#[command(after_help = "Exit code 3 if a check failed; with --strict, also if there is a note.")]
pub(crate) struct Args {
    /// Program to examine: is it scheduled, and if not, why; the functions it calls, the files that own them, its queues
    #[arg(value_name = "PID", value_parser = values::pid, add = candidates::pids())]
    program: Option<u32>,

    /// As PID
    #[arg(long, value_name = "PID", value_parser = values::pid, conflicts_with = "program", add = candidates::pids())]
    pid: Option<u32>,

    /// Treat notes as failures
    #[arg(long)]
    strict: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print the JSON Schema of `--json`
    #[arg(long, exclusive = true)]
    schema: bool,

    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,
}

/// Published schema of the answer.
const SCHEMA: &str = include_str!("../../../../../docs/reference/doctor.schema.json");

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
