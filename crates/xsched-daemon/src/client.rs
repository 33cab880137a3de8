//! What the daemon knows of an attached process and of its groups.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use xsched_policy::{GroupId, ProgramId};
use xsched_proto::class::{self, Class, Contention};
use xsched_proto::wire::{ClassFrom, Levels, Platform, ProgramOptions};

use crate::Error;
use crate::config::Config;
use crate::memory::{ClientSegment, GroupWords};
use crate::peer::Peer;
use crate::tuning::NAME_MAX_BYTES;

/// An attached process.
pub(crate) struct Client {
    pub(crate) peer: Peer,
    pub(crate) program: ProgramId,
    pub(crate) segment: Rc<ClientSegment>,
    pub(crate) eventfd: OwnedFd,
    pub(crate) pidfd: OwnedFd,
    /// Priority of its queues unless they have one of their own.
    pub(crate) priority: i32,
    /// Where that came from, and whether it was cut.
    pub(crate) class_from: ClassFrom,
    pub(crate) limited: bool,
    /// The limit of its user or an operator's ceiling, whichever is lower.
    pub(crate) allowed: i32,
    /// The same, or what root has given it beyond.
    ceiling: i32,
    /// An operator lets its queues of the system domain rise to this priority.
    system_ceiling: Option<i32>,
    pub(crate) weight: u32,
    pub(crate) timeslice_us: u64,
    /// The same, if the program asked for one.
    pub(crate) asked_timeslice_us: Option<u64>,
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
    pub(crate) job: Option<String>,
    pub(crate) groups: Vec<GroupId>,
    /// By slot.
    pub(crate) queues: BTreeMap<u16, Queue>,
    pub(crate) held: bool,
}

/// An XQueue.
pub(crate) struct Queue {
    pub(crate) id: u64,
    /// Slot of its group.
    pub(crate) group: u16,
}

/// A suspension unit.
pub(crate) struct Group {
    /// Connection of its client.
    pub(crate) conn: u64,
    pub(crate) words: GroupWords,
    pub(crate) slot: u16,
    pub(crate) device: String,
    pub(crate) platform: Platform,
    pub(crate) levels: Levels,
    pub(crate) side_by_side: bool,
    pub(crate) level: u8,
    pub(crate) steps: i32,
    pub(crate) fixed: Option<i32>,
    /// Of the system domain.
    pub(crate) system: bool,
    /// Level 3: it was told to interrupt what it runs.
    pub(crate) interrupted: bool,
    /// Its commands were found too long to run beside others.
    pub(crate) too_long: bool,
}

impl Client {
    /// What a process gets: its wishes, the operator's rules, and the limits of its user.
    pub(crate) fn new(
        peer: Peer,
        program: ProgramId,
        options: ProgramOptions,
        parts: (ClientSegment, OwnedFd, OwnedFd),
        config: &Config,
        limit: i32,
    ) -> Result<Client, Error> {
        check(&options)?;
        let given = config.given(&peer.exe, peer.uid, &peer.cgroup);
        let wished = options.priority.or(given.priority).unwrap_or(Class::Normal.nominal());
        let allowed = limit.min(given.ceiling.unwrap_or(class::PRIORITY_MAX));
        let class_from = match (options.priority, given.priority) {
            (Some(_), _) => ClassFrom::Option,
            (None, Some(_)) => ClassFrom::Rule,
            (None, None) => ClassFrom::Default,
        };
        let priority = clamp(wished, allowed);
        let class = config.class(priority);
        let (segment, eventfd, pidfd) = parts;
        Ok(Client {
            program,
            segment: Rc::new(segment),
            eventfd,
            pidfd,
            priority,
            class_from,
            limited: priority < wished,
            allowed,
            ceiling: allowed,
            system_ceiling: given.system_ceiling,
            weight: options.weight.or(given.weight).or(class.weight).unwrap_or(class::WEIGHT_DEFAULT),
            timeslice_us: options.timeslice_us.or(class.quantum_us).unwrap_or(class::TIMESLICE_DEFAULT_US),
            asked_timeslice_us: options.timeslice_us,
            // What it chose itself when it made its context.
            told_timeslice_us: options
                .timeslice_us
                .or(Some(class::hardware_timeslice_us(Class::of(priority), Contention::None))),
            has_contention: false,
            reasserted_ns: 0,
            level: options.level,
            threshold: options.threshold.unwrap_or(0),
            // Programs of different users are never one job.
            job: options.job.map(|job| format!("{}:{job}", peer.uid)),
            peer,
            groups: Vec::new(),
            queues: BTreeMap::new(),
            held: false,
        })
    }

