//! How far a queue is. Every way to be complete is one advance to a point, with its evidence.

use serde::{Deserialize, Serialize};

/// A point in a queue: everything before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Numbered commands.
    pub seq: u64,
    /// Their expected device time, in ns.
    pub ns: u64,
    /// Commands that were only counted: those of the time without rivals.
    pub counted: u64,
}

/// Why commands count as complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Evidence {
    /// A completion fence was reached, or a blocking command returned.
    Fence,
    /// A call that waited for the queue succeeded.
    Sync,
    /// Nothing was launched between two rare looks, and no fence is under way.
    Silence,
    /// The unfenced commands of a draining group are overdue.
    Overdue,
    /// The device has taken them out of a queue that the program fills by itself.
    Taken,
}

impl Evidence {
    /// Commands that were only counted are complete too. Without a fence there may be many more of them than the few of an
    /// unfenced suffix.
    #[inline]
    pub fn covers_counted(self) -> bool {
        self != Evidence::Overdue
    }

    /// The completion was seen, not presumed: it counts as progress.
    #[inline]
    pub fn is_seen(self) -> bool {
        matches!(self, Evidence::Fence | Evidence::Sync | Evidence::Taken)
    }
}

/// What is known of a queue that may have to be presumed complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presumed {
    /// A completion fence is under way.
    pub fenced: bool,
    /// A gate on the device holds some of its commands.
    pub held: bool,
    /// Commands complete in their order.
    pub in_order: bool,
    /// All commands that were only counted are complete.
    pub counted_done: bool,
    /// Nothing was launched since the last rare look.
    pub silent: bool,
}

/// Whether the queue's commands are presumed complete, for this reason. A stopped queue never is.
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
