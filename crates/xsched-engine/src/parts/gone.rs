//! Groups that are gone, for the trace.

use std::collections::VecDeque;
use std::sync::Arc;

use xsched_proto::wire::TracedGroup;

use crate::user::User;

/// Groups that are gone, of which there may be records. The first one went first.
#[derive(Debug, Default)]
pub(crate) struct Gone(pub(crate) VecDeque<Arc<GoneGroup>>);

/// A group that is gone.
#[derive(Debug)]
pub(crate) struct GoneGroup {
    pub(crate) at_us: u64,
    pub(crate) user: User,
    pub(crate) group: TracedGroup,
}
