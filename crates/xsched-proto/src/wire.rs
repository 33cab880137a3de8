//! Messages between a client (an application, or the command) and the daemon.
//!
//! One message is one packet of a `SOCK_SEQPACKET` unix socket, encoded with postcard, at most [`MAX_PACKET`] bytes.
//! A client opens with [`ClientMsg::Hello`]; the daemon answers [`DaemonMsg::Welcome`] or [`DaemonMsg::Refused`].
//! A command opens with [`ClientMsg::Control`] and reads packets until [`DaemonMsg::End`] or [`DaemonMsg::Refused`].
//!
//! Three things are the same in every version, so that two versions understand that they are two: `Hello` and `Control` come first
//! and begin with the version ([`version_of`]), and `Refused` with its line comes first among what the daemon says.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::device::DeviceInfo;
use crate::domains::DomainMode;
use crate::hint::Hints;
use crate::trace::{Record, Why};
use crate::usage::{UsageBy, UsageRow};

/// Largest packet either side sends or accepts, in bytes.
pub const MAX_PACKET: usize = 64 * 1024;

/// Vendor interface a group belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// NVIDIA CUDA.
    Cuda,
    /// AMD HIP.
    Hip,
    /// OpenCL.
    Opencl,
    /// The built-in simulated device.
    Sim,
    /// AMD's runtime below HIP, used directly.
    Hsa,
}

impl Platform {
    /// All of them.
    pub const ALL: [Platform; 5] = [Platform::Cuda, Platform::Hip, Platform::Opencl, Platform::Sim, Platform::Hsa];

    /// What is wrong with a list of names as in `XSCHED_PLATFORMS`; `None` if nothing is.
    pub fn fault_in(list: &str) -> Option<String> {
        let mut words = list.split(',').map(str::trim).filter(|word| !word.is_empty()).peekable();
        let is_empty = words.peek().is_none() && !list.is_empty();
        let unknown = words.find(|word| Platform::ALL.iter().all(|p| !word.eq_ignore_ascii_case(p.name())));
        let fault = match unknown {
            Some(word) => format!("XSCHED_PLATFORMS={list}: there is no platform {word}"),
            None if is_empty => format!("XSCHED_PLATFORMS={list} names no platform"),
            None => return None,
        };
        Some(format!("{fault}; use {}, separated by commas", Platform::ALL.map(Platform::name).join(", ")))
    }

    /// The name users type and read.
    pub fn name(self) -> &'static str {
        match self {
            Platform::Cuda => "cuda",
            Platform::Hip => "hip",
            Platform::Opencl => "opencl",
            Platform::Sim => "sim",
            Platform::Hsa => "hsa",
        }
    }

    /// What level 3 means: true = a group is interrupted when its gate closes and goes on when it opens; false = the
    /// hardware gives its context a time slice by class, for good.
    pub fn interrupts(self) -> bool {
        self != Platform::Cuda
    }

    /// Whether its hardware has priorities of its own, which follow the program's.
    pub fn has_priorities(self) -> bool {
        matches!(self, Platform::Hip | Platform::Hsa)
    }

    /// The highest level that a group gets of its own accord. On AMD's older devices each interruption through the driver
    /// stops the queues of all programs for a moment: with HIP, where there are lower levels, level 3 is for those who ask.
    pub fn automatic_level(self) -> u8 {
        if self == Platform::Hip { 2 } else { 3 }
    }
}

/// The most commands that a threshold or a batch size may name.
pub const COMMANDS_MAX: u32 = 1 << 20;

/// What a program asks for when it attaches; from `xsched run` or its environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramOptions {
    /// Priority, -255..=255 or [`crate::class::PRIORITY_NEVER`]; none = the daemon's rules or default.
    pub priority: Option<i32>,
    /// What is said for the policy; absent = the daemon's rules or defaults.
    pub hints: Hints,
    /// Preemption level 1..=3 to force; none = automatic.
    pub level: Option<u8>,
    /// Commands in flight while watched; none = automatic.
    pub threshold: Option<u32>,
    /// Commands after which room for others comes back, while watched; none = automatic.
    pub batch: Option<u32>,
    /// Programs with the same job are granted on all their devices together or not at all.
    pub job: Option<String>,
    /// What becomes of launches of vendors' libraries; none = the daemon's rules or default.
    pub domains: Option<DomainMode>,
    /// Its command line, as [`crate::program::own_command`] has it.
    pub command: Vec<String>,
    /// Resolved path of its executable. Counts only where the daemon is its own user's and may not look itself.
    pub exe: String,
}

