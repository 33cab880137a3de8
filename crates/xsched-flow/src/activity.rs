//! Whether a group wants the device: idle → ready → draining → drained → grace → idle.
//!
//! - *idle*: nothing in flight, and the daemon knows. The gate word says [`gate::MUST_ANNOUNCE`]; the next launch announces itself.
//! - *ready*: wants the device, or still uses it.
//! - *draining*: the gate is closed, a thread waits there, and commands are in flight.
//! - *drained*: the same with nothing in flight any more. The daemon is told.
//! - *grace*: nothing in flight, gate open. A launch within the grace time makes the group ready again without a message.

use serde::{Deserialize, Serialize};
use xsched_proto::segment::{gate, state};

use crate::tuning::*;

/// The grace time after a gap of `gap_ns` between draining and the next launch, in ns. It follows the program's own gaps.
#[inline]
pub fn next_grace_ns(grace_ns: u64, gap_ns: u64) -> u64 {
    let wanted = if gap_ns < SHORT_GAP_NS { gap_ns * 2 } else { 0 };
    let next = if wanted > grace_ns { wanted } else { grace_ns - (grace_ns - wanted) / GRACE_PARTS };
    next.clamp(GRACE_NS.0, GRACE_NS.1)
}

/// What follows when a completion or the end of a wait may have emptied a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Emptied {
    /// Nothing.
    Stays,
    /// The daemon is told that the group is drained.
    Drained,
    /// The grace time begins.
    Grace,
}

/// See [`Emptied`]. `complete` = all of its commands are known to be; `waiters` = threads at its gate; `in_grace` = the grace
/// time has begun before.
#[inline]
pub fn emptied(word: u32, complete: bool, waiters: u32, in_grace: bool) -> Emptied {
    if word & gate::MUST_ANNOUNCE != 0 || !complete {
        Emptied::Stays
    } else if word & gate::OPEN_MASK == 0 && waiters > 0 {
        Emptied::Drained
    } else if in_grace {
        Emptied::Stays
    } else {
        Emptied::Grace
    }
}

/// Time left of the grace time that began at `since_ns` (0 = it has not), in ns.
#[inline]
pub fn grace_left_ns(since_ns: u64, grace_ns: u64, now_ns: u64) -> Option<u64> {
    (since_ns != 0).then(|| (since_ns + grace_ns).saturating_sub(now_ns))
}

/// Whether a daemon is there that wants to know when a group with this gate word is idle: it has rivals and is not known as
/// idle.
#[inline]
pub fn is_asked(word: u32) -> bool {
    word & (gate::CONTENDED | gate::DETACHED | gate::MUST_ANNOUNCE) == gate::CONTENDED
}

/// Whether a group has rivals, as a daemon says that is there.
#[inline]
pub fn is_contended(word: u32) -> bool {
    word & (gate::CONTENDED | gate::DETACHED) == gate::CONTENDED
}

/// A group whose gate may have closed while commands were in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draining {
    /// The gate word.
    pub word: u32,
    /// See [`state`].
    pub state: u32,
    /// When a thread last began to wait at the closed gate while commands were in flight, in ns.
    pub since_ns: u64,
    /// Now, in ns.
    pub now_ns: u64,
}

/// Whether the group is draining: the device counts as its own until it has drained, and no longer than [`DRAINS_NS`].
#[inline]
pub fn is_draining(ask: &Draining) -> bool {
    ask.now_ns.saturating_sub(ask.since_ns) < DRAINS_NS
        && ask.word & gate::OPEN_MASK == 0
        && ask.state != state::DRAINED
}

/// Whether a draining group's unfenced commands are presumed complete: no fence tells of them.
#[inline]
pub fn is_late(ask: &Draining) -> bool {
    is_draining(ask) && ask.now_ns.saturating_sub(ask.since_ns) >= UNFENCED_NS
}

/// What the agent knows of a group by looking at it. Time in which the group is stopped (interrupted, or held by gates inside
/// its graphs) does not count: a stopped group cannot complete work, so its silence says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looks {
    /// When the last look was, in ns.
    pub at_ns: u64,
    /// Whether the group was stopped then.
    pub stopped: bool,
    /// For how long it has not been stopped, in ns …
    pub own_ns: u64,
    /// … and for how long at the last rare look.
    pub rare_ns: u64,
}

impl Looks {
    /// A look. Says whether a rare one is due.
    pub fn look(&mut self, now_ns: u64, stopped: bool) -> bool {
        if !core::mem::replace(&mut self.stopped, stopped) {
            self.own_ns += now_ns.saturating_sub(self.at_ns);
        }
        self.at_ns = now_ns;
        !stopped && self.own_ns - self.rare_ns >= RARE_LOOK_NS
    }

    /// The rare look was made.
    pub fn looked(&mut self) {
        self.rare_ns = self.own_ns;
    }
}
