//! Entry of a queue into the memory of the calling thread, by which the fast path finds it.

use core::sync::atomic::Ordering::*;

use xsched_proto::segment::Counter;

use crate::queue::XQueue;
use crate::registry::QueueSpec;
use crate::runtime::Runtime;
use crate::thread::{Entry, Known, Thread, current, slot_of};
use crate::used::priority_of;

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
        // The stamp before the check: holding the queue after it outdates what is remembered here.
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
    thread.entries[slot_of(key)].set(Entry {
        key,
        stamp,
        known: Some(Known { queue, group, slot: group.slot(rt), counter }),
    });
}

/// Makes room for `key`. That the displaced queue was used still matters, see [`crate::used::priority`].
fn displace(rt: &Runtime, thread: &Thread, old: Entry, key: usize) {
    let (before, after) = (thread.displaced.get(), (old.key, old.known.map(|k| k.queue)));
    if old.key != key && priority_of(rt, after) > priority_of(rt, before) {
        thread.displaced.set(after);
    }
}
