//! Records of the daemon's decisions, as `xsched trace` and `xsched top` read them.

use serde::{Deserialize, Serialize};

/// Event of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Time of the event, CLOCK_MONOTONIC in µs.
    pub at_us: u64,
    /// Number of the group, shown as `g<N>`.
    pub group: u64,
    /// Kind of the event.
    pub what: What,
    /// Reason of the event; [`Why::Unsaid`] but for [`What::Opened`], [`What::Closed`] and [`What::Waits`].
    pub why: Why,
    /// Policy in force on the device at the event, by its place in the list of policies; valid only beside a reason.
    pub policy: u8,
    /// Preemption level of the group at the event: it decides what happens to commands in the driver when the group's gate closes.
    pub level: u8,
    /// [`What::Ready`]: time since the group's first launch, in µs. [`What::Idle`]: time since the group was idle, in µs, where that was
    /// found out late. [`What::Opened`]: number of threads that waited at its gate.
    pub value: u32,
}

/// Burst of a group that is recorded: a time in which it wanted its device, from its first launch to its last completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burst {
    /// Number of the group, shown as `g<N>`.
    pub group: u64,
    /// Process id of its program.
    pub pid: u32,
    /// Time of the first launch, CLOCK_MONOTONIC in µs.
    pub began_us: u64,
    /// Length, in µs.
    pub us: u64,
    /// Part of it in which the group was kept from its device, in µs.
    pub waited_us: u64,
    /// Expected device time of its commands, in µs; 0 = not known.
    pub device_us: u64,
    /// Number of its commands; 0 if it was cut.
    pub commands: u64,
    /// Bursts just before it of which nothing else is known: the daemon had not looked between them.
    pub missed: u64,
    /// True if no other group wanted the device meanwhile.
    pub alone: bool,
    /// True if the program or the recording ended before the burst did.
    pub cut: bool,
}

/// Kind of an event of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// The group was created: idle, its gate closed.
    Added,
    /// The group was removed.
    Removed,
    /// The group wants the device.
    Ready,
    /// The group no longer wants the device, and has nothing on it.
    Idle,
    /// The group wants the device and was decided not to get it: its launches wait.
    Waits,
    /// The group's gate was opened.
    Opened,
    /// The group's gate was closed. If the group wants the device, this preempts it.
    Closed,
    /// The group's closed gate yields: launches go on while the groups that it yields to keep up.
    Yields,
    /// The group's gate no longer yields, and stays closed.
    Held,
    /// The group's gate is closed, and the group has nothing on the device any more.
    Drained,
    /// The group has the device and shows no progress while others wait: it counts as idle.
    Stalled,
    /// The group shows progress again.
    Recovered,
}

/// Reason for which a gate is open or closed: the last one in the order in which the stages of a decision apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Why {
    /// No decision belongs to the event.
    Unsaid,
    /// Decision of the policy in force on the device.
    Policy,
    /// Guarantee or quantum of a class.
    Guarantee,
    /// Evenness of progress among the programs of a pool.
    Evenness,
    /// Longest wait: the group, or another one, has waited for as long as any group may.
    Guard,
    /// The group's job cannot have all its devices.
    Job,
    /// `xsched suspend`, or the group's priority is never to run.
    Suspended,
    /// A group of vendor libraries of the same program goes first.
    Domain,
    /// The group has shown no progress while others waited.
    Stalled,
    /// The group has had the device for long without progress: waiting groups get a turn.
    Starvation,
    /// A less urgent group gets the device for a moment, so that its commands in flight at the closing of its gate complete.
    Drain,
}

impl Why {
    /// Name of the reason, as in JSON.
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
    /// Name of the kind, as in JSON.
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
