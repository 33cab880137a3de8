//! Room on a device: one scan of the programs that hold memory there, by which all questions of a piece of work are decided.
//!
//! Decisions change the room: a program that is ordered to leave is a giver no more, and memory that may come back is on its way.

use std::collections::BTreeMap;
use std::sync::Arc;

use xsched_proto::account::Amount;
use xsched_proto::class::Class;

use crate::ledger::{Holder, HolderId, Sums};
use crate::memory::Memory;
use crate::program::{Move, Program};
use crate::state::Engine;
use crate::store::Store;
use crate::tuning::{KEEP_AFTER_REFUSAL_NS, STEPS_OF_HOLDER};
use crate::turns::{Turn, TurnParts};
use crate::user::User;

/// Program whose memory may leave for another's.
#[derive(Clone, Debug)]
pub(crate) struct Giver {
    pub(crate) id: HolderId,
    pub(crate) movable: u64,
    pub(crate) class: Class,
    is_idle: bool,
    /// Time without commands, in ns.
    pub(crate) idle_ns: u64,
    pub(crate) since_ns: u64,
    /// Time by which its turns so far were too long, in ns.
    pub(crate) turn_over_ns: u64,
    pub(crate) user: User,
    /// Limit of its user in the host store.
    pub(crate) user_host: Option<Amount>,
}

/// Memory of a program that leaves the device, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leaving {
    /// Memory that is about to leave.
    pub(crate) all: u64,
    /// The part of it that leaves piece by piece just now.
    pub(crate) under_way: u64,
    /// Memory that has left so.
    pub(crate) left: u64,
}

impl Leaving {
    fn of(moving: &Move, movable: u64, present: u64) -> Leaving {
        let all = moving.leaving_bytes(movable);
        let begun = |bytes: u64| if moving.has_begun { bytes } else { 0 };
        Leaving { all, under_way: begun(all), left: begun(moving.held.saturating_sub(present)) }
    }

    fn plus(self, other: Leaving) -> Leaving {
        Leaving {
            all: self.all.saturating_add(other.all),
            under_way: self.under_way.saturating_add(other.under_way),
            left: self.left.saturating_add(other.left),
        }
    }

    fn less(self, other: Leaving) -> Leaving {
        Leaving {
            all: self.all.saturating_sub(other.all),
            under_way: self.under_way.saturating_sub(other.under_way),
            left: self.left.saturating_sub(other.left),
        }
    }
}

/// Memory of one program on the device, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct InRoom {
    present: u64,
    leaving: Leaving,
    /// Memory on its way back, and the class of the program.
    coming: Option<(Class, u64)>,
}

/// Memory on a device at one time.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) device: Arc<str>,
    /// Grants of the limits.
    pub(crate) sums: Sums,
    /// By connection, in their order.
    programs: Vec<(u64, InRoom)>,
    leaving: Leaving,
    present: u64,
    coming: BTreeMap<Class, u64>,
    /// Programs whose memory can leave, in the order in which it does; none = not looked for yet.
    givers: Option<Vec<Giver>>,
    /// True if the host store has a limit for some of the programs.
    pub(crate) limits_store: bool,
    /// Parts of the device that programs of a class have in turns.
    turns: BTreeMap<Class, TurnParts>,
    /// Contents of the host store; none = not added up yet.
    store: Option<Store>,
    /// Scans of all programs that were done for the room, in steps.
    pub(crate) scans: usize,
    /// Work on questions beside that, in steps.
    pub(crate) steps: usize,
}

impl Room {
    fn part(&self, program: u64) -> InRoom {
        let at = self.programs.binary_search_by_key(&program, |(id, _)| *id).ok();
        at.and_then(|at| self.programs.get(at)).map_or_else(InRoom::default, |(_, part)| *part)
    }

    fn part_mut(&mut self, program: u64) -> Option<&mut InRoom> {
        let at = self.programs.binary_search_by_key(&program, |(id, _)| *id).ok()?;
        self.programs.get_mut(at).map(|(_, part)| part)
    }

    /// Bytes of other programs on their way back to the device, of this class or a more urgent one.
    pub(crate) fn coming_beside(&self, asker: u64, class: Class) -> u64 {
        let all = self.coming.range(class..).map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
        let own = self.part(asker).coming.filter(|(own, _)| *own >= class);
        all.saturating_sub(own.map_or(0, |(_, bytes)| bytes))
    }

    /// Bytes of other programs that leave the device.
    pub(crate) fn leaving_beside(&self, asker: u64) -> Leaving {
        self.leaving.less(self.part(asker).leaving)
    }

    /// Bytes that other programs hold.
    pub(crate) fn present_beside(&self, asker: u64) -> u64 {
        self.present.saturating_sub(self.part(asker).present)
    }

    /// A program is ordered to leave, with so many bytes.
    pub(crate) fn note_leave<M: Memory>(&mut self, engine: &Engine<M>, id: u64, bytes: u64) {
        if let Some(store) = &mut self.store {
            engine.put_in_store(store, id, bytes);
        }
        self.set_coming(id, None);
        let leaving = Leaving { all: bytes, ..Leaving::default() };
        if let Some(part) = self.part_mut(id) {
            part.leaving = leaving;
            self.leaving = self.leaving.plus(leaving);
        }
        if let Some(givers) = &mut self.givers {
            givers.retain(|giver| giver.id.0 != id);
        }
    }

    /// Memory of a program may come back.
    pub(crate) fn note_coming(&mut self, id: u64, class: Class, bytes: u64) {
        self.set_coming(id, Some((class, bytes)));
    }

