//! Commands that change programs, as far as they are carried out.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use xsched_policy::GroupId;
use xsched_proto::wire::DaemonMsg;

use super::targets::Search;
use crate::Error;
use crate::changes::Changes;
use crate::group::Group;
use crate::io::Sender;
use crate::tuning::LACKING_LINES;

/// A command that is being carried out.
#[derive(Debug)]
pub(crate) struct Changing {
    pub(crate) from: Sender,
    pub(crate) change: Change,
    pub(crate) stage: Stage,
}

/// The next work for a command.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Starts of processes that targets name are read, one in each piece.
    Starts(Search),
    /// Attached programs are compared with the targets.
    Search(Search),
    /// The programs that were found are checked: does each of them allow the change?
    Check { found: Vec<u64>, next: usize },
    /// Programs are changed.
    Programs(VecDeque<u64>),
    /// Queues that were named are changed, one in each piece.
    Queues(VecDeque<u64>),
    /// Time slices of devices with changed groups are assigned anew, a device in each piece.
    Timeslices(VecDeque<Arc<str>>),
    /// Programs carry an order out, and answer.
    Answers,
}

/// Answers of programs that a command waits for.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Programs that have not answered.
    pub(crate) open: BTreeSet<u64>,
    /// Lines on those that have not carried the order out.
    pub(crate) failures: Vec<String>,
}

#[derive(Debug)]
pub(crate) enum Change {
    Hold(bool),
    /// Programs are frozen (true) or thawed, and answer.
    Freeze(bool, Answers),
    Hint(Box<Hinting>),
}

/// A hint for programs, and for queues after them.
#[derive(Debug)]
pub(crate) struct Hinting {
    pub(crate) changes: Changes,
    pub(crate) queues: VecDeque<u64>,
    /// Of the programs that were checked: which groups have the level that is asked for.
    pub(crate) lacking: Lacking,
    /// Devices of changed groups.
    pub(crate) devices: BTreeSet<Arc<str>>,
    /// True if a changed group is in a pool.
    pub(crate) pooled: bool,
    /// A line on the part that a limit cuts.
    pub(crate) notice: Option<String>,
}

/// Groups that lack a preemption level that is asked for.
#[derive(Debug, Default)]
pub(crate) struct Lacking {
    pub(crate) first: Option<GroupId>,
    pub(crate) some_have: bool,
    /// The level that takes its place, a line for each device and interface.
    pub(crate) lines: BTreeSet<String>,
}

impl Stage {
    /// Returns true once the command waits for programs.
    pub(crate) fn awaits(&self) -> bool {
        matches!(self, Stage::Answers)
    }
}

impl Change {
    /// Returns true if no program has to answer any more.
    pub(crate) fn is_answered(&self) -> bool {
        !matches!(self, Change::Freeze(_, answers) if !answers.open.is_empty())
    }
}

impl Answers {
    /// Last message for the command; none = some programs have not answered.
    pub(crate) fn last(&self) -> Option<DaemonMsg> {
        self.open.is_empty().then(|| match self.failures.is_empty() {
            true => DaemonMsg::End,
            false => DaemonMsg::Refused(Error::environment(self.failures.join("; "))),
        })
    }
}

impl Lacking {
    /// Notes a group.
    pub(crate) fn note<W>(&mut self, id: GroupId, group: &Group<W>, level: u8) {
        if group.levels.has(level) {
            self.some_have = true;
            return;
        }
        self.first.get_or_insert(id);
        if self.lines.len() < LACKING_LINES {
            let (place, used) = (place_of(group), group.levels.highest_to(level));
            self.lines.insert(format!("preemption level {level} is not available on {place}: using level {used}"));
        }
    }
}

impl Hinting {
    /// Notes a changed group.
    pub(crate) fn note<W>(&mut self, group: &Group<W>) {
        self.pooled |= group.is_pooled();
        if !self.devices.contains(&group.device) {
            self.devices.insert(group.device.clone());
        }
    }
}

/// Device and interface of a group, in words.
pub(crate) fn place_of<W>(group: &Group<W>) -> String {
    format!("{} through {}", group.device, group.platform.name())
}
