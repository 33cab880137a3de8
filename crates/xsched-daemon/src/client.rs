//! What the daemon knows of an attached process and of its groups.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use xsched_policy::{GroupId, Level, Lineage, PoolId, ProgramId};
use xsched_proto::class::{self, Class, Contention};
use xsched_proto::domains::DomainMode;
use xsched_proto::entitlement::{Claim, Entitlement};
use xsched_proto::hint::{Hint, Hints, Laxity};
use xsched_proto::program;
use xsched_proto::text;
use xsched_proto::wire::{Levels, Platform, ProgramOptions, Share, Sharing};

use crate::Error;
use crate::changes::Changes;
use crate::clock::now_ns;
use crate::config::{Ceilings, Config, Given};
use crate::identity::User;
use crate::memory::{ClientSegment, FileId, GroupWords};
use crate::peer::{self, Peer};
use crate::standing;
use crate::tuning::NAME_MAX_BYTES;

/// An attached process.
pub(crate) struct Client {
    pub(crate) peer: Arc<Peer>,
    pub(crate) program: ProgramId,
    pub(crate) segment: Arc<ClientSegment>,
    pub(crate) eventfd: OwnedFd,
    /// Writes to it do not wake the loop now.
    pub(crate) is_muted: bool,
    pub(crate) pidfd: Option<OwnedFd>,
    /// Its priority, the origin of that, and its bounds.
    pub(crate) entitlement: Entitlement,
    /// What becomes of its launches of vendors' libraries.
    pub(crate) domains: DomainMode,
    /// It asked for more than an operator's rule gives it.
    pub(crate) domains_limited: bool,
    /// What was said for the policy: by the program, by hints, by the operator's rules and for its class.
    pub(crate) hints: Hints,
    /// What of it the program or a hint said.
    pub(crate) asked: Hints,
    /// What commands of others have said of it.
    pub(crate) hinted: Changes,
    /// The kinds that it was told are not looked at.
    pub(crate) overlooked: Vec<Hint>,
    pub(crate) lineage: Arc<Lineage>,
    /// Its process and those that it was started by, as it attached.
    pub(crate) ancestors: Vec<u32>,
    /// Nice value as last seen.
    pub(crate) nice: i32,
    /// The hardware's time slice that its contexts have, as far as is known, in µs.
    pub(crate) told_timeslice_us: Option<u64>,
    /// Whether it is one of several best-effort programs on its device.
    pub(crate) has_contention: bool,
    /// When it was last told to set it again, ns.
    pub(crate) reasserted_ns: u64,
    /// Forced level.
    pub(crate) level: Option<u8>,
    /// Commands in flight while watched; 0 = automatic.
    pub(crate) threshold: u32,
    /// Commands after which room comes back; 0 = automatic.
    pub(crate) batch: u32,
    pub(crate) job: Option<String>,
    /// Its command line when it started, as it says.
    pub(crate) command: Arc<[String]>,
    /// Its title since, where it has another.
    pub(crate) title: Option<Arc<str>>,
    /// When it attached, ns.
    pub(crate) attached_ns: u64,
    pub(crate) groups: Vec<GroupId>,
    /// By slot.
    pub(crate) queues: BTreeMap<u16, Queue>,
    pub(crate) held: bool,
}

/// Where a process stands among others, as it attached.
pub(crate) struct Stands {
    pub(crate) ancestors: Vec<u32>,
    pub(crate) cgroups: Vec<Level>,
    pub(crate) nice: i32,
}

/// An XQueue.
pub(crate) struct Queue {
    pub(crate) id: u64,
    /// Slot of its group.
    pub(crate) group: u16,
    /// Most launches that were read of it.
    launches: Cell<u64>,
}

impl Queue {
    pub(crate) fn new(id: u64, group: u16) -> Queue {
        Queue { id, group, launches: Cell::new(0) }
    }

    /// Launches so far, by what its counters say now. A launch is counted before its thread looks at the gate, and not any more for
    /// a moment before it waits there: what was once told is told on.
    pub(crate) fn launches(&self, read: u64) -> u64 {
        self.launches.set(self.launches.get().max(read));
        self.launches.get()
    }
}

