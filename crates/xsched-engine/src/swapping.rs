//! Room on devices for programs that do not fit together: the programs whose memory leaves for others, and the order in which they return.
//!
//! A more urgent program gets room at once, from programs that go on with a part of their memory on the host. Best-effort programs take turns, which are so long that moving memory takes a tenth of the
//! time at most. A program that waits for its turn is kept off its device. Without a program that could give room, the answer is no, and
//! memory that is to come back is then mapped to the host.

use std::sync::Arc;

use xsched_proto::account::of_bytes;
use xsched_proto::class::Class;
use xsched_proto::wire::{DaemonMsg, MemoryOrder};

use crate::Error;
use crate::ledger::{HolderId, Short};
use crate::memory::Memory;
use crate::parts::memory_work::Pass;
use crate::parts::wants::{Want, WantId};
use crate::program::{Coming, Move};
use crate::room::{Giver, Room};
use crate::state::Engine;
use crate::store::Full;
use crate::tuning::{
    DEVICE_WANTS_MAX, LEAVE_NS, LEND_MIN_BYTES, LEND_PARTS, PROMISE_NS, QUESTIONS_STEPS, STEPS_OF_HOLDER,
    STEPS_OF_QUESTION, USER_WANTS_TIMES, WANT_NS, WANT_TOLD_NS, WANTS_MAX,
};
use crate::turns::{Turn, idle_turn_ns, turn_ns};
use crate::user::{User, has_place};

/// Decision on a question for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Granted,
    Refused,
    Waits,
}

/// Decision with its reasons.
struct Verdict {
    decision: Decision,
    /// Limit of device memory in the way.
    short: Option<Short>,
    /// Limit of the host store that keeps memory of others where it is.
    full: Option<Full>,
}

impl Verdict {
    fn of(decision: Decision) -> Verdict {
        Verdict { decision, short: None, full: None }
    }
}

/// Memory that other programs would give.
#[derive(Debug, Default)]
struct Gifts {
    /// Bytes that leave, or are to leave now.
    bytes: u64,
    /// Programs that are to give theirs now: a part of it, or all, for which their turn ends.
    due: Vec<(HolderId, Option<u64>, Option<Turn>)>,
    /// Bytes of programs whose turn is not over.
    later_bytes: u64,
    /// First limit of the host store that keeps some from leaving.
    full: Option<Full>,
}

impl<M: Memory> Engine<M> {
    /// A program asks for room for an allocation, or for the holders of the memory after its driver has refused one.
    ///
    /// # Errors
    /// The program has named no device for the slot.
    pub(crate) fn ask_memory(&mut self, id: u64, want: Want) -> Result<(), Error> {
        let holder = self.ledger.get((id, want.slot)).ok_or_else(|| Error::input("it asks for memory of no device"))?;
        let device = holder.device().clone();
        if !want.part && !self.may_wait(id, &device) {
            // One more is not looked at: with so many that wait, it would wait, too.
            let user = self.programs.get(&id).map_or_else(|| User::unknown(0), |program| program.user);
            let (of_user, all) = (self.wants.count_of_user(user), self.wants.count_on(&device));
            let why =
                format!("{all} allocations wait for memory of {device} already, {of_user} of them of user {user}");
            let (slot, number) = (want.slot, want.number);
            self.send(id, DaemonMsg::MemoryAnswer { slot, number, granted: false, on_host: false, why: Some(why) });
            return Ok(());
        }
        self.renew_terms_of((id, want.slot));
        let want = Want { since_ns: self.now_ns, ..want };
        let mut room = self.room_on(&device);
        let verdict = match self.is_behind(id, &device, &want) {
            true => Verdict::of(Decision::Waits),
            false => self.decide(&mut room, id, &want),
        };
        self.ledger.publish_one((id, want.slot), &room.sums);
        let waits = verdict.decision == Decision::Waits && !want.part;
        if !waits {
            self.answer_want(&room, id, &want, &verdict);
            return Ok(());
        }
        self.send(id, DaemonMsg::MemoryWait { number: want.number });
        if want.returns {
            self.change_off(id, |program| program.awaits_room = true);
            self.act();
        }
        if let Some(user) = self.programs.get(&id).map(|program| program.user) {
            self.wants.add(id, user, device, want);
        }
        Ok(())
    }

