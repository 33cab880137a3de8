//! Queues that the program itself holds, one by one and regardless of the daemon: by `XQueueSuspend` and by a priority that means
//! "do not execute".
//!
//! The entries that threads remember of a held queue are outdated, so that their next launch takes the slow path and finds it held: an
//! open queue costs a launch nothing. A thread that waits has launched nothing yet and does not count as wanting the device.

use core::sync::atomic::Ordering::*;

use xsched_proto::memory::{Hardware, Memory, Sleepers, Woken};

use crate::clock::now_ns;
use crate::inherit::holds_all;
use crate::queue::XQueue;
use crate::runtime::Runtime;
use crate::waiting::Interruptible;

/// Longest sleep of a waiting thread before it checks if scheduling is over, in ns.
const LOOK_NS: u64 = 100_000_000;

/// Reason for which a queue is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Hold {
    /// The program has suspended it.
    Suspended = 1,
    /// The queue has a priority that means "do not execute".
    NotExecuted = 2,
}

impl XQueue {
    /// Holds the queue for this reason (`on`), or ends that. A launch that another thread is just making may still enter the driver.
    pub fn hold(&self, rt: &Runtime, why: Hold, on: bool) {
        if on {
            self.held.fetch_or(why as u32, SeqCst);
            self.slot(rt).go.store(0, SeqCst);
            rt.outdate_remembered(self);
        } else if self.held.fetch_and(!(why as u32), SeqCst) & !(why as u32) == 0 {
            self.release(rt);
        }
        if rt.is_over() {
            self.release(rt);
        }
    }

    /// Waits while the queue is held. A signal ends the wait if it would end one at the gate. A thread that holds a lock which every
    /// other thread needs does not wait: none could release the queue.
    pub(crate) fn wait_released(&self, rt: &Runtime) {
        if !self.is_held() || rt.is_over() || holds_all() {
            return;
        }
        self.group(rt).flush(rt);
        let wait = Interruptible::begin(now_ns());
        loop {
            let held = self.held.load(SeqCst);
            if held == 0 || rt.is_over() {
                return;
            }
            if Hardware::sleep(&self.held, held, Sleepers::Own, LOOK_NS) == Woken::Signal && wait.signal_ends() {
                return;
            }
        }
    }
}
