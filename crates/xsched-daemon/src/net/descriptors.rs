//! Descriptors: their number, and the number of connections that they are enough for.

use std::os::fd::OwnedFd;

use crate::net::fd_reaper::MAX_FDS;
use crate::tuning::{OWN_FDS, QUEUED_MAX};

/// Number of connections that this many descriptors allow. A client takes four descriptors, one for a backlog page, and was perhaps
/// announced with another connection; one more is open for a moment while it attaches. In addition there are the daemon's own, those of one packet, and those that
/// wait to be closed.
pub(super) fn max_conns(descriptors: usize) -> usize {
    let besides = OWN_FDS + MAX_FDS + QUEUED_MAX;
    descriptors.saturating_sub(besides.min(descriptors / 2)) / 7
}

/// Descriptor to be given up where none is left.
pub(super) fn spare() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}

/// Raises the limit of descriptors as far as possible. Returns the limit.
pub(super) fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    // Without a limit of descriptors, memory would still be one.
    getrlimit(Resource::Nofile).current.unwrap_or(1 << 16).min(1 << 16)
}