/// Preemption levels that a device can do; bit n-1 = level n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Levels(u8);

impl Levels {
    /// None, not even level 1: commands do not pass through xsched.
    pub const NONE: Levels = Levels(0);
    /// New commands are held back on the host.
    pub const ONE: Levels = Levels(0b001);
    /// Commands already handed over wait at gates on the device.
    pub const TWO: Levels = Levels(0b010);
    /// The running command is interrupted.
    pub const THREE: Levels = Levels(0b100);
    /// All three.
    pub const ALL: Levels = Levels(0b111);

    /// These and those of `other`.
    #[must_use]
    pub const fn with(self, other: Levels) -> Levels {
        Levels(self.0 | other.0)
    }

    /// These and, if `able`, those of `other`.
    #[must_use]
    pub const fn with_if(self, able: bool, other: Levels) -> Levels {
        if able { self.with(other) } else { self }
    }

    /// These without those of `other`.
    #[must_use]
    pub const fn without(self, other: Levels) -> Levels {
        Levels(self.0 & !other.0)
    }

    /// Whether level `level` (1..=3) is among them.
    pub const fn has(self, level: u8) -> bool {
        matches!(level, 1..=3) && self.0 & (1 << (level - 1)) != 0
    }

    /// The highest of them up to `wished`; level 1 where there is none.
    pub fn highest_to(self, wished: u8) -> u8 {
        (1..=wished.min(3)).rev().find(|level| self.has(*level)).unwrap_or(1)
    }
}

impl core::fmt::Display for Levels {
    /// `levels 1, 2`.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let there: Vec<String> = (1..=3).filter(|level| self.has(*level)).map(|level| level.to_string()).collect();
        match there.is_empty() {
            true => f.write_str("no level"),
            false => write!(f, "levels {}", there.join(", ")),
        }
    }
}

/// From a client to the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ClientMsg {
    /// First packet of an application. Carries three descriptors: the segment memfd, an eventfd that the client
    /// writes when a state word changed, and its own pidfd.
    Hello {
        /// [`crate::PROTOCOL_VERSION`].
        version: u32,
        /// What it asks for.
        options: ProgramOptions,
    },
    /// First packet of a command.
    Control {
        /// [`crate::PROTOCOL_VERSION`].
        version: u32,
        /// What it wants.
        request: Request,
    },
    /// A suspension unit came to be.
    GroupAdd {
        /// Index of its [`crate::segment::GroupSlot`].
        slot: u16,
        /// Device key, e.g. `pci:0000:41:00.0`, `sim:0`, `cpu:host`.
        device: String,
        /// Vendor interface.
        platform: Platform,
        /// Priority relative to the program's, in steps of ten (see [`crate::class::queue_priority`]).
        priority_steps: i32,
        /// Set by `hint --queue`: an absolute priority that replaces the relative one.
        priority_fixed: Option<i32>,
        /// Of the system domain: before others of the same priority in its process.
        system: bool,
        /// Levels this device can do.
        levels: Levels,
        /// How the contexts behind it share the device.
        sharing: Sharing,
    },
    /// It is gone.
    GroupRemove {
        /// Its slot.
        slot: u16,
    },
    /// An XQueue came to be. Not answered: a program may have a thousand.
    QueueAdd {
        /// Index of its [`crate::segment::QueueSlot`].
        slot: u16,
        /// Its group's slot.
        group: u16,
    },
    /// It is gone.
    QueueRemove {
        /// Its slot.
        slot: u16,
    },
    /// Answer to [`DaemonMsg::Describe`].
    Description {
        /// The token of the question.
        token: u64,
        /// Further packets of the same answer follow.
        more: bool,
        /// The lines of this packet.
        lines: Vec<Described>,
    },
    /// A group can do other levels than it said.
    Levels {
        /// Its slot.
        slot: u16,
        /// As in [`ClientMsg::GroupAdd`].
        levels: Levels,
    },
    /// What the program itself says of one of its groups.
    GroupHint {
        /// Its slot.
        slot: u16,
        /// Its priority, -255..=255, in place of what it was added with; none = what follows from the program's own.
        priority: Option<i32>,
        /// Values for the policy; absent = as they were.
        hints: Hints,
    },
    /// What the program itself says of all of its groups.
    ProgramHint {
        /// Values for the policy; absent = as they were.
        hints: Hints,
    },
}

