//! `xsched cdi`: the scheduler in containers, by the Container Device Interface.
//!
//! [`spec`] is the specification that engines read; [`place`] writes it where engines look; [`hook`] is the program that they run in each
//! container, with [`image`] (does the library load there?), [`inside`] (paths in a container's file system) and [`facts`] (facts about it
//! from the engine).

mod facts;
mod hook;
mod image;
mod inside;
mod list;
mod place;
mod spec;

use std::path::PathBuf;

use xsched_proto::class::Class;

use crate::failure::Result;

/// Give containers the scheduler, by a CDI device for each class
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  xsched cdi generate                              once, as root
  podman run --device xsched.dev/class=low IMAGE …  programs of class low
  xsched cdi list                                  which are scheduled, why not")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// Write the specification that engines read
    Generate(Generate),
    /// List the containers that were made with a class, and whether their programs are scheduled
    List(List),
    /// Hook that an engine runs when it makes a container
    #[command(hide = true)]
    Hook(Hook),
}

#[derive(clap::Args, Debug)]
struct Generate {
    /// The folder for xsched.dev-class.json, instead of /etc/cdi
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// The daemon's socket, instead of /run/xsched/xsched.sock; containers get its folder
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Write nothing: exit code 3 unless the file is as it would be written
    #[arg(long, conflicts_with = "remove")]
    check: bool,

    /// Remove the file
    #[arg(long)]
    remove: bool,
}

#[derive(clap::Args, Debug)]
struct List {
    /// The daemon's socket [default: $XSCHED_SOCKET, the system's]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct Hook {
    /// The container has ended
    #[arg(long, hide = true)]
    ended: bool,

    /// The class that the container was made with
    #[arg(long, hide = true, value_parser = class_name)]
    class: Option<Class>,

    /// The folder of the daemon's socket
    #[arg(long, hide = true)]
    socket_folder: PathBuf,
}

fn class_name(text: &str) -> std::result::Result<Class, String> {
    let class = Class::ALL.into_iter().find(|class| class.name() == text);
    class.ok_or_else(|| format!("'{text}' is no class"))
}

/// Generates, lists, or runs as an engine's hook.
pub(crate) fn main(args: Args) -> Result {
    match args.action {
        Action::Generate(wanted) => place::main(&wanted),
        Action::List(wanted) => list::main(&wanted),
        Action::Hook(wanted) => Ok(hook::main(&wanted)),
    }
}
