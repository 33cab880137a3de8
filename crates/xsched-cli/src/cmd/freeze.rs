//! `xsched freeze` and `xsched thaw`.

use std::path::PathBuf;

use xsched_proto::wire::Request;

use crate::failure::Result;
use crate::whom::{self, WhomArgs};
use crate::{client, values};

/// Move programs' GPU memory to the host, until `thaw`
///
/// For programs started with `xsched run --memory swap`. They wait meanwhile, and their part of the GPU is free for others. What prevents it
/// is named, and nothing is moved then. `thaw` brings memory back; without room for it they stay frozen.
#[derive(clap::Args, Debug)]
#[command(override_usage = "xsched freeze|thaw [OPTIONS] <PROGRAMS>")]
#[command(group = clap::ArgGroup::new("target").required(true).multiple(true).args(WhomArgs::IDS))]
pub(crate) struct Args {
    #[command(flatten)]
    whom: WhomArgs,

    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,
}

/// Runs `xsched freeze`.
pub(crate) fn freeze(args: Args) -> Result {
    let request = Request::Freeze { targets: args.whom.targets(Vec::new())? };
    whom::tell(client::ask(args.socket.as_deref(), request)?)
}

/// Runs `xsched thaw`.
pub(crate) fn thaw(args: Args) -> Result {
    let request = Request::Thaw { targets: args.whom.targets(Vec::new())? };
    whom::tell(client::ask(args.socket.as_deref(), request)?)
}