/// One line of a program's description of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Described {
    /// A hooked function that was resolved.
    Function {
        /// Its name.
        name: String,
        /// Address of the real function.
        address: u64,
        /// File that owns the address.
        file: String,
        /// How it was found, e.g. `next`, `caller`, `handle`.
        via: String,
    },
    /// A queue of the vendor interface and the XQueue over it.
    Queue {
        /// The vendor's handle.
        handle: u64,
        /// Slot of the XQueue.
        slot: u16,
        /// Slot of its group.
        group: u16,
    },
    /// Something an administrator should know.
    Note {
        /// One line.
        text: String,
    },
}

/// A command's wish.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Answered by [`DaemonMsg::Daemon`], then one [`DaemonMsg::Device`] and one [`DaemonMsg::Program`] each.
    Ps,
    /// The same, with programs that ended lately.
    PsAll,
    /// Answered by one [`DaemonMsg::Policy`] each.
    PolicyList,
    /// Change the policy while programs run.
    PolicySet {
        /// A policy's name, in any case.
        name: String,
        /// Its parameters, by name; those left out have their defaults.
        params: Vec<(String, String)>,
        /// Key of the device that it is for; none = all.
        device: Option<String>,
    },
    /// Change what programs or queues are given. Absent fields stay. Answered by one [`DaemonMsg::Changed`] for each program.
    Hint {
        /// Whom.
        targets: Vec<Target>,
        /// New priority.
        priority: Option<i32>,
        /// New values for the policy.
        hints: Hints,
        /// New preemption level.
        level: Option<u8>,
        /// New number of commands in flight; 0 = automatic.
        threshold: Option<u32>,
        /// New number of commands after which room comes back, 0 = automatic.
        batch: Option<u32>,
    },
    /// The active window of the user's session belongs to this process; none = to no process that is known.
    ActiveWindow {
        /// Process id.
        pid: Option<u32>,
    },
    /// Keep programs off their devices until resumed. Answered by one [`DaemonMsg::Changed`] each.
    Suspend {
        /// Whom.
        targets: Vec<Target>,
    },
    /// Undo [`Request::Suspend`].
    Resume {
        /// Whom.
        targets: Vec<Target>,
    },
    /// Ask a program to describe itself; answered by [`DaemonMsg::Description`].
    Describe {
        /// Process id.
        pid: u32,
    },
    /// The process that asks is about to become a program: the daemon does not end for lack of clients while it, or
    /// a client of its job, is there.
    Announce {
        /// As in [`ProgramOptions::job`].
        job: String,
        /// What it will run, the same at each start of the same thing: what is learned of it is kept under this name.
        program: String,
    },
    /// The process that asks is about to touch a GPU, and would be in the pool of its user. Answered by
    /// [`DaemonMsg::Pool`] or [`DaemonMsg::ByTime`], once the pool is there: that may take seconds.
    JoinPool {
        /// As in [`ProgramOptions::job`].
        job: Option<String>,
        /// As in [`ProgramOptions::priority`].
        priority: Option<i32>,
        /// Also where the policy takes turns, or it is known not to suit others of a pool.
        insists: bool,
        /// Why the process itself knows that it must not be in a pool, in one line.
        obstacle: Option<String>,
    },
    /// The process that asks was in the pool of this pipe directory, and its MPS server has refused it.
    PoolRefused {
        /// As in [`DaemonMsg::Pool`].
        pipe: String,
    },
    /// From the server of a private MPS daemon: what became of the time slice of its channel group on one device.
    PoolServer {
        /// The number of the pool, from its environment.
        pool: u64,
        /// Why the pool cannot be, in one line; none = the slice holds.
        fault: Option<String>,
    },
    /// End the daemon; programs go on unscheduled.
    Stop,
    /// Time on devices, of the asking user's programs, or of all where root asks. Answered by one [`DaemonMsg::Usage`] each.
    Usage {
        /// From when on, in ms since 1970; what was recorded together with earlier time counts too.
        since_ms: u64,
        /// What it is added up by.
        by: UsageBy,
    },
    /// What was decided lately: [`DaemonMsg::TraceHead`], groups, records.
    Trace {
        /// [`Head::next`] of the last answer; 0 = from the oldest that is remembered.
        from: u64,
        /// Nothing before this, CLOCK_MONOTONIC in µs.
        since_us: u64,
    },
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

