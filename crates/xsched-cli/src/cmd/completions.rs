//! `xsched completions`.

use crate::failure::{Error, Result, print};

/// Print a completion script for a shell
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  xsched completions bash > ~/.local/share/bash-completion/completions/xsched")]
pub(crate) struct Args {
    /// Which shell
    #[arg(value_name = "SHELL")]
    shell: clap_complete::Shell,
}

/// Prints it.
pub(crate) fn main(args: Args, mut command: clap::Command) -> Result {
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut command, "xsched", &mut out);
    let text = String::from_utf8(out).map_err(|e| Error::environment(format!("cannot make the script: {e}")))?;
    print(&text)
}
