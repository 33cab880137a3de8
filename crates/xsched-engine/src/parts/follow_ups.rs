//! Work that follows from decisions: time slices to be set again, and progress that is counted piece by piece.

use std::collections::{BTreeSet, HashMap};

use xsched_policy::GroupId;

use crate::memory::LaunchSum;

/// Work that follows from decisions and is not done yet.
#[derive(Debug, Default)]
pub(crate) struct FollowUps {
    /// Groups whose time slices may have to be set again once all gates are stored.
    slices: Vec<GroupId>,
    /// Programs whose progress was of interest at the last look.
    looked_at: BTreeSet<u64>,
    /// Sums of counters that are not complete yet, by program.
    sums: HashMap<u64, LaunchSum>,
}

impl FollowUps {
    /// Adds a group whose time slice may have to be set again.
    pub(crate) fn add_slice(&mut self, id: GroupId) {
        self.slices.push(id);
    }

    /// Next group whose time slice may have to be set again: the last one that was added.
    pub(crate) fn next_slice(&mut self) -> Option<GroupId> {
        self.slices.pop()
    }

    /// Takes the programs whose progress is of interest now. Returns them and those of the last look.
    pub(crate) fn look_at(&mut self, now: BTreeSet<u64>) -> BTreeSet<u64> {
        let before = std::mem::replace(&mut self.looked_at, now);
        self.looked_at.union(&before).copied().collect()
    }

    /// Takes the sum of a program's counters, to continue or to drop it; an empty one if there is none.
    pub(crate) fn take_sum(&mut self, program: u64) -> LaunchSum {
        self.sums.remove(&program).unwrap_or_default()
    }

    /// Keeps the sum of a program's counters until the next piece.
    pub(crate) fn keep_sum(&mut self, program: u64, sum: LaunchSum) {
        self.sums.insert(program, sum);
    }

    /// Drops the sum of a program that is gone.
    pub(crate) fn drop_sum(&mut self, program: u64) {
        self.sums.remove(&program);
    }

    /// Number of sums that are not complete.
    pub(crate) fn sums(&self) -> usize {
        self.sums.len()
    }
}
