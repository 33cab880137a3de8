//! The queues that the calling thread used lately, and their priority.

use core::sync::atomic::Ordering::*;

use xsched_proto::segment::Counter;

use crate::queue::XQueue;
use crate::runtime::{QueueSpec, Runtime};
use crate::thread::{Entry, Known, Thread, current, slot_of};

impl Runtime {
    /// Finds the queue and lets the calling thread remember it.
    pub fn remember(
        &'static self,
        key: usize,
        describe: impl FnOnce() -> Option<QueueSpec>,
    ) -> Option<&'static XQueue> {
        let queue = self.queue(key, describe)?;
        if !current().passes_holds.get() {
            queue.wait_released(self);
        }
        let counter = self.counter(queue);
        // The stamp before the look: holding the queue after it outdates what is remembered here.
        let stamp = counter.stamp.load(Acquire);
        // A wait that a signal has ended lets this one launch pass; the next one waits again.
        let stamp = if queue.is_held() { stamp.wrapping_sub(1) } else { stamp };
        remember(self, key, queue, counter, stamp);
        Some(queue)
    }
}

/// Lets this thread find a queue by [`crate::fast_path::pass`].
fn remember(rt: &'static Runtime, key: usize, queue: &'static XQueue, counter: &'static Counter, stamp: u64) {
    let group = queue.group(rt);
    let thread = current();
    displace(rt, thread, thread.entries[slot_of(key)].get(), key);
    thread.entries[slot_of(key)].set(Entry { key, stamp, known: Some(Known { queue, slot: group.slot(rt), counter }) });
}

/// An entry makes room for `key`. That its queue was used still matters, see [`priority`].
fn displace(rt: &Runtime, thread: &Thread, old: Entry, key: usize) {
    let (before, after) = (thread.displaced.get(), (old.key, old.known.map(|k| k.queue)));
    if old.key != key && rank_of(rt, after) > rank_of(rt, before) {
        thread.displaced.set(after);
    }
}

/// A queue, unless it is gone.
fn living(rt: &Runtime, (key, queue): (usize, Option<&'static XQueue>)) -> Option<&'static XQueue> {
    queue.filter(|q| q.key() == key && q.slot(rt).group.load(Relaxed) != 0)
}

/// Rank of a queue's group, unless it is gone.
fn rank_of(rt: &Runtime, used: (usize, Option<&'static XQueue>)) -> Option<i32> {
    living(rt, used).map(|q| q.group(rt).priority.load(Relaxed))
}

/// The queues this thread used lately. One may have moved to another group since.
pub(crate) fn used(rt: &Runtime) -> impl Iterator<Item = &'static XQueue> {
    let thread = current();
    let remembered = thread.entries.iter().map(|e| (e.get().key, e.get().known.map(|k| k.queue)));
    remembered.chain([thread.displaced.get()]).filter_map(|used| living(rt, used))
}

/// Highest priority of their groups, if it used any.
pub(crate) fn priority(rt: &Runtime) -> Option<i32> {
    used(rt).map(|q| q.group(rt).priority.load(Relaxed)).max()
}
