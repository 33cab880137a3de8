//! Hints: values for the policy from programs themselves and from commands, and suspension by commands.

use std::sync::atomic::Ordering::Relaxed;

use xsched_policy::registry::Entry;
use xsched_policy::{Event, GroupId, ProgramId};
use xsched_proto::class;
use xsched_proto::hint::{Hint, Hints};
use xsched_proto::wire::DaemonMsg;

use crate::Error;
use crate::changes::Changes;
use crate::memory::Memory;
use crate::program::Program;
use crate::state::Engine;
use crate::terms::Terms;

/// Checks values that a program may ask for and a hint may change.
///
/// # Errors
/// One line that names the wrong value and what is accepted.
pub fn check_hint(priority: Option<i32>, hints: &Hints, level: Option<u8>) -> Result<(), Error> {
    if let Some(p) = priority.filter(|p| !class::is_priority(*p)) {
        return Err(Error::input(format!("'{p}' is no priority: use {}", class::PRIORITY_HELP)));
    }
    hints.check()?;
    match level {
        Some(level) if !(1..=3).contains(&level) => {
            Err(Error::input(format!("level {level} is out of range: use 1 to 3")))
        }
        _ => Ok(()),
    }
}

/// A line that tells which hints a policy ignores; none if there are none.
pub fn overlooked_line(entry: &Entry, hints: &[Hint]) -> Option<String> {
    let names: Vec<_> = hints.iter().map(|hint| hint.name()).collect();
    let names = (!names.is_empty()).then(|| names.join(", "))?;
    Some(format!("the policy {} does not look at: {names}", entry.name))
}

impl<M: Memory> Engine<M> {
    /// Changes a program as a command says.
    pub(crate) fn change_program(&mut self, id: u64, changes: Changes) {
        let Some(program) = self.programs.get_mut(&id) else { return };
        if let Some(priority) = changes.priority {
            program.entitlement.hint(priority, changes.by_root);
        }
        program.hints = changes.hints.or(program.hints);
        program.asked = changes.hints.or(program.asked);
        // The command is told which of them the policy ignores.
        program.note_overlooked(changes.hints.given());
        program.level = changes.level.or(program.level);
        program.threshold = changes.threshold.unwrap_or(program.threshold);
        program.batch = changes.batch.unwrap_or(program.batch);
        let groups = program.groups.clone();
        let follows = |id| self.groups.get(id).is_some_and(|g| g.platform.has_priorities());
        if let Some(priority) = changes.priority.filter(|_| groups.iter().any(follows)) {
            self.send(id, DaemonMsg::Priority { priority });
        }
        for group_id in groups {
            let priority = changes.priority.and_then(|_| {
                let group = self.groups.get(&group_id).filter(|g| g.fixed.is_none())?;
                Some(self.programs.get(&id)?.group_priority(group))
            });
            self.change_group(group_id, Changes { priority, ..changes });
        }
    }

    /// A program gives hints for one of its groups. No priority is above the program's bound.
    ///
    /// # Errors
    /// The program breaks the protocol.
    pub(crate) fn group_hint(&mut self, id: u64, slot: u16, priority: Option<i32>, hints: Hints) -> Result<(), Error> {
        check_hint(priority, &hints, None)?;
        let group_id =
            self.group_at(id, slot).ok_or_else(|| Error::input("it speaks of a group that it does not have"))?;
        let (Some(group), Some(program)) = (self.groups.get_mut(&group_id), self.programs.get(&id)) else {
            return Ok(());
        };
        group.fixed = priority;
        let device = group.device.clone();
        let priority = Some(program.group_priority(group));
        let hints = program.terms.ceilings.cut(hints);
        self.change_group(group_id, Changes { priority, hints, ..Changes::default() });
        self.act();
        self.assign_timeslices(&[device]);
        Ok(())
    }

