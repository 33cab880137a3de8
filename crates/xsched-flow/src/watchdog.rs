//! What must not last for ever: a wait for the budget without progress, commands held on the device, a daemon's silence.

use serde::{Deserialize, Serialize};
use xsched_proto::gate::Gate;

use crate::tuning::*;

/// How long a thread waits for the budget without any progress, in ns, before one more command passes: a liveness override. What
/// is in flight (`expected_ns`) may simply be long, or be much: nothing was fenced while the group had no rivals.
#[inline]
pub fn patience_ns(budget_ns: u64, expected_ns: u64) -> u64 {
    let of_budget = OVERRIDE_BUDGETS.saturating_mul(budget_ns);
    let of_expected = OVERRIDE_EXPECTED.saturating_mul(expected_ns).min(OVERRIDE_LONG_NS);
    OVERRIDE_NS.max(of_budget).max(of_expected)
}

/// How many further commands the override lets through without a wait, by how many came before it in a row.
#[inline]
pub fn override_commands(in_a_row: u32) -> u32 {
    (1 << in_a_row.min(OVERRIDES_IN_A_ROW)) - 1
}

/// What decides whether a group's device gates are bypassed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bypass {
    /// The gate word.
    pub word: u32,
    /// Gates inside recorded commands wait for its word.
    pub gates_inside: bool,
    /// The process has one group, and it is at level 2 or higher: gates inside recorded commands are for such a one.
    pub fits_inside: bool,
    /// The current [`epoch`] is the one whose held commands were let go.
    pub released: bool,
    /// The driver may be loading code.
    pub loading: bool,
    /// Queues wait for each other on the device.
    pub cross_stream: bool,
}

/// Whether all gates on the device stand open, whatever the group's grant. What waits on the device for a stream that is held at
/// a gate keeps the device: 2 to 6 ms at each end of a rival's time slice (H200, notebook).
#[inline]
pub fn bypasses(ask: &Bypass) -> bool {
    let unfit = ask.gates_inside && !ask.fits_inside;
    let released = !Gate::from_bits(ask.word).is_open() && ask.released;
    unfit || released || ask.loading || ask.cross_stream
}

/// Names the time between a grant and the next; never 0.
#[inline]
pub fn epoch(grants: u32) -> u32 {
    grants.wrapping_add(1).max(1)
}

/// Whether commands that were held on the device at `since_ns` are let go.
#[inline]
pub fn releases(since_ns: u64, now_ns: u64, patience_ns: u64) -> bool {
    now_ns.saturating_sub(since_ns) >= patience_ns
}

/// How long commands may be held on the device next, in ns, when they have been `released`, or a turn of their group came sooner.
/// A rival that is slowed down by what waits for them is so again. One that is busy for long looks the same, and is disturbed by
/// what is let go: so it takes some releases until the next ones come soon.
#[inline]
pub fn release_patience_ns(before_ns: u64, released: bool) -> u64 {
    if released { (before_ns / 2).max(RELEASE_AGAIN_NS) } else { before_ns.saturating_mul(2).min(RELEASE_NS) }
}

/// Whether queues that waited for each other on the device at `at_ns` (0 = never) are expected to do so again.
#[inline]
pub fn is_cross_stream(at_ns: u64, now_ns: u64) -> bool {
    at_ns != 0 && now_ns.saturating_sub(at_ns) < CROSS_STREAM_NS
}

/// Tells whether a daemon whose last beat was seen at `beat_ns` is gone. It beats only while some gate is closed, so that the silence counts
/// from when this gate was seen closed.
#[inline]
pub fn is_silent(beat_ns: u64, closed_ns: u64, now_ns: u64) -> bool {
    now_ns.saturating_sub(beat_ns.max(closed_ns)) > LEASE_NS
}
