//! `xsched daemon`: the daemon in the foreground.

use std::path::PathBuf;
use std::process::ExitCode;

use xsched_proto::paths::{self, Origin};

use crate::failure::{Error, Result};
use crate::values::{self, IdleExit};
use crate::{folders, preload};

/// Run the daemon in the foreground
///
/// `xsched run` starts one by itself; this is for services, containers and looking at what it does. SIGTERM and SIGINT
/// end it, and programs go on unscheduled.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  xsched daemon --policy up                  shares by weight instead of priority
  xsched daemon --socket /tmp/try.sock       beside another; `xsched run --socket /tmp/try.sock` finds it")]
pub(crate) struct Args {
    /// Policy to start with, before the configuration's [default: hpf]
    #[arg(long, value_name = "NAME", value_parser = values::PolicyParser)]
    policy: Option<String>,

    /// A shared library that decides instead of a policy (include/xsched/scheduler.h), in a process of its own
    #[arg(long, value_name = "FILE", value_parser = values::library)]
    scheduler: Option<PathBuf>,

    /// Where to listen [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,

    /// A configuration file, after /etc/xsched/config.toml and $XDG_CONFIG_HOME/xsched/config.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// End after so long without clients [default: never]
    #[arg(long, value_name = "SECS|never", value_parser = values::idle_exit)]
    idle_exit: Option<IdleExit>,

    /// Seed of whatever a policy does at random
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// A file that gets a line for each burst of a program
    #[arg(long, value_name = "FILE", hide = true)]
    bursts: Option<PathBuf>,
}

/// Runs until told to stop.
pub(crate) fn main(args: Args) -> Result {
    let (socket, origin) = paths::socket_path(args.socket);
    if origin == Origin::User {
        folders::private(socket.parent().unwrap_or(std::path::Path::new("/")))?;
    }
    let options = xsched_daemon::Options {
        socket: std::path::absolute(&socket).unwrap_or(socket),
        policy: args.policy,
        scheduler: args.scheduler,
        config: configuration(args.config)?,
        library: library(),
        state: folders::state(),
        idle_exit: args.idle_exit.and_then(|i| i.0),
        seed: args.seed,
        bursts: args.bursts,
    };
    match xsched_daemon::run(options) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(e) => Err(e),
    }
}

/// The preload library, as LD_PRELOAD can name it, and other users may read it.
fn library() -> Option<PathBuf> {
    preload::find().and_then(|library| preload::speakable(&library)).ok()
}

/// The configuration files there are, in order.
fn configuration(given: Option<PathBuf>) -> Result<Vec<PathBuf>> {
    let mut files = folders::configuration();
    if let Some(file) = given {
        if !file.is_file() {
            return Err(Error::input(format!("--config: {} is no file", file.display())));
        }
        files.push(file);
    }
    Ok(files)
}
