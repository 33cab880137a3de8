//! Messages to the daemon about the groups and queues of this process.

use core::sync::atomic::Ordering::*;

use xsched_proto::account::MemorySlot;
use xsched_proto::entitlement::group_priority;
use xsched_proto::hint::Hints;
use xsched_proto::wire::{ClientMsg, Levels};

use super::Registry;
use super::tables::{GroupKey, Said};
use crate::queue::XQueue;

impl Registry {
    /// Message that adds a group.
    pub(super) fn group_add(&self, slot: u16, key: &GroupKey) -> ClientMsg {
        let platform = self.platforms[usize::from(key.platform)];
        ClientMsg::GroupAdd {
            slot,
            device: key.device.clone(),
            platform: platform.kind(),
            priority_steps: key.steps,
            priority_fixed: key.fixed,
            system: key.system,
            levels: platform.levels(&key.device),
            sharing: platform.sharing(&key.device),
        }
    }

    /// Notes the program's wishes for the group of a queue that is apart. The agent has messages to send then.
    pub(crate) fn note_wishes(
        &self,
        queue: &XQueue,
        change: impl FnOnce(&mut Option<i32>, &mut Hints, &mut Option<Levels>),
    ) {
        let mut tables = self.tables();
        let slot = queue.group.load(Relaxed);
        let said = tables.said.entry(slot).or_default();
        let before = said.levels;
        change(&mut said.priority, &mut said.hints, &mut said.levels);
        let said = said.clone();
        let key = &tables.groups[usize::from(slot)];
        let priority = group_priority(self.base_priority(), key.steps, said.priority.or(key.fixed));
        self.groups[usize::from(slot)].priority.store(priority, Relaxed);
        let levels = (said.levels != before).then(|| self.levels_of(key, &said));
        tables.outbox.push(ClientMsg::GroupHint { slot, priority: said.priority, hints: said.hints });
        tables.outbox.extend(levels.map(|levels| ClientMsg::Levels { slot, levels }));
    }

    /// Notes the program's hints for all its groups. The agent has a message to send then.
    pub(crate) fn note_hints_of_all(&self, hints: Hints) {
        let mut tables = self.tables();
        tables.said_of_all = hints.or(tables.said_of_all);
        tables.outbox.push(ClientMsg::ProgramHint { hints });
    }

    /// Preemption levels of a group: as the program wishes, or all that its device can do.
    fn levels_of(&self, key: &GroupKey, said: &Said) -> Levels {
        said.levels.unwrap_or_else(|| self.platforms[usize::from(key.platform)].levels(&key.device))
    }

    /// Agent: messages that wait to be sent.
    pub fn take_outbox(&self) -> Vec<ClientMsg> {
        core::mem::take(&mut self.tables().outbox)
    }

    /// Agent, after connecting: everything a new daemon must know. Empties the outbox.
    pub fn introduce(&self) -> Vec<ClientMsg> {
        let mut tables = self.tables();
        tables.outbox.clear();
        let mut said_of_all = Vec::new();
        if tables.said_of_all != Hints::default() {
            said_of_all.push(ClientMsg::ProgramHint { hints: tables.said_of_all });
        }
        let groups = tables.groups.iter().enumerate().flat_map(|(i, key)| {
            let slot = i as u16;
            let said = tables.said.get(&slot).cloned();
            let hint = said.as_ref().map(|s| ClientMsg::GroupHint { slot, priority: s.priority, hints: s.hints });
            let levels = said.and_then(|s| s.levels).map(|levels| ClientMsg::Levels { slot, levels });
            [Some(self.group_add(slot, key)), hint, levels].into_iter().flatten()
        });
        let queues = self
            .queues()
            .map(|q| ClientMsg::QueueAdd { slot: q.index, group: q.group.load(Relaxed) })
            .collect::<Vec<_>>();
        let memory = tables.memory.iter().enumerate().map(|(slot, (device, capacity_bytes))| ClientMsg::MemoryDevice {
            slot: slot as u16,
            device: device.clone(),
            capacity_bytes: *capacity_bytes,
        });
        said_of_all.into_iter().chain(groups).chain(queues).chain(memory).collect()
    }

    /// Leaves a message to the agent, which is to be poked.
    pub(crate) fn send(&self, message: ClientMsg) {
        self.tables().outbox.push(message);
    }

    /// Slot of a device whose memory is counted, and if it is new. A new slot is made by `make` and announced: the agent is to be poked.
    pub(crate) fn add_memory_device(
        &self,
        device: &str,
        capacity_bytes: u64,
        make: impl FnOnce(&MemorySlot),
    ) -> Option<(u16, bool)> {
        let mut tables = self.tables();
        if let Some(slot) = tables.memory.iter().position(|(known, _)| known == device) {
            return Some((slot as u16, false));
        }
        let slot = tables.memory.len();
        make(self.segment.memory.get(slot)?);
        tables.memory.push((device.to_owned(), capacity_bytes));
        let slot = slot as u16;
        tables.outbox.push(ClientMsg::MemoryDevice { slot, device: device.to_owned(), capacity_bytes });
        Some((slot, true))
    }

    /// Slots of devices whose memory is counted, with their memory in bytes.
    pub(crate) fn memory_capacities(&self) -> Vec<(u16, u64)> {
        self.tables().memory.iter().enumerate().map(|(slot, (_, bytes))| (slot as u16, *bytes)).collect()
    }
}
