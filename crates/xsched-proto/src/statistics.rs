//! Statistics of groups: each is declared once, here. The wire, `ps --json`, its schema, its page of the reference, and the help of a
//! metric that tells the same are made of the declaration ([`crate::described`]).

use serde::{Deserialize, Serialize};

use crate::described;
use crate::described::{Described, Shape};
use crate::platform::Platform;

impl Described for Platform {
    const SHAPE: Shape = Shape::OneOf(&["cuda", "hip", "hsa", "opencl", "sim"]);
}

described! {
    /// Suspension unit of a program.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub struct GroupInfo {
        /// `g<N>`, unique per daemon.
        pub id: String,
        /// Device key: `pci:0000:41:00.0`, `mig:<UUID>`, `sim:0`, `cpu:host`.
        pub device: String,
        /// Vendor interface: `cuda`, `hip`, `hsa`, `opencl`, `sim`.
        pub platform: Platform,
        /// `system` for streams of the explicit SYSTEM domain, and where `domains` is `ahead` for those that vendors' libraries launch in;
        /// else `application`.
        pub domain: QueueDomain,
        /// Launches of vendors' libraries; null: not counted (`XSCHED_DOMAINS=report`).
        pub system_launches: Option<u64>,
        /// Launches that went past a closed gate, where `domains` is `exempt`; `launches` includes them.
        pub exempt_launches: u64,
        /// Effective priority, inheritance included.
        pub priority: i32,
        /// Preemption level in force, 1..3.
        pub level: u8,
        /// Commands in flight while another program wants the device; 0: automatic.
        pub threshold: u32,
        /// Commands after which room for others comes back; 0: automatic.
        pub batch: u32,
        /// `idle`, `ready` (waits for the device), `running`, `suspended` (by an operator, or priority -256), `detached` (its gate is open
        /// whatever the daemon says).
        pub state: GroupState,
        /// True where it goes before others of its priority because it [pauses](../guide/sharing.md#equal-programs).
        pub interactive: bool,
        /// Its queues.
        pub queues: Vec<QueueInfo>,
        /// Commands given to devices: those of all its queues, also of queues that are gone.
        pub launches: u64,
        /// Launches without a decision, by reason.
        pub unscheduled: Unscheduled,
        /// Liveness overrides: launches let through because nothing completed.
        pub liveness_overrides: u64,
        /// Launches let through because a signal interrupted the wait.
        pub signal_overrides: u64,
        /// Times that the daemon was late to take notice that the group wanted its device.
        pub heard_late: HeardLate,
        /// Times that it counted as idle for want of progress, and others had the device.
        pub stalls: u64,
        /// Times that commands which gates on the device had held for long were let go.
        pub releases: u64,
        /// Times that the gate of a group was closed.
        pub suspensions: u64,
        /// GPU time: its part of the device time of its program, as [`xsched usage`](../internals/accounting.md) charges it, µs; up to
        /// 100 ms ago.
        pub gpu_us: u64,
        /// Device time by which policies share, µs: charged at once, with the time for which the device is kept for its next request.
        pub device_us: u64,
        /// Its part of the device by its weight or utilization, in % of what all programs there ask for; null: the policy goes by neither.
        pub share_asked_percent: Option<f64>,
        /// Its part of the device time that was charged to programs there in the last 10 s, %; null: none was.
        pub share_got_percent: Option<f64>,
        /// Its waits at the closed gate.
        pub waits: Waits,
        /// Time that threads of programs have stood at the closed gate; µs, with the waits that go on.
        pub wait_us: u64,
        /// Its longest command as estimated, µs, of a graph with [gates inside](../internals/cuda.md#gates-inside-graphs) the longest part
        /// between two; 0: nothing is known.
        pub longest_us: u64,
        /// True where most of its time is commands of 400 µs or less; null: nothing is known.
        pub short: Option<bool>,
        /// Hardware time slice that the daemon chose last, µs; null: none.
        pub timeslice_us: Option<u64>,
        /// Commands that are complete, as the program tells while others use the device.
        pub completed: u64,
        /// Time of one of these commands while the group is alone in its [pool](../internals/pool.md#shares), µs; null: not known, or in no
        /// pool.
        pub alone_us: Option<f64>,
        /// [Gates that yield](../internals/yield.md) among programs of one hardware context (CUDA); null: its context is its own, or gates
        /// do not yield.
        pub yielding: Option<Yielding>,
    }
}

