//! Gates: words of programs are read, decisions are carried out, and what a gate's change means beside the word follows: interrupts, time
//! slices, the heartbeat.

use std::sync::atomic::Ordering::{Relaxed, Release};

use xsched_gatekeeper::{Change, UnknownState};
use xsched_policy::{Drains, Event, GroupId};
use xsched_proto::class::SHORT_SLICE_US;
use xsched_proto::wire::{DaemonMsg, Sharing};

use crate::Error;
use crate::group::drains;
use crate::io::Effect;
use crate::ledger::{Holder, HolderId};
use crate::memory::{GroupWords, Memory};
use crate::pooling::Side;
use crate::state::Engine;
use crate::tuning::LONG_US;

impl<M: Memory> Engine<M> {
    /// Reads the words of a program. Decisions are left to [`Engine::act`].
    pub(crate) fn read_words(&mut self, id: u64) {
        let now_us = self.now_us();
        let Some(program) = self.programs.get(&id) else { return };
        // A part of its memory is on the host, where its commands reach it.
        let away = |(_, holder): (HolderId, &Holder<M::Account>)| holder.away_bytes() > 0;
        let lends = program.swap && !program.frozen && self.ledger.of(id).any(away);
        let mut effects = Vec::new();
        for &group_id in &program.groups {
            let device = self.groups.get(&group_id).map(|group| &*group.device);
            let by_class = device.is_some_and(|device| self.gatekeeper.arbiter().policy_of(device).entry.name == "hpf");
            if let Err(UnknownState) =
                self.gatekeeper.scan(now_us, group_id, |lent| program.entitlement.inherited(lent))
            {
                effects.push(Effect::Drop(id, Error::input("its state word makes no sense")));
            }
            let Some(group) = self.groups.get_mut(&group_id) else { continue };
            // A program whose kernels turn out to be too long to run side by side shares the time from then on.
            if group.spatial().is_some() && !group.too_long && group.words.longest_us.load(Relaxed) > LONG_US {
                group.too_long = true;
                self.gatekeeper.event(now_us, Event::TooLong(group_id));
                self.gatekeeper.set_company(group_id, None);
            }
            let slice_us = match group.sharing {
                Sharing::Pool => {
                    let outer = group.seat.is_none_or(|seat| seat.side == Side::Outer);
                    outer.then_some(self.settings.pool_timeslice_us)
                }
                _ => program.told_timeslice_us.filter(|_| group.is_sliced()),
            };
            let has_short_slice = slice_us.is_some_and(|us| us <= SHORT_SLICE_US);
            let drains = if has_short_slice { drains(&group.words, by_class, lends) } else { Drains::ByItself };
            if std::mem::replace(&mut group.drains, drains) != drains {
                self.gatekeeper.event(now_us, Event::Drains(group_id, drains));
            }
        }
        effects.into_iter().for_each(|effect| self.emit(effect));
        if let Some(program) = self.programs.get_mut(&id) {
            program.idling.active(self.now_ns);
        }
    }

    /// Tells the arbiter whether the device still executes commands of suspended programs, where that matters.
    pub(crate) fn read_drains(&mut self) {
        let due: Vec<GroupId> = self.arbiter().drains_due(self.now_us()).collect();
        for id in due {
            let executes = self.groups.get(&id).is_some_and(|group| group.words.is_executing(&group.completed));
            self.event(Event::Executes(id, executes));
        }
    }

    /// Decides, and stores the gates that change.
    pub(crate) fn act(&mut self) {
        let now_us = self.now_us();
        // A program that finds a gate closed reads the beat, which must not be one of long ago.
        let had_closed = self.arbiter().any_closed();
        let mut closing = self.gatekeeper.closing(now_us).peekable();
        if !had_closed && closing.peek().is_some() {
            self.heartbeat.beat_ns.store(self.now_ns, Release);
        }
        for id in closing {
            if let Some(group) = self.groups.get_mut(&id).filter(|group| group.drains != Drains::ByItself) {
                group.words.completed(&mut group.completed);
            }
        }
        self.carry_out(now_us);
        self.history.decided();
        if self.give_pages() {
            // Gates may yield to them from now on.
            self.carry_out(now_us);
        }
        // Messages: after all gates.
        while let Some(id) = self.follow_ups.next_slice() {
            self.reassert_timeslice(id);
        }
    }

    fn carry_out(&mut self, now_us: u64) {
        while let Some(change) = self.gatekeeper.carry_out(now_us) {
            match change {
                Change::Closed(id) => self.closed(id),
                Change::Opened(id) => self.opened(id),
            }
        }
    }

    /// Takes a group whose gate was just closed off the device where that is possible.
    fn closed(&mut self, id: GroupId) {
        let Some(group) = self.groups.get(&id) else { return };
        // The whole context leaves the device: only where all of the program's work there is one group.
        if self.program_of(group).is_none_or(|program| program.groups.len() != 1) {
            return;
        }
        if group.level == 3 && group.platform.interrupts() {
            self.interrupt(id, true);
            self.gatekeeper.off_device(self.now_us(), id);
        } else if group.words.level.load(Relaxed) >= 2 {
            // Everything but the command that runs just now is held on the device.
            self.gatekeeper.off_device(self.now_us(), id);
            self.follow_ups.add_slice(id);
        }
    }

    fn opened(&mut self, id: GroupId) {
        if self.groups.get(&id).is_some_and(|group| group.interrupted) {
            self.interrupt(id, false);
        }
        self.follow_ups.add_slice(id);
    }

    /// Stores the level of a group for its program: no gates on the device where the policy wants none.
    pub(crate) fn publish_level(&self, id: GroupId) {
        let Some(group) = self.groups.get(&id) else { return };
        let forced = self.program_of(group).is_some_and(|program| program.level.is_some());
        // An interrupted group leaves the device, whatever waits there.
        let interrupted = group.level == 3 && group.platform.interrupts();
        let without = self.arbiter().shares_time(&group.device) && !interrupted && !forced;
        group.words.level.store(if without { 1 } else { group.level.into() }, Relaxed);
    }

    /// Stores the levels of all groups.
    pub(crate) fn publish_levels(&self) {
        self.groups.keys().for_each(|id| self.publish_level(*id));
    }

    /// Has a program interrupt what a group runs, or continue it.
    pub(crate) fn interrupt(&mut self, id: GroupId, on: bool) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.interrupted = on;
        let (program, slot) = (group.program.0, group.slot);
        self.send(program, DaemonMsg::Interrupt { slot, on });
    }
}
