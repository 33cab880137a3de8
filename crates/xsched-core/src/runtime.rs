//! All XQueues and groups of this process: who has which place, and what is known of the whole process.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use rustix::thread::{MembarrierCommand, membarrier};
use xsched_flow::tuning::ATTACH_NS;
use xsched_proto::memory::{Hardware, Memory, Sleepers};
use xsched_proto::segment::{COUNTERS, GROUPS, Heartbeat, MAGIC, QUEUES, Segment};

use crate::Platform;
use crate::blocks::Blocks;
use crate::clock::now_ns;
use crate::company::Company;
use crate::descriptor::Descriptor;
use crate::estimate::Estimates;
use crate::group::Group;
use crate::queue::XQueue;

mod agent;
mod counts;
mod lookup;
mod tables;

pub use agent::{Scheduler, Unscheduled, require_registration};
pub(crate) use tables::Move;
pub use tables::QueueSpec;
use tables::Tables;

use counts::CounterPlace;

/// The scheduler's state in this process. Lives until the process ends.
pub struct Runtime {
    pub(crate) segment: &'static Segment,
    pub(crate) groups: Box<[Group]>,
    pub(crate) queues: Blocks<XQueue>,
    pub(crate) platforms: &'static [&'static dyn Platform],
    pub(crate) estimates: Estimates,
    pub(crate) company: Company,
    counters: Blocks<CounterPlace>,
    tables: Mutex<Tables>,
    group_count: AtomicU32,
    high_water: AtomicU32,
    base_priority: AtomicI32,
    /// Whether `base_priority` is what the daemon or the local gatekeeper says, or neither will set it. A futex.
    welcomed: AtomicU32,
    forced_level: Option<u8>,
    timeslice_us: Option<u64>,
    makes_queues: bool,
    /// Each queue has a group of its own.
    pub(crate) streams_apart: AtomicBool,
    heartbeat: AtomicPtr<Heartbeat>,
    /// The last beat that was seen to be another than the one before, and when, by this process's clock, in ns.
    beat_seen: AtomicU64,
    beat_seen_at: AtomicU64,
    /// See [`xsched_proto::clock::offset_ns`].
    clock_offset_ns: i64,
    pub(crate) gate_waits: AtomicU64,
    /// For how long threads waited at closed gates, and for the bound, in ns.
    pub(crate) at_gate_ns: AtomicU64,
    pub(crate) at_bound_ns: AtomicU64,
    pub(crate) idles: AtomicU64,
    /// Commands of unknown queues, before there was a group.
    unplaced: AtomicU64,
    /// Threads in a wait for unspecified queues: see [`Runtime::wait_for_some`].
    waits_for_some: AtomicU32,
    /// Calls in which the driver may load code, and when queues were last seen to wait for each other on the device, in ns (0 =
    /// never); see [`crate::device_gates`].
    pub(crate) loading: AtomicU32,
    pub(crate) cross_stream_at: AtomicU64,
    agent_wakes_at: AtomicU64,
    pub(crate) poke_due: AtomicBool,
    detached: AtomicBool,
    pub(crate) registered: AtomicBool,
    over: AtomicBool,
    /// The scheduler that the program has chosen, until the agent has taken it; and how often that was. A futex.
    chosen: Mutex<Option<Scheduler>>,
    choices: AtomicU32,
    daemon_event: Descriptor,
    agent_event: Descriptor,
}

