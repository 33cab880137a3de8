//! What is kept and told of groups that records speak of.

use std::collections::{HashMap, VecDeque};

use xsched_proto::wire::TracedGroup;

use crate::identity::User;
use crate::tuning::TRACED_BYTES;

/// A group that is gone, of which there may be records.
pub(crate) struct LeftGroup {
    pub(crate) at_us: u64,
    pub(crate) user: User,
    pub(crate) group: TracedGroup,
}

/// What is still to be told.
pub(crate) struct Telling {
    pub(crate) groups: VecDeque<TracedGroup>,
    /// Groups whose records are told, and whether they are of the user's own programs.
    pub(crate) known: HashMap<u64, bool>,
    /// The numbers of the records.
    pub(crate) next: u64,
    pub(crate) end: u64,
}

impl Telling {
    /// The next message's worth of groups.
    pub(crate) fn more_groups(&mut self) -> Vec<TracedGroup> {
        let (mut part, mut bytes) = (Vec::new(), 0);
        while bytes < TRACED_BYTES
            && let Some(group) = self.groups.pop_front()
        {
            bytes += 64 + group.device.len() + group.program.as_ref().map_or(0, |program| program.exe.len());
            part.push(group);
        }
        part
    }
}
