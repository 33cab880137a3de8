//! Room on devices for programs that do not fit together: the programs whose memory leaves for others, and the order in which they return.
//!
//! A more urgent program gets room at once, from programs that go on with a part of their memory on the host. Best-effort programs take turns, which are so long that moving memory takes a tenth of the
//! time at most. A program that waits for its turn is kept off its device. Without a program that could give room, the answer is no, and
//! memory that is to come back is then mapped to the host.

use core::cmp::Reverse;
use std::sync::Arc;

use xsched_proto::account::of_bytes;
use xsched_proto::class::Class;
use xsched_proto::wire::{DaemonMsg, MemoryOrder};

use crate::Error;
use crate::ledger::{Holder, HolderId};
use crate::memory::Memory;
use crate::parts::wants::Want;
use crate::program::{Coming, Move, Program};
use crate::state::Engine;
use crate::store::Full;
use crate::tuning::{
    KEEP_AFTER_REFUSAL_NS, LEAVE_NS, LEND_MIN_BYTES, LEND_PARTS, PROMISE_NS, WANT_NS, WANT_TOLD_NS, WANTS_MAX,
};
use crate::turns::{idle_turn_ns, turn_ns};

/// Decision on a question for room.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Granted,
    Refused,
    Waits,
}

/// Memory that other programs would give.
#[derive(Debug, Default)]
struct Gifts {
    /// Bytes that leave, or are to leave now.
    bytes: u64,
    /// Programs that are to give theirs now: a part of it, or all.
    due: Vec<(HolderId, Option<u64>)>,
    /// Bytes of programs whose turn is not over.
    later_bytes: u64,
    /// First limit of the host store that keeps some from leaving.
    full: Option<Full>,
}

/// Program whose memory may leave for another's.
struct Giver {
    id: HolderId,
    movable: u64,
    class: Class,
    is_idle: bool,
    /// Time without commands, in ns.
    idle_ns: u64,
    since_ns: u64,
}

impl<M: Memory> Engine<M> {
    /// A program asks for room for an allocation, or for the holders of the memory after its driver has refused one.
    ///
    /// # Errors
    /// The program has named no device for the slot.
    pub(crate) fn ask_memory(&mut self, id: u64, want: Want) -> Result<(), Error> {
        let holder = self.ledger.get((id, want.slot)).ok_or_else(|| Error::input("it asks for memory of no device"))?;
        let device = holder.device().clone();
        self.renew_terms(&device);
        self.want(id, want);
        Ok(())
    }

    /// Answers a question for room, or has it wait until others have given theirs.
    fn want(&mut self, id: u64, want: Want) {
        let want = Want { since_ns: self.now_ns, ..want };
        let decision = if self.is_behind(id, &want) { Decision::Waits } else { self.decide(id, &want) };
        match decision {
            Decision::Waits if want.part => self.answer_want(id, &want, false),
            Decision::Granted => self.answer_want(id, &want, true),
            Decision::Refused => self.answer_want(id, &want, false),
            Decision::Waits if self.wants.count_of(id) >= WANTS_MAX => self.answer_want(id, &want, false),
            Decision::Waits => {
                let Some(device) = self.ledger.get((id, want.slot)).map(|holder| holder.device().clone()) else {
                    return;
                };
                self.send(id, DaemonMsg::MemoryWait { number: want.number });
                if want.returns {
                    self.change_off(id, |program| program.awaits_room = true);
                    self.act();
                }
                self.wants.add(id, device, want);
            }
        }
    }

    fn answer_want(&mut self, id: u64, want: &Want, granted: bool) {
        let full = if granted { None } else { self.store_line(id, want) };
        let on_host = !granted && self.may_use_host((id, want.slot), want.bytes);
        self.answer_room((id, want.slot), want, granted, on_host, full);
    }

