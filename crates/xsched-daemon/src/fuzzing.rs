//! Access for fuzz targets.

use std::os::fd::OwnedFd;

use xsched_policy::Choice;

pub use crate::programs::memory::between_reads;

use crate::net::Own;
use crate::scheduler::process::Host;
use crate::server::Server;
use crate::tuning::HOST_POLICY;
use crate::{Error, Input, Options};

/// Runs a daemon as [`crate::run`] does, with a scheduler at the other end of a socket.
///
/// # Errors
/// See [`crate::run`].
pub fn run_with_scheduler(options: &Options, socket: OwnedFd, per_stream: bool) -> Result<(), Error> {
    let mut server = Server::new(options)?;
    server.net.watch_own(&socket, Own::Scheduler)?;
    let mut host = Host::at(socket, per_stream);
    // A sanitizer makes it slow.
    host.patience_ns = 60_000_000_000;
    server.services.scheduler = Some(host);
    server.input(Input::Policy(None, Choice::named(HOST_POLICY)?));
    server.run()
}
