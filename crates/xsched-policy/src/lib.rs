//! Scheduling policies and the arbiter that drives them: pure state machines, `(state, event, now) → actions`.
//! The crate has no clock, no I/O and no threads. The daemon, the in-process scheduler and the simulator run the same code.
//!
//! - [`Policy`]: decides which groups of one device may run.
//! - [`Arbiter`]: holds the groups of all devices, turns [`Event`]s into decisions and these into [`Action`]s, and charges device time.
//!   A decision has stages. The policy is the first; then come guarantees between classes, evenness inside a pool, a guard against long
//!   waits, and the drain of suspended work. Around them are suspension by operators, jobs that run on all their devices or on none,
//!   inheritance, domains within a program, and turns for groups that starve.
//! - [`Progress`]: finds groups that make no progress.
//! - [`share`]: computes the parts of a device that programs ask for.
//! - [`registry`]: lists the policies by name; a [`Choice`] is one of them with its parameters.
//!
//! Two programs on one device, under highest priority first:
//!
//! ```
//! use xsched_policy::{Action, Arbiter, Choice, Event, GroupId, GroupSpec, ProgramId};
//!
//! let mut arbiter = Arbiter::new(Choice::named("hpf")?, 0);
//! let (training, service) = (GroupId(1), GroupId(2));
//! let mut actions = Vec::new();
//! for (id, priority) in [(training, -128), (service, 128)] {
//!     let spec = GroupSpec { priority, ..GroupSpec::new(id, ProgramId(id.0), "sim:0") };
//!     arbiter.event(0, Event::Add(spec), &mut actions);
//! }
//! arbiter.event(10, Event::Ready(training), &mut actions);
//! assert!(actions.contains(&Action::Open(training)));
//!
//! // The service wants the device 1 ms later: the training's gate closes.
//! actions.clear();
//! arbiter.event(1_010, Event::Ready(service), &mut actions);
//! assert!(actions.contains(&Action::Close(training)));
//! # Ok::<(), xsched_proto::Error>(())
//! ```
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

pub use arbiter::{Action, Arbiter, ClassRule, Drains, Event, GroupSpec, GroupStatus};
pub use choice::Choice;
pub use params::{Accepts, Param, Params};
pub use progress::Progress;
pub use tuning::{GUARD_US, LOOK_US};

/// Microseconds of a monotonic clock of the caller's choice.
pub type Micros = u64;

/// Number of a group, the unit of suspension: all queues of a process on a device with the same priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

/// Number of a program. A program is a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramId(pub u64);

/// Number of a pool: groups of several programs on one device that run at the same time, as clients of one MPS server do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u64);

/// A node above a program in a hierarchy of shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Number of the node within its hierarchy, derived from its path.
    pub id: u64,
    /// Weight among its siblings, 1..=10000.
    pub weight: u32,
}

/// Position of a program in the hierarchies that shares may follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// User of the program.
    pub user: Level,
    /// Cgroups of the program, from the root's child down.
    pub cgroup: Vec<Level>,
    /// The Kubernetes namespace of its pod; none = the program is in no pod.
    pub namespace: Option<Level>,
}

/// View of one group for a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupView {
    /// Number of the group.
    pub id: GroupId,
    /// Its process.
    pub program: ProgramId,
    /// Effective priority, -255..=255 (inheritance included), higher first.
    pub priority: i32,
    /// Hints for the policy.
    pub hints: Hints,
    /// Nice value of its process, -20..=19, lower first.
    pub nice: i32,
    /// True while its process has the active window.
    pub active: bool,
    /// Position of its program among users and cgroups; none = alone at the top.
    pub lineage: Option<Arc<Lineage>>,
    /// MPS server, not xsched's own, beside whose other groups this group runs, whatever their class: the hardware's own priorities
    /// decide among them.
    pub spatial: Option<PoolId>,
    /// Pool in which this group runs side by side with others that the policy lets run, first come first served. The arbiter keeps their
    /// progress even. Policies ignore it.
    pub pool: Option<PoolId>,
    /// True while the group wants the device: launches wait, are in flight, or ended within the grace time.
    pub ready: bool,
    /// Time since which the group is ready.
    pub ready_since: Micros,
    /// True while its program wants another device.
    pub wanted_elsewhere: bool,
    /// True while its gate is open.
    pub granted: bool,
    /// True while its launches may be on the device: ready and granted, or revoked and not yet drained.
    pub busy: bool,
    /// Device time charged to the group since it was added, in µs; time in which n groups are busy counts 1/n for each.
    pub used_us: f64,
    /// True if its commands are long and cannot be interrupted: a group that comes meanwhile waits for one.
    pub holds_up: bool,
    /// Time since which the group does not want the device; none = it never did.
    pub idle_since: Option<Micros>,
    /// Number of bursts so far. A burst lasts from a first launch to the last completion before the group goes idle.
    pub bursts: u64,
    /// Length of the last burst, in µs.
    pub burst_us: u64,
}

impl GroupView {
    /// An idle group with every other value at its default.
    pub fn new(id: GroupId, program: ProgramId) -> GroupView {
        GroupView {
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

    /// The server beside whose other groups this group runs, whatever their class; none while its commands would hold those up.
    pub fn runs_beside(&self) -> Option<PoolId> {
        self.spatial.filter(|_| !self.holds_up)
    }
}

/// Verdict of a policy on one group. Several groups may run at a time: in turns of the hardware, or side by side in a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Opens its gate. A group that is not ready gets an open gate if it should start at once when it becomes ready.
    pub run: bool,
    /// Limits its device time in flight, because another group may have to preempt it.
    pub budgeted: bool,
}

/// Question of a policy to a program outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Number of the question, greater than that of the last one about its device.
    pub number: u64,
    /// All groups on the device.
    pub groups: Vec<GroupView>,
    /// State of the device as last observed ([`Policy::observe`]), with its age now; none = not known.
    pub state: Option<DeviceState>,
}

/// Answer of the program outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Number of the question.
    pub number: u64,
    /// The groups that may have the device.
    pub run: Vec<GroupId>,
    /// Time after which the policy asks again though nothing changes, in µs.
    pub again_in_us: Option<u64>,
}

/// Decides for the groups of one device.
pub trait Policy: Send {
    /// Fills `verdicts` (same length and order as `groups`, which are sorted by id; preset to `Verdict::default()`).
    /// Called after each change and when the time returned earlier has come. Returns the time at which it must be called again though
    /// nothing happens.
    fn decide(&mut self, now: Micros, groups: &[GroupView], verdicts: &mut [Verdict]) -> Option<Micros>;

    /// Takes in the state of the device, as its driver reports it, about once a second; none = not known, or not any more. It counts until
    /// the next call, and no decision follows by itself.
    fn observe(&mut self, _now: Micros, _state: Option<&DeviceState>) {}

    /// True if closed gates may yield: their groups then go on beside those that have the device, as long as the latter keep up.
    fn lets_yield(&self) -> bool {
        true
    }

    /// Question for a program outside that came up since the last call. Most policies have none.
    fn question(&mut self) -> Option<Question> {
        None
    }

    /// Takes in the answer. A decision follows.
    fn answer(&mut self, _now: Micros, _answer: &Answer) {}

    /// True for a group that goes before others of its priority because it pauses, as of the last decision.
    fn is_interactive(&self, _group: GroupId) -> bool {
        false
    }
}
