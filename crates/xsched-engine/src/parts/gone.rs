//! Groups that are gone, for the trace.

use std::collections::VecDeque;
use std::sync::Arc;

use xsched_proto::wire::TracedGroup;

use crate::trim;
use crate::tuning::TRACED_ENDED_MAX;
use crate::user::User;

/// Groups that are gone, of which there may be records. The first one went first.
#[derive(Debug, Default)]
pub(crate) struct Gone(VecDeque<Arc<GoneGroup>>);

/// A group that is gone.
#[derive(Debug)]
pub(crate) struct GoneGroup {
    pub(crate) at_us: u64,
    pub(crate) user: User,
    pub(crate) group: TracedGroup,
}

impl Gone {
    /// Adds a group, and removes those that went before the oldest record of the trace.
    pub(crate) fn add(&mut self, group: GoneGroup, oldest_us: u64) {
        while self.0.front().is_some_and(|e| e.at_us < oldest_us) {
            self.0.pop_front();
        }
        self.0.push_back(Arc::new(group));
        trim(&mut self.0, TRACED_ENDED_MAX, |e| e.user);
    }

    /// Groups that went at a time or later.
    pub(crate) fn since(&self, us: u64) -> impl Iterator<Item = &Arc<GoneGroup>> {
        self.0.iter().filter(move |e| e.at_us >= us)
    }

    /// Group with a number.
    pub(crate) fn numbered(&self, id: u64) -> Option<&GoneGroup> {
        self.0.iter().find(|e| e.group.id == id).map(|e| &**e)
    }
}
