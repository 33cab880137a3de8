//! The scheduling daemon: one thread, one epoll loop, pure policies.
//!
//! - `server`: the loop, connections, timers; `fair`: one user's work does not delay another's; `socket`: packets, the listening socket, the lock beside it.
//! - `rendezvous`: makes the listening socket's file again when it is gone.
//! - `closer`: closes what strangers sent, which may take as long as they like.
//! - `session`: what attached processes say; `client`: what is known of them; `peer`, `identity`: proof of who they are, and
//!   of whose; `clerk`: the thread that finds it out.
//! - `expected`: programs that were announced; [`mps`]: NVIDIA's Multi-Process Service; `pool`: private ones, for the best-effort
//!   programs of a user; `places`: who is in one; `unsuitable`: programs that do not suit others of a pool.
//! - `gates`: what `xsched-gatekeeper` leaves to its host when gates change; `memory`: segments and the heartbeat page;
//!   `trim`: what the allocator gives back.
//! - `scheduler`: an operator's own, in a process beside, `host`.
//! - `devices`: what drivers tell of memory, activity and heat; `state`: who is told of it.
//! - `bursts`: a file of when programs wanted their devices, for measurements.
//! - `accounting`: who had a device for how long; `usage`: the records of it, beyond the end of programs.
//! - `metrics`: what monitors read, as OpenMetrics; `observing`: what the loop tells them.
//! - `timeslices`: what the hardware's own scheduler is told; `tuning`: times and limits.
//! - `events`: the log of who came, left and changed what; `writer`: the thread that writes it, and the state file.
//! - `sources`: where the configuration comes from; `reload`: SIGHUP; `kept`: what was set at run time and outlives the daemon,
//!   `restart`; `service`: what a service manager is told; `signals`; `process`: what the kernel tells of a process.
//! - `naming`: what a program is called; `control`: what commands ask for, `targets`: whom they mean, `listing`: what is looked at for `ps`, which `teller` tells, of which `recent` has shares and `ended`
//!   programs that are gone; `trace`: what commands are told of what was decided lately, of groups in `traced`; `config`: files, rules
//!   and limits, which `check` only reads; `container`: which container a cgroup is; `glob`: patterns.
//!
//! `server` has the state and knows what the state consists of. What is done to it lies above, in `impl Server` blocks: `session`,
//! `accounting`, `control`, `expected`, `gates`, `listing`, `observing`, `reload`, `restart`, `scheduler`, `state`, `targets`, `timeslices`, `trace`. The loop calls their methods, and no type or function of theirs is
//! named below them.

mod abandoned;
mod accounting;
mod bursts;
mod changes;
mod changing;
mod check;
mod clerk;
mod client;
mod clock;
mod closer;
mod company;
mod config;
mod container;
mod control;
mod details;
mod devices;
mod ended;
mod events;
mod expected;
mod fair;
mod follow;
mod gates;
mod glob;
mod host;
mod identity;
mod kept;
mod listing;
mod memory;
mod metrics;
pub mod mps;
mod naming;
mod observing;
mod pages;
mod peer;
mod places;
mod pool;
mod precedence;
mod process;
mod recent;
mod reload;
mod rendezvous;
mod restart;
mod rights;
mod scheduler;
mod server;
mod service;
mod session;
mod shares;
mod signals;
mod site;
mod socket;
mod sources;
mod standing;
mod state;
mod targets;
mod teller;
mod timeslices;
mod trace;
mod traced;
mod trim;
mod tuning;
mod unsuitable;
mod usage;
mod writer;

pub use check::check_config;
pub use container::record as container_record;
pub use devices::{serve as serve_devices, sources as device_state_sources};
pub use kept::kept_state;
pub use pool::keeper::keep_pool;
pub use pool::obstacle as pool_obstacle;
pub use rights::give_up_capabilities;
pub use xsched_proto::Error;

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
