//! Queues that go, or go to another group.

use core::sync::atomic::Ordering::*;

use xsched_proto::segment::state;

use crate::group::Group;
use crate::runtime::Runtime;

impl Runtime {
    /// Forgets the queue with this key: its handle is about to be destroyed.
    pub fn remove_queue(&self, key: usize) {
        let Some(group) = self.take_out(key) else { return };
        group.update_idle_state(self);
        self.poke_agent();
    }

    /// Agent, on `hint --queue`: moves a queue to a group of this absolute priority.
    pub fn move_queue(&self, slot: u16, priority: i32) {
        let Some((queue, old, new)) = self.regroup(slot, priority) else { return };
        if self.queues_of(old).next().is_none() {
            old.abandon(self);
        }
        // A thread that waits at the old gate now belongs to the new one.
        old.slot(self).gate.wake();
        if !new.slot(self).gate.load().is_detached() && !queue.is_quiet(self) {
            new.announce(self);
        }
        self.poke_agent();
    }
}

impl Group {
    /// The last queue moved away. What it left behind gates on the device would wait for a gate that is never opened
    /// again: it stands open from now on, and the group is idle.
    fn abandon(&self, rt: &Runtime) {
        let slot = self.slot(rt);
        slot.gate.call_idle();
        slot.gate.detach();
        slot.state.store(state::IDLE, Release);
        self.grace_since.store(0, Relaxed);
        rt.notify_daemon();
    }
}