impl Runtime {
    /// `segment` must be zeroed shared memory; `daemon_event` and `agent_event` are eventfds. `base_priority` is the
    /// program's own priority as far as it is known here; `forced_level` a preemption level that it insists on,
    /// `timeslice_us` a time slice.
    pub fn new(
        segment: &'static Segment,
        platforms: &'static [&'static dyn Platform],
        base_priority: i32,
        forced_level: Option<u8>,
        timeslice_us: Option<u64>,
        daemon_event: OwnedFd,
        agent_event: OwnedFd,
    ) -> Runtime {
        segment.header.magic.store(MAGIC, Relaxed);
        segment.header.version.store(xsched_proto::PROTOCOL_VERSION, Relaxed);
        for (word, n) in segment.header.sizes.iter().zip([GROUPS, QUEUES, COUNTERS]) {
            word.store(n as u32, Relaxed);
        }
        // Without the barrier (a kernel older than 4.14) idle is decided by the counters alone.
        let _ = membarrier(MembarrierCommand::RegisterPrivateExpedited);
        Runtime {
            segment,
            groups: (0..GROUPS as u16).map(Group::new).collect(),
            queues: Blocks::new(QUEUES, XQueue::new),
            platforms,
            estimates: Estimates::new(),
            company: Company::new(),
            counters: Blocks::new(COUNTERS, |_| CounterPlace::default()),
            tables: Mutex::new(Tables::new()),
            group_count: AtomicU32::new(0),
            high_water: AtomicU32::new(0),
            base_priority: AtomicI32::new(base_priority),
            welcomed: AtomicU32::new(0),
            forced_level,
            timeslice_us,
            makes_queues: true,
            streams_apart: AtomicBool::new(false),
            heartbeat: AtomicPtr::new(core::ptr::null_mut()),
            beat_seen: AtomicU64::new(0),
            beat_seen_at: AtomicU64::new(0),
            clock_offset_ns: xsched_proto::clock::offset_ns(),
            gate_waits: AtomicU64::new(0),
            at_gate_ns: AtomicU64::new(0),
            at_bound_ns: AtomicU64::new(0),
            idles: AtomicU64::new(0),
            unplaced: AtomicU64::new(0),
            waits_for_some: AtomicU32::new(0),
            loading: AtomicU32::new(0),
            cross_stream_at: AtomicU64::new(0),
            agent_wakes_at: AtomicU64::new(u64::MAX),
            poke_due: AtomicBool::new(false),
            detached: AtomicBool::new(false),
            registered: AtomicBool::new(false),
            over: AtomicBool::new(false),
            chosen: Mutex::new(None),
            choices: AtomicU32::new(0),
            daemon_event: Descriptor::new(daemon_event),
            agent_event: Descriptor::new(agent_event),
        }
    }

    /// Streams get no XQueue of their own accord: their commands reach the driver as without xsched, and are not counted.
    #[must_use]
    pub fn without_queues(mut self) -> Runtime {
        self.makes_queues = false;
        self
    }

    /// Whether streams get an XQueue of their own accord.
    pub fn makes_queues(&self) -> bool {
        self.makes_queues
    }

    /// The memory shared with the daemon.
    pub fn segment(&self) -> &'static Segment {
        self.segment
    }

    /// Expected device time of a kind of command (see [`crate::Work::key`]) in ns, if it was ever measured.
    pub fn expected_ns(&self, key: u64) -> Option<u64> {
        self.estimates.get(key)
    }

    /// The preemption level that this program insists on.
    pub fn forced_level(&self) -> Option<u8> {
        self.forced_level
    }

    /// The time slice that this program asked for, in µs.
    pub fn own_timeslice_us(&self) -> Option<u64> {
        self.timeslice_us
    }

    /// The program's own priority. Waits a moment for the daemon's word, which may know of rules.
    pub fn own_priority(&self) -> i32 {
        let deadline = now_ns() + ATTACH_NS;
        while self.welcomed.load(Acquire) == 0 {
            let left = deadline.saturating_sub(now_ns());
            if left == 0 {
                break;
            }
            let _ = Hardware::sleep(&self.welcomed, 0, Sleepers::Own, left);
        }
        self.base_priority.load(Relaxed)
    }

    /// Agent: the daemon or the local gatekeeper has said what this program's priority is. Queues made later are ranked by it.
    pub fn set_priority(&self, priority: i32) {
        self.base_priority.store(priority, Relaxed);
        self.welcome();
    }

    fn welcome(&self) {
        self.welcomed.store(1, Release);
        Hardware::wake(&self.welcomed, Sleepers::Own);
    }

    /// For a call that may wait for the device, and of which queue's commands is not worth asking: none is idle meanwhile.
    pub fn wait_for_some<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.waits_for_some.fetch_add(1, SeqCst);
        let result = wait();
        self.waits_for_some.fetch_sub(1, SeqCst);
        result
    }

    /// Whether a thread of the application's waits for something that this group was given, as far as is known.
    pub(crate) fn is_waited_for(&self, group: &Group) -> bool {
        group.syncing.load(Acquire) > 0 || self.waits_for_some.load(Acquire) > 0
    }
}
