//! Counters of launches: each thread counts on each queue in a counter of its own, so that a launch needs no locked instruction.

use core::sync::atomic::{AtomicI32, AtomicU32, Ordering::*};

use xsched_proto::segment::{Counter, CounterSlot};

use super::Registry;
use crate::group::Group;
use crate::queue::XQueue;

/// The part of a counter that only this process needs.
#[derive(Default)]
pub(super) struct CounterPlace {
    /// Id of the thread that counts there; 0 = none.
    owner: AtomicI32,
    /// 1 + index of its queue's next counter.
    next: AtomicU32,
}

impl Registry {
    /// Indices of a queue's own counters, as a chain.
    fn counter_chain(&self, queue: &XQueue) -> impl Iterator<Item = usize> {
        let mut next = queue.counters.load(Acquire);
        core::iter::from_fn(move || {
            let at = next.checked_sub(1)? as usize;
            next = self.counters[at].next.load(Relaxed);
            Some(at)
        })
    }

    /// Counter of a thread on a queue: its own, or one whose thread has ended. To be called with the tables locked.
    pub(super) fn counter_of(&self, queue: &XQueue, thread: i32) -> Option<&'static Counter> {
        let mut orphan = None;
        for at in self.counter_chain(queue) {
            match self.counters[at].owner.load(Acquire) {
                owner if owner == thread => return Some(&self.segment.counters[at].counter),
                0 => orphan = Some(at),
                _ => {}
            }
        }
        let at = orphan?;
        self.counters[at].owner.store(thread, Release);
        Some(&self.segment.counters[at].counter)
    }

    /// Gives the counter of this index to a thread on a queue. To be called with the tables locked.
    pub(super) fn add_counter(&self, queue: &XQueue, thread: i32, index: u16) -> &'static Counter {
        let place = self.counters.made(index);
        let counter: &'static CounterSlot = &self.segment.counters[usize::from(index)];
        counter.counter.launches.store(0, Relaxed);
        counter.counter.tracked.store(0, Relaxed);
        counter.counter.system.store(0, Relaxed);
        counter.queue.store(u32::from(queue.index) + 1, Release);
        self.segment.header.used[1].fetch_max(u32::from(index) + 1, AcqRel);
        place.owner.store(thread, Release);
        place.next.store(queue.counters.load(Relaxed), Relaxed);
        queue.counters.store(u32::from(index) + 1, Release);
        &counter.counter
    }

    /// Takes the counters of a queue that goes, and gives the index of each to `free`.
    pub(super) fn release_counters(&self, queue: &XQueue, mut free: impl FnMut(u16)) {
        for at in self.counter_chain(queue) {
            self.segment.counters[at].queue.store(0, Release);
            free(at as u16);
        }
    }

    /// Leaves the calling thread's counters to the next threads that ask for some.
    pub(crate) fn leave_counters(&self) {
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        for place in self.counters.iter() {
            let _ = place.owner.compare_exchange(me, 0, AcqRel, Relaxed);
        }
    }

    /// Counters of a queue, the shared one among them.
    pub(crate) fn counters_of(&self, queue: &XQueue) -> impl Iterator<Item = &Counter> {
        let own = self.counter_chain(queue).map(|at| &self.segment.counters[at].counter);
        own.chain([&queue.slot(self).shared])
    }
}

impl Group {
    /// Launches on its queues so far.
    pub fn launches(&self, registry: &Registry) -> u64 {
        registry.queues_of(self).fold(0, |n, q| n.wrapping_add(q.launches(registry)))
    }
}

impl XQueue {
    /// Launches that were counted and not numbered.
    pub(crate) fn counted(&self, registry: &Registry) -> u64 {
        registry.counters_of(self).fold(0, |n, c| n.wrapping_add(c.launches.load(Relaxed)))
    }

    /// Launches so far. Reads the counts first: a launch that is numbered after all appears among the numbered ones only after it
    /// was taken from those.
    pub fn launches(&self, registry: &Registry) -> u64 {
        let counted = self.counted(registry);
        counted.wrapping_add(self.timeline.issued())
    }
}
