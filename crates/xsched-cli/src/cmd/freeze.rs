//! `xsched freeze` and `xsched thaw`.

use xsched_proto::wire::Request;

use crate::failure::Result;
use crate::whom::ProgramsArgs;

/// Move programs' GPU memory to the host, until `thaw`
///
/// For programs started with `xsched run --memory swap`. They wait meanwhile, and their part of the GPU is free for others. What prevents it
/// is named, and nothing is moved then. `thaw` brings memory back; without room for it they stay frozen.
#[derive(clap::Args, Debug)]
#[command(override_usage = "xsched freeze|thaw [OPTIONS] <PROGRAMS>")]
pub(crate) struct Args {
    #[command(flatten)]
    programs: ProgramsArgs,
}

/// Runs `xsched freeze`.
pub(crate) fn freeze(args: Args) -> Result {
    args.programs.change(|targets| Request::Freeze { targets })
}

/// Runs `xsched thaw`.
pub(crate) fn thaw(args: Args) -> Result {
    args.programs.change(|targets| Request::Thaw { targets })
}
