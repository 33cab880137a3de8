//! Membership of queues in groups: a queue comes, goes, or moves to another group, and the agent is woken to report it.

use core::sync::atomic::Ordering::*;

use xsched_proto::domains::DomainMode;
use xsched_proto::hint::{Hints, Laxity};
use xsched_proto::segment::state;
use xsched_proto::wire::Levels;

use crate::group::Group;
use crate::inspect;
use crate::queue::XQueue;
use crate::registry::{Move, QueueSpec};
use crate::runtime::Runtime;

/// Share of the device that a queue gets unless the program asks for another, in percent: as much as the default weight.
const UTILIZATION_DEFAULT: u32 = 100;

impl Runtime {
    /// Finds the XQueue with this key, or makes it if `describe` describes one and streams get queues without being asked. `None`
    /// when it cannot be scheduled: too many queues or groups, or `describe` found nothing to schedule.
    pub fn queue(&'static self, key: usize, describe: impl FnOnce() -> Option<QueueSpec>) -> Option<&'static XQueue> {
        if self.makes_queues() { self.make_queue(key, describe) } else { self.find(key) }
    }

    /// Finds the XQueue with this key, or makes it, for a program that asks for one.
    pub fn make_queue(
        &'static self,
        key: usize,
        describe: impl FnOnce() -> Option<QueueSpec>,
    ) -> Option<&'static XQueue> {
        let (queue, is_new) = self.find_or_add(key, describe)?;
        if is_new {
            self.poke_agent();
        }
        Some(queue)
    }

    /// Forgets the queue with this key: its handle is about to be destroyed.
    pub fn remove_queue(&self, key: usize) {
        let Some(group) = self.take_out(key, |queue| self.backlog_pages.leave(queue.index())) else { return };
        group.update_idle_state(self);
        self.poke_agent();
    }

    /// Agent, on `hint --queue`: moves a queue to a group of this absolute priority.
    pub fn move_queue(&self, slot: u16, priority: i32) {
        self.move_to(slot, Move::Priority(priority));
    }

    /// Puts a queue into a group of its own, so that the program's wishes for it concern no other queue. False: there are as many
    /// groups as there may be.
    pub fn set_apart(&self, queue: &XQueue) -> bool {
        if !self.is_apart(queue) {
            self.move_to(queue.index(), Move::Apart);
            // The place may have been another queue's before.
            self.unsay(queue);
        }
        self.is_apart(queue)
    }

    /// The end of [`Runtime::set_apart`].
    pub fn put_back(&self, queue: &XQueue) {
        if self.is_apart(queue) {
            self.move_to(queue.index(), Move::Back);
            // The queue stays in a group of its own where each queue has one.
            self.unsay(queue);
        }
    }

    /// Tells the scheduler the program's wishes for a queue that is apart. Priority and levels replace earlier wishes
    /// (none = what follows from the program's own, or the device); of the hints, those that are given.
    pub fn say(&self, queue: &XQueue, change: impl FnOnce(&mut Option<i32>, &mut Hints, &mut Option<Levels>)) {
        self.note_wishes(queue, change);
        self.poke_agent();
    }

    /// Tells the scheduler the program's hints for all its groups.
    pub fn say_of_all(&self, hints: Hints) {
        self.note_hints_of_all(hints);
        self.poke_agent();
    }

    /// Takes back the wishes for a queue that is apart.
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

    /// Moves a queue to the group of the other domain.
    pub(crate) fn change_domain(&self, queue: &XQueue) {
        self.move_to(queue.index(), Move::OtherDomain);
    }

    /// Agent: sets the treatment of launches of the system domain from now on.
    pub fn set_domains(&self, mode: DomainMode) {
        inspect::set_mode(mode);
        if mode != DomainMode::Off {
            inspect::start();
            self.inspect_launches();
        }
    }

    /// Agent: sets if each queue has a group of its own from now on. If so, queues that share a group are set apart.
    pub fn set_streams_apart(&self, apart: bool) {
        self.keep_streams_apart(apart);
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
    /// Ends a group whose last queue moved away. Commands that the queue left behind gates on the device would wait for a gate that
    /// is never opened again: it stands open from now on, and the group is idle.
    fn abandon(&self, rt: &Runtime) {
        let slot = self.slot(rt);
        slot.gate.call_idle();
        slot.gate.detach();
        slot.state.store(state::IDLE, Release);
        self.grace.cancel();
        rt.notify_daemon();
    }
}
