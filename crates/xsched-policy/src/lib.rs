//! Scheduling policies and the arbiter that drives them: pure state machines, `(state, event, now) → actions`.
//! No clock, no I/O, no thread in here. The daemon, the in-process scheduler and the simulator run this very code.
//!
//! - [`Policy`] looks at the groups of one device and says which may run.
//! - [`Arbiter`] holds the groups of all devices, turns [`Event`]s into calls of the policy and its answers into
//!   [`Action`]s, charges device time, and adds what every policy needs alike: operator suspension, jobs that run
//!   on all their devices or on none, inheritance, guarantees between classes, domains within a program,
//!   and help for groups that starve behind a program without progress.
//! - [`Progress`] tells it which groups get nowhere.
//! - [`registry`] lists the policies by name.
#![forbid(unsafe_code)]

mod arbiter;
mod params;
mod policies;
mod progress;
pub mod registry;
mod tuning;

pub use arbiter::{Action, Arbiter, ClassRule, Event, GroupSpec, GroupStatus};
pub use progress::Progress;
pub use tuning::LOOK_US;

/// Microseconds of a monotonic clock of the caller's choice.
pub type Micros = u64;

/// A suspension unit: by default all queues of a process on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramId(pub u64);

/// What a policy knows of one group.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Which.
    pub id: GroupId,
    /// Its process.
    pub program: ProgramId,
    /// Effective priority, -255..=255 (inheritance included), higher first.
    pub priority: i32,
    /// Weight of a fair share, 1..=10000.
    pub weight: u32,
    /// Turn of the lightest where the policy takes turns, in µs; heavier ones have up to four times as long.
    pub timeslice_us: u64,
    /// Wants the device (launches wait, are in flight, or ended within the grace time).
    pub ready: bool,
    /// Since when it is ready.
    pub ready_since: Micros,
    /// Its gate is open now.
    pub granted: bool,
    /// Launches of it may still be on the device: ready and granted, or revoked and not yet drained.
    pub busy: bool,
    /// Device time charged to it since it was added, in µs; time in which n groups are busy counts 1/n for each.
    pub used_us: f64,
    /// It runs at the same time as all others on the device, by the hardware's own priorities.
    pub side_by_side: bool,
    /// Its commands are long and nothing ends or interrupts them: a group that comes meanwhile waits for one.
    pub holds_up: bool,
    /// Since when it wants the device no more; none = it never did.
    pub idle_since: Option<Micros>,
}

/// A policy's answer for one group.
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

    /// What it wants to know from outside since the last decision. Most know all themselves.
    fn question(&mut self) -> Option<Question> {
        None
    }

    /// The answer. A decision follows.
    fn answer(&mut self, _now: Micros, _answer: &Answer) {}
}
