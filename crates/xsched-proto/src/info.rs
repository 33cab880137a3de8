//! Reports of the daemon to commands on itself, on programs, their groups and queues: parts of [`DaemonMsg`](crate::wire::DaemonMsg).

use serde::{Deserialize, Serialize};

use crate::domains::DomainMode;
use crate::platform::Platform;
use crate::segment::HeardLate;
use crate::trace::Why;

/// State of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DaemonInfo {
    /// Process id.
    pub pid: u32,
    /// Program version.
    pub version: String,
    /// Policy in force on devices that have none of their own, with parameters that are not at their defaults: `kedf k=2`.
    pub policy: String,
    /// Policy in force on devices that have one of their own, by device key, in the form of `policy`.
    pub device_policies: std::collections::BTreeMap<String, String>,
    /// Time since the daemon started, in seconds.
    pub uptime_s: u64,
    /// Number of clients dropped for malformed or hostile messages.
    pub dropped_clients: u64,
    /// Number of attached programs of other users, which the requesting user may not see.
    pub hidden_programs: u32,
    /// Configuration files in force, in order.
    pub configuration: Vec<String>,
    /// Reason for which the configuration was not read again, if the last attempt failed; told to root and the daemon's own user.
    pub configuration_fault: Option<String>,
    /// End of the operator's own scheduler, if it failed, with the policy since then.
    pub scheduler_failure: Option<String>,
}

/// Policy that can be chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyInfo {
    /// Name of the policy.
    pub name: String,
    /// Other names that are accepted.
    pub aliases: Vec<String>,
    /// Description in one line.
    pub about: String,
    /// True if the policy is in force on devices that have none of their own.
    pub current: bool,
    /// Keys of the devices that have this policy as one of their own.
    pub devices: Vec<String>,
    /// Parameters of the policy, with the values in force, else their defaults.
    pub params: Vec<ParamInfo>,
}

/// Parameter of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParamInfo {
    /// Name of the parameter.
    pub name: String,
    /// Description in one line.
    pub about: String,
    /// Accepted values.
    pub accepts: String,
    /// Value, as users type it.
    pub value: String,
}

/// Attached process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramInfo {
    /// Process id, as the daemon sees it.
    pub pid: u32,
    /// User id.
    pub uid: u32,
    /// Path of the executable.
    pub exe: String,
    /// Name of the program: the script that an interpreter runs, else the file name of the executable.
    pub name: String,
    /// Command line at the start, cut.
    pub command: Vec<String>,
    /// Command line at the first device call, where the program had overwritten that of the start by then.
    pub title: Option<String>,
    /// Job of the program, if it was given one.
    pub job: Option<String>,
    /// Id of the innermost container that the program is in.
    pub container: Option<String>,
    /// Name of the container at its engine.
    pub container_name: Option<String>,
    /// Name of the Kubernetes pod.
    pub pod: Option<String>,
    /// Namespace of the pod.
    pub namespace: Option<String>,
    /// Time since the program attached, to its end if it has ended, in seconds.
    pub attached_s: u64,
    /// Time since the program ended, in seconds; none = it is attached.
    pub ended_s: Option<u64>,
    /// Class of its priority.
    pub class: crate::class::Class,
    /// Origin of the class.
    pub class_from: ClassFrom,
    /// True if the program asked for more than it may have.
    pub limited: bool,
    /// Priority of the program itself.
    pub priority: i32,
    /// Weight of the program.
    pub weight: u32,
    /// Hints for the policy, by their names, in the form in which users type them.
    pub hints: std::collections::BTreeMap<String, String>,
    /// Sharing of a GPU with other programs; none = the program was not announced by `xsched run`.
    pub share: Option<Share>,
    /// Pool that the program is in.
    pub pool: Option<PoolSide>,
    /// Reason for its place in a pool or outside, in one line, as far as there is something to report.
    pub pool_why: Option<String>,
    /// Treatment of its launches that come from vendors' libraries.
    pub domains: DomainMode,
    /// Suspension units of the program.
    pub groups: Vec<GroupInfo>,
}

impl ProgramInfo {
    /// Name of the container for output: `namespace/pod/name`, as far as these are known, else its id.
    pub fn container(&self) -> Option<String> {
        let names = [&self.namespace, &self.pod, &self.container_name];
        let names: Vec<&str> = names.into_iter().filter_map(|name| name.as_deref()).collect();
        if names.is_empty() { self.container.clone() } else { Some(names.join("/")) }
    }
}