/// A suspension unit.
pub(crate) struct Group {
    /// Connection of its client, and the user of that.
    pub(crate) conn: u64,
    pub(crate) user: User,
    pub(crate) words: GroupWords,
    pub(crate) slot: u16,
    pub(crate) device: Arc<str>,
    pub(crate) platform: Platform,
    pub(crate) levels: Levels,
    pub(crate) sharing: Sharing,
    pub(crate) level: u8,
    pub(crate) steps: i32,
    pub(crate) fixed: Option<i32>,
    /// Of the system domain.
    pub(crate) system: bool,
    /// Level 3: it was told to interrupt what it runs.
    pub(crate) interrupted: bool,
    /// Its commands were found too long to run beside others.
    pub(crate) too_long: bool,
    /// As the arbiter was told last; see [`xsched_policy::Event::DrainsInSlices`].
    pub(crate) drains_in_slices: bool,
    /// What its queues had completed when its gate closed last; see [`GroupWords::completed`].
    pub(crate) completed: Vec<u32>,
}

impl Group {
    /// The MPS server that is not ours by which it runs beside others, whatever their class.
    pub(crate) fn spatial(&self) -> Option<PoolId> {
        match self.sharing {
            Sharing::Spatial(server) => Some(PoolId(server)),
            Sharing::Time | Sharing::Pool => None,
        }
    }

    /// Tells whether its context is in a pool.
    pub(crate) fn is_pooled(&self) -> bool {
        self.sharing == Sharing::Pool
    }

    /// As it is shown; none where there is but one way.
    pub(crate) fn share(&self) -> Option<Share> {
        match self.sharing {
            _ if self.platform != Platform::Cuda => None,
            Sharing::Time => Some(Share::Time),
            Sharing::Pool => Some(Share::Pool),
            Sharing::Spatial(_) => Some(Share::Spatial),
        }
    }
}

impl Client {
    /// What a process gets: its wishes, the operator's rules, and the limits of its user.
    pub(crate) fn new(
        peer: Peer,
        program: ProgramId,
        options: ProgramOptions,
        parts: (ClientSegment, OwnedFd, Option<OwnedFd>),
        config: &Config,
        ceilings: Ceilings,
        stands: Stands,
    ) -> Result<Client, Error> {
        let given = config.given(&peer.exe, &peer.names, &options.command, peer.uid, &peer.place);
        let domains = DomainMode::granted(options.domains, given.domains);
        let (segment, eventfd, pidfd) = parts;
        let user = Level { id: peer.uid.into(), weight: config.user_weight(peer.uid) };
        let namespace = peer.place.trusted_namespace();
        let namespace =
            namespace.map(|name| Level { id: standing::namespace(name), weight: config.namespace_weight(name) });
        let lineage = Lineage { user, cgroup: stands.cgroups, namespace };
        let mut client = Client {
            program,
            segment: Arc::new(segment),
            eventfd,
            is_muted: false,
            pidfd,
            entitlement: Entitlement::new(claim(options.priority, &given, ceilings)),
            domains,
            domains_limited: options.domains.is_some_and(|asked| asked > domains),
            hints: Hints::default(),
            asked: options.hints,
            hinted: Changes::default(),
            overlooked: Vec::new(),
            lineage: Arc::new(lineage),
            ancestors: stands.ancestors,
            nice: stands.nice,
            told_timeslice_us: None,
            has_contention: false,
            reasserted_ns: 0,
            level: options.level.or(given.level),
            threshold: options.threshold.or(given.threshold).unwrap_or(0),
            batch: options.batch.or(given.batch).unwrap_or(0),
            // Programs of different users are never one job.
            job: options.job.map(|job| format!("{}:{job}", peer.user)),
            command: options.command.into(),
            title: options.title.map(Into::into),
            attached_ns: now_ns(),
            peer: Arc::new(peer),
            groups: Vec::new(),
            queues: BTreeMap::new(),
            held: false,
        };
        client.entitle(&given, ceilings, config);
        // What it chose itself when it made its context.
        let usual = class::hardware_timeslice_us(Class::of(client.priority()), Contention::None);
        client.told_timeslice_us = options.hints.timeslice_us.or(Some(usual));
        Ok(client)
    }

    /// Notes kinds of hints that somebody was told are not looked at, each once.
    pub(crate) fn note_overlooked(&mut self, hints: impl IntoIterator<Item = Hint>) {
        for hint in hints {
            if !self.overlooked.contains(&hint) {
                self.overlooked.push(hint);
            }
        }
    }

    /// Gives it what the operator's rules and its user's limits allow of what was asked for. What root has given it stays.
    pub(crate) fn entitle(&mut self, given: &Given, ceilings: Ceilings, config: &Config) {
        self.entitlement.reconsider(claim(None, given, ceilings));
        if !self.hinted.by_root {
            self.asked = ceilings.cut(self.asked);
        }
        self.hints = self.asked.or(given.hints).or(config.class(self.priority()));
    }

    /// Priority of its groups unless they have one of their own.
    pub(crate) fn priority(&self) -> i32 {
        self.entitlement.priority
    }

