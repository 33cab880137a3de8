//! Room on the device for one move, as its pieces leave or come.

use std::time::{Duration, Instant};

use xsched_core::residency::Room;

use super::super::memory::moved;
use super::super::types::CUresult;
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
    pub(super) in_pieces: bool,
    /// The driver had no room before, and others are making some.
    waits_for_driver: bool,
    /// Some piece has moved.
    has_begun: bool,
    /// Others did not leave in time.
    pub(super) gave_up: bool,
}

impl Passage {
    /// Passage away from the device, by an order of this number.
    pub(super) fn away(movable: &'static Movable, order: Option<u32>) -> Passage {
        let (in_pieces, waits_for_driver, has_begun, gave_up) = (false, false, false, false);
        Passage { movable, order, claimed: 0, in_pieces, waits_for_driver, has_begun, gave_up }
    }

    /// Claims room for so many bytes that come back. `was_full`: the driver had none for them.
    ///
    /// # Errors
    /// The daemon refuses the room.
    pub(super) fn back(movable: &'static Movable, bytes: u64, was_full: bool) -> Result<Passage, String> {
        let mut passage = Passage { waits_for_driver: was_full, ..Passage::away(movable, None) };
        if let Some(slot) = movable.slot().filter(|_| bytes > 0) {
            passage.claimed = moved::claim(slot, bytes, was_full, || movable.stops_waiting())?;
            passage.in_pieces = passage.claimed == 0;
        }
        Ok(passage)
    }

    /// Waits until something holds. False: not in time.
    fn wait(&self, holds: impl Fn() -> bool) -> bool {
        let until = Instant::now() + PIECE;
        while !holds() {
            if Instant::now() >= until || self.movable.stops_waiting() {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }

    fn is_unused(&self, bytes: u64) -> bool {
        self.movable.calls.unused().is_none_or(|unused| unused >= bytes)
    }
}

impl Room<CUresult> for Passage {
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
            let is_counted = self.wait(|| moved::claim_piece(slot, bytes));
            self.claimed += if is_counted { bytes } else { 0 };
            self.gave_up = !is_counted;
            is_counted
        } else if self.waits_for_driver {
            self.wait(|| self.is_unused(bytes))
        } else {
            // Before copies are made in vain.
            !is_first || self.is_unused(all)
        };
        if has_room { Ok(()) } else { Err(NO_MEMORY) }
    }
}
