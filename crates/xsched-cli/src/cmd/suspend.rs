//! `xsched suspend` and `xsched resume`.

use xsched_proto::wire::Request;

use crate::failure::Result;
use crate::whom::ProgramsArgs;

/// Keep programs off their devices until `resume`
///
/// Commands already on a device run to their end; the next launch waits. The programs themselves are not stopped.
#[derive(clap::Args, Debug)]
#[command(override_usage = "xsched suspend|resume [OPTIONS] <PROGRAMS>")]
pub(crate) struct Args {
    #[command(flatten)]
    programs: ProgramsArgs,
}

/// Runs `xsched suspend`.
pub(crate) fn suspend(args: Args) -> Result {
    args.programs.change(|targets| Request::Suspend { targets })
}

/// Runs `xsched resume`.
pub(crate) fn resume(args: Args) -> Result {
    args.programs.change(|targets| Request::Resume { targets })
}
