//! Queues that go, or go to another group.

use core::sync::atomic::Ordering::*;

use xsched_proto::hint::{Hints, Laxity};
use xsched_proto::segment::state;

use crate::group::Group;
use crate::queue::XQueue;
use crate::runtime::{Move, Runtime};

/// Part of the device that a queue asks for unless it says otherwise, in percent: as much as the default weight.
const UTILIZATION_DEFAULT: u32 = 100;

impl Runtime {
    /// Forgets the queue with this key: its handle is about to be destroyed.
    pub fn remove_queue(&self, key: usize) {
        let Some(group) = self.take_out(key) else { return };
        group.update_idle_state(self);
        self.poke_agent();
    }

    /// Agent, on `hint --queue`: moves a queue to a group of this absolute priority.
    pub fn move_queue(&self, slot: u16, priority: i32) {
        self.move_to(slot, Move::Priority(priority));
    }

    /// Puts a queue into a group of its own, so that what the program says of it concerns no other. False: there are as many groups
    /// as there may be.
    pub fn set_apart(&self, queue: &XQueue) -> bool {
        if !self.is_apart(queue) {
            self.move_to(queue.index(), Move::Apart);
            // The place may have been another queue's before.
            self.unsay(queue);
        }
        self.is_apart(queue)
    }

    /// The end of that.
    pub fn put_back(&self, queue: &XQueue) {
        if self.is_apart(queue) {
            self.move_to(queue.index(), Move::Back);
            // Where each queue has a group of its own it stays there.
            self.unsay(queue);
        }
    }

    /// What was said of a queue that is apart holds no more.
    fn unsay(&self, queue: &XQueue) {
        if self.is_apart(queue) {
            let none = Laxity { us: 0, lax: None, critical: None };
            let hints = Hints {
                utilization: Some(UTILIZATION_DEFAULT),
                deadline_us: Some(0),
                laxity: Some(none),
                ..Hints::default()
            };
            self.say(queue, |priority, said, levels| (*priority, *said, *levels) = (None, hints, None));
        }
    }

    /// Puts a queue into the group of the domain that it is not in.
    pub(crate) fn change_domain(&self, queue: &XQueue) {
        self.move_to(queue.index(), Move::OtherDomain);
    }

    /// Agent: whether each queue has a group of its own from now on. Those that share one are set apart.
    pub fn set_streams_apart(&self, apart: bool) {
        self.streams_apart.store(apart, Release);
        if apart {
            let shares = |queue: &&XQueue| !self.is_apart(queue) && self.has_room_apart();
            self.queues().filter(shares).for_each(|queue| self.move_to(queue.index(), Move::Apart));
        }
    }

    fn move_to(&self, slot: u16, to: Move) {
        let Some((queue, old, new)) = self.regroup(slot, to) else { return };
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