    /// Returns true if memory is to come back that must not overtake what waits before it, though there may be room for it.
    fn is_behind(&self, id: u64, want: &Want) -> bool {
        let (Some(program), Some(own)) = (self.programs.get(&id), self.ledger.get((id, want.slot))) else {
            return false;
        };
        let is_before = |(other, device, _): &(u64, Arc<str>, Want)| {
            let priority = self.programs.get(other).map(|program| program.priority());
            *other != id && device == own.device() && priority >= Some(program.priority())
        };
        // Room granted to it before was taken back again, or the driver lacked it.
        let was_granted = program.coming.as_ref().is_some_and(|coming| coming.until_ns > self.now_ns);
        want.returns && !was_granted && program.moving.is_none() && self.wants.all().iter().any(is_before)
    }

    /// Decides anew on all questions that wait: the most urgent ones first, then the oldest.
    pub(crate) fn settle_wants(&mut self) {
        let mut wants = self.wants.all();
        let priority = |id: &u64| self.programs.get(id).map(|program| program.priority());
        wants.sort_by_key(|(id, ..)| Reverse(priority(id)));
        let mut waiting: Vec<Arc<str>> = Vec::new();
        for (id, device, want) in wants {
            // Memory that comes back does not overtake what waits before it.
            if want.returns && waiting.contains(&device) {
                continue;
            }
            let is_late = self.now_ns.saturating_sub(want.since_ns) >= WANT_NS;
            let decision = self.decide(id, &want);
            if decision == Decision::Waits && (!is_late || self.has_prospect(id, &want)) {
                self.tell_of_wait(id, &want);
                waiting.push(device);
                continue;
            }
            self.answer_want(id, &want, decision == Decision::Granted);
            self.wants.remove(id, want.number);
            self.end_wait(id);
        }
    }

    /// Tells a program, once, what an allocation of it waits for, when that takes long.
    fn tell_of_wait(&mut self, id: u64, want: &Want) {
        let waits_ns = self.now_ns.saturating_sub(want.since_ns);
        if want.returns || waits_ns < WANT_TOLD_NS || !self.wants.note_told(id, want.number) {
            return;
        }
        let short = self.ledger.ask((id, want.slot), want.bytes).err();
        let Some(reader) = self.programs.get(&id).map(|program| program.user) else { return };
        let holders = self.holders_line((id, want.slot), short, reader);
        let holders = holders.map_or_else(String::new, |line| format!(": {line}"));
        let text = format!("waits for {} of GPU memory{holders}", of_bytes(want.bytes));
        self.send(id, DaemonMsg::Note { text });
    }

    /// Returns true if the end of another program's turn, or memory that moves, will give room for a question.
    fn has_prospect(&self, id: u64, want: &Want) -> bool {
        let slot = (id, want.slot);
        let leaving = self.leaving(slot);
        leaving > 0 || self.coming(id, want) > 0 || self.gifts(id, want, want.bytes, leaving).later_bytes > 0
    }

    /// A program waits for room no longer.
    pub(crate) fn end_wait(&mut self, id: u64) {
        let now_ns = self.now_ns;
        self.change_off(id, |program| {
            program.awaits_room = false;
            program.in_since_ns = now_ns;
        });
        self.act();
    }

    /// A program has given a question up.
    pub(crate) fn forget_wants(&mut self, id: u64) {
        if self.wants.remove_of(id) {
            self.end_wait(id);
        }
    }

