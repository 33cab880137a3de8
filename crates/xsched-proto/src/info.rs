//! What the daemon tells commands of itself, of programs, their groups and queues: parts of [`DaemonMsg`](crate::wire::DaemonMsg).

use serde::{Deserialize, Serialize};

use crate::domains::DomainMode;
use crate::platform::Platform;
use crate::segment::HeardLate;
use crate::trace::Why;

/// The daemon about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DaemonInfo {
    /// Process id.
    pub pid: u32,
    /// Program version.
    pub version: String,
    /// Policy in force on devices that have none of their own, with parameters that are not at their defaults: `kedf k=2`.
    pub policy: String,
    /// The same of devices that have one, by device key.
    pub device_policies: std::collections::BTreeMap<String, String>,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Clients dropped for malformed or hostile messages.
    pub dropped_clients: u64,
    /// Attached programs of other users, which the one who asks may not see.
    pub hidden_programs: u32,
}

/// One policy that can be chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyInfo {
    /// Its name.
    pub name: String,
    /// Other names.
    pub aliases: Vec<String>,
    /// One line.
    pub about: String,
    /// Whether it is the one in force on devices that have none of their own.
    pub current: bool,
    /// Keys of the devices that it is in force on of their own.
    pub devices: Vec<String>,
    /// Its parameters, with the values in force, else their defaults.
    pub params: Vec<ParamInfo>,
}

/// A parameter of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParamInfo {
    /// Its name.
    pub name: String,
    /// One line.
    pub about: String,
    /// What is accepted.
    pub accepts: String,
    /// The value, as it is typed.
    pub value: String,
}

/// One attached process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramInfo {
    /// Process id, as the daemon sees it.
    pub pid: u32,
    /// User id.
    pub uid: u32,
    /// Path of the executable.
    pub exe: String,
    /// What it is called: the script that an interpreter runs, else the file name of its executable.
    pub name: String,
    /// Its command line when it started, cut.
    pub command: Vec<String>,
    /// Its command line at its first device call, where it had written over that of the start.
    pub title: Option<String>,
    /// The job that was given a name.
    pub job: Option<String>,
    /// The container that it is in, the innermost one.
    pub container: Option<String>,
    /// What the container's engine calls it.
    pub container_name: Option<String>,
    /// The Kubernetes pod, by its name.
    pub pod: Option<String>,
    /// The pod's namespace.
    pub namespace: Option<String>,
    /// Seconds since it attached, to its end if it has ended.
    pub attached_s: u64,
    /// Seconds since it ended; none = it is attached.
    pub ended_s: Option<u64>,
    /// Class of its priority.
    pub class: crate::class::Class,
    /// Where the class comes from.
    pub class_from: ClassFrom,
    /// It asked for more than it may have.
    pub limited: bool,
    /// Its own priority.
    pub priority: i32,
    /// Its weight.
    pub weight: u32,
    /// What was said for the policy, by the name of the hint, as it is typed.
    pub hints: std::collections::BTreeMap<String, String>,
    /// How it shares a GPU with others; none = it was not announced by `xsched run`.
    pub share: Option<Share>,
    /// The pool that it is in.
    pub pool: Option<PoolSide>,
    /// The reason for its place in a pool or outside, in one line, as far as there is something to tell.
    pub pool_why: Option<String>,
    /// What becomes of its launches of vendors' libraries.
    pub domains: DomainMode,
    /// Its suspension units.
    pub groups: Vec<GroupInfo>,
}

impl ProgramInfo {
    /// Its container as it is called: `namespace/pod/name`, as far as these are known, else by its id or whatever names it.
    pub fn container(&self) -> Option<String> {
        let names = [&self.namespace, &self.pod, &self.container_name];
        let names: Vec<&str> = names.into_iter().filter_map(|name| name.as_deref()).collect();
        if names.is_empty() { self.container.clone() } else { Some(names.join("/")) }
    }
}