    /// Returns true if one more question of a program may wait.
    fn may_wait(&self, id: u64, device: &str) -> bool {
        let Some(program) = self.programs.get(&id) else { return false };
        let (user, bounds) = (program.user, program.terms.bounds);
        let of_user = self.wants.count_of_user(user);
        self.wants.count_of(id) < WANTS_MAX
            && of_user < bounds.device_groups.saturating_mul(USER_WANTS_TIMES)
            && has_place(user, of_user, self.wants.count_on(device), DEVICE_WANTS_MAX)
    }

    fn answer_want(&mut self, room: &Room, id: u64, want: &Want, verdict: &Verdict) {
        let granted = verdict.decision == Decision::Granted;
        let full = if granted { None } else { verdict.full.as_ref().map(ToString::to_string) };
        let on_host = !granted && self.may_use_host(room, (id, want.slot), want.bytes);
        let short = if granted { None } else { verdict.short };
        self.answer_room((id, want.slot), want.number, granted, on_host, short, full);
    }

    /// Returns true if memory is to come back that must not overtake what waits before it, though there may be room for it.
    fn is_behind(&self, id: u64, device: &str, want: &Want) -> bool {
        let Some(program) = self.programs.get(&id) else { return false };
        // Room granted to it before was taken back again, or the driver lacked it.
        let was_granted = program.coming.as_ref().is_some_and(|coming| coming.until_ns > self.now_ns);
        let is_before = |(_, other): (WantId, u64)| {
            let priority = self.programs.get(&other).map(|program| program.priority());
            other != id && priority >= Some(program.priority())
        };
        want.returns && !was_granted && program.moving.is_none() && self.wants.on(device).any(is_before)
    }

    /// Decides anew on questions about a device: the most urgent ones first, then the oldest, until the piece of work is long enough.
    /// Returns the pass if questions are left, and its work in steps.
    pub(crate) fn pass_questions(&mut self, device: &Arc<str>, mut pass: Pass) -> (Option<Pass>, usize) {
        let mut room = self.room_on(device);
        let (mut is_any_answered, mut done) = (false, 0);
        // A piece gets further by one question at least.
        while (done == 0 || room.steps < QUESTIONS_STEPS)
            && let Some(question) = pass.left.pop_front()
        {
            done += 1;
            is_any_answered |= self.pass_question(&mut room, &mut pass, question);
        }
        if is_any_answered {
            self.act();
        }
        ((!pass.left.is_empty()).then_some(pass), room.scans + room.steps)
    }

    /// Decides on a question that waits. True: it is answered.
    fn pass_question(&mut self, room: &mut Room, pass: &mut Pass, question: WantId) -> bool {
        room.steps += STEPS_OF_QUESTION;
        // A question may have been given up since the pass began.
        let Some((id, want)) = self.wants.get(question) else { return false };
        // Memory that comes back does not overtake what waits before it.
        if want.returns && pass.has_waiting {
            return false;
        }
        let verdict = self.decide(room, id, &want);
        let is_late = self.now_ns.saturating_sub(want.since_ns) >= WANT_NS;
        if verdict.decision == Decision::Waits && (!is_late || self.has_prospect(room, id, &want)) {
            self.tell_of_wait(room, question, id, &want, verdict.short);
            pass.has_waiting = true;
            return false;
        }
        // The line on the holders of the memory looks at all of them.
        room.steps += self.ledger.len_on(&room.device) * STEPS_OF_HOLDER;
        self.ledger.publish_one((id, want.slot), &room.sums);
        self.answer_want(room, id, &want, &verdict);
        self.wants.remove(question);
        self.stop_waiting(id);
        true
    }

    /// Tells a program, once, what an allocation of it waits for, when that takes long.
    fn tell_of_wait(&mut self, room: &mut Room, question: WantId, id: u64, want: &Want, short: Option<Short>) {
        let waits_ns = self.now_ns.saturating_sub(want.since_ns);
        if want.returns || waits_ns < WANT_TOLD_NS || !self.wants.note_told(question) {
            return;
        }
        room.steps += self.ledger.len_on(&room.device) * STEPS_OF_HOLDER;
        let Some(reader) = self.programs.get(&id).map(|program| program.user) else { return };
        let holders = self.holders_line((id, want.slot), short, reader);
        let holders = holders.map_or_else(String::new, |line| format!(": {line}"));
        let text = format!("waits for {} of GPU memory{holders}", of_bytes(want.bytes));
        self.send(id, DaemonMsg::Note { text });
    }

