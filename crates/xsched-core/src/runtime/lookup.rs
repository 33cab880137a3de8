//! What belongs to what: the words of a group and of a queue, a group's queues.

use core::sync::atomic::Ordering::*;

use xsched_proto::domains::DomainMode;
use xsched_proto::histogram::Histogram;
use xsched_proto::memory::Hardware;
use xsched_proto::segment::{GroupSlot, QueueSlot};

use super::Runtime;
use crate::group::Group;
use crate::protocol::idle::Readiness;
use crate::protocol::registration::Holding;
use crate::queue::XQueue;
use crate::{Platform, inspect};

impl Group {
    /// How long threads have waited at its gate.
    pub(crate) fn waits<'a>(&self, rt: &'a Runtime) -> &'a Histogram {
        &rt.segment.waits[usize::from(self.index)]
    }

    pub(crate) fn slot<'a>(&self, rt: &'a Runtime) -> &'a GroupSlot {
        &rt.segment.groups[usize::from(self.index)]
    }

    /// Its words that say whether it wants the device.
    pub(crate) fn readiness<'a>(&'a self, rt: &'a Runtime) -> Readiness<'a, Hardware> {
        let slot = self.slot(rt);
        Readiness { gate: &slot.gate, state: &slot.state, waiting: &self.waiting }
    }

    pub(crate) fn holding<'a>(&'a self, rt: &'a Runtime) -> Holding<'a, Hardware> {
        Holding { readiness: self.readiness(rt), registration: &self.registration }
    }
}

impl XQueue {
    /// The group it is suspended with.
    pub fn group<'a>(&self, rt: &'a Runtime) -> &'a Group {
        &rt.groups[usize::from(self.group.load(Relaxed))]
    }

    /// Its vendor interface.
    pub fn platform(&self, rt: &Runtime) -> &'static dyn Platform {
        rt.platforms[usize::from(self.platform.load(Relaxed))]
    }

    /// Its slot in the segment.
    pub fn slot<'a>(&self, rt: &'a Runtime) -> &'a QueueSlot {
        &rt.segment.queues[usize::from(self.index)]
    }
}

impl Runtime {
    /// Every group in use.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().take(self.group_count.load(Acquire) as usize)
    }

    /// Every queue in use.
    pub fn queues(&self) -> impl Iterator<Item = &XQueue> {
        let used = self.queues.iter().take(self.queues_in_use());
        used.filter(|q| self.segment.queues[usize::from(q.index)].group.load(Acquire) != 0)
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

    /// Whether all queues of this process are suspended together.
    pub fn has_one_group(&self) -> bool {
        self.group_count.load(Relaxed) <= 1
    }

    pub(crate) fn highest_priority(&self) -> i32 {
        self.groups().map(|g| g.priority.load(Relaxed)).max().unwrap_or(i32::MIN)
    }

    /// Whether some group goes before others of the same priority in this process.
    pub(crate) fn has_system_group(&self) -> bool {
        self.groups().any(|g| g.slot(self).system.load(Relaxed) != 0)
    }

    /// Whether some gate of this process is closed.
    pub fn some_gate_is_closed(&self) -> bool {
        self.groups().any(|g| !g.slot(self).gate.load().is_open())
    }

    /// Agent: what becomes of launches of the system domain from now on.
    pub fn set_domains(&self, mode: DomainMode) {
        inspect::set_mode(mode);
        if mode != DomainMode::Off {
            inspect::start();
            self.inspect_launches();
        }
    }

    /// From now on the origin of each launch is looked at, see [`crate::inspect`].
    pub fn inspect_launches(&self) {
        let _tables = self.tables();
        for group in self.groups() {
            group.slot(self).gate.inspect();
        }
    }
}
