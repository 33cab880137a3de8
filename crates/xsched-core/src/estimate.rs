//! Table of the expected device time of each kind of command. [`xsched_flow::estimate`] computes the cells.

use core::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};

use xsched_flow::estimate::{Cell, Lesson, told_ns};
use xsched_flow::journal::Record;
use xsched_flow::tuning::{ESTIMATE_PROBES, ESTIMATES};
use xsched_proto::segment::GroupSlot;

use crate::journal;

/// Number of parts into which a command with gates inside is divided, see [`Work::part`](crate::Work).
pub const PARTS: u16 = 1_000;

/// Table of estimates without a lock: two threads that learn of the same kind at once may lose a sample. A full table forgets
/// nothing and learns nothing new: the default then stands in.
pub(crate) struct Estimates {
    keys: Box<[AtomicU64]>,
    cells: Box<[AtomicU64]>,
    /// Longest part of each kind without a gate, see [`Work`](crate::Work).
    parts: Box<[AtomicU16]>,
}

impl Estimates {
    pub(crate) fn new() -> Self {
        let table = || (0..ESTIMATES).map(|_| AtomicU64::new(0)).collect();
        let parts = (0..ESTIMATES).map(|_| AtomicU16::new(0)).collect();
        Estimates { keys: table(), cells: table(), parts }
    }

    /// Notes that commands of this kind have gates inside, and their longest part without one.
    pub(crate) fn note_part(&self, key: u64, part: u16) {
        if let Some(at) = self.slot(key, true) {
            self.parts[at].store(part, Relaxed);
        }
    }

    /// Longest part of a command of this kind that is executed without a gate, in ns.
    fn uncut_ns(&self, key: u64, ns: u64) -> u64 {
        self.slot(key, false).map_or(ns, |at| uncut_ns(ns, self.parts[at].load(Relaxed)))
    }

    #[inline]
    fn slot(&self, key: u64, insert: bool) -> Option<usize> {
        if key == 0 {
            return None;
        }
        let start = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        for i in 0..ESTIMATE_PROBES {
            let at = (start + i) % ESTIMATES;
            let found = self.keys[at].load(Relaxed);
            if found == key {
                return Some(at);
            }
            if found == 0 {
                if !insert {
                    return None;
                }
                match self.keys[at].compare_exchange(0, key, Relaxed, Relaxed) {
                    Ok(_) => return Some(at),
                    Err(other) if other == key => return Some(at),
                    Err(_) => continue,
                }
            }
        }
        None
    }

    /// Expected device time in ns, or `None` if the command was never measured.
    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<u64> {
        Cell::from_bits(self.cells[self.slot(key, false)?].load(Relaxed)).expected_ns()
    }

    fn change(&self, key: u64, change: impl FnOnce(Cell) -> Cell) -> Option<Cell> {
        let at = self.slot(key, true)?;
        let cell = change(Cell::from_bits(self.cells[at].load(Relaxed)));
        self.cells[at].store(cell.bits(), Relaxed);
        Some(cell)
    }

    /// Takes a measured time, see [`Cell::sample`].
    pub(crate) fn sample(&self, key: u64, ns: u64, exclusive: bool) -> Option<Cell> {
        self.change(key, |cell| {
            let after = cell.sample(ns, exclusive);
            journal::record(|| Record::Sample(cell, ns, exclusive, after));
            after
        })
    }

    /// Applies a lesson, and publishes the group's longest command for the daemon if that follows from it.
    pub(crate) fn learn(&self, lesson: Lesson, slot: &GroupSlot) {
        match lesson {
            Lesson::Sample { key, ns, exclusive, tells } => {
                let cell = self.sample(key, ns, exclusive);
                if let Some(cell) = cell.filter(|_| tells) {
                    let ns = told_ns(cell, exclusive, slot.budget_us.load(Relaxed) != 0);
                    slot.longest_us.fetch_max(self.uncut_ns(key, ns) / 1000, Relaxed);
                }
            }
            Lesson::Lower { key, ns } => {
                self.change(key, |cell| {
                    let after = cell.lower(ns);
                    journal::record(|| Record::Lower(cell, ns, after));
                    after
                });
            }
        }
    }
}

/// The longest part without a gate of a command of this length, in ns. `part`: see [`Work`](crate::Work).
pub(crate) fn uncut_ns(ns: u64, part: u16) -> u64 {
    if part == 0 { ns } else { ns.saturating_mul(part.into()) / u64::from(PARTS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_gates_inside_is_as_long_as_its_longest_part() {
        let e = Estimates::new();
        e.note_part(1, 20);
        assert_eq!((e.uncut_ns(1, 30_000_000), e.uncut_ns(2, 30_000_000)), (600_000, 30_000_000));
        assert_eq!((uncut_ns(7, 0), uncut_ns(7, PARTS)), (7, 7));
    }

    #[test]
    fn a_full_table_still_answers() {
        let e = Estimates::new();
        for k in 1..10_000 {
            e.sample(k, 64_000, true);
        }
        assert!(e.get(1).is_some());
        assert!((1..10_000).any(|k| e.get(k).is_none()));
        assert_eq!(e.get(0), None, "0 is no kind");
    }
}
