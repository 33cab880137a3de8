//! `xsched config`: checks the configuration, shows its values with their places, and prints its schema.

mod keys;
mod schema;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::failure::{Error, Result, print, print_json, say};
use crate::folders;

/// Check the configuration, show the values in force, or print its schema
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  xsched config check                        the files that a daemon would read
  xsched config check --config new.toml      these, and a further one
  xsched config show                         each value, with its file and line")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// Check that a daemon would accept it, and report oddities
    Check(Files),
    /// Print each value in force, with its source: file and line, a command, or the default
    Show(Files),
    /// Print the JSON Schema, for editors
    Schema,
}

#[derive(clap::Args, Debug)]
struct Files {
    /// A further file after the usual ones, as of `xsched daemon --config`
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,

    /// Treat remarks as errors
    #[arg(long)]
    strict: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn main(args: Args) -> Result {
    match args.action {
        Action::Check(files) => check(&files),
        Action::Show(files) => {
            // A configuration that is refused is not in force.
            let remarks = remarks(&files)?;
            let values = show::values(&files.paths(), &show::Running::ask())?;
            if files.json { print_json(&values) } else { print(&show::text(&values)) }?;
            outcome(&files, &remarks)
        }
        Action::Schema => print_json(&schema::schema()),
    }
}

impl Files {
    /// Existing files, in the order in which a daemon reads them.
    fn paths(&self) -> Vec<PathBuf> {
        let usual = folders::configuration().into_iter().filter(|path| path.exists());
        usual.chain(self.config.iter().cloned()).collect()
    }
}

fn remarks(files: &Files) -> Result<Vec<String>> {
    xsched_daemon::check_config(&files.paths())
}

fn check(files: &Files) -> Result {
    let (paths, remarks) = (files.paths(), remarks(files)?);
    if files.json {
        print_json(&serde_json::json!({ "files": paths, "remarks": remarks }))?;
    } else if paths.is_empty() {
        print("there is no configuration: defaults are in force\n")?;
    } else {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        print(&format!("{}: accepted\n", names.join(", ")))?;
    }
    outcome(files, &remarks)
}

fn outcome(files: &Files, remarks: &[String]) -> Result {
    if !files.json {
        remarks.iter().for_each(|remark| say(remark));
    }
    match remarks.len() {
        0 => Ok(ExitCode::SUCCESS),
        n if files.strict => Err(Error::input(format!("remarks on the configuration: {n}, with --strict"))),
        _ => Ok(ExitCode::SUCCESS),
    }
}
