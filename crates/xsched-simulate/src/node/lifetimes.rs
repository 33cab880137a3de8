//! Programs and daemons come and go.

use std::sync::atomic::Ordering::Relaxed;

use xsched_engine::{Input, Message, NewGroup, Seat, Side};
use xsched_policy::PoolId;
use xsched_proto::class::{Class, Contention, hardware_timeslice_us};
use xsched_proto::segment::state;
use xsched_proto::wire::{Levels, Platform, Sharing};

use crate::memory::Segment;
use crate::scenario::{Device, Preemption};

use super::daemon::{Daemon, Newcomer, id_of};
use super::rank::{Rank, Thread};
use super::state::{Happening, Node};

/// The interface of programs to a device, and the levels that it has.
fn platform_of(device: &Device) -> (Platform, Levels) {
    match device.preemption {
        Preemption::Host => (Platform::Cuda, Levels::ONE),
        Preemption::Gates => (Platform::Cuda, Levels::ONE.with(Levels::TWO)),
        Preemption::Slices => (Platform::Cuda, Levels::ALL),
        Preemption::Interrupt => (Platform::Sim, Levels::ALL),
    }
}

impl Node<'_> {
    /// A program begins: it makes its contexts, attaches, and its requests come.
    pub(super) fn begin(&mut self, member: usize) {
        let (placed, kind) = (self.members[member].placed, self.members[member].kind);
        let pooled = self.is_pooled(member).then_some(kind.width);
        for device in &placed.devices {
            let rank = self.ranks.len();
            self.play_device(*device);
            let seat = self.devices[*device].add(pooled);
            self.ranks.push(Rank::new(member, *device, seat, kind.kernels.len().max(1), self.now_ns));
            self.segments.push(Segment::default());
            self.members[member].ranks.push(rank);
            self.attach(rank);
        }
        self.after_gates();
        self.set_arrival(member);
    }

    fn is_pooled(&self, member: usize) -> bool {
        let device = &self.scenario.devices[self.machine.kind];
        let is_lowly = Class::of(self.priority_of(member).unwrap_or(0)) <= Class::Normal;
        self.daemon.is_some() && device.pool && !self.members[member].kind.outside && (is_lowly || device.inside)
    }

    fn priority_of(&self, member: usize) -> Option<i32> {
        let member = &self.members[member];
        member.priority.or_else(|| member.kind.priority().ok().flatten())
    }

    /// A program's group comes to the daemon, if there is one.
    fn attach(&mut self, rank: usize) {
        let (member, device, seat) = (self.ranks[rank].member, self.ranks[rank].device, self.ranks[rank].seat);
        let (priority, is_pooled) = (self.priority_of(member), self.is_pooled(member));
        let Some(daemon) = &mut self.daemon else { return };
        let written = &self.scenario.devices[self.machine.kind];
        let (platform, levels) = platform_of(written);
        // Time slices are those of the pool's server.
        let levels = if is_pooled { Levels::ONE.with(Levels::TWO) } else { levels };
        let side = if written.inside { Side::Inner } else { Side::Outer };
        let kind = self.members[member].kind;
        let is_sliced = written.preemption == Preemption::Slices && kind.level.is_none_or(|level| level == 3);
        if is_sliced && !is_pooled {
            // The program chooses this slice when it makes its context; changes are told.
            let asked_us = kind.hints().ok().and_then(|hints| hints.timeslice_us);
            let usual_us = hardware_timeslice_us(Class::of(priority.unwrap_or(0)), Contention::None);
            self.devices[device].set_timeslice(seat, asked_us.unwrap_or(usual_us));
        }
        let group = NewGroup {
            slot: 0,
            device: format!("sim:{device}"),
            platform,
            steps: 0,
            fixed: None,
            system: false,
            levels,
            sharing: if is_pooled { Sharing::Pool } else { Sharing::Time },
            pool: is_pooled.then_some(Seat { server: PoolId(device as u64), side }),
            state: None,
        };
        let segment = &self.segments[rank];
        let job = (kind.devices > 1).then(|| format!("{}-{}", kind.name, self.members[member].placed.number));
        segment.state.store(state::IDLE, Relaxed);
        daemon.attach(self.now_ns, rank, &Newcomer { kind, priority, segment, job }, group);
        segment.gate.attach();
        let is_busy = self.ranks[rank].flight.pending > 0
            || matches!(self.ranks[rank].thread, Thread::AtGate | Thread::Yields | Thread::ForRoom);
        if is_busy {
            self.announce(rank);
        }
    }

    /// A program ends, with whatever it has on its devices.
    pub(super) fn end(&mut self, member: usize) {
        for rank in self.members[member].ranks.clone() {
            if self.ranks[rank].thread == Thread::Gone {
                continue;
            }
            let (device, seat) = (self.ranks[rank].device, self.ranks[rank].seat);
            self.play_device(device);
            self.take_completions();
            self.account(rank);
            self.devices[device].remove(seat);
            self.ranks[rank].thread = Thread::Gone;
            self.waiting.retain(|waiting| *waiting != rank);
            if let Some(daemon) = &mut self.daemon {
                daemon.input(self.now_ns, Input::Left { program: id_of(rank), by_itself: true });
            }
        }
        self.members[member].requests.clear();
        self.members[member].serving = 0;
        self.after_gates();
    }

    /// The daemon ends, and another one is there after some time. Meanwhile all gates stand open.
    pub(super) fn lose_daemon(&mut self, away_ns: u64) {
        let Some(daemon) = self.daemon.take() else { return };
        self.outcome.decisions += daemon.engine.decisions();
        for rank in 0..self.ranks.len() {
            if self.ranks[rank].thread == Thread::Gone {
                continue;
            }
            self.ranks[rank].tally.suspensions += daemon.suspensions(self.now_ns, rank);
            self.segments[rank].gate.detach();
            let (device, seat) = (self.ranks[rank].device, self.ranks[rank].seat);
            self.play_device(device);
            self.devices[device].interrupt(seat, false, &self.segments, &mut self.done);
            self.devices[device].look(&self.segments, &mut self.done);
        }
        self.wake_open();
        self.set(self.now_ns + away_ns, Happening::Returns);
    }

    /// A daemon is there again: programs attach to it as they are.
    pub(super) fn restart_daemon(&mut self) {
        let Some(policy) = self.policy.clone() else { return };
        if self.daemon.is_some() {
            return;
        }
        let yields = self.scenario.devices[self.machine.kind].inside;
        self.daemon = Some(Daemon::new(policy, &self.scenario.daemon, yields, self.scenario.detail, self.seed));
        for rank in 0..self.ranks.len() {
            if self.ranks[rank].thread != Thread::Gone {
                self.attach(rank);
            }
        }
        self.after_gates();
    }

    /// Programs of a name get another priority.
    pub(super) fn change_priority(&mut self, name: &str, priority: i32) {
        for member in 0..self.members.len() {
            if self.members[member].kind.name != *name {
                continue;
            }
            self.members[member].priority = Some(priority);
            for rank in self.members[member].ranks.clone() {
                if let Some(daemon) = &mut self.daemon
                    && self.ranks[rank].thread != Thread::Gone
                {
                    let message = Message::GroupHint { slot: 0, priority: Some(priority), hints: Default::default() };
                    daemon.input(self.now_ns, Input::Message(id_of(rank), message));
                }
            }
        }
        self.after_gates();
    }
}
