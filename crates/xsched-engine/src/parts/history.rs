//! Past of the engine, for readers outside of it.

use super::gone::Gone;
use super::outcomes::Outcomes;

/// Groups that are gone, outcomes that were not taken yet, and the number of decisions.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) gone: Gone,
    pub(crate) outcomes: Outcomes,
    /// Number of times that gates were decided.
    decisions: u64,
}

impl History {
    /// Empty history, with or without lines of bursts.
    pub(crate) fn new(bursts: bool) -> History {
        History { gone: Gone::default(), outcomes: Outcomes::new(bursts), decisions: 0 }
    }

    /// Counts a decision.
    pub(crate) fn decided(&mut self) {
        self.decisions += 1;
    }

    /// Number of times that gates were decided.
    pub(crate) fn decisions(&self) -> u64 {
        self.decisions
    }
}
