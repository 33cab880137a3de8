//! How long a command will keep the device busy, learned from completions.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use xsched_flow::estimate::Cell;
use xsched_flow::journal::Record;

use crate::journal;
use crate::runtime::Runtime;

const SLOTS: usize = 2048;
const PROBES: usize = 8;

/// Assumed for a command never seen complete, in ns.
pub(crate) const UNKNOWN_NS: u64 = 100_000;

/// See [`Estimates::shortest_shared`].
const SHARED_SAMPLES: u32 = 4;

/// Moving averages of device time by (function, grid), lock-free. A full table forgets nothing and learns nothing
/// new: the default then stands in.
pub(crate) struct Estimates {
    keys: Box<[AtomicU64]>,
    // In units of 64 ns, so that 32 bits reach four minutes; 0 = no sample yet. Byte-sized outlier counts beside it.
    times: Box<[AtomicU32]>,
    outliers: Box<[AtomicU32]>,
    // How often each was measured in company.
    shared: Box<[AtomicU32]>,
}

impl Estimates {
    pub(crate) fn new() -> Self {
        Estimates {
            keys: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            times: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
            outliers: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
            shared: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    fn slot(&self, key: u64, insert: bool) -> Option<usize> {
        if key == 0 {
            return None;
        }
        let start = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        for i in 0..PROBES {
            let at = (start + i) % SLOTS;
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
    pub(crate) fn get(&self, key: u64) -> Option<u64> {
        let time = self.times[self.slot(key, false)?].load(Relaxed);
        (time != 0).then_some(u64::from(time) << 6)
    }

    /// The shortest of what it took each time it had company on the device, in ns; `None` until it was measured often
    /// enough that it cannot have waited for somebody else's long command every time.
    pub(crate) fn shortest_shared(&self, key: u64) -> Option<u64> {
        let at = self.slot(key, false)?;
        (self.shared[at].load(Relaxed) >= SHARED_SAMPLES).then(|| u64::from(self.times[at].load(Relaxed)) << 6)
    }

    fn cell(&self, at: usize) -> Cell {
        let part = |of: &[AtomicU32]| of[at].load(Relaxed);
        Cell::from_parts(part(&self.times), part(&self.outliers), part(&self.shared))
    }

    /// Takes a measured time. A sample over four times the average is taken for an accident (the device was away)
    /// unless it comes three times in a row. If the device was not `alone` the time may hold somebody else's: it counts
    /// only where it is shorter.
    pub(crate) fn sample(&self, key: u64, ns: u64, alone: bool) {
        let Some(at) = self.slot(key, true) else { return };
        if journal::is_on() {
            let before = self.cell(at);
            self.sample_at(at, ns, alone);
            return journal::record(|| Record::Sample(before, ns, alone, self.cell(at)));
        }
        self.sample_at(at, ns, alone);
    }

    fn sample_at(&self, at: usize, ns: u64, alone: bool) {
        let sample = u32::try_from((ns >> 6).max(1)).unwrap_or(u32::MAX);
        if !alone {
            self.shared[at].fetch_add(1, Relaxed);
        }
        let old = self.times[at].load(Relaxed);
        let new = if old == 0 {
            sample
        } else if !alone {
            if sample >= old {
                return;
            }
            (old / 4).saturating_add(sample / 4 * 3).max(1)
        } else if sample > old.saturating_mul(4) {
            let strikes = self.outliers[at].load(Relaxed) + 1;
            if strikes < 3 {
                self.outliers[at].store(strikes, Relaxed);
                return;
            }
            sample
        } else {
            (old.saturating_mul(7) / 8).saturating_add(sample / 8).max(1)
        };
        self.outliers[at].store(0, Relaxed);
        self.times[at].store(new, Relaxed);
    }
}

impl Estimates {
    /// A command takes no longer than this.
    pub(crate) fn lower(&self, key: u64, ns: u64) {
        let Some(at) = self.slot(key, true) else { return };
        let most = u32::try_from((ns >> 6).max(1)).unwrap_or(u32::MAX);
        let before = self.cell(at);
        let old = self.times[at].load(Relaxed);
        if old == 0 || most < old {
            self.times[at].store(most, Relaxed);
        }
        journal::record(|| Record::Lower(before, ns, self.cell(at)));
    }
}

impl Runtime {
    /// Expected device time of a kind of command (see [`crate::Work::key`]) in ns, if it was ever measured.
    pub fn expected_ns(&self, key: u64) -> Option<u64> {
        self.estimates.get(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_follows_its_samples_and_single_accidents_do_not_move_it() {
        let e = Estimates::new();
        assert_eq!(e.get(7), None);
        e.sample(7, 200_000, true);
        assert_eq!(e.get(7), Some(200_000));
        e.sample(7, 20_000_000, true);
        assert_eq!(e.get(7), Some(200_000), "one accident");
        for _ in 0..40 {
            e.sample(7, 100_000, true);
        }
        let t = e.get(7).unwrap();
        assert!((95_000..110_000).contains(&t), "{t}");
        for _ in 0..3 {
            e.sample(7, 20_000_000, true);
        }
        assert!(e.get(7).unwrap() > 19_000_000, "three in a row are the truth");
    }

    #[test]
    fn in_company_only_the_shortest_of_several_times_says_that_a_command_is_long() {
        let e = Estimates::new();
        (0..3).for_each(|_| e.sample(7, 100_000_000, false));
        assert_eq!(e.shortest_shared(7), None, "it may have waited each time");
        e.sample(7, 60_000, false);
        e.sample(7, 60_000, false);
        assert!(e.shortest_shared(7).is_some_and(|ns| ns < 10_000_000));
        (0..4).for_each(|_| e.sample(8, 100_000_000, false));
        assert!(e.shortest_shared(8).is_some_and(|ns| ns > 99_000_000));
        (0..9).for_each(|_| e.sample(9, 100_000_000, true));
        assert_eq!(e.shortest_shared(9), None, "measured alone");
    }

    #[test]
    fn a_full_table_still_answers() {
        let e = Estimates::new();
        for k in 1..10_000 {
            e.sample(k, 64_000, true);
        }
        assert!(e.get(1).is_some());
        assert!((1..10_000).any(|k| e.get(k).is_none()));
        assert_eq!(e.get(0), None, "0 is nobody's key");
    }
}
