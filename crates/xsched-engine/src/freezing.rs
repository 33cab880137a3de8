//! Programs whose memory is away from their devices until they are thawed. A frozen program is kept off its devices, too.
//!
//! The program itself says in its words that it is frozen, so that a later daemon knows it. Its answer ends an order.

use xsched_proto::account::of_bytes;
use xsched_proto::wire::{Changed, ChangedValue, DaemonMsg, MemoryOrder};

use crate::Error;
use crate::io::{Effect, Sender};
use crate::memory::Memory;
use crate::parts::changing::Change;
use crate::program::{Move, Program, named};
use crate::state::Engine;
use crate::store::Store;
use crate::tuning::{MOVE_BEGINS_NS, MOVE_NS};

/// State of memory that is where it is without xsched.
const RESIDENT: &str = "on the device";

impl<M: Memory> Engine<M> {
    /// # Errors
    /// A reason for which the program cannot be frozen, or thawed, at all.
    pub(crate) fn check_freeze(&self, id: u64, freeze: bool, store: &mut Option<Store>) -> Result<(), Error> {
        let Some(program) = self.programs.get(&id) else { return Ok(()) };
        let refuse = |why: &str| Err(Error::environment(format!("{} {why}", named(program))));
        if self.is_silent(id) {
            return refuse("has not answered an earlier order so far: is it stopped?");
        }
        if program.moving.is_some() {
            return refuse("is moving its memory just now: try again");
        }
        if !freeze {
            return Ok(());
        }
        if self.settings.memory.stays {
            return refuse("cannot be frozen: the configuration has `[memory] swap = false`");
        }
        if !program.swap {
            return refuse("was not started with --memory swap");
        }
        if self.ledger.of(id).next().is_none() {
            return refuse("has no GPU memory so far");
        }
        let prevented = self.ledger.of(id).find_map(|(_, holder)| holder.report().stays());
        if let Some(why) = prevented {
            return refuse(&format!("cannot be frozen: {why}"));
        }
        if let Err(full) = self.fits_store(id, store) {
            return refuse(&format!("cannot be frozen: {full}"));
        }
        Ok(())
    }

    /// Orders a program to freeze or thaw. False: there is nothing to be done.
    ///
    /// # Errors
    /// A line on the program, for which programs before it in the same command have left no room on the host.
    pub(crate) fn freeze_one(&mut self, from: &Sender, id: u64, freeze: bool) -> Result<bool, String> {
        let Some(program) = self.programs.get(&id) else { return Ok(false) };
        if self.is_frozen(id) == freeze {
            let state = self.memory_state(id);
            self.tell_memory(from, id, state.clone(), state);
            return Ok(false);
        }
        if freeze {
            self.fits_store(id, &mut None).map_err(|full| format!("{} cannot be frozen: {full}", named(program)))?;
        }
        self.order_move(id, freeze, Some(from.command));
        Ok(true)
    }

    /// Sends a program an order for all of its devices.
    fn order_move(&mut self, id: u64, freeze: bool, command: Option<u64>) {
        let slots: Vec<u16> = self.ledger.of(id).map(|((_, slot), _)| slot).collect();
        let was = self.memory_state(id);
        let order = if freeze { MemoryOrder::Freeze } else { MemoryOrder::Thaw };
        let mut open = Vec::new();
        for slot in slots {
            let number = self.next_move();
            open.push(number);
            self.send(id, DaemonMsg::MemoryMove { slot, number, order });
        }
        let (since_ns, until_ns) = (self.now_ns, self.now_ns + MOVE_NS);
        self.change_off(id, |program| {
            program.moving =
                Some(Move { order, open, command, since_ns, until_ns, was, held: 0, has_begun: false, why: None });
        });
    }

    /// A program has answered an order, or tells that its memory has moved.
    pub(crate) fn memory_moved(&mut self, id: u64, number: u32, why: Option<String>) {
        let ended = self.programs.get_mut(&id).and_then(|program| {
            // Answers to orders that were given up since are none to this one.
            let moving = program.moving.as_mut().filter(|moving| moving.open.contains(&number))?;
            moving.open.retain(|open| *open != number);
            moving.why = moving.why.take().or(why);
            if moving.open.is_empty() { program.moving.take() } else { None }
        });
        let was_off = ended.as_ref().is_some_and(|moving| moving.order == MemoryOrder::Freeze);
        self.follow_frozen(id, was_off);
        if let Some(moving) = ended {
            match moving.order {
                MemoryOrder::Leave | MemoryOrder::Lend { .. } => self.end_leave(id, &moving),
                _ => self.end_move(id, moving),
            }
        }
        if number == 0 {
            self.forget_wants(id);
        }
        self.act();
    }

    /// Reports the end of a move to the command that asked for it.
    fn end_move(&mut self, id: u64, moving: Move) {
        let Some(program) = self.programs.get(&id) else { return };
        let (uid, name) = (program.user.uid, named(program));
        let now = self.memory_state(id);
        let line = match &moving.why {
            Some(why) if moving.order == MemoryOrder::Freeze => format!("{name} was not frozen: {why}"),
            Some(why) => format!("{name} was not thawed, and stays frozen: {why}"),
            None => format!("{name}: its memory is {now}"),
        };
        self.emit(Effect::Log(uid, line.clone()));
        let Some(command) = moving.command else { return };
        match moving.why {
            Some(_) => self.answer_move(command, id, Err(line)),
            None => self.answer_move(command, id, Ok((moving.was, now))),
        }
    }

