//! Memory that leaves its device by itself while its program launches nothing. It comes back with the next launch.

use crate::ledger::HolderId;
use crate::memory::Memory;
use crate::program::Program;
use crate::state::Engine;
use crate::tuning::KEEP_AFTER_REFUSAL_NS;

impl<M: Memory> Engine<M> {
    /// Returns true while memory of some program would leave if the program were idle.
    pub(crate) fn awaits_idle(&self) -> bool {
        self.programs.iter().any(|(id, program)| program.idle_s().is_some() && self.movable_slot(*id).is_some())
    }

    /// Has the memory of programs leave that were idle for as long as they, or their rules, say.
    pub(crate) fn take_idle_memory(&mut self) {
        let now_ns = self.now_ns;
        let due: Vec<HolderId> =
            self.programs.iter().filter_map(|(id, program)| self.idle_memory(*id, program)).collect();
        let mut store = None;
        for id in due {
            // Programs before it may have filled the store.
            if self.fits_store(id.0, &mut store).is_err() {
                continue;
            }
            let movable = self.ledger.get(id).map_or(0, |holder| holder.movable_bytes());
            if let Some(store) = &mut store {
                self.put_in_store(store, id.0, movable);
            }
            if let Some(program) = self.programs.get_mut(&id.0) {
                program.idling.begins();
            }
            self.order_leave(id, None);
        }
        for program in self.programs.values_mut() {
            if !program.groups.iter().all(|group| self.gatekeeper.is_idle(*group)) {
                program.idling.active(now_ns);
            }
        }
    }

    /// Memory of a program that is to leave now since the program is idle.
    fn idle_memory(&self, id: u64, program: &Program<M>) -> Option<HolderId> {
        let idle_ns = u64::from(program.idle_s()?) * 1_000_000_000;
        let is_idle = program.groups.iter().all(|group| self.gatekeeper.is_idle(*group));
        let has_failed = program.refused_ns.is_some_and(|at| self.now_ns.saturating_sub(at) < KEEP_AFTER_REFUSAL_NS);
        if !is_idle || has_failed || program.frozen || program.moving.is_some() || self.settings.memory.stays {
            return None;
        }
        // Memory may come back without a launch, for a copy.
        let since_ns = program.idling.active_ns().max(program.in_since_ns);
        let slot = self.movable_slot(id).filter(|_| self.now_ns.saturating_sub(since_ns) >= idle_ns)?;
        Some((id, slot))
    }

    /// Slot of a device from which memory of a program can leave.
    fn movable_slot(&self, id: u64) -> Option<u16> {
        self.ledger.of(id).find(|(_, holder)| holder.movable_bytes() > 0).map(|((_, slot), _)| slot)
    }
}
