//! Whom a command means, and what has become of it.

use std::collections::BTreeSet;

use xsched_proto::class::{self, Class};
use xsched_proto::hint::Hint;
use xsched_proto::wire::{Changed, ChangedValue, DaemonMsg, Target};

use crate::Error;
use crate::changes::Changes;
use crate::client::Client;
use crate::identity::User;
use crate::naming::{called, may, own_job};
use crate::process::start_ticks;
use crate::server::{Conn, Server};

impl Server {
    /// Connections of the programs that a command means, by process id. Its user may control each of them.
    ///
    /// # Errors
    /// When one of the targets means no such program; the same words whether it is another user's or does not exist.
    pub(crate) fn programs(&mut self, command: u64, user: User, targets: &[Target]) -> Result<Vec<u64>, Error> {
        let mut found = BTreeSet::new();
        for target in targets {
            let is_meant: Box<dyn Fn(&Client) -> bool + '_> = match target {
                Target::Pid(pid) => {
                    let itself = self.clients().any(|c| c.peer.pid == *pid);
                    // Everything was started by the first process: that is what `All` is for.
                    if itself || *pid == 1 { Box::new(|c| c.peer.pid == *pid) } else { below(*pid) }
                }
                Target::Tree(pid) => below(*pid),
                Target::Job(job) => Box::new(move |c| own_job(c) == Some(job.as_str())),
                Target::User(uid) => Box::new(|c| c.peer.uid == *uid),
                Target::All => Box::new(|_| true),
                Target::Queue(_) => return Err(Error::input("a queue is no program: use --pid")),
            };
            let clients = self.conns.iter().filter_map(|(id, c)| Some((*id, c.client()?)));
            let meant = clients.filter(|(_, c)| may(user, c) && is_meant(c)).map(|(id, c)| (c.peer.pid, id));
            let meant: Vec<(u32, u64)> = meant.collect();
            if meant.is_empty() {
                return Err(self.nothing(command, user, target));
            }
            found.extend(meant);
        }
        Ok(found.into_iter().map(|(_, conn)| conn).collect())
    }

    fn nothing(&mut self, command: u64, user: User, target: &Target) -> Error {
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
            changes.priority.map(|_| ("priority", priority_text(client.priority))),
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

/// A process and what it started. A process that has got the number of one that has ended since is not that one.
fn below(pid: u32) -> Box<dyn Fn(&Client) -> bool> {
    let start = start_ticks(pid);
    Box::new(move |client: &Client| {
        let is_older = start.zip(client.peer.start).is_none_or(|(start, since)| start <= since);
        client.ancestors.contains(&pid) && is_older
    })
}

/// Several process ids in a line of the log.
pub(crate) fn processes(pids: &[u32]) -> String {
    let few: Vec<String> = pids.iter().take(8).map(u32::to_string).collect();
    match pids {
        [pid] => format!("process {pid}"),
        _ if pids.len() > few.len() => format!("processes {} and {} more", few.join(", "), pids.len() - few.len()),
        _ => format!("processes {}", few.join(", ")),
    }
}
