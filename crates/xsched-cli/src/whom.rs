//! Programs that a command is for, and the report of the results for them.

use std::path::PathBuf;

use xsched_proto::Error;
use xsched_proto::bounded::TARGETS_MAX;
use xsched_proto::text::escaped;
use xsched_proto::wire::{Changed, ChangedValue, DaemonMsg, Request, Target};

use crate::candidates;
use crate::client;
use crate::failure::{Result, print, say};
use crate::users;
use crate::values;

/// Targets of a command, named by any of these options together.
#[derive(clap::Args, Debug)]
pub(crate) struct WhomArgs {
    /// Process ids of programs; of a launcher that is not attached itself, all that it started
    #[arg(value_name = "PID", value_parser = values::pid, add = candidates::pids())]
    pids: Vec<u32>,

    /// Process ids, as PID
    #[arg(long, value_name = "PID", value_parser = values::pid, add = candidates::pids())]
    pid: Vec<u32>,

    /// A process and all that it started
    #[arg(long, value_name = "PID", value_parser = values::pid)]
    tree: Vec<u32>,

    /// The programs of a job (`xsched run --job`)
    #[arg(long, value_name = "NAME", value_parser = values::job, add = candidates::jobs())]
    job: Vec<String>,

    /// The programs of a user, by name or number
    #[arg(long, value_name = "USER", value_parser = users::user, add = candidates::users())]
    user: Vec<u32>,

    /// All your programs; as root, all programs
    #[arg(long)]
    all: bool,
}

impl WhomArgs {
    /// Ids of the arguments, for a group of which one is needed.
    pub(crate) const IDS: [&'static str; 6] = ["pids", "pid", "tree", "job", "user", "all"];

    /// All targets that were named, and these queues.
    ///
    /// # Errors
    /// Fails if more is named than one command may name.
    pub(crate) fn targets(self, queues: Vec<u64>) -> std::result::Result<Vec<Target>, Error> {
        let pids = self.pids.into_iter().chain(self.pid).map(Target::Pid);
        let others = self.tree.into_iter().map(Target::Tree).chain(self.job.into_iter().map(Target::Job));
        let users = self.user.into_iter().map(Target::User).chain(self.all.then_some(Target::All));
        let queues = queues.into_iter().map(Target::Queue);
        let mut targets: Vec<Target> = Vec::new();
        for target in pids.chain(others).chain(users).chain(queues) {
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
        if targets.len() > TARGETS_MAX {
            let line = format!(
                "{} programs and queues are named, {TARGETS_MAX} at most in one command: name a --job, a --user or --all",
                targets.len()
            );
            return Err(Error::input(line));
        }
        Ok(targets)
    }
}

/// Programs that a command changes, and the daemon that it asks to.
#[derive(clap::Args, Debug)]
#[command(group = clap::ArgGroup::new("target").required(true).multiple(true).args(WhomArgs::IDS))]
pub(crate) struct ProgramsArgs {
    #[command(flatten)]
    whom: WhomArgs,

    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,
}

impl ProgramsArgs {
    /// Asks the daemon for a change of these programs, and prints the result.
    pub(crate) fn change(self, request: impl FnOnce(Vec<Target>) -> Request) -> Result {
        let request = request(self.whom.targets(Vec::new())?);
        tell(client::ask(self.socket.as_deref(), request)?)
    }
}

/// Prints the result for each program, one line each, and further notes of the daemon.
pub(crate) fn tell(answer: Vec<DaemonMsg>) -> Result {
    let mut text = String::new();
    for part in answer {
        match part {
            DaemonMsg::Changed(changed) => text.push_str(&line(&changed)),
            DaemonMsg::Note { text } => say(&text),
            _ => {}
        }
    }
    print(&text)
}

/// Line about one program, such as `4711 train.py: low → high`.
fn line(changed: &Changed) -> String {
    let values: Vec<String> = changed.values.iter().map(value).collect();
    format!("{} {}: {}\n", changed.pid, escaped(&changed.name), values.join(", "))
}

fn value(value: &ChangedValue) -> String {
    let ChangedValue { what, was, now } = value;
    match (what.as_str(), was == now, now.as_str()) {
        ("state", true, "suspended") => "is suspended already".into(),
        ("state", true, _) => "was not suspended".into(),
        ("state", false, "suspended") => "suspended".into(),
        ("state", false, _) => "resumed".into(),
        ("memory", true, "on the device") => "was not frozen".into(),
        ("memory", true, _) => "is frozen already".into(),
        ("memory", false, "on the device") => "thawed".into(),
        ("memory", false, now) => now.into(),
        ("priority", true, now) => format!("{now} as before"),
        ("priority", false, now) => format!("{was} → {now}"),
        (what, true, now) => format!("{what} {now} as before"),
        (what, false, now) => format!("{what} {was} → {now}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_names_each_program_once_and_so_many_at_most() {
        let args = |pids: Vec<u32>| WhomArgs {
            pids,
            pid: vec![7],
            tree: Vec::new(),
            job: Vec::new(),
            user: Vec::new(),
            all: false,
        };
        assert_eq!(args(vec![7, 8, 7]).targets(vec![3]), Ok(vec![Target::Pid(7), Target::Pid(8), Target::Queue(3)]));
        let many = args((1..=64).collect()).targets(vec![3]).expect_err("too many");
        assert_eq!(many.exit_code(), 2);
        assert!(many.to_string().contains("64 at most"), "{many}");
    }

    #[test]
    fn what_has_changed_is_told_with_what_it_was() {
        let of =
            |what: &str, was: &str, now: &str| ChangedValue { what: what.into(), was: was.into(), now: now.into() };
        let told = |values: Vec<ChangedValue>| line(&Changed { pid: 4711, name: "a\x1b[31m.py".into(), values });
        let name = "4711 a\\u{1b}[31m.py";
        assert_eq!(told(vec![of("priority", "low", "high")]), format!("{name}: low → high\n"));
        let several = vec![of("priority", "low", "low"), of("weight", "100", "300"), of("level", "2", "2")];
        assert_eq!(told(several), format!("{name}: low as before, weight 100 → 300, level 2 as before\n"));
        for (was, now, says) in [
            ("scheduled", "suspended", "suspended"),
            ("suspended", "scheduled", "resumed"),
            ("suspended", "suspended", "is suspended already"),
            ("scheduled", "scheduled", "was not suspended"),
        ] {
            assert_eq!(told(vec![of("state", was, now)]), format!("{name}: {says}\n"));
        }
        let (device, host) = ("on the device", "frozen, 8 GiB on the host");
        for (was, now, says) in [
            (device, host, host),
            (host, device, "thawed"),
            (device, device, "was not frozen"),
            (host, host, "is frozen already"),
        ] {
            assert_eq!(told(vec![of("memory", was, now)]), format!("{name}: {says}\n"));
        }
    }
}
