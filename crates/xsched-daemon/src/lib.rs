//! The scheduling daemon: one thread, one epoll loop, pure policies.
//!
//! - `server`: the loop, connections, timers; `fair`: one user's work does not delay another's; `socket`: packets, the listening socket, the lock beside it.
//! - `closer`: closes what strangers sent, which may take as long as they like.
//! - `session`: what attached processes say; `client`: what is known of them; `peer`: proof of who they are.
//! - `expected`: programs that were announced; [`mps`]: NVIDIA's Multi-Process Service; `pool`: private ones, for the best-effort
//!   programs of a user; `places`: who is in one; `unsuitable`: programs that do not suit others of a pool.
//! - `gates`: what `xsched-gatekeeper` leaves to its host when gates change; `memory`: segments and the heartbeat page.
//! - `scheduler`: an operator's own, in a process beside, `host`.
//! - `bursts`: a file of when programs wanted their devices, for measurements.
//! - `timeslices`: what the hardware's own scheduler is told; `tuning`: times and limits.
//! - `control`: what commands ask for; `config`: files, rules and limits; `container`: which
//!   container a cgroup is; `glob`: patterns.
//!
//! `server` has the state and knows what the state consists of. What is done to it lies above, in `impl Server` blocks: `session`,
//! `control`, `expected`, `gates`, `scheduler`, `timeslices`. The loop calls their methods, and no type or function of theirs is
//! named below them.

mod bursts;
mod client;
mod clock;
mod closer;
mod config;
mod container;
mod control;
mod expected;
mod fair;
mod follow;
mod gates;
mod glob;
mod host;
mod memory;
pub mod mps;
mod peer;
mod places;
mod pool;
mod scheduler;
mod server;
mod session;
mod socket;
mod standing;
mod timeslices;
mod tuning;
mod unsuitable;

pub use pool::obstacle as pool_obstacle;
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
    /// Configuration files in order, a later one wins. Each must exist.
    pub config: Vec<PathBuf>,
    /// `libxsched.so`, for the servers of pools; none = there are no pools.
    pub library: Option<PathBuf>,
    /// Folder for what outlives the daemon; none = nothing does.
    pub state: Option<PathBuf>,
    /// End after this long without clients; none = never, unless the configuration says so.
    pub idle_exit: Option<Duration>,
    /// Seed of whatever a policy does at random.
    pub seed: u64,
    /// A file that gets a line for each burst of a program: from its first launch to its last completion before it goes idle.
    pub bursts: Option<PathBuf>,
}

/// Runs a daemon in the foreground until it is told to stop, gets SIGTERM or SIGINT, or was idle for long enough.
///
/// # Errors
/// See [`Error`].
pub fn run(options: Options) -> Result<(), Error> {
    xsched_proto::wakeup::run_promptly();
    server::Server::new(&options)?.run()
}