    /// Decides on a question, and orders programs to leave.
    fn decide(&mut self, id: u64, want: &Want) -> Decision {
        let coming = self.coming(id, want);
        if want.returns && want.lacking == 0 && coming > 0 {
            // Room that another program was granted is not counted as its own before it has taken it.
            return Decision::Waits;
        }
        // Before the room: memory that leaves between the two looks would count as neither.
        let leaving = self.leaving((id, want.slot));
        let short = self.try_room((id, want.slot), want.bytes);
        let (on_its_way, left) = self.under_way((id, want.slot));
        let lacking = want.lacking.saturating_sub(want.freed).saturating_sub(left);
        let needed = short.unwrap_or(0).max(lacking);
        if needed == 0 {
            return self.grant(id, want);
        }
        if self.settings.memory.stays || want.part {
            return Decision::Refused;
        }
        if want.returns && needed <= on_its_way {
            // Memory comes in pieces, for each of which its program asks, while the other program's leaves.
            return self.grant(id, want);
        }
        let gifts = self.gifts(id, want, needed, leaving);
        // No program leaves in vain.
        if gifts.bytes >= needed {
            let turns = gifts.due.iter().filter(|(_, part)| part.is_none());
            self.note_turns(id, want, &turns.map(|(giver, _)| *giver).collect::<Vec<_>>());
            gifts.due.into_iter().for_each(|(giver, part)| self.order_leave(giver, part));
        }
        let all = gifts.bytes.saturating_add(gifts.later_bytes).saturating_add(coming);
        if all >= needed { Decision::Waits } else { Decision::Refused }
    }

    /// Memory that others would give for a question that needs so much room, beside so much that leaves.
    fn gifts(&self, id: u64, want: &Want, needed: u64, leaving: u64) -> Gifts {
        let slot = (id, want.slot);
        let mut gifts = Gifts { bytes: leaving, ..Gifts::default() };
        let mut store = self.store();
        for giver in self.givers(slot) {
            let Some(is_due) = self.is_due(id, want, &giver) else { continue };
            if is_due && gifts.bytes >= needed {
                continue;
            }
            let part = self.part_of(id, &giver, needed.saturating_sub(gifts.bytes));
            let bytes = part.unwrap_or(giver.movable);
            if let Err(full) = self.fits_beside(&store, giver.id.0, bytes) {
                gifts.full.get_or_insert(full);
            } else if is_due {
                self.put_in_store(&mut store, giver.id.0, bytes);
                gifts.bytes = gifts.bytes.saturating_add(bytes);
                gifts.due.push((giver.id, part));
            } else {
                gifts.later_bytes = gifts.later_bytes.saturating_add(bytes);
            }
        }
        gifts
    }

    /// Grants a question for which there is room. Without limits only the driver knows of room: memory that comes back must not take what
    /// was made for another program.
    fn grant(&mut self, id: u64, want: &Want) -> Decision {
        let Some(device) = self.ledger.get((id, want.slot)).map(|holder| holder.device().clone()) else {
            return Decision::Refused;
        };
        if want.returns && want.lacking == 0 && self.wants.is_promised(id, &device, self.now_ns) {
            return Decision::Waits;
        }
        self.wants.drop_promises(id, self.now_ns);
        if want.lacking > 0 {
            self.wants.promise(id, device, self.now_ns + PROMISE_NS);
        }
        let now_ns = self.now_ns;
        let is_piece = |coming: &Coming| want.part && coming.slot == want.slot && coming.until_ns > now_ns;
        let program = self.programs.get_mut(&id).filter(|program| !program.coming.as_ref().is_some_and(is_piece));
        if let Some(program) = program.filter(|_| want.returns) {
            let until_ns = self.now_ns + turn_ns(want.bytes, 0);
            program.coming = Some(Coming { slot: want.slot, bytes: want.bytes, until_ns });
            program.in_since_ns = self.now_ns;
        }
        Decision::Granted
    }

    /// Bytes of other programs on their way back to the device of a program. They can leave again only once they are there. A more urgent
    /// program and a thaw wait for none.
    fn coming(&self, id: u64, want: &Want) -> u64 {
        let (Some(asker), Some(own)) = (self.programs.get(&id), self.ledger.get((id, want.slot))) else { return 0 };
        if asker.moving.is_some() {
            return 0;
        }
        let on_its_way = |(other, holder): (HolderId, &Holder<M::Account>)| {
            let program = self.programs.get(&other.0).filter(|program| program.class() >= asker.class())?;
            let coming = program.coming.as_ref().filter(|coming| coming.slot == other.1)?;
            let is_there = holder.movable_bytes() >= coming.bytes || coming.until_ns <= self.now_ns;
            (other.0 != id && !is_there).then_some(coming.bytes)
        };
        self.ledger.on(own.device()).filter_map(on_its_way).fold(0, u64::saturating_add)
    }

