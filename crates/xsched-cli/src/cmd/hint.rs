//! `xsched hint`: changes the values of a running program.

use std::path::PathBuf;

use xsched_proto::wire::Request;

use crate::failure::{Error, Result};
use crate::hints::HintArgs;
use crate::values::{self, Level};
use crate::whom::{self, WhomArgs};
use crate::{candidates, client};

/// Change priority, weight or other values of running programs
///
/// Prints a line for each program: what it was, and what it is now. With --queue the hint is for one XQueue (`xsched ps --queues`).
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  xsched hint 4711 --priority low        from now on it takes what is left
  xsched hint --job night --weight 300   all programs of a job
  xsched hint --queue q3 --priority 140  one queue, before its program's

A hint lasts as long as the program. For all programs of a kind, write a rule:
xsched.toml(5).")]
#[command(override_usage = "xsched hint [OPTIONS] <PROGRAMS> <VALUES>")]
#[command(group = clap::ArgGroup::new("target").required(true).multiple(true).args(WhomArgs::IDS).arg("queue"))]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true)
    .args(["priority", "level", "threshold", "batch"]).args(HintArgs::IDS))]
pub(crate) struct Args {
    #[command(flatten)]
    whom: WhomArgs,

    /// One XQueue, such as q3
    #[arg(long, value_name = "QUEUE", value_parser = values::queue, add = candidates::queues())]
    queue: Vec<u64>,

    /// New priority: a class or -255..255 (see `xsched run --help`), -256 = never runs
    #[arg(long, short = 'p', value_name = "N|CLASS", value_parser = values::priority,
        allow_hyphen_values = true, add = candidates::classes())]
    priority: Option<i32>,

    #[command(flatten)]
    hints: HintArgs,

    /// New preemption level
    #[arg(long, value_name = "1|2|3", value_parser = values::level, allow_hyphen_values = true)]
    level: Option<Level>,

    /// New number of commands in flight while another program wants the device, 0 = automatic
    #[arg(long, value_name = "N", value_parser = values::threshold, allow_hyphen_values = true)]
    threshold: Option<u32>,

    /// Number of commands that free their room under the threshold together, 0 = automatic
    #[arg(long, value_name = "N", value_parser = values::batch, allow_hyphen_values = true)]
    batch: Option<u32>,

    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,
}

/// Sends the hint.
pub(crate) fn main(args: Args) -> Result {
    let targets = args.whom.targets(args.queue)?;
    let level = match args.level {
        Some(Level(None)) => return Err(Error::input("--level: a running program is given 1, 2 or 3, not auto")),
        Some(Level(level)) => level,
        None => None,
    };
    let request = Request::Hint {
        targets,
        priority: args.priority,
        hints: args.hints.hints(),
        level,
        threshold: args.threshold,
        batch: args.batch,
    };
    whom::tell(client::ask(args.socket.as_deref(), request)?)
}
