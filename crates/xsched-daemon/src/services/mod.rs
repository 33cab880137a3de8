//! Services: what is done beside the loop, because it may take long. Each is a [`worker::Worker`] with a task, an outcome and the function
//! that does a task. The loop hands tasks over and takes outcomes, in whatever order they come; an outcome is for one request, by its
//! number ([`epochs`]), so that one that comes late, twice or never changes nothing but its own answer.

pub(crate) mod child_reaper;
pub(crate) mod epochs;
pub(crate) mod fd_reaper;
pub(crate) mod identify;
pub(crate) mod sampler;
pub(crate) mod snapshot;
pub(crate) mod usage;
pub(crate) mod worker;
pub(crate) mod writer;
