//! The programs that a command means, and what it is told of them.

use std::collections::BTreeSet;

use xsched_proto::class::{self, Class};
use xsched_proto::hint::Hint;
use xsched_proto::wire::{Changed, ChangedValue, DaemonMsg, Target};

use crate::Error;
use crate::changes::{Changes, Match, Search};
use crate::client::Client;
use crate::identity::User;
use crate::naming::{called, own_job};
use crate::process::start_ticks;
use crate::server::{Conn, Server};

impl Search {
    /// Compares a program with all targets.
    pub(crate) fn compare(&mut self, conn: u64, client: &Client) {
        let (mut itself, mut below) = (0, 0);
        let job = own_job(client);
        for (at, (target, start)) in self.targets.iter().zip(&self.starts).enumerate() {
            let is_below = |pid: u32| is_below(client, pid, *start);
            let bit = 1 << at;
            match target {
                Target::Pid(pid) if client.peer.pid == *pid => itself |= bit,
                // Everything was started by the first process: that is what `All` is for.
                Target::Pid(pid) if *pid != 1 && is_below(*pid) => below |= bit,
                Target::Tree(pid) if is_below(*pid) => itself |= bit,
                Target::Job(name) if job == Some(name.as_str()) => itself |= bit,
                Target::User(uid) if client.peer.uid == *uid => itself |= bit,
                Target::All => itself |= bit,
                _ => (),
            }
        }
        if itself | below != 0 {
            self.matches.push(Match { pid: client.peer.pid, conn, itself, below });
        }
    }
}

impl Server {
    /// Looks at the process that the next target names. False: there are no more.
    pub(crate) fn read_start(&self, search: &mut Search) -> bool {
        let at = search.starts.len();
        let Some(target) = search.targets.get(at) else { return false };
        let start = match target {
            Target::Pid(pid) | Target::Tree(pid) => start_ticks(*pid),
            _ => None,
        };
        if matches!(target, Target::Pid(pid) if self.clients().any(|client| client.peer.pid == *pid)) {
            search.attached |= 1 << at;
        }
        search.starts.push(start);
        true
    }

    /// The refusal of a target that means no program; the same words whether it is another user's or does not exist.
    pub(crate) fn nothing(&mut self, command: u64, user: User, target: &Target) -> Error {
        if let Target::Pid(pid) = target {
            self.record_refusal(command, *pid);
        }
        let whose = if user.is_root() { "" } else { " of yours" };
        Error::environment(match target {
            Target::Pid(pid) => format!("no process {pid}{whose} is attached, nor one that it started: see xsched ps"),
            Target::Tree(pid) => format!("neither process {pid} nor one that it started is attached: see xsched ps"),
            Target::Job(job) => format!("no program{whose} has the job '{job}': see xsched ps"),
            Target::User(uid) => format!("no program of user {uid} that you may change is attached: see xsched ps"),
            Target::All | Target::Queue(_) => format!("no program{whose} is attached: see xsched ps"),
        })
    }

    /// Writes down that a command has named another user's process.
    pub(crate) fn record_refusal(&mut self, command: u64, pid: u32) {
        let owner = self.clients().find(|c| c.peer.pid == pid).map(|c| c.peer.user);
        if let Some(owner) = owner {
            self.record_command(command, &format!("refused: process {pid} is of user {owner}"));
        }
    }

    /// Tells a command what has become of a program.
    pub(crate) fn tell_changed(&mut self, command: u64, conn: u64, values: Vec<ChangedValue>) {
        let Some(client) = self.conns.get(&conn).and_then(Conn::client) else { return };
        let changed = Changed { pid: client.peer.pid, name: called(client).to_owned(), values };
        self.send(command, &DaemonMsg::Changed(changed), &[]);
    }

    /// The values of a program that a hint speaks of, by name.
    pub(crate) fn values_of(&self, conn: u64, changes: &Changes) -> Vec<(&'static str, String)> {
        let Some(client) = self.conns.get(&conn).and_then(Conn::client) else { return Vec::new() };
        let or_auto = |n: u32| if n == 0 { "automatic".to_owned() } else { n.to_string() };
        let levels: BTreeSet<u8> = client.groups.iter().filter_map(|id| Some(self.groups.get(id)?.level)).collect();
        let levels = if levels.is_empty() { client.level.into_iter().collect() } else { levels };
        let levels: Vec<String> = levels.iter().map(u8::to_string).collect();
        let level = if levels.is_empty() { "automatic".into() } else { levels.join(" or ") };
        let own = [
            changes.priority.map(|_| ("priority", priority_text(client.priority()))),
            changes.level.map(|_| ("level", level)),
            changes.threshold.map(|_| ("threshold", or_auto(client.threshold))),
            changes.batch.map(|_| ("batch", or_auto(client.batch))),
        ];
        let hints = changes.hints.given().map(|hint| {
            let text = client.hints.text(hint);
            let usual = || match hint {
                Hint::Weight => client.hints.weight().to_string(),
                Hint::Timeslice => client.hints.turn_us().to_string(),
                _ => "none".to_owned(),
            };
            (hint.name(), text.unwrap_or_else(usual))
        });
        own.into_iter().flatten().chain(hints).collect()
    }
}

/// The values before and after, side by side.
pub(crate) fn side_by_side(
    before: Vec<(&'static str, String)>,
    after: Vec<(&'static str, String)>,
) -> Vec<ChangedValue> {
    let pair = |((what, was), (_, now)): ((&str, String), (_, String))| ChangedValue { what: what.into(), was, now };
    before.into_iter().zip(after).map(pair).collect()
}

/// A priority as it is told: by its class where it is the one that the class's name stands for.
pub(crate) fn priority_text(priority: i32) -> String {
    let class = Class::of(priority);
    match priority {
        class::PRIORITY_NEVER => "never".into(),
        p if p == class.nominal() => class.name().into(),
        p => format!("{p} ({class})"),
    }
}

/// Tells whether a program is a process that started at this time, or was started by it. A process that has got the number of one that has
/// ended since is not that one.
fn is_below(client: &Client, pid: u32, start: Option<u64>) -> bool {
    let is_older = || start.zip(client.peer.start).is_none_or(|(start, since)| start <= since);
    client.ancestors.contains(&pid) && is_older()
}

/// Targets, each once.
pub(crate) fn distinct(targets: Vec<Target>) -> Vec<Target> {
    let mut once: Vec<Target> = Vec::with_capacity(targets.len());
    for target in targets {
        if !once.contains(&target) {
            once.push(target);
        }
    }
    once
}

/// Process ids in a line of the log: of so many, the first.
pub(crate) fn processes(n: usize, pids: impl Iterator<Item = u32>) -> String {
    let few: Vec<String> = pids.take(8).map(|pid| pid.to_string()).collect();
    match n {
        1 => format!("process {}", few.join(", ")),
        _ if n > few.len() => format!("processes {} and {} more", few.join(", "), n - few.len()),
        _ => format!("processes {}", few.join(", ")),
    }
}
