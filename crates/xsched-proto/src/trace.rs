//! What the daemon remembers of its decisions, as `xsched trace` and `xsched top` read it.

use serde::{Deserialize, Serialize};

/// Something that happened to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// CLOCK_MONOTONIC, in µs.
    pub at_us: u64,
    /// `g<N>`.
    pub group: u64,
    /// What.
    pub what: What,
    /// Why; [`Why::Unsaid`] but for [`What::Opened`], [`What::Closed`] and [`What::Waits`].
    pub why: Why,
    /// The policy in force on the device then, by its place in the list of policies; counts only beside a reason.
    pub policy: u8,
    /// Preemption level of the group then: what becomes of commands that the driver has when its gate closes.
    pub level: u8,
    /// [`What::Ready`]: so long ago its first launch came, in µs. [`What::Idle`]: it had been so by so long ago, in µs, when that was found
    /// out late. [`What::Opened`]: threads that waited at its gate.
    pub value: u32,
}

/// What happens to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// It came to be: idle, its gate closed.
    Added,
    /// It is gone.
    Removed,
    /// It wants the device.
    Ready,
    /// It wants the device no more and has nothing on it.
    Idle,
    /// It wants the device and was decided not to get it: its launches wait.
    Waits,
    /// Its gate was opened.
    Opened,
    /// Its gate was closed. One that wants the device is preempted.
    Closed,
    /// Its closed gate yields: launches go on while those that it makes room for keep up.
    Yields,
    /// Its gate yields no more, and stays closed.
    Held,
    /// Its gate is closed, and it has nothing on the device any more.
    Drained,
    /// It has the device and shows no progress while others wait: it counts as idle.
    Stalled,
    /// It shows progress again.
    Recovered,
}

/// Why a gate is open or closed: the last word of those that decide in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Why {
    /// There is no decision to it.
    Unsaid,
    /// The policy in force on the device.
    Policy,
    /// The guarantee or the quantum of a class.
    Guarantee,
    /// The programs of its pool get on evenly.
    Evenness,
    /// It, or another, has waited for as long as any may.
    Guard,
    /// Its job cannot have all its devices.
    Job,
    /// `xsched suspend`, or its priority is never to run.
    Suspended,
    /// A group of vendor libraries of its own program goes first.
    Domain,
    /// It has shown no progress while others waited.
    Stalled,
    /// It has had the device for long without progress: those that wait get a turn.
    Starvation,
    /// What a less urgent one had in flight when its gate closed gets the device for a moment, to come to its end.
    Drain,
}

impl Why {
    /// One word, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Why::Unsaid => "unsaid",
            Why::Policy => "policy",
            Why::Guarantee => "guarantee",
            Why::Evenness => "evenness",
            Why::Guard => "guard",
            Why::Job => "job",
            Why::Suspended => "suspended",
            Why::Domain => "domain",
            Why::Stalled => "stalled",
            Why::Starvation => "starvation",
            Why::Drain => "drain",
        }
    }
}

impl What {
    /// One word, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            What::Added => "added",
            What::Removed => "removed",
            What::Ready => "ready",
            What::Idle => "idle",
            What::Waits => "waits",
            What::Opened => "opened",
            What::Closed => "closed",
            What::Yields => "yields",
            What::Held => "held",
            What::Drained => "drained",
            What::Stalled => "stalled",
            What::Recovered => "recovered",
        }
    }
}
