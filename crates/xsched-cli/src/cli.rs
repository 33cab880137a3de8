//! Command line: the subcommands, and the report of a mistake in one line.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use xsched_proto::similar::nearest;

use crate::cmd;
use crate::failure::Error;

/// Preemptive scheduling for GPUs and other accelerators.
#[derive(Parser, Debug)]
#[command(name = "xsched", version, propagate_version = false, max_term_width = 100)]
#[command(after_help = AFTER_HELP)]
#[command(disable_help_subcommand = true, subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  xsched run --priority high -- python3 serve.py   runs first when it wants to
  xsched run --priority low  -- python3 train.py   takes what is left
  xsched ps                                        what runs, and what waits
  xsched demo                                      what it is good for
  xsched compare --high './serve' --low './train'  and for programs of yours
  xsched doctor                                    what works here
  xsched help COMMAND                              a command's options

Exit codes: 2 = bad input, 3 = the machine does not allow it; `run` exits as its
command does.";

/// Subcommands, in the order of the help.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Run(cmd::run::Args),
    Ps(cmd::ps::Args),
    Usage(cmd::usage::Args),
    Top(cmd::top::Args),
    Trace(cmd::trace::Args),
    Policy(cmd::policy::Args),
    Hint(cmd::hint::Args),
    Suspend(cmd::suspend::Args),
    /// Undo `suspend`
    Resume(cmd::suspend::Args),
    Freeze(cmd::freeze::Args),
    /// Undo `freeze`
    Thaw(cmd::freeze::Args),
    ActiveWindow(cmd::active_window::Args),
    Doctor(cmd::doctor::Args),
    Check(cmd::check::Args),
    Demo(cmd::demo::Args),
    Compare(cmd::compare::Args),
    Simulate(cmd::simulate::Args),
    Record(cmd::record::Args),
    Config(cmd::config::Args),
    Kube(cmd::kube::Args),
    Daemon(cmd::daemon::Args),
    Cdi(cmd::cdi::Args),
    Completions(cmd::completions::Args),
    Man(cmd::man::Args),
    Help(cmd::help::Args),
    #[command(hide = true)]
    SimDevice(cmd::sim_device::Args),
    #[command(hide = true)]
    SchedulerHost(cmd::scheduler_host::Args),
    /// Start and keep the MPS daemon of a pool, for the daemon at standard input
    #[command(hide = true)]
    PoolKeeper,
    /// Ask NVIDIA's management library how devices are, for the daemon at standard input
    #[command(hide = true)]
    DeviceHost,
    #[command(hide = true)]
    DemoWorker(cmd::demo::WorkerArgs),
    #[command(hide = true)]
    CheckSteps(cmd::check::StepsArgs),
    #[command(hide = true)]
    Probe(cmd::doctor::probe::Args),
}

/// Whole command line, for completions and the manual.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

/// Parses our own command from these words, the program's name first.
pub(crate) fn command_of(words: Vec<OsString>) -> Result<Command, Error> {
    typed::<Cli>(words).map(|cli| cli.command)
}

/// Parses a command line, the program's name first. Help and version are printed at once.
pub(crate) fn typed<T: Parser>(words: Vec<OsString>) -> Result<T, Error> {
    match T::try_parse_from(&words) {
        Ok(typed) => Ok(typed),
        Err(e) => match e.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => e.exit(),
            _ => Err(Error::input(one_line(&T::command(), &e, words.into_iter().skip(1)))),
        },
    }
}