    /// Returns true if a program has to give its memory now, and false if it has later.
    fn is_due(&self, id: u64, want: &Want, giver: &Giver) -> Option<bool> {
        let asker = self.programs.get(&id)?;
        if asker.class() > giver.class {
            return Some(true);
        }
        // Among urgent programs the first one has the memory, and a thaw waits for nobody.
        let is_equal = asker.class() == giver.class && giver.class < Class::High;
        if !is_equal || asker.moving.is_some() {
            return None;
        }
        let turn = self.turn_of(giver.id, giver.movable, id, want);
        // A program that has had nothing to do for as long as moves take would only keep the other waiting.
        let is_over = self.now_ns.saturating_sub(giver.since_ns) >= turn.length_ns;
        Some(is_over || giver.idle_ns >= idle_turn_ns(giver.movable, want.bytes))
    }

    /// Returns true if a program may have so much more memory on the host: other programs hold at least as much of the device as it has
    /// there then. What exceeds the device itself is refused as without xsched.
    fn may_use_host(&self, id: HolderId, bytes: u64) -> bool {
        let (Some(program), Some(own)) = (self.programs.get(&id.0), self.ledger.get(id)) else { return false };
        let others =
            self.ledger.on(own.device()).filter(|(other, _)| *other != id).map(|(_, holder)| holder.present_bytes());
        let away = own.report().away_bytes.saturating_add(bytes);
        let fits = || self.fits_beside(&self.store(), id.0, bytes).is_ok();
        program.swap && !self.settings.memory.stays && away <= others.fold(0, u64::saturating_add) && fits()
    }

    /// Bytes that a program lends a more urgent one, which goes on without them meanwhile; more than it lacks now, since more will follow.
    /// `None`: the two take turns, and all of the memory leaves.
    fn part_of(&self, asker: u64, giver: &Giver, lacking: u64) -> Option<u64> {
        let is_more_urgent = self.programs.get(&asker).is_some_and(|asker| asker.class() > giver.class);
        let least = (giver.movable / LEND_PARTS).max(LEND_MIN_BYTES);
        is_more_urgent.then(|| lacking.max(least).min(giver.movable))
    }

    /// Line on the limit of the host store that keeps memory of other programs from making room.
    fn store_line(&mut self, id: u64, want: &Want) -> Option<String> {
        let leaving = self.leaving((id, want.slot));
        let needed = self.try_room((id, want.slot), want.bytes).unwrap_or(want.bytes);
        self.gifts(id, want, needed, leaving).full.map(|full| full.to_string())
    }

    /// Programs whose memory on a device can leave, in the order in which it does: the least urgent, idle ones, those that have had it
    /// longest.
    fn givers(&self, asker: HolderId) -> Vec<Giver> {
        let Some(own) = self.ledger.get(asker) else { return Vec::new() };
        let may_leave = |program: &Program<M>| {
            let refused = program.refused_ns.is_some_and(|at| self.now_ns.saturating_sub(at) < KEEP_AFTER_REFUSAL_NS);
            program.swap && !program.frozen && program.moving.is_none() && !refused
        };
        let giver = |(id, movable): (HolderId, u64)| {
            let program = self.programs.get(&id.0).filter(|program| id.0 != asker.0 && may_leave(program))?;
            let is_idle = self.groups_of(program).all(|(group, _)| self.gatekeeper.is_idle(group));
            let active_ns = program.idling.active_ns().max(program.in_since_ns);
            let has_worked = !program.groups.is_empty();
            let idle_ns = if is_idle && has_worked { self.now_ns.saturating_sub(active_ns) } else { 0 };
            let (class, since_ns) = (program.class(), program.in_since_ns);
            (movable > 0).then_some(Giver { id, movable, class, is_idle, idle_ns, since_ns })
        };
        let held = self.ledger.on(own.device()).map(|(id, holder)| (id, holder.movable_bytes()));
        let mut givers: Vec<Giver> = held.filter_map(giver).collect();
        givers.sort_by_key(|giver| (giver.class, !giver.is_idle, giver.since_ns));
        givers
    }

