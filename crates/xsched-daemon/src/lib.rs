//! The scheduling daemon: one thread, one epoll loop, around the decisions of `xsched-engine`.
//!
//! - `server`: the loop, its timers and signals, inputs to the engine and effects of its decisions.
//! - `net`: connections: sockets, packets, rations, descriptors that are closed slowly.
//! - `programs`: attached and announced programs, their messages, and the memory that they share with the daemon.
//! - `identity`: users, processes, containers and rights.
//! - `commands`: requests of commands, and their answers.
//! - `pool`: pools, programs that prove themselves or do not suit others, [`mps`].
//! - `services`: threads beside the loop: identification, snapshots, log, usage; `scheduler`: a process of the operator's.
//! - `devices`: state of devices; `metrics`: data for monitors; `usage`: time on devices, kept; `history`: other records of the past.
//! - `config`: the configuration, and settings made at run time.
//! - `guard`: borders that a panic does not cross.
//! - `files`: files that are complete at any time; `tuning`: times and limits.
//!
//! docs/internals/daemon.md describes all of it, with two walks.

mod commands;
mod config;
mod devices;
mod files;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod guard;
mod history;
mod identity;
mod metrics;
mod net;
mod pool;
mod programs;
mod scheduler;
mod server;
mod services;
mod tuning;
mod usage;

pub use config::check::{check_config, config_keys, config_text};
pub use config::devices::odd_key as odd_device_key;
pub use config::kept::kept_state;
pub use devices::{serve as serve_devices, sources as device_state_sources};
pub use identity::container::record as container_record;
pub use identity::rights::give_up_capabilities;
pub use metrics::{Metric, all_metrics};
pub use pool::keeper::keep_pool;
pub use pool::mps;
pub use pool::obstacle as pool_obstacle;
pub use usage::{StoredProgram, StoredUsage};
pub use xsched_proto::Error;

/// Engine with the memory of this daemon's programs.
type Engine = xsched_engine::Engine<programs::memory::Shared>;
type Group = xsched_engine::Group<programs::memory::GroupWords>;
type Input = xsched_engine::Input<programs::memory::Shared>;
type Program = xsched_engine::Program<programs::memory::Shared>;

use std::path::PathBuf;
use std::time::Duration;

/// Options of a daemon.
#[derive(Clone, Debug)]
pub struct Options {
    /// Path of the socket.
    pub socket: PathBuf,
    /// Policy to start with, instead of the configuration's.
    pub policy: Option<String>,
    /// Shared library with a scheduler of its own (`include/xsched/scheduler.h`): the policy `external`. Needs a command `scheduler-host`
    /// of this program.
    pub scheduler: Option<PathBuf>,
    /// Configuration files, in order. Missing ones are skipped; values of a later one replace those of an earlier one.
    pub usual_config: Vec<PathBuf>,
    /// The one of these whose `[metrics]` is not for this daemon: that of the machine, for a daemon beside the machine's. Two cannot
    /// listen at one place.
    pub metrics_not_of: Option<PathBuf>,
    /// Configuration files after those. Each must exist.
    pub config: Vec<PathBuf>,
    /// File for the event log, limited in size; none = stderr.
    pub log: Option<PathBuf>,
    /// True if the event log also has details for an investigation: groups, their figures at the end, the reason for the daemon's end.
    pub log_details: bool,
    /// Path of `libxsched.so`, for the servers of pools; none = there are no pools.
    pub library: Option<PathBuf>,
    /// Socket where each connection gets a process that runs [`keep_pool`], as a service manager makes it; none = the daemon starts such
    /// processes, as `pool-keeper` of its own program.
    pub pool_keeper: Option<PathBuf>,
    /// Program whose command `device-host` runs [`serve_devices`]; none = the state of NVIDIA's devices is not read.
    pub device_host: Option<PathBuf>,
    /// Folder for state that outlives the daemon; none = no state does.
    pub state: Option<PathBuf>,
    /// Time without clients after which the daemon ends; none = never, unless the configuration has one.
    pub idle_exit: Option<Duration>,
    /// Seed of a policy's random choices.
    pub seed: u64,
    /// File that gets a line for each burst of a program: from its first launch to its last completion before it goes idle.
    pub bursts: Option<PathBuf>,
}

/// Runs a daemon in the foreground until a command stops it, SIGTERM or SIGINT arrives, or it has been idle for long enough. On SIGHUP it
/// reads its configuration again.
///
/// # Errors
/// See [`Error`].
pub fn run(options: Options) -> Result<(), Error> {
    server::Server::new(&options)?.run()
}
