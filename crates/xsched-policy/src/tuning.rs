//! Every constant of policies and arbiter: name, unit, reason. A name ends in its unit; parts and counts have none.

use crate::Micros;

// ---- Policies ------------------------------------------------------------------------------------------------------------

/// Longest turn, in timeslices: a contender of a thousand times the weight of another must not keep it waiting for a thousand of
/// them.
pub(crate) const TURN_MAX: f64 = 4.0;
/// Shortest turn, in µs: shorter ones would mostly be spent on switching.
pub(crate) const TURN_MIN_US: Micros = 500;
/// A contender that was idle for no longer than this, in µs, still has its claim: programs that synchronise after each step go idle
/// for a moment many times in a turn.
pub(crate) const SHORT_IDLE_US: Micros = 3_000;
/// A pause of a more urgent group that is shorter than this, in µs, may be within one request. What then follows would be held up,
/// each time, by a command that takes far longer.
pub(crate) const REST_US: Micros = 2_000;
/// Shortest phase of the policy that tests others at random, in µs: a few launches …
pub(crate) const PHASE_MIN_US: Micros = 100;
/// … and its longest, in µs: some requests.
pub(crate) const PHASE_MAX_US: Micros = 20_000;

// ---- Arbiter -------------------------------------------------------------------------------------------------------------

/// Groups whose progress is of interest are looked at this often, in µs; one without progress for so long is told as stalled. Longer
/// than most commands take.
pub const LOOK_US: Micros = 20_000;
/// A group that has the device, wants it, and shows no progress for so long, in µs, lets those that wait run for a while.
pub(crate) const STARVATION_US: Micros = 1_000_000;
/// A group that was closed while it counted as idle though it said it was ready is believed again after so long, in µs.
pub(crate) const DOUBT_US: Micros = 100_000;
/// A group of a job on several devices that is closed and has still something on the device after so long, in µs, waits there for
/// the rest of its job, which is closed, too: it is charged no more, or it might never be its turn again.
pub(crate) const WAITS_US: Micros = 20_000;
/// A claim is kept for so many quanta, and so far may one get ahead of it: some quanta of others may lie between two of its own.
pub(crate) const CLAIM_QUANTA: f64 = 4.0;