    /// A program gives hints for all of its groups.
    ///
    /// # Errors
    /// The program breaks the protocol.
    pub(crate) fn program_hint(&mut self, id: u64, hints: Hints) -> Result<(), Error> {
        check_hint(None, &hints, None)?;
        let Some(program) = self.programs.get_mut(&id) else { return Ok(()) };
        let hints = program.terms.ceilings.cut(hints);
        program.hints = hints.or(program.hints);
        program.asked = hints.or(program.asked);
        for group in program.groups.clone() {
            self.change_group(group, Changes { hints, ..Changes::default() });
        }
        self.act();
        Ok(())
    }

    /// Changes a group. Decisions are left to [`Engine::act`].
    pub(crate) fn change_group(&mut self, id: GroupId, changes: Changes) {
        let Changes { priority, mut hints, level, threshold, batch, .. } = changes;
        if let Some(group) = self.groups.get(&id).filter(|_| hints.laxity.is_some())
            && let Some(program) = self.program_of(group)
        {
            hints.laxity = program.group_laxity(group, hints.laxity);
        }
        self.event(Event::Hint { group: id, priority, hints });
        let Some(group) = self.groups.get_mut(&id) else { return };
        if let Some(threshold) = threshold {
            group.words.budget_commands.store(threshold, Relaxed);
        }
        if let Some(batch) = batch {
            group.words.batch_commands.store(batch, Relaxed);
        }
        let Some(wished) = level else { return };
        let level = group.levels.highest_to(wished);
        group.level = level;
        // A group whose gate is closed is interrupted, or continues, as the new level wants it; only where it is all that its program has.
        let is_alone = self.programs.get(&group.program.0).is_some_and(|program| program.groups.len() == 1);
        let on = level == 3 && is_alone && !self.gatekeeper.is_granted(id) && group.platform.interrupts();
        if group.interrupted != on {
            self.interrupt(id, on);
        }
        self.publish_level(id);
    }

    /// Suspends a program, or resumes it. Returns whether it was suspended before.
    pub(crate) fn hold(&mut self, id: u64, hold: bool) -> bool {
        self.change_off(id, |program| std::mem::replace(&mut program.held, hold)).unwrap_or(hold)
    }

    /// Changes a program, which may then be kept off its devices or not.
    pub(crate) fn change_off<T>(&mut self, id: u64, change: impl FnOnce(&mut Program<M>) -> T) -> Option<T> {
        let program = self.programs.get_mut(&id)?;
        let was_off = program.is_off();
        let result = change(program);
        let (number, is_off) = (program.id, program.is_off());
        self.tell_off(number, was_off, is_off);
        Some(result)
    }

    pub(crate) fn tell_off(&mut self, number: ProgramId, was_off: bool, is_off: bool) {
        if was_off != is_off {
            self.event(if is_off { Event::Hold(number) } else { Event::Release(number) });
        }
    }

    /// Restores changes that an earlier daemon knew of. No more than the configuration allows now, but for what root gave.
    pub(crate) fn restore(&mut self, id: u64, mut changes: Changes, held: bool) {
        let Some(program) = self.programs.get_mut(&id) else { return };
        let allowed = program.entitlement.allowed;
        if !changes.by_root {
            changes.priority = changes.priority.map(|priority| priority.min(allowed));
        }
        program.hinted = changes;
        self.change_program(id, changes);
        self.hold(id, held);
        self.act();
    }

    /// Gives a program what it would get if it came now, but for its level, threshold and batch, which it keeps.
    pub(crate) fn reconsider(&mut self, id: u64, terms: Terms) {
        let Some(program) = self.programs.get_mut(&id) else { return };
        let before = program.priority();
        program.reconsider(terms, &self.settings);
        let (priority, groups) = (program.priority(), program.groups.clone());
        let tells = |id: &GroupId| self.groups.get(id).is_some_and(|group| group.platform.has_priorities());
        if before != priority && groups.iter().any(tells) {
            self.send(id, DaemonMsg::Priority { priority });
        }
        for group_id in groups {
            let (Some(group), Some(program)) = (self.groups.get(&group_id), self.programs.get(&id)) else { continue };
            let (priority, hints) = (program.group_priority(group), program.group_hints(group));
            self.event(Event::Hint { group: group_id, priority: Some(priority), hints });
        }
    }
}
