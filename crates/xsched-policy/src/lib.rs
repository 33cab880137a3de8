//! Scheduling policies and the arbiter that drives them: pure state machines, `(state, event, now) → actions`.
//! No clock, no I/O, no thread in here. The daemon, the in-process scheduler and the simulator run this very code.
//!
//! - [`Policy`] looks at the groups of one device and says which may run.
//! - [`Arbiter`] holds the groups of all devices, turns [`Event`]s into calls of the policy and its answers into
//!   [`Action`]s, charges device time, and adds what every policy needs alike: operator suspension, jobs that run
//!   on all their devices or on none, inheritance, guarantees between classes, shares inside a pool, domains within a
//!   program, and help for groups that starve.
//! - [`Progress`] tells it which groups get nowhere.
//! - [`share`] tells the parts of a device that programs ask for.
//! - [`registry`] lists the policies by name; a [`Choice`] is one of them with its parameters.
#![forbid(unsafe_code)]

mod arbiter;
mod choice;
mod entry;
pub mod math;
mod params;
mod policies;
mod progress;
pub mod registry;
pub mod share;
mod tuning;

use std::sync::Arc;

use xsched_proto::device::DeviceState;
use xsched_proto::hint::Hints;

pub use arbiter::{Action, Arbiter, ClassRule, Event, GroupSpec, GroupStatus};
pub use choice::Choice;
pub use params::{Accepts, Param, Params};
pub use progress::Progress;
pub use tuning::{GUARD_US, LOOK_US};

/// Microseconds of a monotonic clock of the caller's choice.
pub type Micros = u64;

/// A suspension unit: by default all queues of a process on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramId(pub u64);

/// What several programs' groups on a device share: theirs run at the same time, as clients of one MPS server do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u64);

/// A node above a program in a hierarchy of shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Which, among all of its hierarchy; equal at equal paths.
    pub id: u64,
    /// Weight among its siblings, 1..=10000.
    pub weight: u32,
}

/// Where a program stands in the hierarchies that shares may follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// Its user.
    pub user: Level,
    /// Its cgroups, the root's child first.
    pub cgroup: Vec<Level>,
    /// The Kubernetes namespace of its pod; none = it is in none.
    pub namespace: Option<Level>,
}

/// What a policy knows of one group.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Which.
    pub id: GroupId,
    /// Its process.
    pub program: ProgramId,
    /// Effective priority, -255..=255 (inheritance included), higher first.
    pub priority: i32,
    /// What was said for the policy.
    pub hints: Hints,
    /// Nice value of its process, -20..=19, lower first.
    pub nice: i32,
    /// Its process has the active window.
    pub active: bool,
    /// Where its program stands among users and cgroups; none = alone at the top.
    pub lineage: Option<Arc<Lineage>>,
    /// It runs at the same time as others of this MPS server, which is not xsched's own, whatever their class: the hardware's own
    /// priorities decide among them.
    pub spatial: Option<PoolId>,
    /// It runs side by side with others of this pool that the policy lets run, first come first served. The arbiter sees to it that
    /// they get on evenly. No policy looks at it.
    pub pool: Option<PoolId>,
    /// Wants the device (launches wait, are in flight, or ended within the grace time).
    pub ready: bool,
    /// Since when it is ready.
    pub ready_since: Micros,
    /// Its program wants another device.
    pub wanted_elsewhere: bool,
    /// Its gate is open now.
    pub granted: bool,
    /// Launches of it may still be on the device: ready and granted, or revoked and not yet drained.
    pub busy: bool,
    /// Device time charged to it since it was added, in µs; time in which n groups are busy counts 1/n for each.
    pub used_us: f64,
    /// Its commands are long and nothing ends or interrupts them: a group that comes meanwhile waits for one.
    pub holds_up: bool,
    /// Since when it wants the device no more; none = it never did.
    pub idle_since: Option<Micros>,
    /// Times it wanted the device to the end: from a first launch to the last completion before it went idle.
    pub bursts: u64,
    /// How long the last of them took, in µs.
    pub burst_us: u64,
}

impl Group {
    /// A group of which nothing is known but who it is: idle, with every value at its default.
    pub fn new(id: GroupId, program: ProgramId) -> Group {
        Group {
            id,
            program,
            priority: 0,
            hints: Hints::default(),
            nice: 0,
            active: false,
            lineage: None,
            spatial: None,
            pool: None,
            ready: false,
            ready_since: 0,
            wanted_elsewhere: false,
            granted: false,
            busy: false,
            used_us: 0.0,
            holds_up: false,
            idle_since: None,
            bursts: 0,
            burst_us: 0,
        }
    }

    /// The server under which it runs beside others, whatever their class; none while its commands would hold those up.
    pub fn runs_beside(&self) -> Option<PoolId> {
        self.spatial.filter(|_| !self.holds_up)
    }
}

/// A policy's answer for one group. Those that may run at a time are those whose verdict says so: in turns, or at the same time
/// where they share a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Open its gate. A group that is not ready gets an open gate if it should start at once when it becomes ready.
    pub run: bool,
    /// Bound its device time in flight, because another group may have to preempt it.
    pub bounded: bool,
}

/// What a policy asks of a program outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Each has a greater one than the last of its device.
    pub number: u64,
    /// All groups on the device.
    pub groups: Vec<Group>,
    /// The device's state as [`Policy::observe`] was told last, with its age now; none = not known.
    pub state: Option<DeviceState>,
}

/// What it is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Of the question.
    pub number: u64,
    /// The groups that may have the device.
    pub run: Vec<GroupId>,
    /// Ask again after this time though nothing changes, in µs.
    pub again_in_us: Option<u64>,
}

/// Decides for the groups of one device.
pub trait Policy: Send {
    /// Fills `verdicts` (same length and order as `groups`, which are sorted by id; preset to `Verdict::default()`).
    /// Called after each change and when the time returned earlier has come. Returns when it wants to be asked again
    /// though nothing happens.
    fn decide(&mut self, now: Micros, groups: &[Group], verdicts: &mut [Verdict]) -> Option<Micros>;

    /// The device's state, as its driver tells it; none = it is not known, or not any more. Told about once a second; no decision
    /// follows by itself. What is told counts until the next time.
    fn observe(&mut self, _now: Micros, _state: Option<&DeviceState>) {}

    /// True if closed gates may yield: their groups then go on beside those that have the device, as long as those keep up.
    fn lets_yield(&self) -> bool {
        true
    }

    /// What it wants to know from outside since the last decision. Most know all themselves.
    fn question(&mut self) -> Option<Question> {
        None
    }

    /// The answer. A decision follows.
    fn answer(&mut self, _now: Micros, _answer: &Answer) {}

    /// True for a group that goes before others of its priority because it pauses, as of the last decision.
    fn is_interactive(&self, _group: GroupId) -> bool {
        false
    }
}