    /// The priority of a group of this client.
    pub(crate) fn group_priority(&self, group: &Group) -> i32 {
        self.entitlement.group(group.steps, group.fixed, group.system)
    }

    /// What is said for the policy of a group of this client: no priority of it is above its ceiling.
    pub(crate) fn group_hints(&self, group: &Group) -> Hints {
        Hints { laxity: self.group_laxity(group, self.hints.laxity), ..self.hints }
    }

    /// The laxity of a group of this client, with the priorities that it may have.
    pub(crate) fn group_laxity(&self, group: &Group, asked: Option<Laxity>) -> Option<Laxity> {
        let own = self.group_priority(group);
        asked.map(|laxity| Laxity {
            us: laxity.us,
            lax: laxity.lax.map(|p| self.entitlement.bounded(p)),
            critical: Some(self.entitlement.bounded(laxity.critical.unwrap_or(Class::High.nominal().max(own)))),
        })
    }

    /// The level a group gets: the forced one or the next lower that its device can do; else the highest, each of
    /// which works on top of the lower ones (docs/results/simulated.md has them side by side). Where some launches are exempt it is
    /// the first: what holds commands on the device holds a stream with the exempt ones in it.
    pub(crate) fn group_level(&self, platform: Platform, levels: Levels) -> u8 {
        if self.domains == DomainMode::Exempt {
            return 1;
        }
        levels.highest_to(self.level.unwrap_or(platform.automatic_level()))
    }
}

/// The claim of a program: its wish, the operator's rules for it, and the limits of its user.
pub(crate) fn claim(asked: Option<i32>, given: &Given, ceilings: Ceilings) -> Claim {
    Claim {
        asked,
        rule: given.priority,
        limit: ceilings.priority,
        ceiling: given.ceiling,
        system_ceiling: given.system_ceiling,
    }
}

/// What a program asks for, with no more of its texts than is kept of them: a thousand may wait until it is known whose they are.
///
/// # Errors
/// It asks for what there is not.
pub(crate) fn bounded(options: ProgramOptions) -> Result<ProgramOptions, Error> {
    check_hint(options.priority, &options.hints, options.level)?;
    if let Some(job) = &options.job {
        check_name(job, "job")?;
    }
    let cut = |text: String| program::cut(vec![text]).pop();
    let (command, title) = (program::cut(options.command), options.title.and_then(cut));
    Ok(ProgramOptions { command, title, exe: peer::cut(options.exe), ..options })
}

/// Checks the values that a program may ask for and a hint may change.
pub(crate) fn check_hint(priority: Option<i32>, hints: &Hints, level: Option<u8>) -> Result<(), Error> {
    if let Some(p) = priority.filter(|p| !class::is_priority(*p)) {
        return Err(Error::input(format!("'{p}' is no priority: use {}", class::PRIORITY_HELP)));
    }
    hints.check()?;
    match level {
        Some(level) if !(1..=3).contains(&level) => {
            Err(Error::input(format!("level {level} is out of range: use 1 to 3")))
        }
        _ => Ok(()),
    }
}

pub(crate) fn check_name(name: &str, what: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > NAME_MAX_BYTES {
        return Err(Error::input(format!("a {what} has 1 to {NAME_MAX_BYTES} bytes")));
    }
    text::check_visible(name, what)
}

/// The segment of a process that is not attached any more, and has not ended.
pub(crate) struct Abandoned {
    pub(crate) user: User,
    pub(crate) id: FileId,
    pub(crate) file: OwnedFd,
    pub(crate) pidfd: OwnedFd,
}

/// A question passed on to a client.
pub(crate) struct Question {
    pub(crate) token: u64,
    /// Connection of the command that asked.
    pub(crate) asker: u64,
    /// Connection of the client that was asked.
    pub(crate) asked: u64,
    pub(crate) pid: u32,
    pub(crate) until_ns: u64,
}

/// A program that was announced.
pub(crate) struct Expected {
    pub(crate) pid: u32,
    pub(crate) user: User,
    /// As clients have it; none for one that was not started by `xsched run`.
    pub(crate) job: Option<String>,
    pub(crate) pidfd: OwnedFd,
    /// The process has ended; others of its job are attached.
    pub(crate) ended: bool,
    /// What is learned of it is kept under this name, where `xsched run` started it.
    pub(crate) program: Option<String>,
    /// File name of what it was announced to run.
    pub(crate) name: Option<String>,
    /// The pool in which it has a place.
    pub(crate) pool: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_that_were_told_once_are_told_on() {
        let queue = Queue::new(1, 0);
        assert_eq!([149, 150, 149, 151].map(|read| queue.launches(read)), [149, 150, 150, 151]);
    }
}