    /// Adds to the answer of a command that waits for programs, and ends it after the last of them.
    fn answer_move(&mut self, command: u64, id: u64, result: Result<(String, String), String>) {
        let Some(changing) = self.changing.get_mut(&command) else { return };
        let Change::Freeze(_, answers) = &mut changing.change else { return };
        if !answers.open.remove(&id) {
            return;
        }
        let changed = match result {
            Ok(states) => Some((changing.from.clone(), states)),
            Err(line) => {
                answers.failures.push(line);
                None
            }
        };
        let last = if changing.stage.awaits() { answers.last() } else { None };
        if let Some((from, (was, now))) = changed {
            self.tell_memory(&from, id, was, now);
        }
        if let Some(last) = last {
            self.changing.remove(&command);
            self.emit(Effect::Finish(command, last));
        }
    }

    /// Returns true while a command waits for answers of programs.
    pub fn awaits_answers(&self, command: u64) -> bool {
        self.changing.get(&command).is_some_and(|changing| changing.stage.awaits() && !changing.change.is_answered())
    }

    /// A program has left during a move.
    pub(crate) fn left_in_move(&mut self, id: u64, program: &Program<M>) {
        if let Some(command) = program.moving.as_ref().and_then(|moving| moving.command) {
            self.answer_move(command, id, Err(format!("{} ended before it answered", named(program))));
        }
    }

    /// Gives up orders of commands that programs do not carry out, and has them undone.
    pub(crate) fn end_late_moves(&mut self) {
        let is_late = |id: u64, moving: &Move| moving.until_ns <= self.now_ns || self.is_silent(id);
        let late: Vec<(u64, u64, bool, String)> = self
            .programs
            .iter()
            .filter_map(|(id, program)| {
                let moving = program.moving.as_ref().filter(|moving| is_late(*id, moving))?;
                let (command, freezes) = (moving.command?, moving.order == MemoryOrder::Freeze);
                let what = if freezes { "frozen" } else { "thawed, and stays frozen" };
                let why = match self.is_silent(*id) {
                    true => format!("it has not begun within {} s: is it stopped?", MOVE_BEGINS_NS / 1_000_000_000),
                    false => format!("its memory has moved for {} s", MOVE_NS / 1_000_000_000),
                };
                Some((*id, command, freezes, format!("{} was not {what}: {why}", named(program))))
            })
            .collect();
        for (id, command, freezes, line) in late {
            // The program finds both orders once it goes on, one after the other.
            self.order_move(id, !freezes, None);
            self.answer_move(command, id, Err(line));
            self.act();
        }
    }

    /// Returns true while limits and reserves have to follow what programs hold, by [`crate::Input::MemoryTime`], or programs wait for room.
    pub fn follows_memory(&self) -> bool {
        self.ledger.needs_looks() || self.has_moves() || !self.wants.is_empty() || self.awaits_idle()
    }

    /// Returns true while commands wait for programs that move memory.
    fn has_moves(&self) -> bool {
        self.programs.values().any(|program| program.moving.as_ref().is_some_and(|moving| moving.command.is_some()))
    }

    /// Has all frozen programs thaw, where the configuration forbids moves from now on.
    pub(crate) fn follow_switch(&mut self) {
        if !self.settings.memory.stays {
            return;
        }
        let frozen = self.programs.iter().filter(|(_, program)| program.frozen && program.moving.is_none());
        for id in frozen.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.order_move(id, false, None);
        }
    }

    /// Takes over what a program says of itself: frozen or not. `was_off`: a move that has just ended kept it off its devices.
    pub(crate) fn follow_frozen(&mut self, id: u64, was_off: bool) {
        let frozen = self.is_frozen(id);
        let Some(program) = self.programs.get_mut(&id) else { return };
        let was_off = was_off || program.is_off();
        program.frozen = frozen;
        let (number, is_off) = (program.id, program.is_off());
        self.tell_off(number, was_off, is_off);
    }

    fn is_frozen(&self, id: u64) -> bool {
        self.ledger.of(id).any(|(_, holder)| holder.report().frozen)
    }

    /// Returns true while programs look for signs of life of the daemon: at a closed gate, and wherever threads may wait for memory that
    /// moves, at open gates, too.
    pub fn must_beat(&self) -> bool {
        self.arbiter().any_closed() || self.programs.values().any(|program| program.swap || program.frozen)
    }

    /// State of a program's memory, in words.
    fn memory_state(&self, id: u64) -> String {
        if !self.is_frozen(id) {
            return RESIDENT.into();
        }
        let away = self.ledger.of(id).map(|(_, holder)| holder.report().away_bytes).fold(0, u64::saturating_add);
        format!("frozen, {} on the host", of_bytes(away))
    }

    fn tell_memory(&mut self, from: &Sender, id: u64, was: String, now: String) {
        let Some(program) = self.programs.get(&id) else { return };
        let values = vec![ChangedValue { what: "memory".into(), was, now }];
        let changed = Changed { pid: program.pid, name: program.name.clone(), values };
        self.send(from.command, DaemonMsg::Changed(changed));
    }
}
