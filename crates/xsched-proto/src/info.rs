//! Reports of the daemon to commands on itself, on programs, their groups and queues: parts of [`DaemonMsg`](crate::wire::DaemonMsg).

use serde::{Deserialize, Serialize};

use crate::account::MemoryUse;
use crate::domains::DomainMode;
use crate::platform::Platform;
use crate::trace::Why;

pub use crate::statistics::{GroupInfo, GroupState, QueueDomain, QueueInfo, Unscheduled, Waits, YieldRule, Yielding};

/// The daemon about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DaemonInfo {
    /// Process id.
    pub pid: u32,
    /// Version of the daemon's program.
    pub version: String,
    /// Policy in force on devices without one of their own, with the parameters that differ from their defaults: `kedf k=2`.
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
    /// Optional parts that do not work, one line each: name of the part, and why. Programs are scheduled all the same.
    pub warnings: Vec<String>,
    /// Number of panics of the daemon that were caught; each cost one message, or a part of one task.
    pub panics: u64,
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
    /// Class of the priority.
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
    /// Memory of the process, by device; empty = its memory is not counted.
    pub memory: Vec<MemoryInfo>,
}

impl ProgramInfo {
    /// Program that has just attached and said nothing: no groups, and defaults.
    pub fn new(pid: u32, uid: u32, exe: &str, class: crate::class::Class) -> ProgramInfo {
        ProgramInfo {
            pid,
            uid,
            exe: exe.into(),
            name: exe.rsplit('/').next().unwrap_or_default().into(),
            command: Vec::new(),
            title: None,
            job: None,
            container: None,
            container_name: None,
            pod: None,
            namespace: None,
            attached_s: 0,
            ended_s: None,
            class,
            class_from: ClassFrom::Default,
            limited: false,
            priority: class.nominal(),
            weight: 100,
            hints: Default::default(),
            share: None,
            pool: None,
            pool_why: None,
            domains: Default::default(),
            groups: Vec::new(),
            memory: Vec::new(),
        }
    }

    /// True if memory of the program stays off a device until it is thawed.
    pub fn is_frozen(&self) -> bool {
        self.memory.iter().any(|memory| memory.held.frozen)
    }

    /// Name of the container for output: `namespace/pod/name`, as far as these are known, else its id.
    pub fn container(&self) -> Option<String> {
        let names = [&self.namespace, &self.pod, &self.container_name];
        let names: Vec<&str> = names.into_iter().filter_map(|name| name.as_deref()).collect();
        if names.is_empty() { self.container.clone() } else { Some(names.join("/")) }
    }
}

/// Memory of a process on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryInfo {
    /// Device key.
    pub device: String,
    /// Memory that the process holds, by kind.
    pub held: MemoryUse,
    /// Memory of the device, in bytes.
    pub capacity_bytes: u64,
    /// Smallest limit that applies to the process, alone or with others, in bytes; none = there is no limit.
    pub limit_bytes: Option<u64>,
    /// Memory that the process may hold before it has to ask the daemon, in bytes; none = there is no limit.
    pub allowance_bytes: Option<u64>,
    /// Memory that all processes of the program hold, in bytes.
    pub program_used_bytes: u64,
    /// Memory that less urgent programs leave to the program, in bytes.
    pub reserve_bytes: u64,
    /// Memory that the process leaves to more urgent programs, in bytes.
    pub keep_free_bytes: u64,
    /// Time without launches after which memory of the process leaves by itself, in seconds; none = never.
    pub idle_s: Option<u32>,
    /// Number of times that it has.
    pub idle_leaves: u64,
}

/// Origin of a program's class. A later variant takes precedence over an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassFrom {
    /// No class was asked for or given.
    Default,
    /// A rule of the configuration set it.
    Rule,
    /// The program requested it, by an option of `xsched run` or its environment.
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

/// Way in which a program's contexts share a device with those of others.
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

/// Kind of a pool. Each user has one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolSide {
    /// Pool that may contain urgent programs, with others that are proven.
    Inner,
    /// Pool for best-effort programs only.
    Outer,
}

/// First part of an answer about the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Present time on the daemon's CLOCK_MONOTONIC, in µs.
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
    /// Policy, as in [`crate::trace::Record`].
    pub policy: u8,
    /// Preemption level, as in [`crate::trace::Record`].
    pub level: u8,
}

/// Program of a traced group.
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
