//! Outcomes of transitions that wait for a reader outside of the engine.

use xsched_policy::GroupId;
use xsched_proto::transitions::Outcome;

/// Outcomes for readers outside of the engine.
#[derive(Debug)]
pub(crate) struct Outcomes {
    /// Lines of bursts are wanted.
    bursts: bool,
    /// The host takes the others.
    taken: bool,
    /// Outcomes that the host has not taken yet.
    waiting: Vec<(GroupId, Outcome)>,
}

impl Outcomes {
    /// Makes the list, with or without lines of bursts.
    pub(crate) fn new(bursts: bool) -> Outcomes {
        Outcomes { bursts, taken: false, waiting: Vec::new() }
    }

    /// Returns true if lines of bursts are wanted.
    pub(crate) fn has_bursts(&self) -> bool {
        self.bursts
    }

    /// Keeps outcomes from now on, for [`Outcomes::take`].
    pub(crate) fn keep(&mut self) {
        self.taken = true;
    }

    /// Adds an outcome, if the host takes them.
    pub(crate) fn add(&mut self, id: GroupId, outcome: Outcome) {
        if self.taken {
            self.waiting.push((id, outcome));
        }
    }

    /// Outcomes since the last call.
    pub(crate) fn take(&mut self) -> Vec<(GroupId, Outcome)> {
        std::mem::take(&mut self.waiting)
    }
}
