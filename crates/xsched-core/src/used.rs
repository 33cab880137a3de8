//! The queues that the calling thread used lately, and their priority.

use core::sync::atomic::Ordering::*;

use crate::queue::XQueue;
use crate::registry::Registry;
use crate::thread::current;

/// A queue, unless it is gone.
fn living(registry: &Registry, (key, queue): (usize, Option<&'static XQueue>)) -> Option<&'static XQueue> {
    queue.filter(|q| q.key() == key && q.slot(registry).group.load(Relaxed) != 0)
}

/// Priority of a queue's group, unless the queue is gone.
pub(crate) fn priority_of(registry: &Registry, used: (usize, Option<&'static XQueue>)) -> Option<i32> {
    living(registry, used).map(|q| q.group(registry).priority.load(Relaxed))
}

/// The queues this thread used lately. One may have moved to another group since.
pub(crate) fn used(registry: &Registry) -> impl Iterator<Item = &'static XQueue> {
    let thread = current();
    let remembered = thread.entries.iter().map(|e| (e.get().key, e.get().known.map(|k| k.queue)));
    remembered.chain([thread.displaced.get()]).filter_map(|used| living(registry, used))
}

/// Highest priority of their groups, if it used any.
pub(crate) fn priority(registry: &Registry) -> Option<i32> {
    used(registry).map(|q| q.group(registry).priority.load(Relaxed)).max()
}
