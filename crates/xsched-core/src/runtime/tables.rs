//! Which queue and which group has which place, and what the daemon is still to be told of that.

use core::ffi::c_void;
use core::sync::atomic::Ordering::*;
use std::collections::HashMap;
use std::sync::MutexGuard;

use xsched_flow::tuning::ATTACH_NS;
use xsched_proto::entitlement::group_priority;
use xsched_proto::hint::Hints;
use xsched_proto::segment::{COUNTERS, QUEUES, state};
use xsched_proto::wire::{ClientMsg, Levels};

use super::Runtime;
use crate::clock::now_ns;
use crate::group::Group;
use crate::protocol::registration::Registration;
use crate::queue::{XQueue, is_default};
use crate::{Platform, inspect};

/// Groups of a process after which queues share some though each is to have its own.
const OWN_GROUPS: usize = 48;

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
    /// The only queue of the group, set apart from the others by the program or since each is.
    own: Option<u16>,
}

/// What the program itself said of a group.
#[derive(Clone, Default)]
struct Said {
    priority: Option<i32>,
    hints: Hints,
    levels: Option<Levels>,
}

/// Where a queue goes.
#[derive(Clone, Copy)]
pub(crate) enum Move {
    /// To the group of this absolute priority.
    Priority(i32),
    /// To a group of its own.
    Apart,
    /// To the group that it would have come to by itself.
    Back,
    /// To the group of the other domain.
    OtherDomain,
}

/// Which places are free.
#[derive(Default)]
struct Places {
    all: u16,
    /// Those from here on were never used.
    fresh: u16,
    /// Those before it that are free again.
    left: Vec<u16>,
}

impl Places {
    /// The place that is taken next: one that was used before, so that the used ones lie together.
    fn next(&self) -> Option<u16> {
        self.left.last().copied().or_else(|| (self.fresh < self.all).then_some(self.fresh))
    }

    /// Takes the next place, which this is.
    fn take(&mut self, at: u16) {
        if self.left.pop_if(|last| *last == at).is_none() {
            self.fresh = at + 1;
        }
    }
}

#[derive(Default)]
pub(super) struct Tables {
    queues: HashMap<usize, u16>,
    free_queues: Places,
    groups: Vec<GroupKey>,
    free_counters: Places,
    outbox: Vec<ClientMsg>,
    /// By group.
    said: HashMap<u16, Said>,
    /// What the program said of all its groups.
    said_of_all: Hints,
}

impl Tables {
    /// Of a process that has used nothing yet.
    pub(super) fn new() -> Tables {
        Tables {
            free_queues: Places { all: QUEUES as u16, ..Places::default() },
            free_counters: Places { all: COUNTERS as u16, ..Places::default() },
            ..Tables::default()
        }
    }

    /// A counter's place that no queue has.
    pub(super) fn take_counter(&mut self) -> Option<u16> {
        let at = self.free_counters.next()?;
        self.free_counters.take(at);
        Some(at)
    }
}

impl Runtime {
    pub(super) fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The XQueue with this key, made if `describe` says what it is and queues are made of their own accord. `None` when it
    /// cannot be scheduled: too many queues or groups, or `describe` found nothing to schedule.
    pub fn queue(&'static self, key: usize, describe: impl FnOnce() -> Option<QueueSpec>) -> Option<&'static XQueue> {
        if self.makes_queues { self.make_queue(key, describe) } else { self.find(key) }
    }

    /// The same for a queue that the program itself asks for.
    pub fn make_queue(
        &'static self,
        key: usize,
        describe: impl FnOnce() -> Option<QueueSpec>,
    ) -> Option<&'static XQueue> {
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
        let group_key = GroupKey {
            device: spec.device,
            platform: spec.platform,
            steps: spec.priority_steps,
            fixed: None,
            system,
            own: None,
        };
        let at = tables.free_queues.next()?;
        let own = self.own_group_of(&tables, at);
        let group = self.group_for(&mut tables, GroupKey { own, ..group_key })?;
        tables.free_queues.take(at);
        let queue = self.queues.made(at);
        self.high_water.fetch_max(u32::from(at) + 1, AcqRel);
        self.segment.header.used[0].fetch_max(u32::from(at) + 1, AcqRel);
        queue.reset();
        queue.key.store(key, Relaxed);
        queue.handle.store(spec.handle, Relaxed);
        queue.platform.store(spec.platform, Relaxed);
        queue.in_order.store(spec.in_order, Relaxed);
        queue.made_system.store(system, Relaxed);
        queue.set_reports_completion(queue.platform(self).reports_completion());
        queue.group.store(group, Relaxed);
        let slot = queue.slot(self);
        slot.shared.launches.store(0, Relaxed);
        slot.shared.tracked.store(0, Relaxed);
        slot.shared.system.store(0, Relaxed);
        // What its former user had there is of no interest any more.
        slot.fence.store(slot.completed_word.load(Relaxed), Relaxed);
        slot.go.store(1, Relaxed);
        slot.reached.store(0, Relaxed);
        slot.group.store(u32::from(group) + 1, Release);
        self.outdate(queue, 1);
        tables.queues.insert(key, at);
        tables.outbox.push(ClientMsg::QueueAdd { slot: at, group });
        drop(tables);
        self.poke_agent();
        Some(queue)
    }

