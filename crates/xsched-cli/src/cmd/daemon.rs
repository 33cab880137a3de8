//! `xsched daemon`: the daemon in the foreground, and commands to the one that runs.

mod control;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use xsched_proto::paths::{self, Origin};
use xsched_proto::settings::{Log, Settings};

use crate::failure::{Error, Result};
use crate::values::{self, IdleExit};
use crate::{folders, preload};

/// Run the daemon in the foreground, or ask, reload or stop the one that runs
///
/// `xsched run` starts one by itself; this is for services, containers and diagnosis. SIGTERM and SIGINT
/// end it, and programs go on unscheduled. SIGHUP makes it read its configuration again.
///
/// Its log, on stderr or in a file, has a line for each program that attaches, leaves or is refused, and for each change.
/// Suspensions, hints and policies that commands have set are kept over a restart.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  xsched daemon --policy up             shares by weight instead of priority
  xsched daemon --socket /tmp/try.sock  beside another, for
                                        `xsched run --socket /tmp/try.sock`
  xsched daemon status                  what runs, since when, by which files
  xsched daemon reload                  applies a changed configuration
  xsched daemon stop                    programs go on unscheduled")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,

    /// Policy to start with, before the configuration's [default: hpf]
    #[arg(long, value_name = "NAME", value_parser = values::PolicyParser)]
    policy: Option<String>,

    /// A shared library that decides instead of a policy (include/xsched/scheduler.h), in a process of its own
    #[arg(long, value_name = "FILE", value_parser = values::library)]
    scheduler: Option<PathBuf>,

    /// Socket to listen at [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,

    /// A configuration file, after /etc/xsched/config.toml and $XDG_CONFIG_HOME/xsched/config.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Socket of the service that starts the MPS daemons of pools (dist/xsched-pool.socket) [default: the daemon starts them]
    #[arg(long, value_name = "SOCKET", value_parser = values::socket)]
    pool_keeper: Option<PathBuf>,

    /// Write the event log to a file instead of stderr; it is kept under 2 MiB, in FILE and FILE.1
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// End after so long without clients [default: never]
    #[arg(long, value_name = "TIME|never", value_parser = values::idle_exit)]
    idle_exit: Option<IdleExit>,

    /// Seed of the policy's random choices
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::seed)]
    seed: u64,

    /// A file that gets a line for each burst of a program
    #[arg(long, value_name = "FILE", hide = true)]
    bursts: Option<PathBuf>,

    /// Read no configuration but that of --config: for daemons whose figures must not depend on the machine's
    #[arg(long, hide = true)]
    no_usual_config: bool,
}

/// Command to the daemon that runs.
#[derive(clap::Subcommand, Debug)]
enum Action {
    /// Show the daemon that runs: its socket, policy, configuration and faults
    Status {
        #[command(flatten)]
        at: At,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make the daemon read its configuration again; a faulty one changes nothing
    Reload(At),
    /// End the daemon, and wait until it has ended; programs go on unscheduled
    Stop(At),
}

#[derive(clap::Args, Debug)]
struct At {
    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,
}

/// Runs until a command or a signal stops the daemon, or passes a command on to it.
pub(crate) fn main(mut args: Args) -> Result {
    match args.action.take() {
        Some(Action::Status { at, json }) => control::status(at.socket.as_deref(), json),
        Some(Action::Reload(at)) => control::reload(at.socket.as_deref()),
        Some(Action::Stop(at)) => control::stop(at.socket.as_deref()),
        None => serve(args),
    }
}

fn serve(args: Args) -> Result {
    let (socket, origin) = paths::socket_path(args.socket);
    if origin == Origin::User {
        folders::private(socket.parent().unwrap_or(Path::new("/")))?;
    }
    let socket = std::path::absolute(&socket).unwrap_or(socket);
    let options = xsched_daemon::Options {
        policy: args.policy,
        scheduler: args.scheduler,
        usual_config: if args.no_usual_config { Vec::new() } else { folders::configuration() },
        metrics_not_of: (socket != Path::new(paths::SYSTEM_SOCKET)).then(folders::machine_configuration),
        config: given(args.config)?,
        socket,
        log: args.log,
        log_details: Settings::of_process().log >= Log::Debug,
        library: library(),
        pool_keeper: args.pool_keeper,
        // The present path: an upgrade puts another program in its place.
        device_host: std::env::current_exe().ok(),
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

/// Path of the preload library in a form that LD_PRELOAD can hold, and that other users may read.
fn library() -> Option<PathBuf> {
    preload::find().and_then(|library| preload::speakable(&library)).ok()
}

/// Configuration file that was named.
fn given(file: Option<PathBuf>) -> Result<Vec<PathBuf>> {
    match file {
        Some(file) if !file.is_file() => Err(Error::input(format!("--config: {} is no file", file.display()))),
        // Absolute, so that SIGHUP finds it wherever the daemon is by then.
        file => Ok(file.map(|file| std::path::absolute(&file).unwrap_or(file)).into_iter().collect()),
    }
}
