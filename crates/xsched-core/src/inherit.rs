//! Inheritance: a group that waits for one of lower rank lends it its own priority until the wait ends.

use core::sync::atomic::Ordering::*;
use std::sync::OnceLock;

use crate::group::Group;
use crate::runtime::Runtime;
use crate::thread;

/// A priority lent to a group, given back on drop.
pub struct Lend<'a> {
    rt: &'a Runtime,
    group: u16,
    rank: i32,
}

impl<'a> Lend<'a> {
    fn new(rt: &'a Runtime, group: &Group, rank: i32) -> Option<Lend<'a>> {
        if !pays(rt, group, rank) && !goes_behind(rt, group, rank) {
            return None;
        }
        lend(rt, group, rank);
        Some(Lend { rt, group: group.index, rank })
    }

    /// For a thread that waits for work of `group` to complete. One that launched nothing itself waits on behalf of
    /// whatever the process does, so it counts as the highest.
    pub(crate) fn for_sync(rt: &'a Runtime, group: &Group) -> Option<Lend<'a>> {
        if rt.has_one_group() {
            return None;
        }
        Lend::new(rt, group, thread::rank(rt).unwrap_or_else(|| rt.highest_rank()))
    }

    /// For a queue of group `waiter` whose next command waits for one of `group`.
    pub fn for_queue(rt: &'a Runtime, group: &Group, waiter: &Group) -> Option<Lend<'a>> {
        Lend::new(rt, group, waiter.rank.load(Relaxed))
    }
}

impl Drop for Lend<'_> {
    fn drop(&mut self) {
        take_back(self.rt, &self.rt.groups[usize::from(self.group)], self.rank);
    }
}

fn pays(rt: &Runtime, group: &Group, rank: i32) -> bool {
    !rt.has_one_group() && rank > group.rank.load(Relaxed)
}

/// Whether a group waits for others of the same rank in its process: a loan of that rank ends this.
fn goes_behind(rt: &Runtime, group: &Group, rank: i32) -> bool {
    rank == group.rank.load(Relaxed) && group.slot(rt).system.load(Relaxed) == 0 && rt.has_system_group()
}

/// Whether the calling thread holds a lock that every other thread of the program needs to go on.
pub type HoldsAll = fn() -> bool;

static HOLDS_ALL: OnceLock<HoldsAll> = OnceLock::new();

/// The function to ask before a thread of a process with several groups waits at a closed gate. The first one stays.
pub fn ask_before_waiting(holds_all: HoldsAll) {
    let _ = HOLDS_ALL.set(holds_all);
}

/// For a thread that waits at the gate of `group` (see [`thread::start_waiting`]): what it launched to elsewhere
/// waits with it. With a lock in hand that all others need, so does whatever they launch to.
pub(crate) fn lend_at_gate(rt: &Runtime, group: &Group) {
    let highest = rt.highest_rank();
    if !pays(rt, group, highest) {
        return;
    }
    let rank = if HOLDS_ALL.get().is_some_and(|holds_all| holds_all()) { Some(highest) } else { thread::rank(rt) };
    if let Some(rank) = rank.filter(|rank| pays(rt, group, *rank)) {
        thread::lend_while_waiting(rt, group, rank);
    }
}

pub(crate) fn lend(rt: &Runtime, group: &Group, rank: i32) {
    let mut lenders = group.lenders.lock().unwrap_or_else(|e| e.into_inner());
    lenders.push(rank);
    publish(rt, group, &lenders);
}

pub(crate) fn take_back(rt: &Runtime, group: &Group, rank: i32) {
    let mut lenders = group.lenders.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(at) = lenders.iter().position(|r| *r == rank) {
        lenders.swap_remove(at);
    }
    publish(rt, group, &lenders);
}

fn publish(rt: &Runtime, group: &Group, lenders: &[i32]) {
    let slot = group.slot(rt);
    let highest = lenders.iter().copied().max().unwrap_or(i32::MIN);
    if slot.lent_priority.swap(highest, AcqRel) != highest {
        rt.notify_daemon();
    }
}
