//! Lists of processes that ask for a pool and wait for the facts about them, and of programs that may prove themselves.

use std::collections::{BTreeSet, HashMap};

use crate::pool::keeper::Owner;
use crate::services::trust::{Known, Process};

/// Wish of a process that asks for a pool.
pub(crate) struct Joining {
    pub(crate) job: Option<String>,
    pub(crate) priority: Option<i32>,
    pub(crate) insists: bool,
    pub(crate) obstacle: Option<String>,
}

/// Processes that wait for the facts about them, and programs that are followed.
#[derive(Default)]
pub(crate) struct Trusting {
    /// Processes that ask for a pool, by connection.
    pub(crate) joining: HashMap<u64, Waiting>,
    /// Attached programs that may prove themselves, by connection.
    pub(crate) followed: HashMap<u64, Followed>,
    /// Time of the next poll of each of them, in ns.
    pub(crate) due: BTreeSet<(u64, u64)>,
}

/// Process that asks for a pool.
pub(crate) struct Waiting {
    pub(crate) member: u64,
    pub(crate) owner: Owner,
    pub(crate) joining: Joining,
    pub(crate) until_ns: u64,
    /// Facts that are used if no others come in time.
    pub(crate) known: Known,
}

/// Program that may prove itself.
pub(crate) struct Followed {
    pub(crate) process: Process,
    /// Device time charged to it at the last poll, in µs.
    pub(crate) used_us: f64,
    /// Time of the next poll, in ns.
    pub(crate) due_ns: u64,
}

impl Trusting {
    /// Time of the next work, in ns.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let joins = self.joining.values().map(|waiting| waiting.until_ns).min();
        joins.into_iter().chain(self.due.first().map(|(at_ns, _)| *at_ns)).min()
    }

    /// Sets the time of a followed program's next poll, in ns.
    pub(crate) fn look_at(&mut self, conn: u64, due_ns: u64) {
        if let Some(followed) = self.followed.get_mut(&conn) {
            followed.due_ns = due_ns;
            self.due.insert((due_ns, conn));
        }
    }

    /// Forgets a connection that no longer waits.
    pub(crate) fn forget(&mut self, conn: u64) {
        self.joining.remove(&conn);
    }
}
