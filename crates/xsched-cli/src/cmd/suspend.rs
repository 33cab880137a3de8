//! `xsched suspend` and `xsched resume`.

use std::path::PathBuf;
use std::process::ExitCode;

use xsched_proto::wire::Request;

use crate::failure::Result;
use crate::{client, values};

/// Keep a program off its devices until `resume`
///
/// What it has on the device already runs to its end; its next launch waits. The program itself is not stopped.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The program's process id
    #[arg(long, value_name = "PID", value_parser = values::pid)]
    pid: u32,

    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,
}

/// Suspends.
pub(crate) fn suspend(args: Args) -> Result {
    client::ask(args.socket.as_deref(), Request::Suspend { pid: args.pid })?;
    Ok(ExitCode::SUCCESS)
}

/// Resumes.
pub(crate) fn resume(args: Args) -> Result {
    client::ask(args.socket.as_deref(), Request::Resume { pid: args.pid })?;
    Ok(ExitCode::SUCCESS)
}