    /// A program waits for room no longer. Decisions follow by `act`.
    fn stop_waiting(&mut self, id: u64) {
        let now_ns = self.now_ns;
        self.change_off(id, |program| {
            program.awaits_room = false;
            program.in_since_ns = now_ns;
        });
    }

    /// A program has given a question up.
    pub(crate) fn forget_wants(&mut self, id: u64) {
        if self.wants.remove_of(id) {
            self.stop_waiting(id);
            self.act();
        }
    }

    /// Decides on a question, and orders programs to leave.
    fn decide(&mut self, room: &mut Room, id: u64, want: &Want) -> Verdict {
        let Some((class, moves)) = self.programs.get(&id).map(|program| (program.class(), program.moving.is_some()))
        else {
            return Verdict::of(Decision::Refused);
        };
        // A more urgent program and a thaw wait for no memory on its way.
        let coming = if moves { 0 } else { room.coming_beside(id, class) };
        if want.returns && want.lacking == 0 && coming > 0 {
            // Room that another program was granted is not counted as its own before it has taken it.
            return Verdict::of(Decision::Waits);
        }
        let leaving = room.leaving_beside(id);
        let (lacks, short) = self.try_room(room, (id, want.slot), want.bytes);
        let lacking = want.lacking.saturating_sub(want.freed).saturating_sub(leaving.left);
        let needed = lacks.max(lacking);
        let verdict = |decision| Verdict { decision, short, full: None };
        if needed == 0 {
            return verdict(self.grant(room, id, want));
        }
        if self.settings.memory.stays || want.part {
            return verdict(Decision::Refused);
        }
        if want.returns && needed <= leaving.under_way {
            // Memory comes in pieces, for each of which its program asks, while the other program's leaves.
            return verdict(self.grant(room, id, want));
        }
        if leaving.all >= needed {
            return verdict(Decision::Waits);
        }
        let gifts = self.gifts(room, id, want, needed, leaving.all);
        // No program leaves in vain.
        if gifts.bytes >= needed {
            for (giver, part, turn) in gifts.due {
                if let Some(turn) = turn {
                    self.note_turn(giver, class, turn, want);
                }
                self.order_leave(giver, part);
                let movable = self.ledger.get(giver).map_or(0, |holder| holder.movable_bytes());
                room.note_leave(self, giver.0, part.unwrap_or(movable).min(movable));
            }
        }
        let all = gifts.bytes.saturating_add(gifts.later_bytes).saturating_add(coming);
        let decision = if all >= needed { Decision::Waits } else { Decision::Refused };
        Verdict { decision, short, full: gifts.full }
    }

    /// Returns true if the end of another program's turn, or memory that moves, will give room for a question.
    fn has_prospect(&self, room: &mut Room, id: u64, want: &Want) -> bool {
        let leaving = room.leaving_beside(id).all;
        let asker = self.programs.get(&id).filter(|program| program.moving.is_none());
        let coming = asker.map_or(0, |program| room.coming_beside(id, program.class()));
        leaving > 0 || coming > 0 || self.gifts(room, id, want, want.bytes, leaving).later_bytes > 0
    }

    /// Memory that others would give for a question that needs so much room, beside so much that leaves.
    fn gifts(&self, room: &mut Room, id: u64, want: &Want, needed: u64, leaving: u64) -> Gifts {
        let mut gifts = Gifts { bytes: leaving, ..Gifts::default() };
        let Some(asker) = self.programs.get(&id) else { return gifts };
        let asker = Asker { class: asker.class(), moves: asker.moving.is_some() };
        let givers = room.take_givers(self);
        let mut store = if room.limits_store { Some(room.store(self).clone()) } else { None };
        for giver in givers.iter().filter(|giver| giver.id.0 != id) {
            room.steps += 1;
            let Some((is_due, turn)) = self.is_due(room, id, asker, want, giver) else { continue };
            if is_due && gifts.bytes >= needed {
                continue;
            }
            let part = asker.part_of(giver, needed.saturating_sub(gifts.bytes));
            let bytes = part.unwrap_or(giver.movable);
            if let Some(store) = &mut store {
                if let Err(full) = self.fits_limits(store, giver.user, giver.user_host, bytes) {
                    gifts.full.get_or_insert(full);
                    continue;
                }
                if is_due {
                    store.add(giver.user, bytes);
                }
            }
            gifts.give((giver.id, part, turn), is_due, bytes);
        }
        room.put_givers(givers);
        gifts
    }