/// Whom a change is for: programs that the one who asks may control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// All of a process. Where that is not attached: the attached ones that it started, directly or not.
    Pid(u32),
    /// A process, and all that it started.
    Tree(u32),
    /// The programs of a job.
    Job(String),
    /// The programs of a user, by user id.
    User(u32),
    /// All programs.
    All,
    /// One XQueue, `q<N>`; it moves to a group of its own when its priority differs.
    Queue(u64),
}

/// From the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DaemonMsg {
    /// No, and why: [`Error::Input`] or [`Error::Environment`].
    Refused(Error),
    /// Answer to [`ClientMsg::Hello`]; carries one descriptor, the heartbeat page.
    Welcome {
        /// [`crate::PROTOCOL_VERSION`].
        version: u32,
        /// The daemon's number for this session.
        session: u64,
        /// The program's own priority, after the operator's rules and limits.
        priority: i32,
        /// What becomes of its launches of vendors' libraries, likewise.
        domains: DomainMode,
        /// Each stream is to be a group of its own: an operator's scheduler decides stream by stream.
        streams_apart: bool,
    },
    /// Answer to [`ClientMsg::GroupAdd`]: from now on the gate word counts.
    GroupAdded {
        /// The group's slot.
        slot: u16,
        /// `g<N>`.
        id: u64,
        /// Its effective priority.
        priority: i32,
        /// Name of the policy in force on its device.
        policy: String,
    },
    /// Move a queue to a group of this priority (`hint --queue`).
    QueuePriority {
        /// The queue's slot.
        slot: u16,
        /// Absolute priority.
        priority: i32,
    },
    /// Level 3: interrupt what the group is running, or let it go on.
    Interrupt {
        /// The group's slot.
        slot: u16,
        /// True to interrupt.
        on: bool,
    },
    /// Level 3 where the hardware has time slices: the group's context is to have this one.
    Timeslice {
        /// The group's slot.
        slot: u16,
        /// In µs.
        us: u64,
    },
    /// The program's own priority is another than [`DaemonMsg::Welcome`] said.
    Priority {
        /// After the operator's rules and limits.
        priority: i32,
    },
    /// Something that the program's user should know, in one line: a hint that the policy in force does not look at.
    Note {
        /// One line.
        text: String,
    },
    /// Describe yourself, answer with [`ClientMsg::Description`].
    Describe {
        /// To be given back.
        token: u64,
    },
    /// Part of the answer to [`Request::Ps`].
    Daemon(DaemonInfo),
    /// Part of the answer to [`Request::Ps`].
    Program(Box<ProgramInfo>),
    /// Part of the answer to [`Request::PolicyList`].
    Policy(PolicyInfo),
    /// Part of the answer to [`Request::Describe`].
    Description(Vec<Described>),
    /// Answer to [`Request::JoinPool`]: the process is reserved a context on each device in the pool of this pipe directory.
    Pool {
        /// `CUDA_MPS_PIPE_DIRECTORY`.
        pipe: String,
        /// Something that the user should know, in one line.
        note: Option<String>,
    },
    /// Answer to [`Request::JoinPool`]: the process gets a context of its own.
    ByTime {
        /// Why, in one line, where the user should know.
        why: Option<String>,
    },
    /// Part of the answer to a request that changes programs: what has become of one.
    Changed(Changed),
    /// The answer is complete and was yes.
    End,
    /// Part of the answer to [`Request::Ps`].
    Device(Box<DeviceInfo>),
    /// Part of the answer to [`Request::Ps`]: further queues of the program before it, each with the group that it belongs to.
    /// [`crate::ask::ask`] adds them to that.
    MoreQueues(Vec<(String, QueueInfo)>),
    /// Part of the answer to [`Request::Usage`].
    Usage(UsageRow),
    /// First part of the answer to [`Request::Trace`].
    TraceHead(Head),
    /// Part of the answer to [`Request::Trace`]: groups that the records speak of.
    TraceGroups(Vec<TracedGroup>),
    /// Part of the answer to [`Request::Trace`]: what happened, in order.
    TraceRecords(Vec<Record>),
}

/// What has become of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// Process id.
    pub pid: u32,
    /// What it is called, as in [`ProgramInfo::name`].
    pub name: String,
    /// What was changed, its value before and now. They are the same where nothing had to be done.
    pub values: Vec<ChangedValue>,
}