    /// The queue with this key, if it is known.
    pub fn find(&'static self, key: usize) -> Option<&'static XQueue> {
        let at = *self.tables().queues.get(&key)?;
        Some(&self.queues[usize::from(at)])
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
        group.priority.store(group_priority(base, key.steps, key.fixed), Relaxed);
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

    /// The group of its own that a queue in this place gets while each has one. Some places stay for groups that queues share.
    fn own_group_of(&self, tables: &Tables, slot: u16) -> Option<u16> {
        let has_one = || tables.groups.iter().any(|group| group.own == Some(slot));
        let apart = self.streams_apart.load(Acquire) && (tables.groups.len() < OWN_GROUPS || has_one());
        apart.then_some(slot)
    }

    /// Whether one more queue may get a group of its own because each has one.
    pub(crate) fn has_room_apart(&self) -> bool {
        self.tables().groups.len() < OWN_GROUPS
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
            sharing: platform.sharing(&key.device),
        }
    }

    /// Takes the queue with this key out of its place. Returns the group it was in.
    pub(crate) fn take_out(&self, key: usize) -> Option<&Group> {
        let mut tables = self.tables();
        let at = tables.queues.remove(&key)?;
        let queue = &self.queues[usize::from(at)];
        self.outdate(queue, 1);
        queue.leave_company(self);
        let launches = self.counters_of(queue).fold(0u64, |n, c| n.wrapping_add(c.total()));
        let system = self.counters_of(queue).fold(0u64, |n, c| n.wrapping_add(c.system.load(Relaxed)));
        let group = queue.group(self);
        group.slot(self).launches_retired.fetch_add(launches, Relaxed);
        group.slot(self).system_retired.fetch_add(system, Relaxed);
        // Before its counters go: the daemon, which reads those first, then knows that they may be gone.
        queue.slot(self).group.store(0, Release);
        let mut next = queue.counters.load(Acquire);
        while let Some(index) = next.checked_sub(1) {
            let at = index as usize;
            self.segment.counters[at].queue.store(0, Release);
            next = self.counter_after(at);
            tables.free_counters.left.push(index as u16);
        }
        tables.free_queues.left.push(at);
        tables.outbox.push(ClientMsg::QueueRemove { slot: at });
        Some(group)
    }

    /// The same for one that the program holds.
    pub(crate) fn outdate_remembered(&self, queue: &XQueue) {
        let _tables = self.tables();
        self.outdate(queue, 2);
    }

    /// Whether a queue is the only one of its group, by the program's wish.
    pub fn is_apart(&self, queue: &XQueue) -> bool {
        self.tables().groups[usize::from(queue.group.load(Relaxed))].own.is_some()
    }

    /// Tells the scheduler what the program says of a queue that is apart. Priority and levels replace what was said before
    /// (none = what follows from the program's own, or the device); of the hints, those that are given.
    pub fn say(&self, queue: &XQueue, change: impl FnOnce(&mut Option<i32>, &mut Hints, &mut Option<Levels>)) {
        let mut tables = self.tables();
        let slot = queue.group.load(Relaxed);
        let said = tables.said.entry(slot).or_default();
        let before = said.levels;
        change(&mut said.priority, &mut said.hints, &mut said.levels);
        let said = said.clone();
        let key = &tables.groups[usize::from(slot)];
        let base = self.base_priority.load(Relaxed);
        let priority = group_priority(base, key.steps, said.priority.or(key.fixed));
        self.groups[usize::from(slot)].priority.store(priority, Relaxed);
        let levels = (said.levels != before).then(|| self.levels_of(key, &said));
        tables.outbox.push(ClientMsg::GroupHint { slot, priority: said.priority, hints: said.hints });
        tables.outbox.extend(levels.map(|levels| ClientMsg::Levels { slot, levels }));
        drop(tables);
        self.poke_agent();
    }

    /// Tells the scheduler what the program says of all its groups.
    pub fn say_of_all(&self, hints: Hints) {
        let mut tables = self.tables();
        tables.said_of_all = hints.or(tables.said_of_all);
        tables.outbox.push(ClientMsg::ProgramHint { hints });
        drop(tables);
        self.poke_agent();
    }

    fn levels_of(&self, key: &GroupKey, said: &Said) -> Levels {
        said.levels.unwrap_or_else(|| self.platforms[usize::from(key.platform)].levels(&key.device))
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
        new.expect(self);
        queue.group.store(group, Release);
        queue.slot(self).group.store(u32::from(group) + 1, Release);
        self.outdate(queue, 2);
        tables.outbox.push(ClientMsg::QueueRemove { slot });
        tables.outbox.push(ClientMsg::QueueAdd { slot, group });
        Some((queue, old, new))
    }

    /// Runs `look`; no queue is removed meanwhile, and so none destroyed.
    pub(crate) fn keeping_queues<T>(&self, look: impl FnOnce() -> T) -> T {
        let tables = self.tables();
        let result = look();
        drop(tables);
        result
    }

    /// Runs `pin` if the queue is still in use, in which case it cannot be destroyed until `pin` returns.
    pub fn while_alive<T>(&self, queue: &XQueue, pin: impl FnOnce() -> T) -> Option<T> {
        let tables = self.tables();
        let alive = tables.queues.get(&queue.key()) == Some(&queue.index);
        let result = alive.then(pin);
        drop(tables);
        result
    }

    /// Returns when no thread looks into queues of the program any more; to be called after [`Runtime::detach_for_good`],
    /// before they go.
    pub fn end_looking(&self) {
        drop(self.tables());
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
        said_of_all.into_iter().chain(groups).chain(queues).collect()
    }

    /// Device key and platform of a group.
    pub fn device_of(&self, group: u16) -> Option<(String, &'static dyn Platform)> {
        let tables = self.tables();
        let key = tables.groups.get(usize::from(group))?;
        Some((key.device.clone(), self.platforms[usize::from(key.platform)]))
    }
}

impl Group {
    /// The counterpart of [`Group::abandon`]: a queue is about to move here.
    fn expect(&self, rt: &Runtime) {
        if self.registration.load(Acquire) == Registration::Attached as u32 {
            self.slot(rt).gate.let_hold();
        }
    }
}
