//! The scheduling daemon: one thread, one epoll loop, around the decisions of `xsched-engine`.
//!
//! - The loop: `server` (its turn, what is due), `timers`, `effects` (inputs to the engine, effects out of it), `precedence`, `signals`,
//!   `service` (the service manager), `clock`.
//! - Connections: `net` (sockets, packets, rations, descriptors that are closed slowly), `fair` (turns of users).
//! - Programs: `session` (they attach and speak), `client`, `memory` (their segments), `trim` (memory is given back), `pages`, `abandoned` (segments that outlive
//!   them), `follow` (nice values), `expected` (announced ones).
//! - Identity: `peer`, `identity`, `process`, `container`, `standing`, `naming`, `rights`.
//! - Commands: `control`, `commands`, `answers`, `listing` (for `ps`), of which `recent` and `shares` have parts and `ended` those that
//!   are gone.
//! - Pools: `places`, `pool`, `unsuitable`, `proven`, `trusting`, [`mps`].
//! - Beside the loop: `worker` (the type), `services` (identification, snapshots, log, usage), `devices`, `host` with `scheduler` (an
//!   operator's own), `metrics` with `observing`, `usage` with `accounting` and `measuring`.
//! - Configuration: `config`, `glob`, `sources`, `reload`, `check`; `kept` and `restart`: what was set at run time; `events`, `details`: the
//!   log; `bursts`: a file for measurements; `state`: the state of devices; `tuning`: times and limits.
//!
//! docs/internals/daemon.md has the whole of it, with two walks.

mod abandoned;
mod accounting;
mod answers;
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

pub use check::check_config;
pub use container::record as container_record;
pub use devices::{serve as serve_devices, sources as device_state_sources};
pub use kept::kept_state;
pub use metrics::{Metric, all_metrics};
pub use pool::keeper::keep_pool;
pub use pool::obstacle as pool_obstacle;
pub use rights::give_up_capabilities;
pub use xsched_proto::Error;

/// The engine with the memory of this daemon's programs.
type Engine = xsched_engine::Engine<memory::Shared>;
type Group = xsched_engine::Group<memory::GroupWords>;
type Input = xsched_engine::Input<memory::Shared>;
type Program = xsched_engine::Program<memory::Shared>;

use std::path::PathBuf;
use std::time::Duration;

/// How to run a daemon.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen.
    pub socket: PathBuf,
    /// Policy to start with; wins over the configuration.
    pub policy: Option<String>,
    /// A shared library with a scheduler of its own (`include/xsched/scheduler.h`): the policy `external`. Needs this program
    /// to have a command `scheduler-host`.
    pub scheduler: Option<PathBuf>,
    /// Configuration files in order, read where they exist; a later one wins.
    pub usual_config: Vec<PathBuf>,
    /// Configuration files after those. Each must exist.
    pub config: Vec<PathBuf>,
    /// File for the event log, kept short; none = stderr.
    pub log: Option<PathBuf>,
    /// The event log has also what is of interest only where something is looked into: groups, their figures at the end, why the
    /// daemon ends.
    pub log_details: bool,
    /// `libxsched.so`, for the servers of pools; none = there are no pools.
    pub library: Option<PathBuf>,
    /// A socket where each connection gets a process that runs [`keep_pool`], as a service manager makes it; none = the daemon starts
    /// them, as `pool-keeper` of its own program.
    pub pool_keeper: Option<PathBuf>,
    /// A program whose command `device-host` runs [`serve_devices`]; none = NVIDIA's library is not asked how devices are.
    pub device_host: Option<PathBuf>,
    /// Folder for what outlives the daemon; none = nothing does.
    pub state: Option<PathBuf>,
    /// End after this long without clients; none = never, unless the configuration says so.
    pub idle_exit: Option<Duration>,
    /// Seed of whatever a policy does at random.
    pub seed: u64,
    /// A file that gets a line for each burst of a program: from its first launch to its last completion before it goes idle.
    pub bursts: Option<PathBuf>,
}

/// Runs a daemon in the foreground until it is told to stop, gets SIGTERM or SIGINT, or was idle for long enough. SIGHUP has it read
/// its configuration again.
///
/// # Errors
/// See [`Error`].
pub fn run(options: Options) -> Result<(), Error> {
    server::Server::new(&options)?.run()
}
