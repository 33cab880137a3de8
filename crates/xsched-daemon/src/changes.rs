//! What commands change of programs, and how far they are: see [`crate::changing`].

use std::collections::VecDeque;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use xsched_policy::GroupId;
use xsched_proto::hint::Hints;

use crate::clerk::Who;
use crate::identity::User;

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

/// A command that changes programs, and what of it is still to be done.
pub(crate) struct Changing {
    pub(crate) user: User,
    pub(crate) change: Change,
    /// Connections of the programs that are still to be changed.
    pub(crate) left: VecDeque<u64>,
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
    pub(crate) queues: Vec<u64>,
    /// The groups that it has changed.
    pub(crate) hinted: Vec<GroupId>,
    /// What the one who gave it should know, a line each: where the level is not available, …
    pub(crate) lacking: Vec<String>,
    /// … and what a limit cuts.
    pub(crate) notice: Option<String>,
}
