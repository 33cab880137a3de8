//! Commands of XSched 1.2.0, `xserver` and `xcli`: names of this program under which it takes their words and runs its own corresponding
//! subcommand. The list is in docs/guide/coming-from-xsched.md.

use std::ffi::OsString;
use std::path::Path;

use clap::{Args, Parser, Subcommand};
use xsched_proto::paths;

use crate::cli::{self, Command};
use crate::failure::{Error, Result, say};
use crate::values;

/// The server of XSched 1.2.0: `xsched daemon` by another name
#[derive(Parser, Debug)]
#[command(name = "xserver", version, max_term_width = 100)]
struct Server {
    /// The policy to start with, such as HPF [default: that of the configuration, else hpf]
    #[arg(value_name = "POLICY", value_parser = values::policy)]
    policy: Option<String>,

    /// Accepted, and nothing is opened: programs and commands find the daemon by its socket
    #[arg(value_name = "PORT", value_parser = port, allow_hyphen_values = true)]
    port: Option<u16>,
}

/// The command of XSched 1.2.0: `xsched` by another name
#[derive(Parser, Debug)]
#[command(name = "xcli", version, propagate_version = false, max_term_width = 100)]
#[command(disable_help_subcommand = true, subcommand_required = true, arg_required_else_help = true)]
struct Client {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// The programs, live (`xsched top`)
    Top,
    /// The XQueues (`xsched ps --queues`)
    List,
    /// Level, threshold and batch size of an XQueue (`xsched hint`)
    Config(Config),
    /// Show or change the policy (`xsched policy`)
    Policy(Policy),
    /// Priority, utilization and time slice of an XQueue or a program (`xsched hint`)
    Hint(Hint),
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true).args(["level", "threshold", "batch"]))]
struct Config {
    /// The XQueue, such as q3
    #[arg(short = 'x', value_name = "QUEUE", value_parser = queue)]
    queue: String,
    /// Preemption level: 1, 2 or 3
    #[arg(short = 'l', value_name = "LEVEL", allow_hyphen_values = true)]
    level: Option<String>,
    /// Commands in flight, 0 = automatic
    #[arg(short = 't', value_name = "THRESHOLD", allow_hyphen_values = true)]
    threshold: Option<String>,
    /// Commands after which room comes back, 0 = automatic
    #[arg(short = 'b', value_name = "BATCH", allow_hyphen_values = true)]
    batch: Option<String>,
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("action").required(true).args(["query", "set"]))]
struct Policy {
    /// Show the policy in force
    #[arg(short = 'q')]
    query: bool,
    /// Change it
    #[arg(short = 's', requires = "name")]
    set: bool,
    /// The policy's name, such as HPF
    #[arg(short = 'n', value_name = "NAME", conflicts_with = "query")]
    name: Option<String>,
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("target").required(true).args(["queue", "pid"]))]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true)
    .args(["priority", "utilization", "timeslice"]))]
struct Hint {
    /// The XQueue, such as q3
    #[arg(short = 'x', value_name = "QUEUE", value_parser = queue)]
    queue: Option<String>,
    /// The program
    #[arg(long, value_name = "PID")]
    pid: Option<String>,
    /// Priority from -255 to 255; -256: never runs
    #[arg(short = 'p', value_name = "PRIORITY", allow_hyphen_values = true)]
    priority: Option<String>,
    /// Its part of the device in percent, 0 to 100
    #[arg(short = 'u', value_name = "UTILIZATION", allow_hyphen_values = true)]
    utilization: Option<String>,
    /// Length of its turn, in µs
    #[arg(short = 't', value_name = "TIMESLICE", allow_hyphen_values = true)]
    timeslice: Option<String>,
}

/// Command that is asked for, if this program was called by a name of the original.
pub(crate) fn asked(words: Vec<OsString>) -> Option<Result<Command>> {
    let name = words.first().and_then(|word| Path::new(word).file_name())?;
    match name.to_str()? {
        "xserver" => Some(cli::typed(words).and_then(server)),
        "xcli" => Some(cli::typed(words).and_then(client)),
        _ => None,
    }
}

fn server(server: Server) -> Result<Command> {
    if let Some(port) = server.port {
        let (socket, _) = paths::socket_path(None);
        let at = socket.display();
        say(&format!("port {port} is not opened: programs and commands find the daemon by its socket, {at}"));
    }
    ours(["daemon"], [("--policy", server.policy)])
}

