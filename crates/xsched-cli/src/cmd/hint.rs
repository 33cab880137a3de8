//! `xsched hint`: changes what a running program is given.

use std::path::PathBuf;
use std::process::ExitCode;

use xsched_proto::wire::{DaemonMsg, Request, Target};

use crate::client;
use crate::failure::{Error, Result, say};
use crate::hints::HintArgs;
use crate::values::{self, Level};

/// Change priority, weight or other values of a running program
///
/// With --queue the hint is for one XQueue of it (`xsched ps --json` lists them).
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  xsched hint --pid 4711 --priority low      from now on it takes what is left
  xsched hint --queue q3 --priority 140      one queue, ahead of its program's others")]
#[command(group = clap::ArgGroup::new("target").required(true).args(["pid", "queue"]))]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true)
    .args(["priority", "level", "threshold", "batch"]).args(HintArgs::IDS))]
pub(crate) struct Args {
    /// The program's process id
    #[arg(long, value_name = "PID", value_parser = values::pid)]
    pid: Option<u32>,

    /// One XQueue, such as q3
    #[arg(long, value_name = "QUEUE", value_parser = values::queue)]
    queue: Option<u64>,

    /// New priority: a class or -255..255 (see `xsched run --help`), -256 = it does not run any more
    #[arg(long, short = 'p', value_name = "N|CLASS", value_parser = values::priority, allow_hyphen_values = true)]
    priority: Option<i32>,

    #[command(flatten)]
    hints: HintArgs,

    /// New preemption level
    #[arg(long, value_name = "1|2|3", value_parser = values::level, allow_hyphen_values = true)]
    level: Option<Level>,

    /// New number of commands in flight while another program wants the device, 0 = automatic
    #[arg(long, value_name = "N", value_parser = values::threshold, allow_hyphen_values = true)]
    threshold: Option<u32>,

    /// Commands after which room for others comes back while another program wants the device, 0 = automatic
    #[arg(long, value_name = "N", value_parser = values::batch, allow_hyphen_values = true)]
    batch: Option<u32>,

    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,
}

/// Hands the hint over.
pub(crate) fn main(args: Args) -> Result {
    let target = match (args.pid, args.queue) {
        (Some(pid), _) => Target::Pid(pid),
        (None, Some(queue)) => Target::Queue(queue),
        (None, None) => return Err(Error::input("hint needs --pid or --queue")),
    };
    let level = match args.level {
        Some(Level(None)) => return Err(Error::input("--level: a running program is given 1, 2 or 3, not auto")),
        Some(Level(level)) => level,
        None => None,
    };
    let request = Request::Hint {
        target,
        priority: args.priority,
        hints: args.hints.hints(),
        level,
        threshold: args.threshold,
        batch: args.batch,
    };
    for part in client::ask(args.socket.as_deref(), request)? {
        if let DaemonMsg::Note { text } = part {
            say(&text);
        }
    }
    Ok(ExitCode::SUCCESS)
}
