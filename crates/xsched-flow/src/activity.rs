//! Activity of a group: one of five states, computed from a plain [`View`] of the group.
//!
//! ```text
//!          launch               gate closes,              nothing in flight
//!                               a thread waits            any more
//!   idle ────────► ready ────────────────────► draining ────────────────────► drained
//!    ▲             │   ▲                                                         │
//!    │ grace time  │   │ launch                     gate opens                   │
//!    │ is over     ▼   └──────────────────────────────────────────◄─────────────┘
//!    └─────────── grace
//! ```

use serde::{Deserialize, Serialize};
use xsched_proto::gate::Gate;
use xsched_proto::segment::state;

use crate::tuning::*;

/// State of a group at one moment, as the core sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Value of the gate word.
    pub word: u32,
    /// State that was last reported to the daemon, see [`state`].
    pub told: u32,
    /// True if all commands of the group are known to be complete.
    pub complete: bool,
    /// Number of threads that wait at the closed gate or for the budget.
    pub waiters: u32,
    /// Time at which a thread last began to wait at the closed gate while commands were in flight, in ns.
    pub waits_since_ns: u64,
    /// Time at which the grace time began, in ns; 0 = it has not begun.
    pub grace_since_ns: u64,
    /// Length of the grace time, in ns: see [`next_grace_ns`].
    pub grace_ns: u64,
    /// Present time, in ns.
    pub now_ns: u64,
}

/// Activity of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// No command is in flight, and the daemon knows. The gate word says [`Gate::MUST_ANNOUNCE`]; the next launch announces itself.
    Idle,
    /// The group wants the device, or still uses it.
    Ready,
    /// The gate is closed, a thread waits there, and commands are in flight: the group counts as having the device until it has drained, at
    /// most for [`DRAINS_NS`].
    Draining {
        /// Time since the wait at the closed gate began, in ns.
        for_ns: u64,
    },
    /// The gate is closed, a thread waits there, and no command is in flight any more. This is reported to the daemon.
    Drained,
    /// No command is in flight and no thread waits. A launch within the grace time makes the group ready again without a message.
    Grace {
        /// Rest of the grace time, in ns; none = the grace time has not begun.
        left_ns: Option<u64>,
    },
}

/// Action that the core takes once when a group has reached an [`Activity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// No action.
    Nothing,
    /// Reports to the daemon that the group is drained.
    TellDrained,
    /// The grace time begins.
    BeginGrace,
}

impl Activity {
    /// Computes the activity of a group from its view.
    #[inline]
    pub fn of(view: &View) -> Activity {
        let gate = Gate::from_bits(view.word);
        let closed = !gate.is_open() && !gate.yields();
        let for_ns = view.now_ns.saturating_sub(view.waits_since_ns);
        if gate.must_announce() {
            Activity::Idle
        } else if view.complete && closed && view.waiters > 0 {
            Activity::Drained
        } else if view.complete {
            let until_ns = view.grace_since_ns.saturating_add(view.grace_ns);
            Activity::Grace { left_ns: (view.grace_since_ns != 0).then(|| until_ns.saturating_sub(view.now_ns)) }
        } else if closed && view.told != state::DRAINED && for_ns < DRAINS_NS {
            Activity::Draining { for_ns }
        } else {
            Activity::Ready
        }
    }

    /// Returns the action to take after a completion or the end of a wait, either of which may have led to this activity.
    #[inline]
    pub fn step(self) -> Step {
        match self {
            Activity::Drained => Step::TellDrained,
            Activity::Grace { left_ns: None } => Step::BeginGrace,
            _ => Step::Nothing,
        }
    }

    /// Returns the rest of the grace time, in ns; none where no grace time runs. At its end the group is declared idle, unless a launch
    /// comes in between; the core settles that race.
    #[inline]
    pub fn grace_left_ns(self) -> Option<u64> {
        match self {
            Activity::Grace { left_ns } => left_ns,
            _ => None,
        }
    }

    /// Reports whether the unfenced commands of a draining group are presumed complete. No fence reports them, so time has to.
    #[inline]
    pub fn is_late(self) -> bool {
        matches!(self, Activity::Draining { for_ns } if for_ns >= UNFENCED_NS)
    }

    /// Interval at which completions that the device only writes into memory are polled, in ns.
    #[inline]
    pub fn look_ns(self) -> u64 {
        if matches!(self, Activity::Draining { .. }) { DRAIN_LOOK_NS } else { LOOK_NS }
    }
}

/// Reports whether a group has rivals, according to a daemon that is present. Without rivals, none of the decisions above is urgent.
#[inline]
pub fn is_contended(word: u32) -> bool {
    let gate = Gate::from_bits(word);
    gate.is_contended() && !gate.is_detached()
}

/// Returns the grace time that follows a gap of `gap_ns` between draining and the next launch, in ns. It adapts to the program's own gaps.
#[inline]
pub fn next_grace_ns(grace_ns: u64, gap_ns: u64) -> u64 {
    let wanted = if gap_ns < SHORT_GAP_NS { gap_ns * 2 } else { 0 };
    let next = if wanted > grace_ns { wanted } else { grace_ns - (grace_ns - wanted) / GRACE_PARTS };
    next.clamp(GRACE_NS.0, GRACE_NS.1)
}

/// Record of the agent's polls of a group. Time in which the group is stopped (interrupted, or held by gates inside its graphs) does not
/// count: a stopped group cannot complete work, so that its silence proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looks {
    /// Time of the last poll, in ns.
    pub at_ns: u64,
    /// True if the group was stopped at the last poll.
    pub stopped: bool,
    /// Time for which the group has not been stopped, in ns.
    pub own_ns: u64,
    /// Value of `own_ns` at the last rare poll.
    pub rare_ns: u64,
}

impl Looks {
    /// Records a poll. Returns whether a rare one is due.
    pub fn look(&mut self, now_ns: u64, stopped: bool) -> bool {
        if !core::mem::replace(&mut self.stopped, stopped) {
            self.own_ns = self.own_ns.saturating_add(now_ns.saturating_sub(self.at_ns));
        }
        self.at_ns = now_ns;
        !stopped && self.own_ns.saturating_sub(self.rare_ns) >= RARE_LOOK_NS
    }

    /// Records that the rare poll was made.
    pub fn looked(&mut self) {
        self.rare_ns = self.own_ns;
    }
}
