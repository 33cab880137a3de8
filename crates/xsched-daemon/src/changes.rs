//! What commands change of programs, and how far they are: see [`crate::changing`].

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xsched_policy::GroupId;
use xsched_proto::hint::Hints;
use xsched_proto::wire::Target;

use crate::identity::User;
use crate::services::identify::Who;

/// What a hint changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Changes {
    pub(crate) priority: Option<i32>,
    /// Root says so, whose word no ceiling cuts.
    pub(crate) by_root: bool,
    pub(crate) level: Option<u8>,
    pub(crate) threshold: Option<u32>,
    pub(crate) batch: Option<u32>,
    pub(crate) hints: Hints,
}

impl Changes {
    /// These, and where they say nothing those.
    pub(crate) fn or(self, those: Changes) -> Changes {
        Changes {
            priority: self.priority.or(those.priority),
            by_root: self.by_root || those.by_root,
            level: self.level.or(those.level),
            threshold: self.threshold.or(those.threshold),
            batch: self.batch.or(those.batch),
            hints: self.hints.or(those.hints),
        }
    }
}

/// A command that changes programs, worked off in pieces of bounded size. It is whole by itself: once its programs are found it is
/// carried through, also where its connection ends before.
pub(crate) struct Changing {
    pub(crate) user: User,
    pub(crate) change: Change,
    pub(crate) stage: Stage,
}

/// How far a command is. Nothing is changed before all of its targets are found.
pub(crate) enum Stage {
    /// The starts of processes that targets name are read, one in each piece.
    Starts(Search),
    /// Attached programs are compared with the targets.
    Search(Search),
    /// The programs that were found are checked: does each of them allow it?
    Check { found: Vec<u64>, next: usize },
    /// Programs are changed.
    Programs(VecDeque<u64>),
    /// Queues that were named are changed, one in each piece.
    Queues(VecDeque<u64>),
    /// Time slices of devices with changed groups are assigned anew, a device in each piece.
    Timeslices(VecDeque<Arc<str>>),
}

/// The search for the programs that a command names.
pub(crate) struct Search {
    /// [`xsched_proto::bounded::TARGETS_MAX`] at most, none twice, no queues: a set of them is a `u64`.
    pub(crate) targets: Vec<Target>,
    /// When the process of a target started, in clock ticks, where that matters and is known; as long as the search has come.
    pub(crate) starts: Vec<Option<u64>>,
    /// Targets that name a process which is attached itself, whoever its user is.
    pub(crate) attached: u64,
    /// Connections of the user's programs that are still to be compared.
    pub(crate) candidates: Vec<u64>,
    /// Programs that some target means.
    pub(crate) matches: Vec<Match>,
}

/// A program that some targets mean.
#[derive(Clone, Copy)]
pub(crate) struct Match {
    pub(crate) pid: u32,
    pub(crate) conn: u64,
    /// Targets that mean the program itself.
    pub(crate) itself: u64,
    /// Targets that name a process which started it, and that count where that process is not attached.
    pub(crate) below: u64,
}

impl Search {
    pub(crate) fn new(targets: Vec<Target>, candidates: Vec<u64>) -> Search {
        Search { targets, starts: Vec::new(), attached: 0, candidates, matches: Vec::new() }
    }

    /// The programs that are meant, in the order of their process ids.
    ///
    /// # Errors
    /// The first target that means no program.
    pub(crate) fn found(mut self) -> Result<Vec<u64>, Target> {
        let attached = self.attached;
        let means = |m: &Match| m.itself | m.below & !attached;
        let all = self.matches.iter().fold(0, |all, m| all | means(m));
        if let Some(at) = (0..self.targets.len()).find(|at| all >> at & 1 == 0) {
            return Err(self.targets.swap_remove(at));
        }
        self.matches.retain(|m| means(m) != 0);
        self.matches.sort_unstable_by_key(|m| (m.pid, m.conn));
        Ok(self.matches.into_iter().map(|m| m.conn).collect())
    }
}

/// What becomes of the programs.
pub(crate) enum Change {
    /// Suspended, or let go on.
    Hold(bool),
    Hint(Box<Hinting>),
}

/// A hint for programs, and for queues after them.
pub(crate) struct Hinting {
    /// Who gives it.
    pub(crate) asker: Option<Rc<Who>>,
    pub(crate) changes: Changes,
    pub(crate) queues: VecDeque<u64>,
    /// Of the programs that were checked: which groups have the level that is asked for.
    pub(crate) lacking: Lacking,
    /// The devices of the groups that it has changed.
    pub(crate) devices: BTreeSet<Arc<str>>,
    /// One of the groups is in a pool.
    pub(crate) pooled: bool,
    /// The part that a limit cuts, in one line.
    pub(crate) notice: Option<String>,
}

/// Groups that lack a preemption level that is asked for.
#[derive(Default)]
pub(crate) struct Lacking {
    /// The first of them.
    pub(crate) first: Option<GroupId>,
    /// Some group has the level.
    pub(crate) some_have: bool,
    /// The level that takes its place, a line for each device and interface.
    pub(crate) lines: BTreeSet<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(attached: u64, matches: &[(u64, u64, u64)]) -> Search {
        let matches =
            matches.iter().map(|&(conn, itself, below)| Match { pid: 100 - conn as u32, conn, itself, below });
        let targets = vec![Target::Pid(1), Target::All, Target::Tree(3)];
        Search { attached, matches: matches.collect(), ..Search::new(targets, Vec::new()) }
    }

    #[test]
    fn a_process_that_is_attached_stands_for_itself_and_else_for_those_it_started() {
        let of = |attached, matches: &[(u64, u64, u64)]| {
            search(attached, matches).found().map_err(|target| format!("{target:?}"))
        };
        assert_eq!(of(1, &[(7, 0b110, 0), (8, 0b001, 0), (9, 0, 0b001)]), Ok(vec![8, 7]));
        assert_eq!(of(0, &[(7, 0b110, 0), (9, 0, 0b001)]), Ok(vec![9, 7]));
        assert_eq!(of(1, &[(7, 0b110, 0), (9, 0, 0b001)]), Err("Pid(1)".into()), "it is another user's");
    }

    #[test]
    fn the_first_target_that_means_nothing_is_told() {
        let of = |matches: &[(u64, u64, u64)]| search(0, matches).found().map_err(|target| format!("{target:?}"));
        assert_eq!(of(&[(7, 0b001, 0)]), Err("All".into()));
        assert_eq!(of(&[(7, 0b011, 0)]), Err("Tree(3)".into()));
    }
}