described! {
    /// One XQueue.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub struct QueueInfo {
        /// `q<N>`, for `hint --queue`.
        pub id: String,
        /// Commands launched so far.
        pub launches: u64,
    }
}

described! {
    /// Waits of threads at the closed gate.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct Waits {
        /// Threads that wait now.
        pub now: u32,
        /// Time that these have waited so far, on average, µs.
        pub now_us: u64,
        /// Waits that have ended.
        pub count: u64,
        /// The time that half of these did not exceed, µs, right to 20 %; null: there was none.
        pub p50_us: Option<f64>,
        /// The time that 99 % of them did not exceed, likewise.
        pub p99_us: Option<f64>,
    }
}

described! {
    /// Lateness of the daemon in taking notice that a group wanted its device: until then, less urgent groups keep it too.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct HeardLate {
        /// Times it took 5 ms or more.
        pub count: u64,
        /// Time that it took then, added up, µs.
        pub us: u64,
        /// The longest of these times, µs.
        pub longest_us: u64,
    }
}

described! {
    /// Launches without a gate decision, by reason.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Unscheduled {
        /// Launches before the daemon's answer, or without a daemon.
        pub attach: u64,
        /// Launches by a [pass-through rule](../guide/passthrough.md).
        pub passthrough: u64,
        /// Launches after an internal error, or of a queue of which the driver does not tell anything.
        pub error: u64,
    }
}

described! {
    /// Gates that yield among programs of one hardware context.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    pub struct Yielding {
        /// Rule for others beside this group: `yields`, `probe` (closes for one burst), `closes`; null: it has kept none from the device so
        /// far.
        pub rule: Option<YieldRule>,
        /// Times that the rule became `closes`, since the group got on worse beside others than its target allows.
        pub flips: u64,
        /// Times that its own closed gate began to yield.
        pub opened: u64,
        /// Time for which it did, µs.
        pub opened_us: u64,
        /// Commands given in that time.
        pub passed: u64,
        /// Time that its threads waited then, since those that it makes room for were behind, µs.
        pub held_us: u64,
    }
}

described! {
    /// Rule in force for others beside a group.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub enum YieldRule {
        /// Their gates yield while this group's queues keep up.
        Yields,
        /// Their gates close for one burst, for comparison.
        Probe,
        /// Their gates close: the group got on worse beside them than its target allows.
        Closes,
    }
}

described! {
    /// Owner of a group's work, as far as it was said.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub enum QueueDomain {
        /// Vendor libraries': before the other groups of the program of the same priority.
        System,
        /// The program's own.
        Application,
    }
}

described! {
    /// State of a group.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}

impl GroupInfo {
    /// An idle group of which nothing was counted yet.
    pub fn new(id: u64, device: &str, platform: Platform) -> GroupInfo {
        GroupInfo {
            id: format!("g{id}"),
            device: device.to_owned(),
            platform,
            domain: QueueDomain::Application,
            system_launches: None,
            exempt_launches: 0,
            priority: 0,
            level: 1,
            threshold: 0,
            batch: 0,
            state: GroupState::Idle,
            interactive: false,
            queues: Vec::new(),
            launches: 0,
            unscheduled: Unscheduled::default(),
            liveness_overrides: 0,
            signal_overrides: 0,
            heard_late: HeardLate::default(),
            stalls: 0,
            releases: 0,
            suspensions: 0,
            gpu_us: 0,
            device_us: 0,
            share_asked_percent: None,
            share_got_percent: None,
            waits: Waits::default(),
            wait_us: 0,
            longest_us: 0,
            short: None,
            timeslice_us: None,
            completed: 0,
            alone_us: None,
            yielding: None,
        }
    }
}