    /// Grants a question for which there is room. Without limits only the driver knows of room: memory that comes back must not take what
    /// was made for another program.
    fn grant(&mut self, room: &mut Room, id: u64, want: &Want) -> Decision {
        if want.returns && want.lacking == 0 && self.wants.is_promised(id, &room.device, self.now_ns) {
            return Decision::Waits;
        }
        self.wants.drop_promises(id, self.now_ns);
        if want.lacking > 0 {
            self.wants.promise(id, room.device.clone(), self.now_ns + PROMISE_NS);
        }
        let now_ns = self.now_ns;
        let is_piece = |coming: &Coming| want.part && coming.slot == want.slot && coming.until_ns > now_ns;
        let program = self.programs.get_mut(&id).filter(|program| !program.coming.as_ref().is_some_and(is_piece));
        if let Some(program) = program.filter(|_| want.returns) {
            let until_ns = self.now_ns + turn_ns(want.bytes, 0);
            program.coming = Some(Coming { slot: want.slot, bytes: want.bytes, until_ns });
            program.in_since_ns = self.now_ns;
            room.note_coming(id, program.class(), want.bytes);
        }
        Decision::Granted
    }

    /// Returns true if a program has to give its memory now, and false if it has later; with the turn that ends then.
    fn is_due(
        &self,
        room: &mut Room,
        id: u64,
        asker: Asker,
        want: &Want,
        giver: &Giver,
    ) -> Option<(bool, Option<Turn>)> {
        if asker.class > giver.class {
            return Some((true, None));
        }
        // Among urgent programs the first one has the memory, and a thaw waits for nobody.
        let is_equal = asker.class == giver.class && giver.class < Class::High;
        if !is_equal || asker.moves {
            return None;
        }
        let turn = room.turn_of(self, giver, id, want.bytes);
        // A program that has had nothing to do for as long as moves take would only keep the other waiting.
        let is_over = self.now_ns.saturating_sub(giver.since_ns) >= turn.length_ns;
        Some((is_over || giver.idle_ns >= idle_turn_ns(giver.movable, want.bytes), Some(turn)))
    }

    /// Returns true if a program may have so much more memory on the host: other programs hold at least as much of the device as it has
    /// there then. What exceeds the device itself is refused as without xsched.
    fn may_use_host(&self, room: &Room, id: HolderId, bytes: u64) -> bool {
        let (Some(program), Some(own)) = (self.programs.get(&id.0), self.ledger.get(id)) else { return false };
        let away = own.report().away_bytes.saturating_add(bytes);
        let fits = || !room.limits_store || self.fits_beside(&self.store(), id.0, bytes).is_ok();
        program.swap && !self.settings.memory.stays && away <= room.present_beside(id.0) && fits()
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
}

/// Program that asks.
#[derive(Clone, Copy, Debug)]
struct Asker {
    class: Class,
    /// True while its own memory is ordered to move.
    moves: bool,
}

impl Asker {
    /// Bytes that a program lends a more urgent one, which goes on without them meanwhile; more than it lacks now, since more will follow.
    /// `None`: the two take turns, and all of the memory leaves.
    fn part_of(self, giver: &Giver, lacking: u64) -> Option<u64> {
        let least = (giver.movable / LEND_PARTS).max(LEND_MIN_BYTES);
        (self.class > giver.class).then(|| lacking.max(least).min(giver.movable))
    }
}

impl Gifts {
    /// Adds the memory of a program: all of it, or a part.
    fn give(&mut self, gift: (HolderId, Option<u64>, Option<Turn>), is_due: bool, bytes: u64) {
        if is_due {
            self.bytes = self.bytes.saturating_add(bytes);
            self.due.push(gift);
        } else {
            self.later_bytes = self.later_bytes.saturating_add(bytes);
        }
    }
}