/// Where a program's class comes from; what counts before the others comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassFrom {
    /// Nothing was said.
    Default,
    /// A rule of the configuration.
    Rule,
    /// The program itself: an option of `xsched run`, or its environment.
    Option,
    /// `xsched hint`, since it runs.
    Hint,
}

impl ClassFrom {
    /// One word.
    pub fn text(self) -> &'static str {
        match self {
            ClassFrom::Default => "default",
            ClassFrom::Rule => "rule",
            ClassFrom::Option => "option",
            ClassFrom::Hint => "hint",
        }
    }
}

/// Whose work a group is, as far as it was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueDomain {
    /// Vendor libraries': before the other groups of the program of the same priority.
    System,
    /// The program's own.
    Application,
}

/// How the contexts of a program share a device with those of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sharing {
    /// They take turns with all others.
    #[default]
    Time,
    /// They are in the pool of their user: one context of the hardware's, of which the urgent programs are no part.
    Pool,
    /// They are clients of an MPS server that is not ours, and run at the same time as its other clients, by the hardware's own
    /// priorities: a number that those have in common.
    Spatial(u64),
}

/// How programs share a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Share {
    /// Each has a context of its own; they take turns.
    Time,
    /// The best-effort programs of a user are side by side in one context, which takes turns with the urgent ones.
    Pool,
    /// By an MPS daemon that is not ours: side by side, whatever their class.
    Spatial,
}

/// One of a user's two pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolSide {
    /// Urgent programs may be there, with others that are proven.
    Inner,
    /// For best-effort programs only.
    Outer,
}

/// One suspension unit of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupInfo {
    /// `g<N>`.
    pub id: String,
    /// Device key.
    pub device: String,
    /// Vendor interface.
    pub platform: Platform,
    /// Whose work it is.
    pub domain: QueueDomain,
    /// Launches that come from vendor libraries; none = they are not told apart (`XSCHED_DOMAINS=report`).
    pub system_launches: Option<u64>,
    /// Those among them that went past a closed gate, by an operator's rule (`domains = "exempt"`).
    pub exempt_launches: u64,
    /// Effective priority of the group.
    pub priority: i32,
    /// Preemption level in force.
    pub level: u8,
    /// Commands in flight while another program wants the device; 0 = automatic.
    pub threshold: u32,
    /// Commands after which room comes back; 0 = automatic.
    pub batch: u32,
    /// idle, ready (waits for the device), running, suspended (by an operator, or its priority is never to run), detached.
    pub state: GroupState,
    /// True where it goes before others of its priority because it pauses (policy `hpf`).
    pub interactive: bool,
    /// Its XQueues.
    pub queues: Vec<QueueInfo>,
    /// Launches of all its queues, also those that are gone.
    pub launches: u64,
    /// Launches that reached the driver without a gate decision.
    pub unscheduled: Unscheduled,
    /// Launches the bound let through because nothing completed meanwhile.
    pub liveness_overrides: u64,
    /// Launches let through because a signal interrupted the wait.
    pub signal_overrides: u64,
    /// How often the daemon was late to take notice that the group wanted its device.
    pub heard_late: HeardLate,
    /// Times that it counted as idle for want of progress while others waited.
    pub stalls: u64,
    /// Times that commands which gates on the device had held for long were let go.
    pub releases: u64,
    /// Times its gate was closed.
    pub suspensions: u64,
    /// GPU time: its part of the device time of its program, as `xsched usage` charges it, in µs; up to 100 ms ago.
    pub gpu_us: u64,
    /// Device time by which policies share, in µs: charged at once, with the time for which the device is kept for its next request.
    pub device_us: u64,
    /// Its part of the device by what was asked for, its weight or utilization, in percent of what all programs there ask for; none =
    /// the policy in force goes by neither.
    pub share_asked_percent: Option<f64>,
    /// Its part of the device time that was charged to programs there in the last ten seconds, in percent; none = none was.
    pub share_got_percent: Option<f64>,
    /// Its waits at the closed gate.
    pub waits: Waits,
    /// Time its threads waited at the gate, in µs, with the waits that go on.
    pub wait_us: u64,
    /// Its longest command as estimated by the program, in µs; of one with gates inside, its longest part without. 0 = nothing is known.
    pub longest_us: u64,
    /// Whether most of what it does is commands that no time slice need cut (400 µs or less); none = nothing is known.
    pub short: Option<bool>,
    /// Hardware time slice that the daemon chose for its context last, in µs; none = it chose none, or there are no such.
    pub timeslice_us: Option<u64>,
    /// Commands of it that are complete, as its client tells while that is of interest.
    pub completed: u64,
    /// What one of these takes while the group is alone in its pool, in µs; none = not known, or in no pool.
    pub alone_us: Option<f64>,
    /// Gates that yield, of this group and of others beside it; none = its context is no other program's too, or gates do not yield (CUDA only).
    pub yielding: Option<Yielding>,
}