fn client(client: Client) -> Result<Command> {
    match client.action {
        Action::Top => ours(["top"], []),
        Action::List => ours(["ps", "--queues"], []),
        Action::Config(Config { queue, level, threshold, batch }) => ours(
            ["hint"],
            [("--queue", Some(queue)), ("--level", level), ("--threshold", threshold), ("--batch", batch)],
        ),
        Action::Policy(Policy { name: Some(name), .. }) => ours(["policy", "set", &name], []),
        Action::Policy(_) => ours(["policy", "get"], []),
        Action::Hint(Hint { queue, pid, priority, utilization, timeslice }) => ours(
            ["hint"],
            [
                ("--queue", queue),
                ("--pid", pid),
                ("--priority", priority),
                ("--utilization", utilization),
                ("--timeslice", timeslice),
            ],
        ),
    }
}

/// Parses our own command from these words, with the given options.
fn ours<const N: usize, const M: usize>(words: [&str; N], options: [(&str, Option<String>); M]) -> Result<Command> {
    let mut all: Vec<OsString> = std::iter::once("xsched").chain(words).map(OsString::from).collect();
    for (option, value) in options {
        all.extend(value.into_iter().flat_map(|value| [option.into(), value.into()]));
    }
    cli::command_of(all)
}

/// Name of an XQueue: in the form of `xcli list`, or its number alone.
fn queue(text: &str) -> std::result::Result<String, Error> {
    let name = if text.starts_with('q') { text.to_owned() } else { format!("q{text}") };
    match values::queue(&name) {
        Ok(_) => Ok(name),
        Err(_) => Err(Error::value(text, "queue", "a name from `xcli list`, such as q3")),
    }
}

fn port(text: &str) -> std::result::Result<u16, Error> {
    text.parse().ok().filter(|port| *port > 0).ok_or_else(|| Error::value(text, "port", "a number from 1 to 65535"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_declarations_are_sound() {
        Server::command().debug_assert();
        Client::command().debug_assert();
    }

    #[test]
    fn only_the_names_of_the_original_are_theirs() {
        let called = |words: &[&str]| asked(words.iter().map(OsString::from).collect());
        assert!(called(&["/usr/bin/xsched", "ps"]).is_none());
        assert!(called(&[]).is_none());
        assert!(matches!(called(&["/usr/bin/xcli", "top"]), Some(Ok(Command::Top(_)))));
        assert!(matches!(called(&["xserver"]), Some(Ok(Command::Daemon(_)))));
    }

    #[test]
    fn mistakes_are_told_in_one_line_with_what_is_accepted() {
        for (words, expected) in [
            (&["xserver", "FIFO"][..], "[POLICY]: 'FIFO' is no policy: use one of hpf"),
            (&["xserver", "HPF", "0"], "[PORT]: '0' is no port: use a number from 1 to 65535"),
            (&["xserver", "HPF", "-1"], "[PORT]: '-1' is no port"),
            (&["xcli", "bottom"], "there is no command 'bottom': use top, list, config, policy, hint"),
            (&["xcli", "config", "-l", "2"], "-x <QUEUE> is missing"),
            (&["xcli", "config", "-x", "z", "-l", "2"], "-x: 'z' is no queue: use a name from `xcli list`"),
            (&["xcli", "config", "-x", "3"], "one of -l <LEVEL>, -t <THRESHOLD>, -b <BATCH> is needed"),
            (&["xcli", "config", "-x", "3", "-b", "x"], "--batch: 'x' is no batch size"),
            (&["xcli", "policy"], "one of -q, -s is needed"),
            (&["xcli", "policy", "-s"], "-n <NAME> is missing"),
            (&["xcli", "policy", "-s", "-n", "FIFO"], "<NAME>: 'FIFO' is no policy"),
            (&["xcli", "hint", "-p", "3"], "one of -x <QUEUE>, --pid <PID> is needed"),
            (&["xcli", "hint", "-x", "3", "-p", "-257"], "--priority: '-257' is no priority"),
        ] {
            let line = asked(words.iter().map(OsString::from).collect()).unwrap().unwrap_err();
            assert!(line.line().starts_with(expected), "{words:?}: {line}");
            assert_eq!(line.exit_code(), 2);
        }
    }
}
