//! Lookup without a lock: the words of a group and of a queue, the queues of a group, and facts about all groups.

use core::sync::atomic::Ordering::*;

use xsched_proto::histogram::Histogram;
use xsched_proto::memory::Hardware;
use xsched_proto::segment::{GroupSlot, QueueSlot, Segment};

use super::Registry;
use crate::Platform;
use crate::group::Group;
use crate::protocol::idle::Readiness;
use crate::protocol::registration::Holding;
use crate::queue::XQueue;

impl Group {
    /// Histogram of the waits at its gate.
    pub(crate) fn waits<'a>(&self, registry: &'a Registry) -> &'a Histogram {
        &registry.segment.waits[usize::from(self.index)]
    }

    /// Its slot in the segment.
    pub(crate) fn slot<'a>(&self, registry: &'a Registry) -> &'a GroupSlot {
        &registry.segment.groups[usize::from(self.index)]
    }

    /// Its words that say if it wants the device.
    pub(crate) fn readiness<'a>(&'a self, registry: &'a Registry) -> Readiness<'a, Hardware> {
        let slot = self.slot(registry);
        Readiness { gate: &slot.gate, state: &slot.state, waiting: &self.waiting }
    }

    /// Its words that say if a daemon holds its gate.
    pub(crate) fn holding<'a>(&'a self, registry: &'a Registry) -> Holding<'a, Hardware> {
        Holding { readiness: self.readiness(registry), registration: &self.registration }
    }
}

impl XQueue {
    /// Group that the queue is suspended with.
    pub fn group<'a>(&self, registry: &'a Registry) -> &'a Group {
        &registry.groups[usize::from(self.group.load(Relaxed))]
    }

    /// Vendor interface of the queue.
    pub fn platform(&self, registry: &Registry) -> &'static dyn Platform {
        registry.platforms[usize::from(self.vendor.platform.load(Relaxed))]
    }

    /// Slot of the queue in the segment.
    pub fn slot<'a>(&self, registry: &'a Registry) -> &'a QueueSlot {
        &registry.segment.queues[usize::from(self.index)]
    }

    /// Number of other queues of the group that have commands in flight.
    pub(crate) fn busy_others(&self, registry: &Registry) -> u64 {
        let others = registry.queues_of(self.group(registry));
        others.filter(|q| q.index != self.index && q.in_flight().commands > 0).count() as u64
    }
}

impl Registry {
    /// Memory shared with the daemon.
    pub fn segment(&self) -> &'static Segment {
        self.segment
    }

    /// True: streams get an XQueue without being asked for one.
    pub fn makes_queues(&self) -> bool {
        self.makes_queues
    }

    /// The program's own priority, as far as it is known.
    pub(crate) fn base_priority(&self) -> i32 {
        self.base_priority.load(Relaxed)
    }

    /// Sets the program's own priority. Groups that come later are ranked by it.
    pub(crate) fn set_base_priority(&self, priority: i32) {
        self.base_priority.store(priority, Relaxed);
    }

    /// Every group in use.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().take(self.group_count.load(Acquire) as usize)
    }

    /// Every queue in use.
    pub fn queues(&self) -> impl Iterator<Item = &XQueue> {
        let used = self.queues.iter().take(self.queue_places());
        used.filter(|q| self.segment.queues[usize::from(q.index)].group.load(Acquire) != 0)
    }

    /// Queues of a group.
    pub(crate) fn queues_of(&self, group: &Group) -> impl Iterator<Item = &XQueue> {
        let wanted = u32::from(group.index) + 1;
        self.queues
            .iter()
            .take(self.queue_places())
            .filter(move |q| self.segment.queues[usize::from(q.index)].group.load(Acquire) == wanted)
    }

    // Places are handed out lowest first, so that the used ones lie together.
    fn queue_places(&self) -> usize {
        self.queue_places_used.load(Acquire) as usize
    }

    /// True: all queues of this process are suspended together.
    pub fn has_one_group(&self) -> bool {
        self.group_count.load(Relaxed) <= 1
    }

    /// Highest priority of all groups.
    pub(crate) fn highest_priority(&self) -> i32 {
        self.groups().map(|g| g.priority.load(Relaxed)).max().unwrap_or(i32::MIN)
    }

    /// True: some group goes before others of the same priority in this process.
    pub(crate) fn has_system_group(&self) -> bool {
        self.groups().any(|g| g.slot(self).system.load(Relaxed) != 0)
    }

    /// True: some gate of this process is closed.
    pub fn some_gate_is_closed(&self) -> bool {
        self.groups().any(|g| !g.slot(self).gate.load().is_open())
    }

    /// True: no daemon holds the gates, so that groups begin with an open one.
    pub fn is_detached(&self) -> bool {
        self.detached.load(Acquire)
    }

    /// Lets groups that come from now on wait for a daemon's answer.
    pub(crate) fn attach_groups(&self) {
        self.detached.store(false, Release);
    }

    /// Opens every gate, and the gate of each group to come. False: they stood open already.
    pub(crate) fn detach_groups(&self) -> bool {
        let detaches = !self.detached.swap(true, AcqRel);
        if detaches {
            self.groups().for_each(|group| group.holding(self).detach());
        }
        detaches
    }
}
