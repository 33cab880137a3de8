//! Places of queues and groups: a queue comes, goes, or moves to another group; a group comes with its first queue.

use core::ffi::c_void;
use core::sync::atomic::Ordering::*;

use xsched_flow::tuning::ATTACH_NS;
use xsched_proto::entitlement::group_priority;
use xsched_proto::segment::state;
use xsched_proto::wire::ClientMsg;

use super::Registry;
use super::tables::{GroupKey, Tables};
use crate::clock::now_ns;
use crate::group::Group;
use crate::inspect;
use crate::protocol::registration::Registration;
use crate::queue::{XQueue, is_default};

/// Describes a hardware queue that is used for the first time.
pub struct QueueSpec {
    /// The vendor's handle.
    pub handle: *mut c_void,
    /// Index into the platforms given to [`Runtime::new`](crate::Runtime::new).
    pub platform: u8,
    /// Device key.
    pub device: String,
    /// Priority relative to the program's, in steps of ten; positive is more urgent.
    pub priority_steps: i32,
    /// True: its commands complete in order.
    pub in_order: bool,
}

/// Destination of a queue that moves.
#[derive(Clone, Copy)]
pub(crate) enum Move {
    /// To a group of this absolute priority.
    Priority(i32),
    /// To a group of its own.
    Apart,
    /// To the group that a new queue of its device and priority comes to.
    Back,
    /// To the group of the other domain.
    OtherDomain,
}

impl Registry {
    /// Finds the XQueue with this key, or makes it if `describe` describes one; true: it was made just now, and the agent has
    /// messages to send. `None` when it cannot be scheduled: too many queues or groups, or `describe` found nothing to schedule.
    pub(crate) fn find_or_add(
        &'static self,
        key: usize,
        describe: impl FnOnce() -> Option<QueueSpec>,
    ) -> Option<(&'static XQueue, bool)> {
        if let Some(known) = self.find(key) {
            return Some((known, false));
        }
        // The driver is asked without our lock held.
        let spec = describe()?;
        // Default streams belong to all threads.
        let system = !is_default(spec.handle) && inspect::makes_system_queues();
        let mut tables = self.tables();
        if let Some(at) = tables.queues.get(&key) {
            return Some((&self.queues[usize::from(*at)], false));
        }
        let at = tables.next_queue()?;
        let group_key = GroupKey {
            device: spec.device.clone(),
            platform: spec.platform,
            steps: spec.priority_steps,
            fixed: None,
            system,
            own: self.own_group_of(&tables, at),
        };
        let group = self.group_for(&mut tables, group_key)?;
        tables.take_queue(at);
        let queue = self.queues.made(at);
        self.queue_places_used.fetch_max(u32::from(at) + 1, AcqRel);
        self.segment.header.used[0].fetch_max(u32::from(at) + 1, AcqRel);
        self.begin_queue(queue, key, &spec, system, group);
        self.outdate(queue, 1);
        tables.queues.insert(key, at);
        tables.outbox.push(ClientMsg::QueueAdd { slot: at, group });
        Some((queue, true))
    }

    /// Sets the words of a queue that begins in this place; its group's number comes last.
    fn begin_queue(&self, queue: &XQueue, key: usize, spec: &QueueSpec, system: bool, group: u16) {
        queue.reset();
        queue.vendor.key.store(key, Relaxed);
        queue.vendor.handle.store(spec.handle, Relaxed);
        queue.vendor.platform.store(spec.platform, Relaxed);
        queue.vendor.in_order.store(spec.in_order, Relaxed);
        queue.vendor.made_system.store(system, Relaxed);
        queue.set_reports_completion(queue.platform(self).reports_completion());
        queue.group.store(group, Relaxed);
        let slot = queue.slot(self);
        slot.shared.launches.store(0, Relaxed);
        slot.shared.tracked.store(0, Relaxed);
        slot.shared.system.store(0, Relaxed);
        // Completions of the place's former queue are of no interest any more.
        slot.fence.store(slot.completed_word.load(Relaxed), Relaxed);
        slot.go.store(1, Relaxed);
        slot.reached.store(0, Relaxed);
        slot.group.store(u32::from(group) + 1, Release);
    }

    /// The group with this key, made if there is none. `None`: there are too many.
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
        group.priority.store(group_priority(self.base_priority(), key.steps, key.fixed), Relaxed);
        if self.detached.load(Relaxed) {
            group.registration.store(Registration::Detached as u32, Release);
        }
        // Each group of its own: a stream of another priority, or a moved queue, may come long after the first.
        group.attach_deadline.store(now_ns() + ATTACH_NS, Relaxed);
        tables.outbox.push(self.group_add(index as u16, &key));
        tables.groups.push(key);
        self.group_count.fetch_add(1, Release);
        Some(index as u16)
    }

    /// Takes the queue with this key out of its place; `leaving` ends what others know of it, before its place is free. Returns the
    /// group it was in.
    pub(crate) fn take_out(&self, key: usize, leaving: impl FnOnce(&XQueue)) -> Option<&Group> {
        let mut tables = self.tables();
        let at = tables.queues.remove(&key)?;
        let queue = &self.queues[usize::from(at)];
        self.outdate(queue, 1);
        leaving(queue);
        let launches = self.counters_of(queue).fold(0u64, |n, c| n.wrapping_add(c.total()));
        let system = self.counters_of(queue).fold(0u64, |n, c| n.wrapping_add(c.system.load(Relaxed)));
        let group = queue.group(self);
        group.slot(self).launches_retired.fetch_add(launches, Relaxed);
        group.slot(self).system_retired.fetch_add(system, Relaxed);
        // Before its counters go: the daemon, which reads those first, then knows that they may be gone.
        queue.slot(self).group.store(0, Release);
        self.release_counters(queue, |counter| tables.free_counter(counter));
        tables.free_queue(at);
        tables.outbox.push(ClientMsg::QueueRemove { slot: at });
        Some(group)
    }

    /// Puts a queue into another group. Returns the queue, the group it was in and the new one; none if it stays where it is.
    pub(crate) fn regroup(&self, slot: u16, to: Move) -> Option<(&XQueue, &Group, &Group)> {
        let mut tables = self.tables();
        let queue = self.queues.get(usize::from(slot))?;
        if queue.slot(self).group.load(Relaxed) == 0 {
            return None;
        }
        let old = queue.group.load(Relaxed);
        let mut key = tables.groups[usize::from(old)].clone();
        match to {
            Move::Priority(priority) => key.fixed = Some(priority),
            Move::Apart => key.own = Some(slot),
            Move::Back => (key.fixed, key.own) = (None, self.own_group_of(&tables, slot)),
            Move::OtherDomain => key.system = !key.system,
        }
        let group = self.group_for(&mut tables, key)?;
        if group == old {
            return None;
        }
        let (old, new) = (&self.groups[usize::from(old)], &self.groups[usize::from(group)]);
        // The group may have been abandoned when its last queue moved away, which opened its gate.
        if new.registration.load(Acquire) == Registration::Attached as u32 {
            new.slot(self).gate.let_hold();
        }
        queue.group.store(group, Release);
        queue.slot(self).group.store(u32::from(group) + 1, Release);
        self.outdate(queue, 2);
        tables.outbox.push(ClientMsg::QueueRemove { slot });
        tables.outbox.push(ClientMsg::QueueAdd { slot, group });
        Some((queue, old, new))
    }
}
