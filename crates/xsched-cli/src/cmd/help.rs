//! `xsched help`: the help of a command, as its `--help` prints it.

use std::ffi::OsString;

use crate::candidates;
use crate::failure::{Error, Result};

/// Show the help of a command
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  xsched help run\n  xsched help policy set")]
pub(crate) struct Args {
    /// The command, and one within it [default: all commands]
    #[arg(value_name = "COMMAND", add = candidates::commands())]
    words: Vec<String>,
}

/// Finds the command. Returns the command line that prints its help.
pub(crate) fn main(args: Args, mut all: clap::Command) -> Result<Vec<OsString>> {
    all.build();
    let (mut found, mut words) = (&all, vec![OsString::from("xsched")]);
    for word in &args.words {
        // Words after a command that has none within it are arguments of it.
        if !found.has_subcommands() {
            break;
        }
        found = found.find_subcommand(word).ok_or_else(|| {
            let visible = found.get_subcommands().filter(|sub| !sub.is_hide_set());
            let names: Vec<&str> = visible.map(clap::Command::get_name).collect();
            Error::word(word, "command", names.join(", "), names.iter().copied())
        })?;
        words.push(word.into());
    }
    words.push("--help".into());
    Ok(words)
}
