//! How many launches there were, and what became of them.

use core::sync::atomic::{AtomicI32, AtomicU32, Ordering::*};

use xsched_proto::segment::{Counter, CounterSlot, HeardLate};

use super::Runtime;
use crate::clock::now_ns;
use crate::group::Group;
use crate::queue::XQueue;

/// What this process alone knows of a counter.
#[derive(Default)]
pub(super) struct CounterPlace {
    /// The thread that counts there; 0 = none.
    owner: AtomicI32,
    /// 1 + index of its queue's next counter.
    next: AtomicU32,
}

impl Runtime {
    /// 1 + index of the counter after this one of the same queue; 0 = none.
    pub(super) fn counter_after(&self, at: usize) -> u32 {
        self.counters[at].next.load(Relaxed)
    }

    /// The counter of the calling thread on a queue; shared with other threads when there are too many.
    pub fn counter(&'static self, queue: &XQueue) -> &'static Counter {
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        let mut tables = self.tables();
        let mut next = queue.counters.load(Acquire);
        let mut orphan = None;
        while let Some(index) = next.checked_sub(1) {
            let at = index as usize;
            match self.counters[at].owner.load(Acquire) {
                owner if owner == me => return &self.segment.counters[at].counter,
                0 => orphan = Some(at),
                _ => {}
            }
            next = self.counter_after(at);
        }
        if let Some(at) = orphan {
            self.counters[at].owner.store(me, Release);
            return &self.segment.counters[at].counter;
        }
        let Some(index) = tables.take_counter() else {
            // Counts may then get lost when two threads add at once; nothing else depends on them being exact but
            // the idle decision, which a lost count delays no longer than the next launch.
            return &queue.slot(self).shared;
        };
        let at = usize::from(index);
        let place = self.counters.made(index);
        let counter: &CounterSlot = &self.segment.counters[at];
        counter.counter.launches.store(0, Relaxed);
        counter.counter.tracked.store(0, Relaxed);
        counter.counter.system.store(0, Relaxed);
        counter.queue.store(u32::from(queue.index) + 1, Release);
        self.segment.header.used[1].fetch_max(u32::from(index) + 1, AcqRel);
        place.owner.store(me, Release);
        place.next.store(queue.counters.load(Relaxed), Relaxed);
        queue.counters.store(u32::from(index) + 1, Release);
        &counter.counter
    }

    /// Leaves the calling thread's counters to the next threads that ask for some.
    pub(crate) fn leave_counters(&self) {
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        for place in self.counters.iter() {
            let _ = place.owner.compare_exchange(me, 0, AcqRel, Relaxed);
        }
    }

    pub(crate) fn counters_of(&self, queue: &XQueue) -> impl Iterator<Item = &Counter> {
        let mut next = queue.counters.load(Acquire);
        let own = core::iter::from_fn(move || {
            let at = next.checked_sub(1)? as usize;
            next = self.counter_after(at);
            Some(&self.segment.counters[at].counter)
        });
        own.chain([&queue.slot(self).shared])
    }

    pub(crate) fn launches_of(&self, group: &Group) -> u64 {
        self.queues_of(group).fold(0, |n, q| n.wrapping_add(q.launches(self)))
    }

    /// Launches of the whole process, and those that went by without a gate decision: attach, passthrough, error.
    pub fn totals(&self) -> (u64, [u64; 3]) {
        let mut launches = self.unplaced.load(Relaxed);
        let mut unscheduled = [0, 0, launches];
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

    /// A command entered the driver of which no queue is known. It counts as one of the first group, for `ps`.
    pub fn note_unscheduled(&self) {
        match self.groups().next() {
            Some(group) => {
                let slot = group.slot(self);
                slot.launches_retired.fetch_add(1, Relaxed);
                slot.unscheduled_error.fetch_add(1, Relaxed);
            }
            None => _ = self.unplaced.fetch_add(1, Relaxed),
        }
    }

    /// Launches of the system domain, as far as they were looked at.
    pub fn system_launches(&self) -> u64 {
        let retired = self.groups().map(|g| g.slot(self).system_retired.load(Relaxed));
        let counters = self.queues().flat_map(|q| self.counters_of(q).map(|c| c.system.load(Relaxed)));
        retired.chain(counters).fold(0, u64::wrapping_add)
    }

    /// Those among them that went past a closed gate by an operator's rule.
    pub fn exempt_launches(&self) -> u64 {
        self.groups().map(|g| g.slot(self).exempt.load(Relaxed)).fold(0, u64::wrapping_add)
    }

    /// How often the device was given back: a group was seen to have completed all of its commands.
    pub fn idles(&self) -> u64 {
        self.idles.load(Relaxed)
    }

    /// Times a thread had to wait at a closed gate.
    pub fn gate_waits(&self) -> u64 {
        self.gate_waits.load(Relaxed)
    }

    /// For how long threads waited at closed gates, and for the bound, in µs.
    pub fn waited_us(&self) -> (u64, u64) {
        (self.at_gate_ns.load(Relaxed) / 1000, self.at_bound_ns.load(Relaxed) / 1000)
    }

    /// How often the daemon was late to take notice that some group wanted its device, how often groups counted as idle for want of
    /// progress, and how often commands were let go that gates on the device had held for long.
    pub fn overlaps(&self) -> (HeardLate, u64, u64) {
        let now = now_ns();
        self.groups().map(|g| g.slot(self)).fold((HeardLate::default(), 0, 0), |(all, stalls, releases), slot| {
            // Without a daemon there is none that could be late.
            let late = if slot.gate.load().is_detached() { slot.heard_late() } else { slot.heard_late_by(now) };
            (all.and(late), stalls + u64::from(slot.stalls.load(Relaxed)), releases + slot.releases.load(Relaxed))
        })
    }

    /// Launches that the bound let through for want of progress, and those that a signal handler let through.
    pub fn overrides(&self) -> (u64, u64) {
        self.groups().map(|g| g.slot(self)).fold((0, 0), |(bound, signal), slot| {
            (bound + slot.liveness_overrides.load(Relaxed), signal + slot.signal_overrides.load(Relaxed))
        })
    }
}

impl Group {
    /// Launches of its queues.
    pub fn launches(&self, rt: &Runtime) -> u64 {
        rt.launches_of(self)
    }
}

impl XQueue {
    /// Launches that were only counted.
    pub(crate) fn counted(&self, rt: &Runtime) -> u64 {
        rt.counters_of(self).fold(0, |n, c| n.wrapping_add(c.launches.load(Relaxed)))
    }

    /// Launches so far. Reads the counts first: a launch that is numbered after all appears among the numbered ones only after it
    /// was taken from those.
    pub fn launches(&self, rt: &Runtime) -> u64 {
        let counted = self.counted(rt);
        counted.wrapping_add(self.timeline.issued())
    }
}
