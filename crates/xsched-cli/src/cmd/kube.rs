//! `xsched kube`: executes the program `xsched-kube`, which lies beside this one.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use crate::failure::{Error, Result};

const NAME: &str = "xsched-kube";

/// Bring classes to the pods of a Kubernetes node
///
/// Becomes the program `xsched-kube`. It lies beside this one, or in ../lib/xsched from there.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Examples:
  xsched kube --help
  xsched kube device-plugin --simulated 2
  xsched kube nri --config /etc/xsched/kubernetes.toml")]
pub(crate) struct Args {
    /// Subcommand and its options: `xsched kube --help` lists them
    #[arg(value_name = "WORDS", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Becomes the program `xsched-kube`.
pub(crate) fn main(args: Args) -> Result {
    let program = find()?;
    let error = std::process::Command::new(&program).args(args.words).exec();
    Err(Error::environment(format!("cannot execute {}: {error}", program.display())))
}

fn find() -> Result<PathBuf> {
    let exe =
        std::env::current_exe().map_err(|e| Error::environment(format!("cannot tell where this program lies: {e}")))?;
    let folder = exe.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(NAME), folder.join("../lib/xsched").join(NAME)];
    places.into_iter().find(|place| place.is_file()).ok_or_else(|| {
        Error::environment(format!(
            "{NAME} is not in {} and not in ../lib/xsched beside it; packages have it, `cargo build -p xsched-kube` makes it",
            folder.display()
        ))
    })
}
