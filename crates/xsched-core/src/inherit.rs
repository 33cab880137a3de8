//! Inheritance: a group that waits for one of lower priority lends it its own priority until the wait ends.

use core::sync::atomic::Ordering::*;
use std::sync::OnceLock;

use crate::group::Group;
use crate::runtime::Runtime;
use crate::thread::current;
use crate::used;

/// A priority lent to a group, given back on drop.
pub struct Inheritance<'a> {
    rt: &'a Runtime,
    group: u16,
    priority: i32,
}

impl<'a> Inheritance<'a> {
    fn new(rt: &'a Runtime, group: &Group, priority: i32) -> Option<Inheritance<'a>> {
        if !pays(rt, group, priority) && !goes_behind(rt, group, priority) {
            return None;
        }
        lend(rt, group, priority);
        Some(Inheritance { rt, group: group.index, priority })
    }

    /// Lends for a thread that waits for work of `group` to complete. A thread that launched nothing itself waits on behalf of the
    /// whole process, so it counts as the highest.
    pub(crate) fn for_sync(rt: &'a Runtime, group: &Group) -> Option<Inheritance<'a>> {
        if rt.has_one_group() {
            return None;
        }
        Inheritance::new(rt, group, used::priority(rt).unwrap_or_else(|| rt.highest_priority()))
    }

    /// Lends for a queue of group `waiter` whose next command waits for one of `group`.
    pub fn for_queue(rt: &'a Runtime, group: &Group, waiter: &Group) -> Option<Inheritance<'a>> {
        Inheritance::new(rt, group, waiter.priority.load(Relaxed))
    }
}

impl Drop for Inheritance<'_> {
    fn drop(&mut self) {
        take_back(self.rt, &self.rt.groups[usize::from(self.group)], self.priority);
    }
}

fn pays(rt: &Runtime, group: &Group, priority: i32) -> bool {
    !rt.has_one_group() && priority > group.priority.load(Relaxed)
}

/// True: the group waits for others of the same priority in its process. A loan of that priority ends this.
fn goes_behind(rt: &Runtime, group: &Group, priority: i32) -> bool {
    priority == group.priority.load(Relaxed) && group.slot(rt).system.load(Relaxed) == 0 && rt.has_system_group()
}

/// Tells if the calling thread holds a lock that every other thread of the program needs to go on.
pub type HoldsAll = fn() -> bool;

static HOLDS_ALL: OnceLock<HoldsAll> = OnceLock::new();

/// The function to ask before a thread of a process with several groups waits at a closed gate. The first one stays.
pub fn ask_before_waiting(holds_all: HoldsAll) {
    let _ = HOLDS_ALL.set(holds_all);
}

/// True: the calling thread holds a lock that every other thread of the program needs, as far as is known.
pub(crate) fn holds_all() -> bool {
    HOLDS_ALL.get().is_some_and(|holds_all| holds_all())
}

/// Lends for a thread that waits at the gate of `group` (see [`Group::wait_open`]): its launches to other groups wait with it. If it
/// holds a lock that all other threads need, so do their launches.
pub(crate) fn lend_at_gate(rt: &Runtime, group: &Group) {
    let highest = rt.highest_priority();
    if !pays(rt, group, highest) {
        return;
    }
    let priority = if holds_all() { Some(highest) } else { used::priority(rt) };
    if let Some(priority) = priority.filter(|priority| pays(rt, group, *priority)) {
        lend(rt, group, priority);
        current().lend(priority);
    }
}

fn lend(rt: &Runtime, group: &Group, priority: i32) {
    let mut inherited = group.inherited.lock().unwrap_or_else(|e| e.into_inner());
    inherited.push(priority);
    publish(rt, group, &inherited);
}

pub(crate) fn take_back(rt: &Runtime, group: &Group, priority: i32) {
    let mut inherited = group.inherited.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(at) = inherited.iter().position(|r| *r == priority) {
        inherited.swap_remove(at);
    }
    publish(rt, group, &inherited);
}

fn publish(rt: &Runtime, group: &Group, inherited: &[i32]) {
    let slot = group.slot(rt);
    let highest = inherited.iter().copied().max().unwrap_or(i32::MIN);
    if slot.inherited_priority.swap(highest, AcqRel) != highest {
        rt.notify_daemon();
    }
}
