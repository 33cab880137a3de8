//! Room on the device for one move, as its pieces leave or come.

use std::time::{Duration, Instant};

use xsched_core::residency::Pieces;

use super::super::memory::moved;
use super::super::types::CUresult;
use super::counts;
use super::movable::Movable;
use super::virtuals::NO_MEMORY;
use crate::process;

/// Longest wait for room for a piece, which another program's memory is to leave.
const PIECE: Duration = Duration::from_secs(1);
/// Pause between two looks for such room: a small part of the time in which a piece moves.
const LOOK: Duration = Duration::from_micros(300);

/// Room for a move.
pub(super) struct Passage {
    movable: &'static Movable,
    /// Order of the daemon that the move carries out.
    order: Option<u32>,
    /// Bytes that are counted and have yet to come.
    pub(super) claimed: u64,
    /// Pieces are claimed one by one.
    in_pieces: bool,
    /// The driver had no room before, and others are making some.
    waits_for_driver: bool,
    /// Some piece has moved.
    has_begun: bool,
    /// Some piece had to wait until another program's had left.
    has_waited: bool,
    begun: Instant,
    /// True once room was waited for in vain.
    pub(super) gave_up: bool,
}

impl Passage {
    /// Passage away from the device, by an order of this number.
    pub(super) fn away(movable: &'static Movable, order: Option<u32>) -> Passage {
        Passage {
            movable,
            order,
            claimed: 0,
            in_pieces: false,
            waits_for_driver: false,
            has_begun: false,
            has_waited: false,
            begun: Instant::now(),
            gave_up: false,
        }
    }

    /// Claims room for so many bytes that come back. `was_full`: the driver had none for them.
    ///
    /// # Errors
    /// The daemon refuses the room.
    pub(super) fn back(movable: &'static Movable, bytes: u64, was_full: bool) -> Result<Passage, String> {
        let mut passage = Passage { waits_for_driver: was_full, ..Passage::away(movable, None) };
        if let Some(slot) = movable.slot().filter(|_| bytes > 0) {
            let unused = if was_full { movable.calls.unused().unwrap_or(0) } else { bytes };
            let lacking = if was_full { bytes.saturating_sub(unused).max(1) } else { 0 };
            passage.claimed = moved::claim(slot, bytes, lacking, || movable.stops_waiting())?;
            passage.begun = Instant::now();
            passage.in_pieces = passage.claimed == 0;
        }
        Ok(passage)
    }

    /// Waits until something holds. False: not in time.
    fn wait(&mut self, holds: impl Fn(&Movable) -> bool) -> bool {
        let until = Instant::now() + PIECE;
        while !holds(self.movable) {
            if Instant::now() >= until || self.movable.stops_waiting() {
                return false;
            }
            self.has_waited = true;
            std::thread::sleep(LOOK);
        }
        true
    }

    /// Counts a passage back to the device of so many bytes that has ended well.
    pub(super) fn count(&self, bytes: u64) {
        if self.in_pieces || self.has_waited {
            counts::came_beside(bytes, self.begun.elapsed());
        }
    }
}

fn is_unused(movable: &Movable, bytes: u64) -> bool {
    movable.calls.unused().is_none_or(|unused| unused >= bytes)
}

impl Pieces<CUresult> for Passage {
    fn left(&mut self, bytes: u64) {
        self.movable.count_left(bytes);
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        if let (true, Some(number), Some(rt)) = (is_first, self.order, process::running()) {
            rt.memory_leaving(number);
        }
    }

    fn comes(&mut self, bytes: u64, all: u64) -> Result<(), CUresult> {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let has_room = if let (true, Some(slot)) = (self.in_pieces, self.movable.slot()) {
            let is_counted = self.wait(|_| moved::claim_piece(slot, bytes));
            self.claimed += if is_counted { bytes } else { 0 };
            self.gave_up = !is_counted;
            is_counted
        } else if self.waits_for_driver {
            self.wait(|movable| is_unused(movable, bytes))
        } else {
            // Before copies are made in vain.
            !is_first || is_unused(self.movable, all)
        };
        if has_room { Ok(()) } else { Err(NO_MEMORY) }
    }
}