/// One value of a program that was to be changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangedValue {
    /// What it is called: `priority`, `state`, `level`, a hint.
    pub what: String,
    /// Before.
    pub was: String,
    /// Now.
    pub now: String,
}

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
    /// Its command line, cut.
    pub command: Vec<String>,
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
    /// Times its gate was closed.
    pub suspensions: u64,
    /// Device time charged to it, in µs.
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
    /// Its longest command as estimated by the program, in µs; 0 = nothing is known.
    pub longest_us: u64,
    /// Whether most of what it does is commands that no time slice need cut (400 µs or less); none = nothing is known.
    pub short: Option<bool>,
    /// Hardware time slice that the daemon chose for its context last, in µs; none = it chose none, or there are no such.
    pub timeslice_us: Option<u64>,
    /// Commands of it that are complete, as its client tells while that is of interest.
    pub completed: u64,
    /// What one of these takes while the group is alone in its pool, in µs; none = not known, or in no pool.
    pub alone_us: Option<f64>,
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

/// Encodes a message into one packet.
///
/// # Errors
/// When it would exceed [`MAX_PACKET`].
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, Error> {
    let bytes =
        postcard::to_allocvec(message).map_err(|e| Error::environment(format!("cannot encode a message: {e}")))?;
    if bytes.len() > MAX_PACKET {
        return Err(Error::environment(format!(
            "a message of {} bytes is over the limit of {MAX_PACKET}",
            bytes.len()
        )));
    }
    Ok(bytes)
}

/// Decodes one packet; nothing may be left over.
///
/// # Errors
/// When the packet is no such message.
pub fn decode<'a, T: Deserialize<'a>>(packet: &'a [u8]) -> Result<T, Error> {
    match postcard::take_from_bytes(packet) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(Error::environment(format!("malformed message: {} bytes too many", rest.len()))),
        Err(e) => Err(Error::environment(format!("malformed message: {e}"))),
    }
}

/// The version of whoever sent a first packet, however little of the rest can be read; none = it is no first packet.
pub fn version_of(packet: &[u8]) -> Option<u32> {
    let (variant, rest): (u32, _) = postcard::take_from_bytes(packet).ok()?;
    let (version, _) = postcard::take_from_bytes(rest).ok()?;
    (variant < 2).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What other versions read and write of it: these bytes never change.
    #[test]
    fn what_tells_versions_apart_is_the_same_in_all() {
        let options = ProgramOptions::default();
        assert_eq!(encode(&ClientMsg::Hello { version: 3, options }).unwrap()[..2], [0, 3]);
        assert_eq!(encode(&ClientMsg::Control { version: 3, request: Request::Ps }).unwrap()[..2], [1, 3]);
        let refused = DaemonMsg::Refused(Error::Environment("no".into()));
        assert_eq!(encode(&refused).unwrap(), [0, 1, 2, b'n', b'o']);
        assert_eq!(encode(&DaemonMsg::Refused(Error::Input("no".into()))).unwrap(), [0, 0, 2, b'n', b'o']);
        assert_eq!(version_of(&[0, 200, 1, 99, 98]), Some(200));
        assert_eq!((version_of(&[1, 7]), version_of(&[2, 7]), version_of(&[])), (Some(7), None, None));
    }

    #[test]
    fn messages_survive_the_wire_and_garbage_is_refused() {
        let m = ClientMsg::Hello {
            version: 1,
            options: ProgramOptions { priority: Some(-3), job: Some("j".into()), ..Default::default() },
        };
        let bytes = encode(&m).unwrap();
        assert_eq!(decode::<ClientMsg>(&bytes), Ok(m));
        assert!(decode::<ClientMsg>(&[bytes.as_slice(), &[0]].concat()).is_err(), "trailing byte");
        assert!(decode::<ClientMsg>(&bytes[..bytes.len() - 1]).is_err(), "cut short");
        assert!(decode::<ClientMsg>(&[0xff; 40]).is_err());
        assert!(decode::<ClientMsg>(&[]).is_err());
    }

    #[test]
    fn a_string_that_claims_to_be_huge_is_refused_without_allocating_it() {
        // GroupAdd (1), slot 0, a string length of 2^62.
        assert!(decode::<ClientMsg>(&[1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f]).is_err());
    }
}
