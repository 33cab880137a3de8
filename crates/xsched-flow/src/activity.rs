//! Whether a group wants the device: one of five states, told by a plain [`View`] of the group.
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

/// What is known of a group at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The gate word.
    pub word: u32,
    /// What the daemon was told last, see [`state`].
    pub told: u32,
    /// All of its commands are known to be complete.
    pub complete: bool,
    /// Threads that wait, at the closed gate or for the budget.
    pub waiters: u32,
    /// When a thread last began to wait at the closed gate while commands were in flight, in ns.
    pub waits_since_ns: u64,
    /// When the grace time began, in ns; 0 = it has not.
    pub grace_since_ns: u64,
    /// How long the grace time is, in ns: see [`next_grace_ns`].
    pub grace_ns: u64,
    /// Now, in ns.
    pub now_ns: u64,
}

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// Nothing in flight, and the daemon knows. The gate word says [`Gate::MUST_ANNOUNCE`]; the next launch announces itself.
    Idle,
    /// Wants the device, or still uses it.
    Ready,
    /// The gate is closed, a thread waits there, and commands are in flight: the device counts as the group's own until it has
    /// drained, and no longer than [`DRAINS_NS`].
    Draining {
        /// For how long, in ns.
        for_ns: u64,
    },
    /// The same with nothing in flight any more. The daemon is told.
    Drained,
    /// Nothing in flight and nothing waits. A launch within the grace time makes the group ready again without a message.
    Grace {
        /// What is left of the grace time, in ns; none = it is to begin.
        left_ns: Option<u64>,
    },
}

/// What the core does about it, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Nothing.
    Nothing,
    /// Tells the daemon that the group is drained.
    TellDrained,
    /// Begins the grace time.
    BeginGrace,
}

impl Activity {
    /// Of a group that looks like this.
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

    /// What is to be done when a completion or the end of a wait may have led here.
    #[inline]
    pub fn step(self) -> Step {
        match self {
            Activity::Drained => Step::TellDrained,
            Activity::Grace { left_ns: None } => Step::BeginGrace,
            _ => Step::Nothing,
        }
    }

    /// Time left of the grace time, in ns; none where it does not run. At its end the group is declared idle, unless a launch
    /// comes in between: that race is the core's.
    #[inline]
    pub fn grace_left_ns(self) -> Option<u64> {
        match self {
            Activity::Grace { left_ns } => left_ns,
            _ => None,
        }
    }

    /// Whether a draining group's unfenced commands are presumed complete: no fence tells of them.
    #[inline]
    pub fn is_late(self) -> bool {
        matches!(self, Activity::Draining { for_ns } if for_ns >= UNFENCED_NS)
    }

    /// How often completions that only memory tells of are looked for, in ns.
    #[inline]
    pub fn look_ns(self) -> u64 {
        if matches!(self, Activity::Draining { .. }) { DRAIN_LOOK_NS } else { LOOK_NS }
    }
}

/// Whether a group has rivals, as a daemon says that is there: without any, no question above is urgent.
#[inline]
pub fn is_contended(word: u32) -> bool {
    let gate = Gate::from_bits(word);
    gate.is_contended() && !gate.is_detached()
}

/// The grace time after a gap of `gap_ns` between draining and the next launch, in ns. It follows the program's own gaps.
#[inline]
pub fn next_grace_ns(grace_ns: u64, gap_ns: u64) -> u64 {
    let wanted = if gap_ns < SHORT_GAP_NS { gap_ns * 2 } else { 0 };
    let next = if wanted > grace_ns { wanted } else { grace_ns - (grace_ns - wanted) / GRACE_PARTS };
    next.clamp(GRACE_NS.0, GRACE_NS.1)
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
            self.own_ns = self.own_ns.saturating_add(now_ns.saturating_sub(self.at_ns));
        }
        self.at_ns = now_ns;
        !stopped && self.own_ns.saturating_sub(self.rare_ns) >= RARE_LOOK_NS
    }

    /// The rare look was made.
    pub fn looked(&mut self) {
        self.rare_ns = self.own_ns;
    }
}
