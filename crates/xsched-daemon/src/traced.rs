//! What is kept and told of groups that records speak of.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use xsched_policy::GroupId;
use xsched_proto::wire::TracedGroup;

use crate::identity::User;

/// A group that is gone, of which there may be records.
pub(crate) struct LeftGroup {
    pub(crate) at_us: u64,
    pub(crate) user: User,
    pub(crate) group: TracedGroup,
}

/// What is still to be told.
pub(crate) struct Telling {
    /// Groups, the oldest first.
    pub(crate) groups: VecDeque<ToTell>,
    /// Groups whose records are told, and whether they are of the user's own programs.
    pub(crate) known: HashMap<u64, bool>,
    /// The numbers of the records.
    pub(crate) next: u64,
    pub(crate) end: u64,
}

/// A group that is still to be told of.
pub(crate) enum ToTell {
    /// A group that was there when the answer began.
    Living(GroupId),
    Left(Arc<LeftGroup>),
}

/// Bytes that a group takes in a message, about.
pub(crate) fn bytes_of(group: &TracedGroup) -> usize {
    64 + group.device.len() + group.program.as_ref().map_or(0, |program| program.exe.len() + program.name.len())
}