/// Reduces clap's message to one line without decoration.
fn one_line(all: &clap::Command, error: &clap::Error, words: impl IntoIterator<Item = OsString>) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(s)) => Some(s.clone()),
        Some(ContextValue::Strings(v)) => Some(v.join(" ")),
        _ => None,
    };
    match error.kind() {
        // Our own parsers already name the fault and the accepted values.
        ErrorKind::ValueValidation => {
            let flag = context(ContextKind::InvalidArg).unwrap_or_default();
            let flag = flag.split_whitespace().next().unwrap_or_default();
            if let Some(source) = std::error::Error::source(error) {
                return format!("{flag}: {source}");
            }
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::Strings(missing)) => missing.as_slice(),
                Some(ContextValue::String(missing)) => std::slice::from_ref(missing),
                _ => &[],
            };
            // A group of options of which one is needed has the form `<A|--b <B>>`. It is long, so that one is told at a time.
            let inner = |missing: &'_ String| -> Option<String> {
                let inner = missing.strip_prefix('<')?.strip_suffix('>')?;
                (inner.contains("|-") || inner.starts_with('-')).then(|| inner.replace("|-", ", -"))
            };
            if let Some(group) = missing.iter().find_map(inner) {
                return format!("one of {group} is needed; see --help");
            }
            if let [missing] = missing {
                return format!("{missing} is missing; see --help");
            }
            if !missing.is_empty() {
                return format!("{} are missing; see --help", missing.join(" and "));
            }
        }
        ErrorKind::InvalidSubcommand => {
            if let Some(typed) = context(ContextKind::InvalidSubcommand) {
                let mut within = all;
                for word in words {
                    within = within.find_subcommand(word).unwrap_or(within);
                }
                let names: Vec<_> =
                    within.get_subcommands().filter(|s| !s.is_hide_set()).map(|s| s.get_name()).collect();
                let meant = match nearest(&typed, names.iter().copied()) {
                    Some(name) => format!("; did you mean {name}?"),
                    None => String::new(),
                };
                return format!("there is no command '{typed}': use {}{meant}", names.join(", "));
            }
        }
        _ => {}
    }
    let text = error.render().to_string();
    let text = text.split("\n\nUsage:").next().unwrap_or_default();
    let text = text.split("\n\nFor more information").next().unwrap_or_default();
    let words: Vec<&str> = text.strip_prefix("error: ").unwrap_or(text).split_whitespace().collect();
    // `use '-- -5'` leads into the next mistake: no argument here begins with a hyphen, but those of the command of `run`.
    let line = words.join(" ").replace(" tip: ", "; ");
    let line = line.split("; to pass ").next().unwrap_or_default();
    if error.kind() == ErrorKind::UnknownArgument && !line.contains("; ") {
        format!("{line}; see --help")
    } else {
        line.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::markdown;

    #[test]
    fn the_declaration_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn there_is_a_page_for_each_command_and_file_with_what_a_page_has() {
        let pages = cmd::man::pages(command()).unwrap();
        let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
        for name in ["xsched", "xsched-run", "xsched-ps", "xsched-policy", "xsched.toml", "xsched-environment"] {
            assert!(names.contains(&name), "{name} of {names:?}");
        }
        for page in &pages {
            let sections: &[&str] = match page.section {
                '1' => &["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "ENVIRONMENT", "FILES", "\"EXIT STATUS\""],
                _ => &["NAME", "\"DESCRIPTION\"", "FILES"],
            };
            for section in sections {
                assert!(page.text.contains(&format!(".SH {section}\n")), "{} has no {section}", page.name);
            }
            let is_marked = page.text.contains("](") || page.section != '1' && page.text.contains('`');
            assert!(!is_marked, "{} has Markdown", page.name);
        }
        let of = |name: &str| &pages.iter().find(|page| page.name == name).unwrap().text;
        assert!(of("xsched.toml").contains(".TP\n\\fBbudget_us\\fR\n"), "every key");
        assert!(of("xsched-environment").contains(".TP\n\\fBXSCHED_SHARE\\fR\n"), "every variable");
    }

    /// All commands, those within others too.
    fn all(command: &clap::Command) -> Vec<clap::Command> {
        let within = command.get_subcommands().filter(|s| !s.is_hide_set()).flat_map(all);
        within.chain([command.clone()]).collect()
    }

    #[test]
    fn footers_and_usages_fit_a_terminal_of_80_columns() {
        let mut command = command();
        command.build();
        for mut command in all(&command) {
            let (name, usage) = (command.get_name().to_owned(), command.render_usage().to_string());
            let footer = command.get_after_help().map(|text| text.to_string()).unwrap_or_default();
            for line in footer.lines().chain(usage.lines()) {
                assert!(line.chars().count() <= 80, "{name}: {line}");
            }
            for (open, close) in [('[', ']'), ('<', '>')] {
                assert_eq!(usage.matches(open).count(), usage.matches(close).count(), "{usage}");
            }
            assert!(!usage.contains("|--"), "{usage}");
        }
    }

    #[test]
    fn a_refused_value_is_told_with_what_is_accepted_by_every_option() {
        let mut whole = command();
        whole.build();
        let mut tried = 0;
        for sub in whole.get_subcommands().filter(|s| !s.is_hide_set()) {
            for option in sub.get_arguments().filter(|a| a.get_action().takes_values()) {
                let Some(long) = option.get_long() else { continue };
                let words = ["xsched", sub.get_name(), &format!("--{long}=\u{1}")].map(OsString::from);
                let Err(error) = command().try_get_matches_from(&words) else { continue };
                if error.kind() == ErrorKind::ValueValidation {
                    let line = one_line(&command(), &error, words.into_iter().skip(1));
                    let is_told =
                        [": use ", "is no file", "invisible", "characters", "give ", "no path", "takes no latency"];
                    assert!(is_told.iter().any(|part| line.contains(part)), "{} --{long}: {line}", sub.get_name());
                    tried += 1;
                }
            }
        }
        assert!(tried > 30, "only {tried} options refuse that");
    }

    #[test]
    fn every_visible_command_and_flag_says_what_it_is_for() {
        for sub in command().get_subcommands().filter(|s| !s.is_hide_set()) {
            assert!(sub.get_about().is_some(), "{}", sub.get_name());
            for arg in sub.get_arguments().filter(|a| !a.is_hide_set()) {
                assert!(arg.get_help().is_some(), "{} {}", sub.get_name(), arg.get_id());
            }
        }
    }

    #[test]
    fn mistakes_are_told_in_one_line() {
        for (words, expected) in [
            (vec!["run", "--priority", "999", "true"], "--priority: '999' is no priority"),
            (vec!["run", "--weight", "0", "true"], "--weight: '0' is no weight: use a number from 1 to 10000"),
            (vec!["run"], "<COMMAND>... is missing"),
            (vec!["frobnicate"], "there is no command 'frobnicate': use run, ps, "),
            (vec!["hnit"], "there is no command 'hnit': use run, ps, "),
            (
                vec!["run", "-p", "hihg", "true"],
                "--priority: 'hihg' is no priority: use low (or batch), normal, high, realtime, system, or a number from -255 to 255 (-256 = never runs); did you mean high?",
            ),
            (vec!["policy", "put"], "there is no command 'put': use list, get, set"),
            (vec!["hint", "--weight", "1"], "one of PID, --pid <PID>, --tree <PID>"),
            (vec!["compare"], "--high <COMMAND> and --low <COMMAND> are missing; see --help"),
            (vec!["hint", "1"], "one of --priority <N|CLASS>, --level <1|2|3>"),
            (vec!["ps", "all"], "[PID]...: 'all' is no process id: use a number from 1"),
            (vec!["ps", "-5"], "unexpected argument '-5' found; see --help"),
            (vec!["run", "-5", "true"], "unexpected argument '-5' found; see --help"),
            (vec!["ps", "--jsn"], "unexpected argument '--jsn' found; a similar argument exists: '--json'"),
        ] {
            let e = Cli::try_parse_from([&["xsched"], words.as_slice()].concat()).unwrap_err();
            let line = one_line(&command(), &e, words.into_iter().map(OsString::from));
            assert!(line.starts_with(expected), "{line}");
            assert!(!line.contains('\n'), "{line}");
        }
        // Two groups of options are missing: their brackets are not told, nor both at once.
        let none = Cli::try_parse_from(["xsched", "hint"]).unwrap_err();
        let line = one_line(&command(), &none, [OsString::from("hint")]);
        assert!(
            line.starts_with("one of PID, --pid <PID>, ") && line.ends_with("<QUEUE> is needed; see --help"),
            "{line}"
        );
        assert!(line.chars().count() < 160, "{line}");
    }

    /// Commands of the pages that cannot be run in a test are parsed at least.
    #[test]
    fn every_command_in_the_pages_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("library.so");
        std::fs::write(&library, "").unwrap();
        let mut parsed = 0;
        for block in markdown::pages().iter().flat_map(markdown::Page::blocks) {
            if block.tags.first().is_none_or(|kind| kind != "sh") {
                continue;
            }
            for mut words in markdown::calls(&block) {
                // The file of this option must exist when the line is parsed.
                if let Some(at) = words.iter().position(|w| w == "--scheduler") {
                    words[at + 1] = library.display().to_string();
                }
                match Cli::try_parse_from(&words) {
                    Ok(_) => parsed += 1,
                    Err(e) => panic!("{}: {}: {}", block.at, words.join(" "), one_line(&command(), &e, [])),
                }
            }
        }
        assert!(parsed > 30, "only {parsed} commands were found");
    }

    #[test]
    fn the_reference_has_every_command_and_option_and_no_other() {
        let rows = markdown::page("docs/reference/cli.md").rows();
        let mut all = command();
        all.build();
        let mut sections: BTreeSet<&str> = rows.iter().filter_map(|(h, _)| h.strip_prefix("xsched ")).collect();
        for sub in all.get_subcommands().filter(|s| !s.is_hide_set()) {
            let name = sub.get_name();
            assert!(sections.remove(name), "`xsched {name}` has no section");
            let (_, named) = rows.iter().find(|(h, _)| h.strip_prefix("xsched ") == Some(name)).unwrap();
            let named: BTreeSet<String> = named.iter().cloned().collect();
            let shown = |a: &&clap::Arg| !a.is_hide_set() && a.get_id() != "help";
            let mut options: Vec<_> = sub.get_arguments().filter(shown).collect();
            if options.is_empty() {
                options = sub.get_subcommands().flat_map(clap::Command::get_arguments).filter(shown).collect();
            }
            let long = options.iter().filter_map(|a| Some(format!("--{}", a.get_long()?)));
            let short = options.iter().filter_map(|a| Some(format!("-{}", a.get_short()?)));
            assert_eq!(named, long.chain(short).collect(), "`xsched {name}`");
        }
        assert!(sections.is_empty(), "there is no command {sections:?}");
    }
}
