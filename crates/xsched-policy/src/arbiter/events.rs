//! Input and output of the arbiter.

use std::sync::Arc;

#[cfg(doc)]
use xsched_proto::class::PRIORITY_NEVER;
use xsched_proto::hint::Hints;

use crate::{Answer, GroupId, Lineage, PoolId, ProgramId};
#[cfg(doc)]
use crate::{Arbiter, GroupView};

/// Properties of a new group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSpec {
    /// Number of the group; never used before.
    pub id: GroupId,
    /// Its process.
    pub program: ProgramId,
    /// Device key; groups with equal keys compete.
    pub device: String,
    /// Own priority, -255..=255, or [`PRIORITY_NEVER`].
    pub priority: i32,
    /// Hints for the policy.
    pub hints: Hints,
    /// Nice value of its process, -20..=19.
    pub nice: i32,
    /// True while its process has the active window.
    pub active: bool,
    /// Position of its program among users and cgroups; none = alone at the top.
    pub lineage: Option<Arc<Lineage>>,
    /// Name of its job; groups with the same job are granted on all their devices together or on none.
    pub job: Option<String>,
    /// See [`GroupView::spatial`].
    pub spatial: Option<PoolId>,
    /// See [`GroupView::pool`].
    pub pool: Option<PoolId>,
    /// True for a group of the system domain: while it wants the device, other groups of its process of the same priority wait.
    pub system: bool,
}

impl GroupSpec {
    /// A group with every other property at its default.
    pub fn new(id: GroupId, program: ProgramId, device: &str) -> GroupSpec {
        GroupSpec {
            id,
            program,
            device: device.to_owned(),
            priority: 0,
            hints: Hints::default(),
            nice: 0,
            active: false,
            lineage: None,
            job: None,
            spatial: None,
            pool: None,
            system: false,
        }
    }
}

/// Rules for all groups whose own priority lies in a range, whatever the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassRule {
    /// First priority of the range.
    pub lowest: i32,
    /// Last priority of the range.
    pub highest: i32,
    /// Length of a turn by guarantee, and of the time for which a group that is not preemptible keeps the device, in µs.
    pub quantum_us: u64,
    /// True if a group leaves the device as soon as the policy says so; false = at the end of a quantum.
    pub preemptible: bool,
    /// Part of the device that the class gets at least while it wants it, in percent; 0 = what the policy leaves.
    pub guarantee_percent: u32,
}

/// The end of work that a suspended group has in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drains {
    /// The hardware decides; the work may be too long for anything else.
    #[default]
    ByItself,
    /// The work is short, and advances in short slices of the hardware while another group has the device. Where that is not enough, the
    /// others pause for some moments.
    InSlices,
    /// The work gets nowhere in such slices: others wait for it first, unless their requests are short or it proves too long.
    First,
}

/// Change that the arbiter takes in. Events about an unknown group are ignored.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A new group, which is idle until another event says otherwise.
    Add(GroupSpec),
    /// The group is removed, with all that it had on the device.
    Remove(GroupId),
    /// The group wants the device.
    Ready(GroupId),
    /// The group has nothing on the device and wants nothing.
    Idle(GroupId),
    /// The gate of the group is closed, it has nothing on the device any more, and still wants it.
    Drained(GroupId),
    /// New values of properties in the group's [`GroupSpec`]; absent values stay.
    Hint {
        /// Group concerned.
        group: GroupId,
        /// New own priority.
        priority: Option<i32>,
        /// New hints.
        hints: Hints,
    },
    /// New nice value of a program's process, -20..=19.
    Nice(ProgramId, i32),
    /// A program's process has the active window, or not any more.
    Active(ProgramId, bool),
    /// A burst has ended: the time from a first launch to the last completion before the group goes idle. Comes before [`Event::Idle`].
    Burst {
        /// Group concerned.
        group: GroupId,
        /// Length of the burst, in µs.
        us: u64,
    },
    /// A group of the same program waits for this group and lends it a priority, or takes it back.
    /// No group gets more than the highest own priority among the groups of its program.
    Inherit {
        /// Group that gets the priority.
        group: GroupId,
        /// Lent priority; none = none any more.
        priority: Option<i32>,
    },
    /// An operator suspends a program on all its devices.
    Hold(ProgramId),
    /// An operator resumes a program.
    Release(ProgramId),
    /// The group issued or completed something since the last poll.
    Progress(GroupId),
    /// The group has the device, others wait for it, and it neither issued nor completed anything for a while.
    Stalled(GroupId),
    /// Counters of a group. Due for each group that [`Arbiter::is_counted`] names, before any other event, when [`Arbiter::counts_due`]
    /// says so. Causes no decision.
    Counted {
        /// Group concerned.
        group: GroupId,
        /// Commands completed, from any origin.
        completed: u64,
        /// Commands that the device held up, from any origin and modulo 2^32.
        limited: u32,
        /// Duration of its longest kind of command, in µs; 0 = not known.
        longest_us: u64,
        /// True if nothing of the group is on the device for sure, should its gate be closed.
        drained: bool,
    },
    /// Commands of the group are too long for others to run beside it: it is treated as if it did not.
    TooLong(GroupId),
    /// The end of the work that the group has in flight when its gate closes.
    Drains(GroupId, Drains),
    /// True if the device executes work of the group, though its gate is closed. Due for each group that [`Arbiter::drains_due`] names,
    /// before [`Event::Timer`].
    Executes(GroupId, bool),
    /// Answer from outside to a policy's question.
    Answer {
        /// Device key.
        device: String,
        /// The answer.
        answer: Answer,
    },
    /// The time of [`Arbiter::next_timer`] has come.
    Timer,
}

/// Request of the arbiter to its caller. Each comes only on a change: a new group starts with its gate closed, without in-flight budget,
/// neither contended nor exclusive nor stalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open the gate of the group.
    Open(GroupId),
    /// Close the gate of the group.
    Close(GroupId),
    /// Limit the device time that the group has in flight to one n-th of the device's in-flight budget; 0 = no limit.
    Budget(GroupId, u32),
    /// Another group is registered on the same device, or not.
    Contended(GroupId, bool),
    /// The group counts as idle because it shows no progress, though it never reported that it is idle, or not any more. While it does, its
    /// next launch must report at once ([`Event::Progress`]): the next poll would notice it too late.
    Stalled(GroupId, bool),
    /// The group is contended, and no other group has work on the device; or not.
    Exclusive(GroupId, bool),
    /// The group is urgent (class high and above), and all others on its device are of lower priority: it may keep the device through short
    /// gaps, with this slowdown as its budget, in percent of the time alone. None = it may not.
    KeepsGaps(GroupId, Option<u32>),
}

/// State of a group for observers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupStatus {
    /// Effective priority.
    pub priority: i32,
    /// True while its gate is open.
    pub granted: bool,
    /// True while the group wants the device.
    pub ready: bool,
    /// True while an operator suspends the group, or its own priority is [`PRIORITY_NEVER`].
    pub held: bool,
    /// Device time charged to the group, in µs.
    pub used_us: f64,
    /// Number of times that its gate closed.
    pub suspensions: u64,
    /// True while others wait for the device that the group has, so that its progress matters (see [`Event::Progress`],
    /// [`Event::Stalled`]).
    pub scrutinised: bool,
    /// True while the policy prefers the group to others of its priority because it pauses.
    pub interactive: bool,
    /// Duration of a command while the group is alone in its pool, in µs; none = not known, or not measured.
    pub alone_us: Option<f64>,
}
