//! What commands change of programs, and how far they are: see [`crate::changing`].

use std::collections::VecDeque;

use xsched_policy::GroupId;

use crate::client::Changes;
use crate::identity::User;

/// What is still to be done.
pub(crate) struct Changing {
    pub(crate) user: User,
    pub(crate) what: What,
    /// Connections of the programs that are still to be changed.
    pub(crate) left: VecDeque<u64>,
}

/// What becomes of them.
pub(crate) enum What {
    /// Suspended, or let go on.
    Hold(bool),
    Hint(Box<Hint>),
}

/// A hint for programs, and for queues after them.
pub(crate) struct Hint {
    pub(crate) changes: Changes,
    pub(crate) queues: Vec<u64>,
    /// The groups that it has changed.
    pub(crate) hinted: Vec<GroupId>,
    /// What the one who gave it should know, a line each: where the level is not available, …
    pub(crate) lacking: Vec<String>,
    /// … and what a limit cuts.
    pub(crate) notice: Option<String>,
}
