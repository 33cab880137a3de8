//! Progress of a queue. Every kind of completion is one advance to a point, with its evidence.

use serde::{Deserialize, Serialize};

/// A point in a queue: the sum of all commands before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Number of numbered commands.
    pub seq: u64,
    /// Expected device time of the numbered commands, in ns.
    pub ns: u64,
    /// Number of commands that were only counted: those launched while the group had no rivals.
    pub counted: u64,
}

/// Evidence by which commands count as complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Evidence {
    /// A completion fence was reached, or a blocking command returned.
    Fence,
    /// A call that waited for the queue succeeded.
    Sync,
    /// No command was launched between two rare polls, and no fence is under way.
    Silence,
    /// The unfenced commands of a draining group are overdue.
    Overdue,
    /// The device has taken the commands out of a queue that the program fills by itself.
    Taken,
}

impl Evidence {
    /// Reports whether commands that were only counted are complete too. Without a fence there may be many more of them than the few of an
    /// unfenced suffix.
    #[inline]
    pub fn covers_counted(self) -> bool {
        self != Evidence::Overdue
    }

    /// Reports whether the completion was seen, not presumed: then it counts as progress.
    #[inline]
    pub fn is_seen(self) -> bool {
        matches!(self, Evidence::Fence | Evidence::Sync | Evidence::Taken)
    }
}

/// State of a queue that may have to be presumed complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presumed {
    /// True if a completion fence is under way.
    pub fenced: bool,
    /// True if a gate on the device holds some of the queue's commands.
    pub held: bool,
    /// True if commands complete in their order.
    pub in_order: bool,
    /// True if all commands that were only counted are complete.
    pub counted_done: bool,
    /// True if the queue had no launch since the last rare poll.
    pub silent: bool,
}

/// Reports whether the queue's commands are presumed complete on this evidence. A stopped queue never is.
#[inline]
pub fn presumes(ask: &Presumed, evidence: Evidence) -> bool {
    !ask.fenced
        && !ask.held
        && match evidence {
            Evidence::Silence => ask.silent,
            Evidence::Overdue => ask.in_order && ask.counted_done,
            _ => false,
        }
}
