//! The scheduling daemon: one thread, one epoll loop, around the decisions of `xsched-engine`.
//!
//! - The loop: `server` (its turn, due work), `timers`, `effects` (inputs to the engine, effects of its decisions), `precedence`,
//!   `signals`, `service` (the service manager), `clock`.
//! - Connections: `net` (sockets, packets, rations, descriptors that are closed slowly), `fair` (turns of users).
//! - Programs: `session` (attaching and messages), `client`, `memory` (their segments), `trim` (release of free memory), `pages`,
//!   `abandoned` (segments that outlive their programs), `follow` (nice values), `expected` (announced ones).
//! - Identity: `peer`, `identity`, `process`, `container`, `standing`, `naming`, `rights`.
//! - Commands: `control`, `commands`, `answers`, `listing` (for `ps`; parts of it are in `recent` and `shares`, ended programs in `ended`).
//! - Pools: `places`, `pool`, `unsuitable`, `proven`, `trusting`, [`mps`].
//! - Beside the loop: `worker` (the type), `services` (identification, snapshots, log, usage), `devices`, `host` with `scheduler` (an
//!   operator's own), `metrics` with `observing`, `usage` with `accounting` and `measuring`.
//! - Configuration: `config`, `glob`, `sources`, `reload`, `check`; `kept` and `restart`: settings made at run time; `events`, `details`:
//!   the log; `bursts`: a file for measurements; `state`: the state of devices; `tuning`: times and limits.
//!
//! docs/internals/daemon.md describes all of it, with two walks.

mod abandoned;
mod accounting;
mod accounts;
mod answers;
mod appointments;
mod bursts;
mod check;
mod client;
mod clock;
mod commands;
mod config;
mod container;
mod control;
mod details;
mod devices;
mod effects;
mod ended;
mod events;
mod expected;
mod fair;
mod files;
mod follow;
mod glob;
mod host;
mod identity;
mod kept;
mod listing;
mod measuring;
mod memory;
mod metrics;
pub mod mps;
mod naming;
mod net;
mod observing;
mod pages;
mod peer;
mod places;
mod pool;
mod precedence;
mod process;
mod proven;
mod recent;
mod refusals;
mod refusing;
mod reload;
mod restart;
mod rights;
mod scheduler;
mod server;
mod service;
mod services;
mod session;
mod shares;
mod signals;
mod sources;
mod standing;
mod state;
mod timers;
mod trim;
mod trusted;
mod trusting;
mod tuning;
mod unsuitable;
mod usage;
mod worker;

pub use check::{check_config, config_keys, config_text};
pub use config::devices::odd_key as odd_device_key;
pub use container::record as container_record;
pub use devices::{serve as serve_devices, sources as device_state_sources};
pub use kept::kept_state;
pub use metrics::{Metric, all_metrics};
pub use pool::keeper::keep_pool;
pub use pool::obstacle as pool_obstacle;
pub use rights::give_up_capabilities;
pub use usage::{StoredProgram, StoredUsage};
pub use xsched_proto::Error;

/// Engine with the memory of this daemon's programs.
type Engine = xsched_engine::Engine<memory::Shared>;
type Group = xsched_engine::Group<memory::GroupWords>;
type Input = xsched_engine::Input<memory::Shared>;
type Program = xsched_engine::Program<memory::Shared>;

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
