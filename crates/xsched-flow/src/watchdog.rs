//! Limits of what must not last for ever: a wait for the budget without progress, commands held on the device, a daemon's silence.

use serde::{Deserialize, Serialize};
use xsched_proto::gate::Gate;

use crate::tuning::*;

/// Liveness override: time for which a thread waits for the budget without any progress before one more command passes, in ns. The work in
/// flight (`expected_ns`) may simply be long, or there may be much of it: nothing was fenced while the group had no rivals.
#[inline]
pub fn patience_ns(budget_ns: u64, expected_ns: u64) -> u64 {
    let of_budget = OVERRIDE_BUDGETS.saturating_mul(budget_ns);
    let of_expected = OVERRIDE_EXPECTED.saturating_mul(expected_ns).min(OVERRIDE_LONG_NS);
    OVERRIDE_NS.max(of_budget).max(of_expected)
}

/// Number of further commands that an override lets through without a wait. `in_a_row` = overrides before this one without progress between
/// them.
#[inline]
pub fn override_commands(in_a_row: u32) -> u32 {
    (1 << in_a_row.min(OVERRIDES_IN_A_ROW)) - 1
}

/// Facts that decide whether a group's device gates are bypassed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bypass {
    /// Value of the gate word.
    pub word: u32,
    /// True if gates inside recorded commands wait for this group's word.
    pub gates_inside: bool,
    /// True if the process has one group and that is at level 2 or higher: gates inside recorded commands need both.
    pub fits_inside: bool,
    /// True if the current [`epoch`] is the one whose held commands were released.
    pub released: bool,
    /// True if the driver may be loading code.
    pub loading: bool,
    /// True if queues wait for each other on the device.
    pub cross_stream: bool,
}

/// Reports whether all gates on the device stand open, whatever the group's grant. A command on the device that waits for a stream held at
/// a gate keeps the device: 2 to 6 ms at each end of a rival's time slice (H200).
#[inline]
pub fn bypasses(ask: &Bypass) -> bool {
    let unfit = ask.gates_inside && !ask.fits_inside;
    let released = !Gate::from_bits(ask.word).is_open() && ask.released;
    unfit || released || ask.loading || ask.cross_stream
}

/// Number that identifies the time between one grant and the next; never 0.
#[inline]
pub fn epoch(grants: u32) -> u32 {
    grants.wrapping_add(1).max(1)
}

/// Reports whether commands held on the device since `since_ns` are released.
#[inline]
pub fn releases(since_ns: u64, now_ns: u64, patience_ns: u64) -> bool {
    now_ns.saturating_sub(since_ns) >= patience_ns
}

/// Computes the next release timeout, in ns. A release halves it: a rival that is slowed down by work that waits for held commands will be
/// slowed down again. A grant that arrived before the timeout doubles it. A rival that is merely busy for long looks the same as a slowed
/// one, and the released commands disturb it; so it takes several releases until they come soon.
#[inline]
pub fn release_patience_ns(before_ns: u64, released: bool) -> u64 {
    if released { (before_ns / 2).max(RELEASE_AGAIN_NS) } else { before_ns.saturating_mul(2).min(RELEASE_NS) }
}

/// Reports whether queues that waited for each other on the device at `at_ns` (0 = never) are expected to do so again.
#[inline]
pub fn is_cross_stream(at_ns: u64, now_ns: u64) -> bool {
    at_ns != 0 && now_ns.saturating_sub(at_ns) < CROSS_STREAM_NS
}

/// Reports whether a daemon whose last beat was seen at `beat_ns` is gone. The daemon beats only while some gate is closed, so its silence
/// counts from when this gate was seen closed.
#[inline]
pub fn is_silent(beat_ns: u64, closed_ns: u64, now_ns: u64) -> bool {
    now_ns.saturating_sub(beat_ns.max(closed_ns)) > LEASE_NS
}
