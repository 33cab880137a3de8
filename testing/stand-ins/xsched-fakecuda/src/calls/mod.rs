//! Calls that submit commands to streams, by kind.

pub(crate) mod copy;
pub(crate) mod event;
pub(crate) mod host;
pub(crate) mod launch;
pub(crate) mod memops;
