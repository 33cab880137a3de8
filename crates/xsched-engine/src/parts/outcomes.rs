//! Outcomes of transitions that wait for a reader outside of the engine.

use xsched_policy::GroupId;
use xsched_proto::transitions::Outcome;

/// Outcomes for readers outside of the engine.
#[derive(Debug)]
pub(crate) struct Outcomes {
    /// Lines of bursts are wanted.
    pub(crate) bursts: bool,
    /// The host takes the others.
    pub(crate) taken: bool,
    /// Outcomes that the host has not taken yet.
    pub(crate) waiting: Vec<(GroupId, Outcome)>,
}

impl Outcomes {
    /// Makes the list, with or without lines of bursts.
    pub(crate) fn new(bursts: bool) -> Outcomes {
        Outcomes { bursts, taken: false, waiting: Vec::new() }
    }
}
