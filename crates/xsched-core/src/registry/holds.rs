//! Queues that the program itself holds ([`crate::Hold`]): their words, and their release.

use core::sync::atomic::Ordering::*;

use xsched_proto::memory::{Hardware, Memory, Sleepers};

use super::Registry;
use crate::queue::XQueue;

impl XQueue {
    /// True: the program itself holds the queue.
    pub fn is_held(&self) -> bool {
        self.held.load(SeqCst) != 0
    }

    /// Lets launches on the queue go on, and wakes the threads that wait for that.
    pub(crate) fn release(&self, registry: &Registry) {
        self.slot(registry).go.store(1, SeqCst);
        Hardware::wake(&self.held, Sleepers::Own);
    }
}

impl Registry {
    /// Releases every queue for good: scheduling is over.
    pub(crate) fn release_all(&self) {
        self.queues().for_each(|queue| {
            queue.held.store(0, SeqCst);
            queue.release(self);
        });
    }
}