/// Origin of a program's class. A later variant takes precedence over an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassFrom {
    /// No class was asked for or given.
    Default,
    /// A rule of the configuration.
    Rule,
    /// The program itself: an option of `xsched run`, or its environment.
    Option,
    /// `xsched hint`, while the program runs.
    Hint,
}

impl ClassFrom {
    /// Name of the origin, for output.
    pub fn text(self) -> &'static str {
        match self {
            ClassFrom::Default => "default",
            ClassFrom::Rule => "rule",
            ClassFrom::Option => "option",
            ClassFrom::Hint => "hint",
        }
    }
}

/// Domain of a group: the origin of its work, as far as it was declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueDomain {
    /// Work of vendor libraries, which comes before the other groups of the program of the same priority.
    System,
    /// Work of the program itself.
    Application,
}

/// Way in which the contexts of a program share a device with those of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sharing {
    /// The contexts take turns with all others.
    #[default]
    Time,
    /// The contexts are in the pool of their user: one context of the hardware's, which contains no urgent programs.
    Pool,
    /// The contexts are clients of an MPS server that is not ours, and run at the same time as its other clients, by the hardware's own
    /// priorities. The number is common to the clients of one server.
    Spatial(u64),
}

/// Way in which programs share a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Share {
    /// Each program has a context of its own; they take turns.
    Time,
    /// The best-effort programs of a user run side by side in one context, which takes turns with the urgent ones.
    Pool,
    /// Programs run side by side by an MPS daemon that is not ours, whatever their class.
    Spatial,
}

/// One of a user's two pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolSide {
    /// Pool that may contain urgent programs, with others that are proven.
    Inner,
    /// Pool for best-effort programs only.
    Outer,
}

/// Suspension unit of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupInfo {
    /// `g<N>`.
    pub id: String,
    /// Device key.
    pub device: String,
    /// Vendor interface.
    pub platform: Platform,
    /// Domain of the group's work.
    pub domain: QueueDomain,
    /// Number of launches that come from vendor libraries; none = they are not told apart (`XSCHED_DOMAINS=report`).
    pub system_launches: Option<u64>,
    /// Number of these launches that passed a closed gate by an operator's rule (`domains = "exempt"`).
    pub exempt_launches: u64,
    /// Effective priority of the group.
    pub priority: i32,
    /// Preemption level in force.
    pub level: u8,
    /// Largest number of commands in flight while another program wants the device; 0 = automatic.
    pub threshold: u32,
    /// Largest number of commands between two completion fences; 0 = automatic.
    pub batch: u32,
    /// State of the group: idle, ready (waits for the device), running, suspended (by an operator, or its priority is never to run),
    /// detached.
    pub state: GroupState,
    /// True if the group comes before others of its priority because it pauses (policy `hpf`).
    pub interactive: bool,
    /// XQueues of the group.
    pub queues: Vec<QueueInfo>,
    /// Number of launches of all its queues, including removed ones.
    pub launches: u64,
    /// Launches that reached the driver without a gate decision.
    pub unscheduled: Unscheduled,
    /// Number of launches that the in-flight budget let through because nothing completed meanwhile.
    pub liveness_overrides: u64,
    /// Number of launches let through because a signal interrupted the wait.
    pub signal_overrides: u64,
    /// Delays of the daemon in noticing that the group wanted its device.
    pub heard_late: HeardLate,
    /// Number of times that the group counted as idle for want of progress while others waited.
    pub stalls: u64,
    /// Number of times that commands which gates on the device had held for long were released.
    pub releases: u64,
    /// Number of times that the group's gate was closed.
    pub suspensions: u64,
    /// Device time charged to the group, in µs.
    pub device_us: u64,
    /// Part of the device that the group asked for by weight or utilization, in percent of the sum over all programs there; none = the
    /// policy in force uses neither.
    pub share_asked_percent: Option<f64>,
    /// Part of the group in the device time charged to programs there in the last ten seconds, in percent; none = none was charged.
    pub share_got_percent: Option<f64>,
    /// Waits of the group's threads at the closed gate.
    pub waits: Waits,
    /// Time that the group's threads have waited at the gate, including the present waits, in µs.
    pub wait_us: u64,
    /// Longest command as estimated by the program, in µs; of a command with gates inside, its longest part between them. 0 = not known.
    pub longest_us: u64,
    /// True if most of the group's time is in commands of 400 µs or less, which no time slice need cut; none = not known.
    pub short: Option<bool>,
    /// Hardware time slice that the daemon last chose for the group's context, in µs; none = it chose none, or the device has none.
    pub timeslice_us: Option<u64>,
    /// Number of the group's commands that are complete, as its client reports while that is of interest.
    pub completed: u64,
    /// Time that one of these commands takes while the group is alone in its pool, in µs; none = not known, or in no pool.
    pub alone_us: Option<f64>,
    /// Gates that yield, of this group and of others beside it; none = the context is not shared with other programs, or gates do not yield
    /// (CUDA only).
    pub yielding: Option<Yielding>,
}

