//! Programs that do not begin what they were ordered.

use crate::memory::Memory;
use crate::program::Move;
use crate::state::Engine;
use crate::tuning::MOVE_BEGINS_NS;

impl<M: Memory> Engine<M> {
    /// Returns true if a program has not begun to carry an order out in the time for that: it is stopped, or serves no messages.
    pub(crate) fn is_silent(&self, id: u64) -> bool {
        let Some(program) = self.programs.get(&id) else { return false };
        let is_late = |moving: &Move| self.now_ns.saturating_sub(moving.since_ns) >= MOVE_BEGINS_NS;
        // A program that asks for room, or was just granted some, has begun.
        let asks =
            self.wants.count_of(id) > 0 || program.coming.as_ref().is_some_and(|coming| coming.until_ns > self.now_ns);
        let is_moving = self.ledger.of(id).any(|(_, holder)| holder.is_moving());
        program.moving.as_ref().is_some_and(is_late) && !asks && !is_moving
    }
}