    /// Bytes that are about to leave the device of a program.
    fn leaving(&self, asker: HolderId) -> u64 {
        self.leaving_by(asker, |moving, movable, _| moving.leaving_bytes(movable))
    }

    /// Bytes that leave the device of a program piece by piece just now, and those that have left so.
    fn under_way(&self, asker: HolderId) -> (u64, u64) {
        let begun = |moving: &Move, bytes: u64| if moving.has_begun { bytes } else { 0 };
        let left = |moving: &Move, _, present: u64| begun(moving, moving.held.saturating_sub(present));
        let leaving = |moving: &Move, movable, _| begun(moving, moving.leaving_bytes(movable));
        (self.leaving_by(asker, leaving), self.leaving_by(asker, left))
    }

    /// Sum over the moves away from the device of a program, of which each is told with what can leave and what is there, in bytes.
    fn leaving_by(&self, asker: HolderId, bytes_of: impl Fn(&Move, u64, u64) -> u64) -> u64 {
        let Some(own) = self.ledger.get(asker) else { return 0 };
        let leaves = |id: u64, holder: &Holder<M::Account>| {
            let moving = self.programs.get(&id).and_then(|program| program.moving.as_ref());
            let moving = moving.filter(|moving| moving.until_ns > self.now_ns && !self.is_silent(id));
            moving.map_or(0, |moving| bytes_of(moving, holder.movable_bytes(), holder.present_bytes()))
        };
        let others = self.ledger.on(own.device()).filter(|(id, _)| id.0 != asker.0);
        others.map(|(id, holder)| leaves(id.0, holder)).fold(0, u64::saturating_add)
    }

    /// Orders a program's memory to leave, or a part of it to go to the host.
    pub(crate) fn order_leave(&mut self, (id, slot): HolderId, part: Option<u64>) {
        let number = self.next_move();
        let order = part.map_or(MemoryOrder::Leave, |bytes| MemoryOrder::Lend { bytes });
        self.send(id, DaemonMsg::MemoryMove { slot, number, order });
        let (since_ns, until_ns) = (self.now_ns, self.now_ns + LEAVE_NS);
        let held = self.ledger.get((id, slot)).map_or(0, |holder| holder.present_bytes());
        if let Some(program) = self.programs.get_mut(&id) {
            let was = String::new();
            program.coming = None;
            let (open, has_begun) = (vec![number], false);
            program.moving =
                Some(Move { order, open, command: None, since_ns, until_ns, was, held, has_begun, why: None });
        }
    }

    /// Memory of a program leaves in pieces from now on.
    pub(crate) fn memory_leaving(&mut self, id: u64, number: u32) {
        let moving = self.programs.get_mut(&id).and_then(|program| program.moving.as_mut());
        if let Some(moving) = moving.filter(|moving| moving.open.contains(&number)) {
            moving.has_begun = true;
            self.settle_wants();
        }
    }

    /// A program has left the device, or has not.
    pub(crate) fn end_leave(&mut self, id: u64, moving: &Move) {
        let now_ns = self.now_ns;
        let left: Vec<(Arc<str>, u64)> =
            self.ledger.of(id).map(|(_, holder)| (holder.device().clone(), holder.present_bytes())).collect();
        for (device, now) in left {
            self.wants.freed(&device, moving.held.saturating_sub(now));
        }
        if let Some(program) = self.programs.get_mut(&id) {
            program.idling.ended(moving.why.is_none());
            program.refused_ns = if moving.why.is_some() { Some(now_ns) } else { program.refused_ns };
        }
        self.settle_wants();
    }
}
