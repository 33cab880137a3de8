//! Tables of the registry, behind its lock: the queue of each key, the free places, and the groups with their distinguishing
//! properties.

use core::sync::atomic::Ordering::*;
use std::collections::HashMap;
use std::sync::MutexGuard;

use xsched_proto::hint::Hints;
use xsched_proto::segment::{COUNTERS, Counter, QUEUES};
use xsched_proto::wire::{ClientMsg, Levels};

use super::Registry;
use crate::Platform;
use crate::queue::XQueue;

/// Groups of a process after which queues share some though each is to have its own.
const OWN_GROUPS: usize = 48;

/// Properties that queues of one group have in common.
#[derive(Clone, PartialEq)]
pub(super) struct GroupKey {
    pub(super) device: String,
    pub(super) platform: u8,
    pub(super) steps: i32,
    pub(super) fixed: Option<i32>,
    /// The group is of the system domain, by an explicit call.
    pub(super) system: bool,
    /// The only queue of the group, set apart from the others by the program or since each is.
    pub(super) own: Option<u16>,
}

/// Wishes of the program for one group.
#[derive(Clone, Default)]
pub(super) struct Said {
    pub(super) priority: Option<i32>,
    pub(super) hints: Hints,
    pub(super) levels: Option<Levels>,
}

/// Free places of one kind.
#[derive(Default)]
struct Places {
    all: u16,
    /// Places from here on were never used.
    fresh: u16,
    /// Places before `fresh` that are free again.
    left: Vec<u16>,
}

impl Places {
    /// The place that is taken next: one that was used before, so that the used ones lie together.
    fn next(&self) -> Option<u16> {
        self.left.last().copied().or_else(|| (self.fresh < self.all).then_some(self.fresh))
    }

    /// Takes the place that [`Places::next`] has returned.
    fn take(&mut self, at: u16) {
        if self.left.pop_if(|last| *last == at).is_none() {
            self.fresh = at + 1;
        }
    }
}

/// Tables of the registry. Locked while a queue comes, goes or moves, and while the program's wishes for a group change.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) queues: HashMap<usize, u16>,
    free_queues: Places,
    pub(super) groups: Vec<GroupKey>,
    free_counters: Places,
    /// Messages to the daemon that the agent has yet to send.
    pub(super) outbox: Vec<ClientMsg>,
    /// Devices whose memory is counted, with their memory in bytes, by slot.
    pub(super) memory: Vec<(String, u64)>,
    /// Wishes of the program, by group.
    pub(super) said: HashMap<u16, Said>,
    /// Hints of the program for all its groups.
    pub(super) said_of_all: Hints,
}

impl Tables {
    /// Tables of a process that has used nothing yet.
    pub(super) fn new() -> Tables {
        Tables {
            free_queues: Places { all: QUEUES as u16, ..Places::default() },
            free_counters: Places { all: COUNTERS as u16, ..Places::default() },
            ..Tables::default()
        }
    }

    /// The place that the next queue takes, if one is free.
    pub(super) fn next_queue(&self) -> Option<u16> {
        self.free_queues.next()
    }

    /// Takes the place that [`Tables::next_queue`] has returned.
    pub(super) fn take_queue(&mut self, at: u16) {
        self.free_queues.take(at);
    }

    /// Frees the place of a queue that goes.
    pub(super) fn free_queue(&mut self, at: u16) {
        self.free_queues.left.push(at);
    }

    /// Takes the place of a counter that no queue has.
    fn take_counter(&mut self) -> Option<u16> {
        let at = self.free_counters.next()?;
        self.free_counters.take(at);
        Some(at)
    }

    /// Frees the place of a counter whose queue goes.
    pub(super) fn free_counter(&mut self, at: u16) {
        self.free_counters.left.push(at);
    }

    /// True: one more queue may get a group of its own because each has one. Some places stay for groups that queues share.
    fn has_room_apart(&self) -> bool {
        self.groups.len() < OWN_GROUPS
    }
}

impl Registry {
    /// Locks the tables.
    pub(super) fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The queue with this key, if it is known.
    pub fn find(&'static self, key: usize) -> Option<&'static XQueue> {
        let at = *self.tables().queues.get(&key)?;
        Some(&self.queues[usize::from(at)])
    }

    /// The counter of the calling thread on a queue; shared with other threads when there are too many.
    pub fn counter(&'static self, queue: &XQueue) -> &'static Counter {
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        let mut tables = self.tables();
        if let Some(counter) = self.counter_of(queue, me) {
            return counter;
        }
        match tables.take_counter() {
            Some(index) => self.add_counter(queue, me, index),
            // Counts may then get lost when two threads add at once; nothing else depends on them being exact but
            // the idle decision, which a lost count delays no longer than the next launch.
            None => &queue.slot(self).shared,
        }
    }

    /// Outdates the entries that threads remember of a queue. Its generation changes by `by`: an odd number when it comes or goes.
    pub(super) fn outdate(&self, queue: &XQueue, by: u32) {
        queue.generation.fetch_add(by, AcqRel);
        self.counters_of(queue).for_each(|counter| _ = counter.stamp.fetch_add(1, AcqRel));
    }

    /// Outdates the entries that threads remember of a queue which stays.
    pub(crate) fn outdate_remembered(&self, queue: &XQueue) {
        let _tables = self.tables();
        self.outdate(queue, 2);
    }

    /// The group of its own that a queue in this place gets while each has one.
    pub(super) fn own_group_of(&self, tables: &Tables, slot: u16) -> Option<u16> {
        let has_one = || tables.groups.iter().any(|group| group.own == Some(slot));
        let apart = self.streams_apart.load(Acquire) && (tables.has_room_apart() || has_one());
        apart.then_some(slot)
    }

    /// True: one more queue may get a group of its own because each has one.
    pub(crate) fn has_room_apart(&self) -> bool {
        self.tables().has_room_apart()
    }

    /// Sets if each queue gets a group of its own from now on. Queues that are there already stay where they are.
    pub(crate) fn keep_streams_apart(&self, apart: bool) {
        self.streams_apart.store(apart, Release);
    }

    /// True: the queue is the only one of its group, set apart from the others.
    pub fn is_apart(&self, queue: &XQueue) -> bool {
        self.tables().groups[usize::from(queue.group.load(Relaxed))].own.is_some()
    }

    /// Device key and platform of a group.
    pub fn device_of(&self, group: u16) -> Option<(String, &'static dyn Platform)> {
        let tables = self.tables();
        let key = tables.groups.get(usize::from(group))?;
        Some((key.device.clone(), self.platforms[usize::from(key.platform)]))
    }

    /// Has the origin of each launch inspected from now on, see [`crate::inspect`].
    pub fn inspect_launches(&self) {
        let _tables = self.tables();
        for group in self.groups() {
            group.slot(self).gate.inspect();
        }
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

    /// Returns when no thread looks into queues of the program any more; to be called after
    /// [`Runtime::detach_for_good`](crate::Runtime::detach_for_good), before they go.
    pub fn end_looking(&self) {
        drop(self.tables());
    }
}
