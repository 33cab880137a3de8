//! All XQueues and groups of this process, and the way to the agent thread and the daemon.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, OnceLock};

use rustix::thread::{MembarrierCommand, membarrier};
use xsched_flow::journal::Record;
use xsched_flow::timeline::Evidence;
use xsched_flow::tuning::{ATTACH_NS, FILLED_LOOK_NS, REQUIRED_LOOK_NS};
use xsched_flow::watchdog::is_silent;
use xsched_proto::class::queue_priority;
use xsched_proto::memory::{Hardware, Memory, Sleepers};
use xsched_proto::segment::{
    COUNTERS, Counter, CounterSlot, GROUPS, Heartbeat, MAGIC, QUEUES, Segment, device_place, state,
};
use xsched_proto::wire::ClientMsg;

use crate::descriptor::Descriptor;
use crate::estimate::Estimates;
use crate::group::Group;
use crate::protocol::registration::Registration;
use crate::queue::XQueue;
use crate::{Platform, inspect, journal, now_ns, thread};

/// Vendors' own names of default streams are no greater than this; no handle is so small.
const DEFAULT_HANDLES: usize = 2;

/// Whether a handle is a name of a default stream.
pub(crate) fn is_default(handle: *mut c_void) -> bool {
    handle.addr() <= DEFAULT_HANDLES
}

/// Describes a hardware queue that is used for the first time.
pub struct QueueSpec {
    /// The vendor's handle.
    pub handle: *mut c_void,
    /// Index into the platforms given to [`Runtime::new`].
    pub platform: u8,
    /// Device key.
    pub device: String,
    /// Priority relative to the program's, in steps of ten; positive is more urgent.
    pub priority_steps: i32,
    /// Whether its commands complete in order.
    pub in_order: bool,
}

#[derive(Clone, PartialEq)]
struct GroupKey {
    device: String,
    platform: u8,
    steps: i32,
    fixed: Option<i32>,
    /// Of the system domain, by an explicit call.
    system: bool,
}

#[derive(Default)]
struct Tables {
    queues: HashMap<usize, u16>,
    free_queues: Vec<u16>,
    groups: Vec<GroupKey>,
    free_counters: Vec<u16>,
    outbox: Vec<ClientMsg>,
}

/// Called every few milliseconds while a launch waits for the first registration of the process, with the ns waited so far:
/// ends the process when there is no hope of one.
pub type Unscheduled = fn(u64);

static UNSCHEDULED: OnceLock<Unscheduled> = OnceLock::new();

/// From now on no launch goes on unscheduled before a group of the process was registered once. The first one stays.
pub fn require_registration(unscheduled: Unscheduled) {
    let _ = UNSCHEDULED.set(unscheduled);
}

