//! `xsched suspend` and `xsched resume`.

use std::path::PathBuf;

use xsched_proto::wire::Request;

use crate::failure::Result;
use crate::whom::{self, WhomArgs};
use crate::{client, values};

/// Keep programs off their devices until `resume`
///
/// Commands already on a device run to their end; the next launch waits. The programs themselves are not stopped.
#[derive(clap::Args, Debug)]
#[command(override_usage = "xsched suspend|resume [OPTIONS] <PROGRAMS>")]
#[command(group = clap::ArgGroup::new("target").required(true).multiple(true).args(WhomArgs::IDS))]
pub(crate) struct Args {
    #[command(flatten)]
    whom: WhomArgs,

    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,
}

/// Runs `xsched suspend`.
pub(crate) fn suspend(args: Args) -> Result {
    let request = Request::Suspend { targets: args.whom.targets(Vec::new())? };
    whom::tell(client::ask(args.socket.as_deref(), request)?)
}

/// Runs `xsched resume`.
pub(crate) fn resume(args: Args) -> Result {
    let request = Request::Resume { targets: args.whom.targets(Vec::new())? };
    whom::tell(client::ask(args.socket.as_deref(), request)?)
}