/// Gates that yield among programs of one hardware context.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Yielding {
    /// Rule in force for other groups beside this one; none = this group has kept no other one from the device so far.
    pub rule: Option<YieldRule>,
    /// Number of times that the rule became `closes`, because the group's progress beside others was worse than its target allows.
    pub flips: u64,
    /// Number of times that the group's own closed gate began to yield.
    pub opened: u64,
    /// Time for which the group's gate yielded, in µs.
    pub opened_us: u64,
    /// Number of commands that the group launched in that time.
    pub passed: u64,
    /// Time that the group's threads waited meanwhile because queues of the groups that it yields to were behind, in µs.
    pub held_us: u64,
}

/// Rule in force for other groups beside a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum YieldRule {
    /// The others' gates yield while this group's queues keep up.
    Yields,
    /// The others' gates close for one burst, for comparison.
    Probe,
    /// The others' gates close: the group's progress beside them was worse than its target allows.
    Closes,
}

/// Waits of threads at the closed gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// Number of threads that wait now.
    pub now: u32,
    /// Average time of these waits so far, in µs.
    pub now_us: u64,
    /// Number of waits that have ended.
    pub count: u64,
    /// Median of the ended waits, in µs, right to 20 %; none = no wait has ended.
    pub p50_us: Option<f64>,
    /// 99th percentile of the ended waits, in µs, right to 20 %; none = no wait has ended.
    pub p99_us: Option<f64>,
}

/// State of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupState {
    /// The group has nothing to do.
    Idle,
    /// The group wants the device and waits for it.
    Ready,
    /// The group wants the device and has it.
    Running,
    /// An operator holds the group, or its priority is never to run.
    Suspended,
    /// The client has opened the group's gate itself.
    Detached,
}

/// One XQueue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueInfo {
    /// `q<N>`.
    pub id: String,
    /// Number of launches.
    pub launches: u64,
}

/// Numbers of launches without a gate decision, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unscheduled {
    /// Launches before the daemon's answer.
    pub attach: u64,
    /// Launches that an operator's rule let through.
    pub passthrough: u64,
    /// Launches after an internal error.
    pub error: u64,
}

/// First part of an answer about the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// CLOCK_MONOTONIC of the daemon now, in µs.
    pub now_us: u64,
    /// Number to ask for the events that follow this answer.
    pub next: u64,
    /// Time since which the daemon has forgotten nothing that was asked for, CLOCK_MONOTONIC in µs.
    pub whole_since_us: u64,
}

/// Group that occurs in records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedGroup {
    /// Number of the group, shown as `g<N>`.
    pub id: u64,
    /// Device key.
    pub device: String,
    /// Program of the group; none = another user's, of which nothing is reported.
    pub program: Option<TracedProgram>,
    /// True if the group is gone.
    pub ended: bool,
    /// True if the group wants the device now.
    pub ready: bool,
    /// True if the group's gate is open now.
    pub granted: bool,
    /// Reason for the present state of the gate.
    pub why: Why,
    /// Policy, as in [`Record`].
    pub policy: u8,
    /// Preemption level, as in [`Record`].
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
    /// Name of the program, as in [`ProgramInfo::name`].
    pub name: String,
    /// Class at the time when the group was created.
    pub class: crate::class::Class,
    /// Vendor interface.
    pub platform: Platform,
}