    fn set_coming(&mut self, id: u64, coming: Option<(Class, u64)>) {
        let Some(part) = self.part_mut(id) else { return };
        let before = std::mem::replace(&mut part.coming, coming);
        if let Some((class, bytes)) = before {
            let sum = self.coming.entry(class).or_default();
            *sum = sum.saturating_sub(bytes);
        }
        if let Some((class, bytes)) = coming {
            let sum = self.coming.entry(class).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }

    /// Takes the programs whose memory can leave, to look through them. They are to be put back.
    pub(crate) fn take_givers<M: Memory>(&mut self, engine: &Engine<M>) -> Vec<Giver> {
        let steps = &mut self.scans;
        self.givers.take().unwrap_or_else(|| {
            let givers = engine.givers(&self.device);
            *steps += engine.ledger.len_on(&self.device) * STEPS_OF_HOLDER;
            givers
        })
    }

    /// Puts the programs back whose memory can leave.
    pub(crate) fn put_givers(&mut self, givers: Vec<Giver>) {
        self.givers = Some(givers);
    }

    /// Turn of a program before it leaves for one of its class that asks for so many bytes.
    pub(crate) fn turn_of<M: Memory>(&mut self, engine: &Engine<M>, giver: &Giver, asker: u64, bytes: u64) -> Turn {
        let turns = self.turns(engine, giver.class, asker);
        turns.turn(giver.id, giver.movable, giver.turn_over_ns, bytes)
    }

    /// Parts of the device that programs of a class have in turns, with those of one that asks.
    fn turns<M: Memory>(&mut self, engine: &Engine<M>, class: Class, asker: u64) -> &TurnParts {
        let (device, steps) = (&self.device, &mut self.scans);
        self.turns.entry(class).or_insert_with(|| {
            *steps += engine.ledger.len_on(device) * STEPS_OF_HOLDER;
            engine.turn_parts(device, class, asker)
        })
    }

    /// Contents of the host store, with what was ordered to leave for questions before.
    pub(crate) fn store<M: Memory>(&mut self, engine: &Engine<M>) -> &mut Store {
        let steps = &mut self.scans;
        self.store.get_or_insert_with(|| {
            *steps += engine.ledger.len() * STEPS_OF_HOLDER;
            engine.store()
        })
    }
}

impl<M: Memory> Engine<M> {
    /// Scans the programs that hold memory of a device.
    pub(crate) fn room_on(&mut self, device: &Arc<str>) -> Room {
        let sums = self.ledger.read(device);
        let mut room = Room {
            device: device.clone(),
            sums,
            programs: Vec::with_capacity(self.ledger.len_on(device)),
            leaving: Leaving::default(),
            present: 0,
            coming: BTreeMap::new(),
            givers: None,
            limits_store: self.settings.memory.host_limit.is_some(),
            turns: BTreeMap::new(),
            store: None,
            scans: 0,
            steps: 0,
        };
        for (id, holder) in self.ledger.on(device) {
            let Some(program) = self.programs.get(&id.0) else { continue };
            let (movable, present) = (holder.movable_bytes(), holder.present_bytes());
            let moving = program.moving.as_ref();
            let moving = moving.filter(|moving| moving.until_ns > self.now_ns && !self.is_silent(id.0));
            let leaving = moving.map_or_else(Leaving::default, |moving| Leaving::of(moving, movable, present));
            let coming = self.coming_of(id, program, movable);
            room.leaving = room.leaving.plus(leaving);
            room.present = room.present.saturating_add(present);
            room.programs.push((id.0, InRoom { present, leaving, coming: None }));
            room.set_coming(id.0, coming);
            room.limits_store |= program.terms.memory.user_host.is_some();
            room.scans += STEPS_OF_HOLDER;
        }
        room
    }

    /// Memory of a program on its way back. It can leave again only once it is there.
    fn coming_of(&self, id: HolderId, program: &Program<M>, movable: u64) -> Option<(Class, u64)> {
        let coming = program.coming.as_ref().filter(|coming| coming.slot == id.1)?;
        let is_there = movable >= coming.bytes || coming.until_ns <= self.now_ns;
        (!is_there).then(|| (program.class(), coming.bytes))
    }

    /// Programs whose memory on a device can leave, in the order in which it does: the least urgent, idle ones, those that have had it
    /// longest.
    fn givers(&self, device: &str) -> Vec<Giver> {
        let may_leave = |program: &Program<M>| {
            let refused = program.refused_ns.is_some_and(|at| self.now_ns.saturating_sub(at) < KEEP_AFTER_REFUSAL_NS);
            program.swap && !program.frozen && program.moving.is_none() && !refused
        };
        let giver = |(id, holder): (HolderId, &Holder<M::Account>)| {
            let movable = holder.movable_bytes();
            let program = self.programs.get(&id.0).filter(|program| movable > 0 && may_leave(program))?;
            let is_idle = self.groups_of(program).all(|(group, _)| self.gatekeeper.is_idle(group));
            let active_ns = program.idling.active_ns().max(program.in_since_ns);
            let has_worked = !program.groups.is_empty();
            let idle_ns = if is_idle && has_worked { self.now_ns.saturating_sub(active_ns) } else { 0 };
            Some(Giver {
                id,
                movable,
                class: program.class(),
                is_idle,
                idle_ns,
                since_ns: program.in_since_ns,
                turn_over_ns: program.turn_over_ns,
                user: program.user,
                user_host: program.terms.memory.user_host,
            })
        };
        let mut givers: Vec<Giver> = self.ledger.on(device).filter_map(giver).collect();
        givers.sort_by_key(|giver| (giver.class, !giver.is_idle, giver.since_ns));
        givers
    }
}
