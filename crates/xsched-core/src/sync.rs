//! Calls of the application that wait for the device.

use core::sync::atomic::Ordering::*;

use xsched_flow::timeline::{Evidence, Point};

use crate::inherit::Inheritance;
use crate::queue::XQueue;
use crate::runtime::Runtime;

/// A synchronising call in progress; see [`XQueue::sync_begin`].
#[must_use]
pub struct Waiting {
    at: Point,
    group: u16,
    _lend: Option<Inheritance<'static>>,
}

impl XQueue {
    /// Begins a call that waits for this queue, before it is made. Everything launched before is complete if it succeeds.
    pub fn sync_begin(&self, rt: &'static Runtime) -> Waiting {
        self.begin(rt, Inheritance::for_sync(rt, self.group(rt)))
    }

    /// Begins a call that waits for everything, this queue included. Commands that the driver has run without help, and later
    /// launches of other threads are not waited for, so that only commands held on the device need a loan of priority.
    pub fn sync_all_begin(&self, rt: &'static Runtime) -> Waiting {
        let lend = self.is_held_on_device(rt).then(|| Inheritance::for_sync(rt, self.group(rt)));
        self.begin(rt, lend.flatten())
    }

    fn begin(&self, rt: &'static Runtime, lend: Option<Inheritance<'static>>) -> Waiting {
        let group = self.group(rt);
        group.syncing.fetch_add(1, AcqRel);
        Waiting { at: self.timeline.end(self.counted(rt)), group: group.index, _lend: lend }
    }

    /// Ends a call of [`XQueue::sync_begin`]; `complete` = the call waited for the whole queue and succeeded.
    pub fn sync_end(&self, rt: &'static Runtime, sync: Waiting, complete: bool) {
        let group = &rt.groups[usize::from(sync.group)];
        if complete {
            let commands = self.timeline.advance_to(sync.at, Evidence::Sync, self.in_order());
            group.slot(rt).completed.fetch_add(commands, Relaxed);
            self.settle(rt);
        }
        group.syncing.fetch_sub(1, AcqRel);
        // Also if the call failed, or waited for something else: the agent may have polled meanwhile and left the decision to this
        // thread.
        group.update_idle_state(rt);
    }
}
