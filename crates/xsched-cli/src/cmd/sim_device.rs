//! `xsched sim-device`: the process behind the simulated device.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::failure::{Error, Result};
use crate::values::{self, IdleExit};

/// Serve the simulated device
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Socket to listen at
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: PathBuf,

    /// End after so long without clients [default: never]
    #[arg(long, value_name = "SECS|never", value_parser = values::idle_exit)]
    idle_exit: Option<IdleExit>,
}

/// Runs until a signal stops it.
pub(crate) fn main(args: Args) -> Result {
    xsched_sim::server::run(&args.socket, args.idle_exit.and_then(|i| i.0))
        .map_err(|e| Error::environment(format!("the simulated device at {}: {e}", args.socket.display())))?;
    Ok(ExitCode::SUCCESS)
}