/// The scheduler's state in this process. Lives until the process ends.
pub struct Runtime {
    pub(crate) segment: &'static Segment,
    pub(crate) groups: Box<[Group]>,
    pub(crate) queues: Box<[XQueue]>,
    pub(crate) platforms: &'static [&'static dyn Platform],
    pub(crate) estimates: Estimates,
    owners: Box<[AtomicI32]>,
    next_counter: Box<[AtomicU32]>,
    tables: Mutex<Tables>,
    group_count: AtomicU32,
    high_water: AtomicU32,
    base_priority: AtomicI32,
    /// Whether `base_priority` is what the daemon or the local gatekeeper says, or neither will set it. A futex.
    welcomed: AtomicU32,
    forced_level: Option<u8>,
    timeslice_us: Option<u64>,
    heartbeat: AtomicPtr<Heartbeat>,
    pub(crate) gate_waits: AtomicU64,
    /// For how long threads waited at closed gates, and for the bound, in ns.
    pub(crate) at_gate_ns: AtomicU64,
    pub(crate) at_bound_ns: AtomicU64,
    pub(crate) idles: AtomicU64,
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
            queues: (0..QUEUES as u16).map(XQueue::new).collect(),
            platforms,
            estimates: Estimates::new(),
            owners: (0..COUNTERS).map(|_| AtomicI32::new(0)).collect(),
            next_counter: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
            tables: Mutex::new(Tables {
                free_queues: (0..QUEUES as u16).rev().collect(),
                free_counters: (0..COUNTERS as u16).rev().collect(),
                ..Tables::default()
            }),
            group_count: AtomicU32::new(0),
            high_water: AtomicU32::new(0),
            base_priority: AtomicI32::new(base_priority),
            welcomed: AtomicU32::new(0),
            forced_level,
            timeslice_us,
            heartbeat: AtomicPtr::new(core::ptr::null_mut()),
            gate_waits: AtomicU64::new(0),
            at_gate_ns: AtomicU64::new(0),
            at_bound_ns: AtomicU64::new(0),
            idles: AtomicU64::new(0),
            waits_for_some: AtomicU32::new(0),
            loading: AtomicU32::new(0),
            cross_stream_at: AtomicU64::new(0),
            agent_wakes_at: AtomicU64::new(u64::MAX),
            poke_due: AtomicBool::new(false),
            detached: AtomicBool::new(false),
            registered: AtomicBool::new(false),
            over: AtomicBool::new(false),
            daemon_event: Descriptor::new(daemon_event),
            agent_event: Descriptor::new(agent_event),
        }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The memory shared with the daemon.
    pub fn segment(&self) -> &'static Segment {
        self.segment
    }

    /// The XQueue with this key, made if `describe` says what it is. `None` when it cannot be scheduled: too many
    /// queues or groups, or `describe` found nothing to schedule.
    pub fn queue(&'static self, key: usize, describe: impl FnOnce() -> Option<QueueSpec>) -> Option<&'static XQueue> {
        if let Some(at) = self.tables().queues.get(&key) {
            return Some(&self.queues[usize::from(*at)]);
        }
        // The driver is asked without our lock held.
        let spec = describe()?;
        // Default streams belong to all threads.
        let system = !is_default(spec.handle) && inspect::makes_system_queues();
        let mut tables = self.tables();
        if let Some(at) = tables.queues.get(&key) {
            return Some(&self.queues[usize::from(*at)]);
        }
        let group_key =
            GroupKey { device: spec.device, platform: spec.platform, steps: spec.priority_steps, fixed: None, system };
        let group = self.group_for(&mut tables, group_key)?;
        let at = tables.free_queues.pop()?;
        self.high_water.fetch_max(u32::from(at) + 1, AcqRel);
        let queue = &self.queues[usize::from(at)];
        queue.reset();
        queue.key.store(key, Relaxed);
        queue.handle.store(spec.handle, Relaxed);
        queue.platform.store(spec.platform, Relaxed);
        queue.in_order.store(spec.in_order, Relaxed);
        queue.set_reports_completion(queue.platform(self).reports_completion());
        queue.group.store(group, Relaxed);
        let slot = queue.slot(self);
        slot.shared.launches.store(0, Relaxed);
        slot.shared.tracked.store(0, Relaxed);
        slot.shared.system.store(0, Relaxed);
        slot.group.store(u32::from(group) + 1, Release);
        self.outdate(queue, 1);
        tables.queues.insert(key, at);
        tables.outbox.push(ClientMsg::QueueAdd { slot: at, group });
        drop(tables);
        self.poke_agent();
        Some(queue)
    }

    /// Whatever threads remember of a queue is outdated.
    fn outdate(&self, queue: &XQueue, by: u32) {
        queue.generation.fetch_add(by, AcqRel);
        self.counters_of(queue).for_each(|counter| _ = counter.stamp.fetch_add(1, AcqRel));
    }

    fn group_for(&self, tables: &mut Tables, key: GroupKey) -> Option<u16> {
        if let Some(at) = tables.groups.iter().position(|g| *g == key) {
            return Some(at as u16);
        }
        let index = tables.groups.len();
        let group = self.groups.get(index)?;
        let slot = group.slot(self);
        slot.gate.begin(inspect::is_on());
        slot.system.store(u32::from(key.system), Relaxed);
        slot.inherited_priority.store(i32::MIN, Relaxed);
        slot.state.store(state::IDLE, Relaxed);
        let base = self.base_priority.load(Relaxed);
        group.priority.store(key.fixed.unwrap_or_else(|| queue_priority(base, key.steps)), Relaxed);
        if self.detached.load(Relaxed) {
            group.registration.store(Registration::Detached as u32, Release);
        }
        // Each group of its own: a stream of another priority, or a moved queue, may come long after the first.
        group.attach_deadline.store(now_ns() + ATTACH_NS, Relaxed);
        group.used.store(1, Release);
        tables.outbox.push(self.group_add(index as u16, &key));
        tables.groups.push(key);
        self.group_count.fetch_add(1, Release);
        Some(index as u16)
    }

    fn group_add(&self, slot: u16, key: &GroupKey) -> ClientMsg {
        let platform = self.platforms[usize::from(key.platform)];
        ClientMsg::GroupAdd {
            slot,
            device: key.device.clone(),
            platform: platform.kind(),
            priority_steps: key.steps,
            priority_fixed: key.fixed,
            system: key.system,
            levels: platform.levels(&key.device),
            side_by_side: platform.is_side_by_side(&key.device),
        }
    }

    /// Forgets the queue with this key: its handle is about to be destroyed.
    pub fn remove_queue(&self, key: usize) {
        let mut tables = self.tables();
        let Some(at) = tables.queues.remove(&key) else { return };
        let queue = &self.queues[usize::from(at)];
        self.outdate(queue, 1);
        let launches = self.counters_of(queue).fold(0u64, |n, c| n.wrapping_add(c.total()));
        let system = self.counters_of(queue).fold(0u64, |n, c| n.wrapping_add(c.system.load(Relaxed)));
        let group = queue.group(self);
        group.slot(self).launches_retired.fetch_add(launches, Relaxed);
        group.slot(self).system_retired.fetch_add(system, Relaxed);
        let mut next = queue.counters.load(Acquire);
        while let Some(index) = next.checked_sub(1) {
            let at = index as usize;
            self.segment.counters[at].queue.store(0, Release);
            next = self.next_counter[at].load(Relaxed);
            tables.free_counters.push(index as u16);
        }
        queue.slot(self).group.store(0, Release);
        tables.free_queues.push(at);
        tables.outbox.push(ClientMsg::QueueRemove { slot: at });
        drop(tables);
        group.update_idle_state(self);
        self.poke_agent();
    }

    /// Agent, on `hint --queue`: moves a queue to a group of this absolute priority.
    pub fn move_queue(&self, slot: u16, priority: i32) {
        let mut tables = self.tables();
        let Some(queue) = self.queues.get(usize::from(slot)) else { return };
        if queue.slot(self).group.load(Relaxed) == 0 {
            return;
        }
        let old = queue.group.load(Relaxed);
        let mut key = tables.groups[usize::from(old)].clone();
        key.fixed = Some(priority);
        let Some(group) = self.group_for(&mut tables, key) else { return };
        if group == old {
            return;
        }
        self.groups[usize::from(group)].expect(self);
        queue.group.store(group, Release);
        queue.slot(self).group.store(u32::from(group) + 1, Release);
        self.outdate(queue, 2);
        tables.outbox.push(ClientMsg::QueueRemove { slot });
        tables.outbox.push(ClientMsg::QueueAdd { slot, group });
        drop(tables);
        let (old, new) = (&self.groups[usize::from(old)], &self.groups[usize::from(group)]);
        if self.queues_of(old).next().is_none() {
            old.abandon(self);
        }
        // A thread that waits at the old gate now belongs to the new one.
        old.slot(self).gate.wake();
        if !new.slot(self).gate.load().is_detached() && !queue.is_quiet(self) {
            new.announce(self);
        }
        self.poke_agent();
    }

    /// The counter of the calling thread on a queue; shared with other threads when there are too many.
    pub fn counter(&'static self, queue: &XQueue) -> &'static Counter {
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        let mut tables = self.tables();
        let mut next = queue.counters.load(Acquire);
        let mut orphan = None;
        while let Some(index) = next.checked_sub(1) {
            let at = index as usize;
            match self.owners[at].load(Acquire) {
                owner if owner == me => return &self.segment.counters[at].counter,
                0 => orphan = Some(at),
                _ => {}
            }
            next = self.next_counter[at].load(Relaxed);
        }
        if let Some(at) = orphan {
            self.owners[at].store(me, Release);
            return &self.segment.counters[at].counter;
        }
        let Some(index) = tables.free_counters.pop() else {
            // Counts may then get lost when two threads add at once; nothing else depends on them being exact but
            // the idle decision, which a lost count delays no longer than the next launch.
            return &queue.slot(self).shared;
        };
        let at = usize::from(index);
        let counter: &CounterSlot = &self.segment.counters[at];
        counter.counter.launches.store(0, Relaxed);
        counter.counter.tracked.store(0, Relaxed);
        counter.counter.system.store(0, Relaxed);
        counter.queue.store(u32::from(queue.index) + 1, Release);
        self.owners[at].store(me, Release);
        self.next_counter[at].store(queue.counters.load(Relaxed), Relaxed);
        queue.counters.store(u32::from(index) + 1, Release);
        &counter.counter
    }

    /// A thread ends: its counters go to the next thread that asks for some.
    pub fn thread_exit(&self) {
        thread::stop_waiting(self);
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        for owner in &self.owners {
            let _ = owner.compare_exchange(me, 0, AcqRel, Relaxed);
        }
    }

    /// Finds the queue and lets the calling thread remember it.
    pub fn remember(
        &'static self,
        key: usize,
        describe: impl FnOnce() -> Option<QueueSpec>,
    ) -> Option<&'static XQueue> {
        let queue = self.queue(key, describe)?;
        let counter = self.counter(queue);
        thread::remember(self, key, queue, counter);
        Some(queue)
    }

    /// The queue with this key, if it is known.
    pub fn find(&'static self, key: usize) -> Option<&'static XQueue> {
        let at = *self.tables().queues.get(&key)?;
        Some(&self.queues[usize::from(at)])
    }

    pub(crate) fn counters_of(&self, queue: &XQueue) -> impl Iterator<Item = &Counter> {
        let mut next = queue.counters.load(Acquire);
        let own = core::iter::from_fn(move || {
            let at = next.checked_sub(1)? as usize;
            next = self.next_counter[at].load(Relaxed);
            Some(&self.segment.counters[at].counter)
        });
        own.chain([&queue.slot(self).shared])
    }

    pub(crate) fn queues_of(&self, group: &Group) -> impl Iterator<Item = &XQueue> {
        let wanted = u32::from(group.index) + 1;
        self.queues
            .iter()
            .take(self.queues_in_use())
            .filter(move |q| self.segment.queues[usize::from(q.index)].group.load(Acquire) == wanted)
    }

    // Slots are handed out lowest first, so that the used ones lie together.
    fn queues_in_use(&self) -> usize {
        self.high_water.load(Acquire) as usize
    }

    /// Every group in use.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().take(self.group_count.load(Acquire) as usize)
    }

    /// Every queue in use.
    pub fn queues(&self) -> impl Iterator<Item = &XQueue> {
        let used = self.queues.iter().take(self.queues_in_use());
        used.filter(|q| self.segment.queues[usize::from(q.index)].group.load(Acquire) != 0)
    }

    /// Whether all queues of this process are suspended together.
    pub fn has_one_group(&self) -> bool {
        self.group_count.load(Relaxed) <= 1
    }

    pub(crate) fn highest_priority(&self) -> i32 {
        self.groups().map(|g| g.priority.load(Relaxed)).max().unwrap_or(i32::MIN)
    }

    /// Whether all that a group was given is known to be complete.
    pub fn is_quiet(&self, group: &Group) -> bool {
        self.queues_of(group).all(|q| q.is_quiet(self))
    }

    /// Looks whether some group has become idle.
    pub fn update_idle_states(&self) {
        self.groups().for_each(|group| group.update_idle_state(self));
    }

    /// Agent: looks at those queues of a group that the program fills by itself, and tells of the group what launches and
    /// completions tell of others. Returns in how many ns to look again; `None` = it has no such queues.
    pub fn look_inside(&self, group: &Group) -> Option<u64> {
        // With our lock held, since a queue that is about to be destroyed is removed first.
        let tables = self.tables();
        if self.is_over() {
            return None;
        }
        let looks = self.queues_of(group).filter_map(|q| q.look_inside(self));
        let busy = looks.reduce(|one, other| one | other);
        drop(tables);
        let busy = busy?;
        let gate = group.slot(self).gate.load();
        if gate.is_detached() {
            return Some(FILLED_LOOK_NS.1);
        }
        if busy {
            group.announce(self);
            group.end_grace();
        } else {
            group.update_idle_state_always(self);
            if group.activity(self, now_ns()).grace_left_ns() == Some(0) {
                group.try_idle(self, true);
            }
        }
        let often = if gate.is_contended() { FILLED_LOOK_NS.0 } else { FILLED_LOOK_NS.1 };
        Some(group.activity(self, now_ns()).grace_left_ns().map_or(often, |ns| ns.min(often)))
    }

    /// Returns when no thread looks into queues of the program any more; to be called after [`Runtime::detach_for_good`],
    /// before they go.
    pub fn end_looking(&self) {
        drop(self.tables());
    }

    pub(crate) fn launches_of(&self, group: &Group) -> u64 {
        self.queues_of(group).fold(0, |n, q| n.wrapping_add(q.launches(self)))
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

    /// Agent: presumes complete what nothing tells of, as far as this evidence goes: see [`Evidence::Silence`],
    /// [`Evidence::Overdue`]. Silence means nothing while a thread waits.
    pub fn presume(&self, group: &Group, evidence: Evidence) {
        if evidence != Evidence::Silence || !self.is_waited_for(group) {
            self.queues_of(group).for_each(|q| q.presume(self, evidence));
        }
    }

    /// How often the device was given back: a group was seen to have completed all of its commands.
    pub fn idles(&self) -> u64 {
        self.idles.load(Relaxed)
    }

    pub(crate) fn refresh(&self, group: &Group) {
        self.queues_of(group).for_each(|q| q.refresh(self));
    }

    /// Makes what was enqueued on the group's queues begin.
    pub(crate) fn flush(&self, group: &Group) {
        self.flush_queues(self.queues_of(group));
    }

    /// The same, for a thread that is about to wait at the group's gate, with what it gave to other groups. No thread waits
    /// for that now, so its end would be seen late, and such a group seem to want the device, and have it, until then.
    pub(crate) fn flush_elsewhere(&self, group: &Group) {
        if !self.has_one_group() {
            // What comes next on a default stream may wait for all others.
            let elsewhere = |q: &&XQueue| q.group.load(Relaxed) != group.index && !is_default(q.handle());
            self.flush_queues(thread::used(self).filter(elsewhere));
        }
    }

    /// Their handles are pinned with our lock held, so that no queue is destroyed meanwhile; the driver flushes without it.
    fn flush_queues<'a>(&self, queues: impl Iterator<Item = &'a XQueue>) {
        let tables = self.tables();
        let flushes: Vec<_> = queues.filter_map(|q| q.platform(self).flusher(q)).collect();
        drop(tables);
        flushes.into_iter().for_each(|flush| flush());
    }

    /// Runs `pin` if the queue is still in use, in which case it cannot be destroyed until `pin` returns.
    pub fn while_alive<T>(&self, queue: &XQueue, pin: impl FnOnce() -> T) -> Option<T> {
        let tables = self.tables();
        let alive = tables.queues.get(&queue.key()) == Some(&queue.index);
        let result = alive.then(pin);
        drop(tables);
        result
    }

    /// Waits a moment for the daemon's word on a group, if that is still to come.
    pub fn await_registration(&self, group: &Group) {
        group.wait_registered(group.attach_deadline.load(Relaxed));
        if let Some(unscheduled) = UNSCHEDULED.get()
            && !self.was_registered()
        {
            self.insist(*unscheduled);
            group.wait_registered(now_ns() + ATTACH_NS);
        }
    }

    /// Where the program must be scheduled from the start: waits for the first group to be registered.
    fn insist(&self, unscheduled: Unscheduled) {
        let began = now_ns();
        while !self.was_registered() && !self.is_over() {
            unscheduled(now_ns() - began);
            std::thread::sleep(core::time::Duration::from_nanos(REQUIRED_LOOK_NS));
        }
    }

    /// Whether a group of this process has been registered since it began.
    pub fn was_registered(&self) -> bool {
        self.registered.load(Acquire)
    }

    /// Tells the daemon that a word of the segment changed.
    pub fn notify_daemon(&self) {
        self.ring(&self.daemon_event);
    }

    /// Wakes the agent thread.
    pub fn poke_agent(&self) {
        self.ring(&self.agent_event);
    }

    /// Wakes the agent thread if a group announced itself since: after its launch, which the wake-up would have put off.
    pub(crate) fn poke_if_due(&self) {
        if self.poke_due.load(Relaxed) && self.poke_due.swap(false, AcqRel) {
            self.poke_agent();
        }
    }

    fn ring(&self, event: &Descriptor) {
        match event.get() {
            Some(event) => {
                let _ = rustix::io::write(event, &1u64.to_ne_bytes());
            }
            // The application closed it: nothing can be reported any more.
            None => self.descriptors_lost(),
        }
    }

    fn descriptors_lost(&self) {
        self.over.store(true, Release);
        if !self.detached.swap(true, AcqRel) {
            self.groups().for_each(|g| g.set_registration(self, Registration::Detached));
        }
    }

    /// Wakes the agent thread unless it will wake by itself until `deadline_ns`.
    pub(crate) fn agent_by(&self, deadline_ns: u64) {
        if self.agent_wakes_at.load(SeqCst) > deadline_ns {
            self.poke_agent();
        }
    }

    /// Agent: when it will look again, said before its last look; [`u64::MAX`] = when poked, and while it looks.
    pub fn agent_sleeps_until(&self, at_ns: u64) {
        self.agent_wakes_at.store(at_ns, SeqCst);
    }

    /// The eventfd of [`Runtime::notify_daemon`].
    pub fn daemon_event(&self) -> &Descriptor {
        &self.daemon_event
    }

    /// The eventfd of [`Runtime::poke_agent`].
    pub fn agent_event(&self) -> &Descriptor {
        &self.agent_event
    }

    /// Agent: messages that wait to be sent.
    pub fn take_outbox(&self) -> Vec<ClientMsg> {
        core::mem::take(&mut self.tables().outbox)
    }

    /// Agent, after connecting: everything a new daemon must know. Empties the outbox.
    pub fn introduce(&self) -> Vec<ClientMsg> {
        let mut tables = self.tables();
        tables.outbox.clear();
        let groups = tables.groups.iter().enumerate().map(|(i, key)| self.group_add(i as u16, key));
        let queues = self
            .queues()
            .map(|q| ClientMsg::QueueAdd { slot: q.index, group: q.group.load(Relaxed) })
            .collect::<Vec<_>>();
        groups.chain(queues).collect()
    }

    /// Device key and platform of a group.
    pub fn device_of(&self, group: u16) -> Option<(String, &'static dyn Platform)> {
        let tables = self.tables();
        let key = tables.groups.get(usize::from(group))?;
        Some((key.device.clone(), self.platforms[usize::from(key.platform)]))
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

    /// Agent: a daemon holds the gates from now on; `heartbeat` is its page (null for a scheduler in this process).
    pub fn attach(&self, heartbeat: *mut Heartbeat) {
        self.heartbeat.store(heartbeat, Release);
        self.detached.store(false, Release);
    }

    /// Opens every gate: no daemon holds them any more. The application goes on unscheduled.
    pub fn detach(&self) {
        self.welcome();
        if self.detached.swap(true, AcqRel) {
            return;
        }
        for group in self.groups() {
            group.set_registration(self, Registration::Detached);
        }
        self.poke_agent();
    }

    /// Opens every gate and never lets a daemon have it again.
    pub fn detach_for_good(&self) {
        self.over.store(true, Release);
        self.detach();
    }

    /// Whether [`Runtime::detach_for_good`] was called.
    pub fn is_over(&self) -> bool {
        self.over.load(Acquire)
    }

    /// Whether some group shares its device with another.
    pub fn is_contended(&self) -> bool {
        self.groups().any(|g| g.is_contended(self))
    }

    /// Whether [`Runtime::detach`] was called since the last [`Runtime::attach`].
    pub fn is_detached(&self) -> bool {
        self.detached.load(Acquire)
    }

    /// Whether the daemon knows best-effort programs whose contexts on this device have time slices.
    pub fn has_best_effort_contention(&self, device: &str) -> bool {
        let page = self.heartbeat.load(Acquire);
        // SAFETY: the agent maps the page and never unmaps it while it is published here.
        !page.is_null() && unsafe { &(&(*page).best_effort)[device_place(device)] }.load(Acquire) > 0
    }

    /// Whether the daemon missed so many beats that it holds no program any more. It beats only while some gate is
    /// closed, so that what counts is the silence `since` this gate was seen closed.
    pub fn daemon_is_silent(&self, now: u64, since: u64) -> bool {
        let page = self.heartbeat.load(Acquire);
        if page.is_null() {
            return false;
        }
        // SAFETY: the agent maps the page and never unmaps it while it is published here.
        let beat = unsafe { &(*page).beat_ns }.load(Acquire);
        let silent = is_silent(beat, since, now);
        journal::record(|| Record::Silent(beat, since, now, silent));
        silent
    }

    /// Whether some gate of this process is closed.
    pub fn some_gate_is_closed(&self) -> bool {
        self.groups().any(|g| !g.slot(self).gate.load().is_open())
    }

    /// Times a thread had to wait at a closed gate.
    pub fn gate_waits(&self) -> u64 {
        self.gate_waits.load(Relaxed)
    }

    /// For how long threads waited at closed gates, and for the bound, in µs.
    pub fn waited_us(&self) -> (u64, u64) {
        (self.at_gate_ns.load(Relaxed) / 1000, self.at_bound_ns.load(Relaxed) / 1000)
    }

    /// Launches that the bound let through for want of progress, and those that a signal handler let through.
    pub fn overrides(&self) -> (u64, u64) {
        self.groups().map(|g| g.slot(self)).fold((0, 0), |(bound, signal), slot| {
            (bound + slot.liveness_overrides.load(Relaxed), signal + slot.signal_overrides.load(Relaxed))
        })
    }

    /// From now on the origin of each launch is looked at, see [`inspect`].
    pub fn inspect_launches(&self) {
        let _tables = self.tables();
        for group in self.groups() {
            group.slot(self).gate.inspect();
        }
    }

    /// Launches of the system domain, as far as they were looked at.
    pub fn system_launches(&self) -> u64 {
        let retired = self.groups().map(|g| g.slot(self).system_retired.load(Relaxed));
        let counters = self.queues().flat_map(|q| self.counters_of(q).map(|c| c.system.load(Relaxed)));
        retired.chain(counters).fold(0, u64::wrapping_add)
    }

    /// Whether some group goes before others of the same priority in this process.
    pub(crate) fn has_system_group(&self) -> bool {
        self.groups().any(|g| g.slot(self).system.load(Relaxed) != 0)
    }

    /// Launches of the whole process, and those that went by without a gate decision: attach, passthrough, error.
    pub fn totals(&self) -> (u64, [u64; 3]) {
        let mut launches = 0u64;
        let mut unscheduled = [0; 3];
        for group in self.groups() {
            let slot = group.slot(self);
            launches = launches.wrapping_add(slot.launches_retired.load(Relaxed));
            for q in self.queues_of(group) {
                launches = self.counters_of(q).fold(launches, |n, c| n.wrapping_add(c.total()));
            }
            for (sum, word) in unscheduled.iter_mut().zip([
                &slot.unscheduled_attach,
                &slot.unscheduled_passthrough,
                &slot.unscheduled_error,
            ]) {
                *sum += word.load(Relaxed);
            }
        }
        (launches, unscheduled)
    }
}
