//! Progress: counters of programs whose groups run while others wait.

use std::collections::BTreeSet;

use crate::io::Effect;
use crate::memory::Memory;
use crate::state::Engine;
use crate::tuning::LOOK_PLACES;

impl<M: Memory> Engine<M> {
    /// Names the programs whose progress is of interest, and once more those of which it was: the arbiter then forgets their progress.
    /// Reading the counters of one program takes some 0.1 ms.
    pub(crate) fn name_programs_to_look_at(&mut self) {
        let scrutinised = self.arbiter().scrutinised();
        let now: BTreeSet<u64> = scrutinised.filter_map(|id| Some(self.groups.get(&id)?.program.0)).collect();
        let all = self.follow_ups.look_at(now).into_iter().filter(|id| self.programs.contains_key(id)).collect();
        self.emit(Effect::LookAt(all));
    }

    /// Reads a part of a program's counters, and after the last part tells the arbiter of its progress.
    pub(crate) fn look(&mut self, id: u64) {
        let now_us = self.now_us();
        let mut sum = self.follow_ups.take_sum(id);
        // Between two looks lies the time between their beginnings, however long they take.
        let began_us = if sum.began_us == 0 { now_us } else { sum.began_us };
        sum.began_us = began_us;
        let Some(program) = self.programs.get(&id) else { return };
        let is_scrutinised = |group| self.arbiter().status(now_us, group).is_some_and(|s| s.scrutinised);
        let is_counted = program.groups.iter().any(|group| is_scrutinised(*group));
        if is_counted && !program.memory.add_launches(&mut sum, LOOK_PLACES) {
            self.follow_ups.keep_sum(id, sum);
            return self.emit(Effect::LookAgain(id));
        }
        for group_id in &program.groups {
            let Some(group) = self.groups.get(group_id) else { continue };
            let slot = usize::from(group.slot);
            self.gatekeeper.end_look(now_us, began_us, *group_id, || sum.launches.get(slot).copied().unwrap_or(0));
        }
        self.act();
    }
}
