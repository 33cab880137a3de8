//! Command line of the tasks.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};

use crate::{containers, distribution, fuzz, kubernetes, package, rocm, test, vm};

/// Build and test tasks of xsched
#[derive(Debug, Parser)]
#[command(name = "xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

/// A task, as it is typed.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Run format, build, generated files, and all Rust and Python tests
    #[command(long_about = test::HELP)]
    Test {
        /// Go on with `ci` and a search for rarer faults by chance and repetition: an hour
        #[arg(long)]
        long: bool,
    },
    /// Run the checks beside the tests: lint, licences, packages, containers, ladders
    #[command(long_about = test::HELP_CI)]
    Ci,
    /// Write the files that are made of vendors' headers
    Generate {
        /// Write none, and fail where one would change
        #[arg(long)]
        check: bool,
    },
    /// Print the files of each crate that call each other in a circle, and how many calls could not be resolved
    Circles(Circles),
    /// Count comments and blocks of documents that open headless, and comments of one word
    ///
    /// Headless are: What, Who, Whose, Whether, Which, Those, The same, It, How, By whom, …; Where and When without a main clause;
    /// bare pronouns.
    Prose {
        /// Print those of this crate, or of this page (docs/README.md), with their places
        #[arg(value_name = "CRATE|PAGE")]
        name: Option<String>,
        /// Lower xtask/prose.toml and xtask/pages.toml to the numbers that there are; raises none
        #[arg(long, conflicts_with = "name")]
        write: bool,
    },
    /// Print the largest functions and structs
    Sizes,
    /// Check that subjects of commits have at most 72 columns
    Commits,
    /// Hold journals against the models
    Replay {
        /// Journals as they were written, or gzip of them; after --bless, to take over the answers that differ
        #[arg(value_name = "FILE", trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Let libFuzzer search for bytes on which a target fails
    #[command(long_about = fuzz::HELP)]
    Fuzz {
        /// Try this target only
        #[arg(value_name = "TARGET", value_parser = fuzz::target)]
        target: Option<String>,
        /// Seconds for each target [default: 60, with --planted 300]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
        secs: Option<u64>,
        /// Give each target a bug, which must be found
        #[arg(long)]
        planted: bool,
    },
    /// Lay out the software HIP runtime in a folder
    HipRuntime {
        /// Make it of the debug build
        #[arg(long)]
        debug: bool,
        /// The folder
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Make a folder of AMD's own libraries, from Debian
    Rocm {
        /// Suite of Debian: sid (ROCm 6.4), experimental (7.2)
        #[arg(long, value_name = "SUITE", default_value = rocm::SUITE, value_parser = rocm::suite)]
        suite: String,
        /// The folder
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Make a folder for a GPU machine, to measure and try on it
    Bundle {
        /// For AMD GPUs
        #[arg(long)]
        hip: bool,
        /// The folder
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Make the Python wheel
    Wheel {
        /// The folder that it is written into
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Make a Debian package and an archive
    #[command(long_about = package::HELP)]
    Package {
        /// The folder that they are written into
        #[arg(value_name = "DIR", required_unless_present = "check")]
        folder: Option<PathBuf>,
        /// Make both twice from what is built, and check contents, equal bytes, lintian, the scripts, and a newcomer's first minutes
        #[arg(long, conflicts_with = "folder")]
        check: bool,
    },
    /// Make all files of a release
    #[command(long_about = distribution::HELP)]
    Release {
        /// The folder that they are written into; a former release in it is replaced
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Make them a second time from a clone in another folder, and compare
        #[arg(long)]
        check: bool,
    },
    /// Install below a prefix
    #[command(long_about = package::HELP_INSTALL)]
    Install {
        /// The prefix, such as /usr/local
        #[arg(value_name = "PREFIX")]
        prefix: PathBuf,
    },
    /// Try in a Debian guest what needs systemd, several users and namespaces
    #[command(long_about = vm::HELP)]
    Vm {
        /// Use the machine's own processor, where /dev/kvm works
        #[arg(long)]
        kvm: bool,
        /// Play a newcomer's first minutes with package, archive and wheel of the release build
        #[arg(long)]
        minutes: bool,
        /// Suite of Debian
        #[arg(long, value_name = "SUITE", default_value = vm::SUITES[0], value_parser = PossibleValuesParser::new(vm::SUITES))]
        suite: String,
    },
    /// Try containers of Podman under one daemon
    #[command(long_about = containers::HELP)]
    Containers {
        /// Measure what a container's start takes with and without a class, too
        #[arg(long)]
        cost: bool,
    },
    /// Try the programs of a Kubernetes node with real peers
    #[command(long_about = kubernetes::HELP)]
    Kubernetes,
}

/// Words after `circles`.
#[derive(Args, Debug)]
pub(crate) struct Circles {
    /// For each circle of this crate, print which file calls which, with one call as an example
    #[arg(value_name = "CRATE")]
    pub(crate) name: Option<String>,
    /// Print all calls instead of one
    #[arg(long, requires = "name", conflicts_with = "unresolved")]
    pub(crate) calls: bool,
    /// Print calls of the crate whose target was not found, by name
    #[arg(long, requires = "name")]
    pub(crate) unresolved: bool,
    /// Shorten xtask/circles.toml to the circles that there are; adds none
    #[arg(long, conflicts_with = "name")]
    pub(crate) write: bool,
}

/// Reads the words of a command line, the program's name first. Prints help at once.
///
/// # Errors
/// One line: there is no such task or option.
pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Task, String> {
    match Cli::try_parse_from(words) {
        Ok(cli) => Ok(cli.task),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => error.exit(),
        Err(error) => Err(one_line(&error)),
    }
}

/// Message of clap in one line, without its usage.
fn one_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a task is missing; see --help".into();
    }
    let text = error.render().to_string();
    let text = text.split("\n\nUsage:").next().unwrap_or_default();
    let text = text.split("\n\nFor more information").next().unwrap_or_default();
    let words: Vec<&str> = text.strip_prefix("error: ").unwrap_or(text).split_whitespace().collect();
    let line = words.join(" ").replace(" tip: ", "; ");
    if line.contains("; ") { line } else { format!("{line}; see --help") }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn typed(words: &[&str]) -> Result<Task, String> {
        read(["xtask"].iter().chain(words).map(OsString::from))
    }

    #[test]
    fn the_declaration_is_sound_and_every_task_says_what_it_is_for() {
        Cli::command().debug_assert();
        for task in Cli::command().get_subcommands() {
            assert!(task.get_about().is_some(), "{}", task.get_name());
            assert!(task.get_arguments().all(|arg| arg.get_help().is_some()), "{}", task.get_name());
        }
    }

    #[test]
    fn mistakes_are_told_in_one_line() {
        for (words, expected) in [
            (&["frobnicate"][..], "unrecognized subcommand 'frobnicate'"),
            (&[], "a task is missing"),
            (&["test", "--short"], "unexpected argument '--short' found"),
            (&["ci", "now"], "unexpected argument 'now' found"),
            (
                &["rocm", "--suite", "../x", "d"],
                "invalid value '../x' for '--suite <SUITE>': '../x' is no suite of Debian",
            ),
            (&["rocm"], "the following required arguments were not provided: <DIR>"),
            (&["bundle", "--hop", "d"], "unexpected argument '--hop' found"),
            (&["package"], "the following required arguments were not provided: <DIR>"),
            (&["package", "--check", "d"], "the argument '--check' cannot be used with '[DIR]'"),
            (
                &["vm", "--suite", "buster"],
                "invalid value 'buster' for '--suite <SUITE>' [possible values: bookworm, trixie, sid]",
            ),
            (&["fuzz", "nothing"], "invalid value 'nothing' for '[TARGET]': 'nothing' is no target: use one of "),
            (&["fuzz", "--secs", "0"], "invalid value '0' for '--secs <N>'"),
            (&["circles", "--calls"], "the following required arguments were not provided: <CRATE>"),
            (&["prose", "core", "--write"], "the argument '[CRATE|PAGE]' cannot be used with '--write'"),
        ] {
            let line = typed(words).unwrap_err();
            assert!(line.starts_with(expected) && !line.contains('\n'), "{words:?}: {line}");
        }
    }

    #[test]
    fn words_of_a_replay_are_handed_on() {
        let Ok(Task::Replay { words }) = typed(&["replay", "--bless", "a.xsj", "b.gz"]) else { panic!("a replay") };
        assert_eq!(words, ["--bless", "a.xsj", "b.gz"]);
    }
}