/// Gates that yield among programs of one hardware context.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Yielding {
    /// Rule in force for others beside this group; none = it has kept no other one from the device so far.
    pub rule: Option<YieldRule>,
    /// Times that the rule became `closes`, since the group got on worse beside others than its target allows.
    pub flips: u64,
    /// Times that its own closed gate began to yield.
    pub opened: u64,
    /// Time for which it did, in µs.
    pub opened_us: u64,
    /// Commands that it gave in that time.
    pub passed: u64,
    /// Time that its threads waited then, since those that it makes room for were behind, in µs.
    pub held_us: u64,
}

/// The rule in force for others beside a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum YieldRule {
    /// Their gates yield while this group's queues keep up.
    Yields,
    /// Their gates close for one burst, for comparison.
    Probe,
    /// Their gates close: the group got on worse beside them than its target allows.
    Closes,
}

/// Waits of threads at the closed gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// Threads that wait now.
    pub now: u32,
    /// How long they have waited so far, on average, in µs.
    pub now_us: u64,
    /// Waits that have ended.
    pub count: u64,
    /// What half of these did not exceed, in µs, right to 20 %; none = there was none.
    pub p50_us: Option<f64>,
    /// The same of 99 %.
    pub p99_us: Option<f64>,
}

/// What a group is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupState {
    /// Nothing to do.
    Idle,
    /// Wants the device and waits for it.
    Ready,
    /// Wants the device and has it.
    Running,
    /// Held by an operator.
    Suspended,
    /// Opened its own gate.
    Detached,
}

/// One XQueue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueInfo {
    /// `q<N>`.
    pub id: String,
    /// Launches.
    pub launches: u64,
}

/// Launches without a gate decision, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unscheduled {
    /// Before the daemon's answer.
    pub attach: u64,
    /// By an operator's rule.
    pub passthrough: u64,
    /// After an internal error.
    pub error: u64,
}

/// What an answer about the past begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// CLOCK_MONOTONIC of the daemon now, in µs.
    pub now_us: u64,
    /// The number to ask for what comes after this answer.
    pub next: u64,
    /// From here on nothing was forgotten that was asked for, CLOCK_MONOTONIC in µs.
    pub whole_since_us: u64,
}

/// A group that records may speak of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedGroup {
    /// `g<N>`.
    pub id: u64,
    /// Device key.
    pub device: String,
    /// Whose it is; none = another user's, of whom nothing is told.
    pub program: Option<TracedProgram>,
    /// It is gone.
    pub ended: bool,
    /// It wants the device now.
    pub ready: bool,
    /// Its gate is open now.
    pub granted: bool,
    /// Why it is as it is.
    pub why: Why,
    /// As in [`Record`].
    pub policy: u8,
    /// As in [`Record`].
    pub level: u8,
}

/// The program of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedProgram {
    /// Process id.
    pub pid: u32,
    /// User id.
    pub uid: u32,
    /// Path of the executable.
    pub exe: String,
    /// As in [`ProgramInfo::name`].
    pub name: String,
    /// Class when the group came to be.
    pub class: crate::class::Class,
    /// Vendor interface.
    pub platform: Platform,
}
