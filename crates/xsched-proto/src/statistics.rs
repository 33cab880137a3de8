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
        /// `system`: streams of the explicit SYSTEM domain, and with `domains` `ahead` those of vendors' libraries; else `application`.
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
        /// Commands that free their room under `threshold` together; 0: automatic.
        pub batch: u32,
        /// `idle`, `ready` (waits for the device), `running`, `suspended` (by an operator, or priority -256), `detached` (its gate is open
        /// whatever the daemon says).
        pub state: GroupState,
        /// True: goes before others of its priority, because it [pauses](../guide/sharing.md#equal-programs).
        pub interactive: bool,
        /// Queues of the group.
        pub queues: Vec<QueueInfo>,
        /// Commands launched, those of queues that are gone included.
        pub launches: u64,
        /// Launches without a decision, by reason.
        pub unscheduled: Unscheduled,
        /// Liveness overrides: launches let through because nothing completed.
        pub liveness_overrides: u64,
        /// Launches let through because a signal interrupted the wait.
        pub signal_overrides: u64,
        /// Times that the daemon was late to take notice that the group wanted its device.
        pub heard_late: HeardLate,
        /// Times that it counted as idle for want of progress.
        pub stalls: u64,
        /// Times that commands held for long by gates on the device were released.
        pub releases: u64,
        /// Times that the gate of a group was closed.
        pub suspensions: u64,
        /// Part of its program's device time as [`xsched usage`](../internals/accounting.md) charges it, µs; up to 100 ms ago.
        pub gpu_us: u64,
        /// Device time by which policies share, µs, the time that the device is kept for it included.
        pub device_us: u64,
        /// Part of the device by weight or utilization, in % of all requests there; null: the policy uses neither.
        pub share_asked_percent: Option<f64>,
        /// Part of the device time charged there in the last 10 s, %; null: none was.
        pub share_got_percent: Option<f64>,
        /// Waits at the closed gate.
        pub waits: Waits,
        /// Time that threads have waited at the closed gate, waits that go on included, µs.
        pub wait_us: u64,
        /// Longest command as estimated, µs; of a graph with [gates inside](../internals/cuda.md#gates-inside-graphs) the longest part
        /// between two; 0: not known.
        pub longest_us: u64,
        /// True: most of its time is commands of 400 µs or less; null: not known.
        pub short: Option<bool>,
        /// Hardware time slice that the daemon chose last, µs; null: none.
        pub timeslice_us: Option<u64>,
        /// Commands complete; the program counts them only while others use the device.
        pub completed: u64,
        /// Time of a command while the group is alone in its [pool](../internals/pool.md#shares), µs; null: not known, or no pool.
        pub alone_us: Option<f64>,
        /// [Gates that yield](../internals/yield.md) among programs of one hardware context (CUDA); null: its own context, or gates do
        /// not yield.
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
        /// Mean time of these waits so far, µs.
        pub now_us: u64,
        /// Waits that have ended.
        pub count: u64,
        /// Median of these waits, µs, exact to 20 %; null: there was none.
        pub p50_us: Option<f64>,
        /// P99 of these waits, likewise.
        pub p99_us: Option<f64>,
    }
}

described! {
    /// Lateness of the daemon in taking notice that a group wanted its device: until then, less urgent groups keep it too.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct HeardLate {
        /// Times that this took 5 ms or more.
        pub count: u64,
        /// Sum of these times, µs.
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
        /// Launches after an internal error, or on a queue that the driver does not describe.
        pub error: u64,
    }
}

described! {
    /// Gates that yield among programs of one hardware context.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    pub struct Yielding {
        /// Rule for others beside this group: `yields`, `probe` (closes for one burst), `closes`; null: it has held up no other yet.
        pub rule: Option<YieldRule>,
        /// Times that the rule became `closes`: the group got on worse beside others than its target allows.
        pub flips: u64,
        /// Times that its own closed gate began to yield.
        pub opened: u64,
        /// Time that it yielded, µs.
        pub opened_us: u64,
        /// Commands launched in that time.
        pub passed: u64,
        /// Time that its threads waited meanwhile, for groups that were behind, µs.
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
