//! The scheduler's state in this process, composed of its parts.

use core::ops::Deref;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::os::fd::OwnedFd;

use rustix::thread::{MembarrierCommand, membarrier};
use xsched_proto::segment::{COUNTERS, GROUPS, MAGIC, QUEUES, Segment};

use crate::Platform;
use crate::agent_port::AgentPort;
use crate::backlog_pages::BacklogPages;
use crate::daemon_page::DaemonPage;
use crate::device_memory::DeviceMemory;
use crate::estimate::Estimates;
use crate::gate_conditions::GateConditions;
use crate::group::Group;
use crate::registry::Registry;

/// The scheduler's state in this process: the registry of queues and groups, which it dereferences to, and beside it what launches
/// share beyond those. Lives until the process ends.
pub struct Runtime {
    registry: Registry,
    pub(crate) port: AgentPort,
    pub(crate) daemon_page: DaemonPage,
    pub(crate) memory: DeviceMemory,
    pub(crate) estimates: Estimates,
    pub(crate) backlog_pages: BacklogPages,
    pub(crate) gate_conditions: GateConditions,
    pub(crate) waits: WaitTotals,
    /// Threads in a wait for unspecified queues: see [`Runtime::wait_for_some`].
    waits_for_some: AtomicU32,
    forced_level: Option<u8>,
    timeslice_us: Option<u64>,
}

/// Waits of the process so far.
#[derive(Default)]
pub(crate) struct WaitTotals {
    /// Times that a thread had to wait at a closed gate.
    pub(crate) at_gate: AtomicU64,
    /// Time that threads waited at closed gates, added up, in ns.
    pub(crate) at_gate_ns: AtomicU64,
    /// Time that threads waited for the in-flight budget, added up, in ns.
    pub(crate) for_budget_ns: AtomicU64,
    /// Times that a group was seen to have completed all of its commands.
    pub(crate) idles: AtomicU64,
}

impl Deref for Runtime {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.registry
    }
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
            registry: Registry::new(segment, platforms, base_priority),
            port: AgentPort::new(daemon_event, agent_event),
            daemon_page: DaemonPage::new(),
            memory: DeviceMemory::default(),
            estimates: Estimates::new(),
            backlog_pages: BacklogPages::new(),
            gate_conditions: GateConditions::default(),
            waits: WaitTotals::default(),
            waits_for_some: AtomicU32::new(0),
            forced_level,
            timeslice_us,
        }
    }

    /// Leaves streams without XQueues unless the program asks for one: their commands reach the driver as without xsched, and are
    /// not counted.
    #[must_use]
    pub fn without_queues(mut self) -> Runtime {
        self.registry.without_queues();
        self
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

    /// Times that the device was given back: a group was seen to have completed all of its commands.
    pub fn idles(&self) -> u64 {
        self.waits.idles.load(Relaxed)
    }

    /// Times that a thread had to wait at a closed gate.
    pub fn gate_waits(&self) -> u64 {
        self.waits.at_gate.load(Relaxed)
    }

    /// Time that threads waited at closed gates, and for the in-flight budget, in µs.
    pub fn waited_us(&self) -> (u64, u64) {
        (self.waits.at_gate_ns.load(Relaxed) / 1000, self.waits.for_budget_ns.load(Relaxed) / 1000)
    }

    /// Runs a call that may wait for the device, and of which queue's commands is not worth asking: none is idle meanwhile.
    pub fn wait_for_some<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.waits_for_some.fetch_add(1, SeqCst);
        let result = wait();
        self.waits_for_some.fetch_sub(1, SeqCst);
        result
    }
}

impl Group {
    /// True: a thread of the application's waits for commands of this group, as far as is known.
    pub(crate) fn is_waited_for(&self, rt: &Runtime) -> bool {
        self.syncing.load(Acquire) > 0 || rt.waits_for_some.load(Acquire) > 0
    }
}