    /// Takes a priority that was hinted at for all of it. What root gives may be more than the program is allowed.
    pub(crate) fn set_priority(&mut self, priority: i32, by_root: bool) {
        if by_root {
            self.ceiling = self.allowed.max(priority);
        }
        self.priority = clamp(priority, self.ceiling);
    }

    /// Root gives one of its queues this priority; the program will ask for it.
    pub(crate) fn allow(&mut self, priority: i32) {
        self.ceiling = self.ceiling.max(priority);
    }

    /// The priority of a group of this client.
    pub(crate) fn group_priority(&self, group: &Group) -> i32 {
        let own = group.fixed.unwrap_or_else(|| class::queue_priority(self.priority, group.steps));
        let lifted = self.system_ceiling.filter(|_| group.system && group.fixed.is_none());
        clamp(own, self.ceiling).max(lifted.unwrap_or(class::PRIORITY_MIN))
    }

    /// What a priority that one of its groups lends another counts for: no more than a group of it may have.
    pub(crate) fn inherited_priority(&self, lent: i32) -> i32 {
        clamp(lent, self.ceiling.max(self.system_ceiling.unwrap_or(self.ceiling)))
    }

    /// The level a group gets: the forced one or the next lower that its device can do; else the highest, each of
    /// which works on top of the lower ones (docs/results/simulated.md has them side by side).
    pub(crate) fn group_level(&self, platform: Platform, levels: Levels) -> u8 {
        levels.highest_to(self.level.unwrap_or(platform.automatic_level()))
    }
}

/// The one place where a priority that was asked for becomes one that is given.
fn clamp(priority: i32, ceiling: i32) -> i32 {
    priority.clamp(class::PRIORITY_MIN, ceiling)
}

fn check(options: &ProgramOptions) -> Result<(), Error> {
    check_hint(options.priority, options.weight, options.timeslice_us, options.level)?;
    match &options.job {
        Some(job) => check_name(job, "job"),
        None => Ok(()),
    }
}

/// Checks the values that a program may ask for and a hint may change.
pub(crate) fn check_hint(
    priority: Option<i32>,
    weight: Option<u32>,
    timeslice_us: Option<u64>,
    level: Option<u8>,
) -> Result<(), Error> {
    if let Some(p) = priority
        && !(class::PRIORITY_MIN..=class::PRIORITY_MAX).contains(&p)
    {
        return Err(Error::input(format!("'{p}' is no priority: use {}", class::PRIORITY_HELP)));
    }
    let range = |what: &str, n: Option<u64>, min: u64, max: u64| match n {
        Some(n) if !(min..=max).contains(&n) => {
            Err(Error::input(format!("{what} {n} is out of range: use {min} to {max}")))
        }
        _ => Ok(()),
    };
    range("weight", weight.map(u64::from), class::WEIGHT_MIN.into(), class::WEIGHT_MAX.into())?;
    range("timeslice", timeslice_us, class::TIMESLICE_MIN_US, class::TIMESLICE_MAX_US)?;
    range("level", level.map(u64::from), 1, 3)
}

pub(crate) fn check_name(name: &str, what: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > NAME_MAX_BYTES || name.chars().any(char::is_control) {
        return Err(Error::input(format!("a {what} has 1 to {NAME_MAX_BYTES} bytes and no control characters")));
    }
    Ok(())
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
    pub(crate) uid: u32,
    /// As clients have it.
    pub(crate) job: String,
    pub(crate) pidfd: OwnedFd,
    /// The process has ended; others of its job are attached.
    pub(crate) ended: bool,
    /// What is learned of it is kept under this name.
    pub(crate) program: String,
    /// Pipe directory of the MPS daemon that it uses.
    pub(crate) mps: Option<String>,
}
