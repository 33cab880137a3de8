//! What the daemon tells commands of itself, of programs, their groups and queues: parts of [`DaemonMsg`](crate::wire::DaemonMsg).

use serde::{Deserialize, Serialize};

use crate::domains::DomainMode;
use crate::platform::Platform;
use crate::trace::Why;

pub use crate::statistics::{GroupInfo, GroupState, QueueDomain, QueueInfo, Unscheduled, Waits, YieldRule, Yielding};

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
