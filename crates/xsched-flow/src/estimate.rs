//! Estimates of how long a kind of command (function and grid) keeps the device busy, learned from the times at which completions are seen.

use serde::{Deserialize, Serialize};

use crate::tuning::*;

/// Measured time of one kind of command. Eight bytes, so that the core keeps it in one atomic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Average time in units of 64 ns, so that 32 bits hold up to four minutes; 0 = no sample yet.
    time: u32,
    /// Number of samples in a row that were far too long.
    outliers: u8,
    /// Number of samples taken while other programs used the device.
    shared: u8,
}

impl Cell {
    /// Packs the cell into one word.
    #[inline]
    pub fn bits(self) -> u64 {
        u64::from(self.time) | u64::from(self.outliers) << 32 | u64::from(self.shared) << 40
    }

    /// Unpacks a word that [`Cell::bits`] packed.
    #[inline]
    pub fn from_bits(bits: u64) -> Cell {
        Cell { time: bits as u32, outliers: (bits >> 32) as u8, shared: (bits >> 40) as u8 }
    }

    fn units(ns: u64) -> u32 {
        u32::try_from((ns >> 6).max(1)).unwrap_or(u32::MAX)
    }

    /// Expected device time, in ns.
    #[inline]
    pub fn expected_ns(self) -> Option<u64> {
        (self.time != 0).then_some(u64::from(self.time) << 6)
    }

    /// Returns the shortest time measured beside other programs, in ns; `None` until there are enough samples that not all of them can have
    /// waited for another program's long command.
    pub fn shortest_shared_ns(self) -> Option<u64> {
        (u32::from(self.shared) >= SHARED_SAMPLES).then(|| u64::from(self.time) << 6)
    }

    /// Adds a measured time, in ns. An outlier counts only after several in a row. A sample taken beside other programs may contain some of
    /// their time, so it counts only where it is shorter than the average.
    pub fn sample(self, ns: u64, exclusive: bool) -> Cell {
        let sample = Cell::units(ns);
        let shared = if exclusive { self.shared } else { self.shared.saturating_add(1) };
        let old = self.time;
        let time = if old == 0 {
            sample
        } else if !exclusive {
            if sample >= old {
                return Cell { shared, ..self };
            }
            (old / 4).saturating_add(sample / 4 * 3).max(1)
        } else if sample > old.saturating_mul(OUTLIER_TIMES) {
            let outliers = self.outliers.saturating_add(1);
            if u32::from(outliers) < OUTLIERS_IN_A_ROW {
                return Cell { outliers, ..self };
            }
            sample
        } else {
            (old.saturating_mul(AVERAGE_PARTS - 1) / AVERAGE_PARTS).saturating_add(sample / AVERAGE_PARTS).max(1)
        };
        Cell { time, outliers: 0, shared }
    }

    /// Lowers the estimate to an upper limit of the command's time, in ns.
    pub fn lower(self, ns: u64) -> Cell {
        let most = Cell::units(ns);
        if self.time == 0 || most < self.time { Cell { time: most, ..self } } else { self }
    }
}

/// Completion fence that the device has reached, and the commands that it covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// Number of the fenced command among the queue's numbered commands.
    pub seq: u64,
    /// Expected time of all numbered commands up to and including the fenced one, in ns.
    pub issued_ns: u64,
    /// Expected time of the fenced command alone, in ns.
    pub estimate_ns: u64,
    /// Number of commands since the fence before.
    pub commands: u64,
    /// Kind of the fenced command; 0 = unknown.
    pub key: u64,
    /// Time at which the fence was placed, in ns.
    pub at_ns: u64,
    /// Grant epoch that the fence belongs to; none = pre-queued.
    pub epoch: Option<u32>,
}

/// One thing learned about a kind of command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lesson {
    /// A measured time.
    Sample {
        /// Kind of the command.
        key: u64,
        /// Device time of the command, in ns.
        ns: u64,
        /// True if nothing else was on the device, see [`Cell::sample`].
        exclusive: bool,
        /// True if the sample also updates the daemon's knowledge of how long the group's commands are.
        tells: bool,
    },
    /// An upper limit of the time.
    Lower {
        /// Kind of the command.
        key: u64,
        /// Longest device time that the command can have, in ns.
        ns: u64,
    },
}

/// A poll of a queue whose device writes completions into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Time of the poll, in ns.
    pub now_ns: u64,
    /// Time since the poll before, in ns. No fence had been reached then, so a completion was seen at most this late.
    pub late_ns: u64,
    /// Time at which the last fences were seen reached, in ns.
    pub before_ns: u64,
    /// Longest time by which these fences may have been reached before they were seen, in ns.
    pub before_late_ns: u64,
    /// Number of the present grant epoch.
    pub epoch: u32,
    /// Number of numbered commands that are complete so far.
    pub done: u64,
    /// Expected time of these commands, in ns.
    pub done_ns: u64,
    /// True if nothing else is on the device.
    pub exclusive: bool,
    /// True if the budget is in force.
    pub budgeted: bool,
}

/// Length that is reported to the daemon as that of the group's longest command, in ns, after a [`Lesson::Sample`] that `tells`. Time
/// measured beside other programs is divided by [`SHARED_BY`] and counts only for a group that was not held to a budget: such a command
/// shared the device with few others most of the time.
pub fn told_ns(cell: Cell, exclusive: bool, budgeted: bool) -> u64 {
    if exclusive {
        cell.expected_ns().unwrap_or(0)
    } else if !budgeted {
        cell.shortest_shared_ns().unwrap_or(0) / SHARED_BY
    } else {
        0
    }
}

/// Learns from the fences that a poll found reached, in their order. `known` returns the current estimate of a kind of command, in ns.
pub fn learn(seen: &Seen, reached: &[Fence], known: impl Fn(u64) -> Option<u64>, mut learns: impl FnMut(Lesson)) {
    let ([first, ..], [.., last]) = (reached, reached) else { return };
    // A command that waited for another grant took a time that is no measure of it.
    if reached.iter().any(|f| f.key != 0 && f.epoch != Some(seen.epoch)) {
        return;
    }
    let all_single = reached.iter().all(|f| f.commands == 1);
    // Of several commands with a fence each, the measured time is that of the longest one, less the known times of the others: a short
    // command behind a long one is reached before the next poll.
    if let Some((at, fence)) = reached.iter().enumerate().max_by_key(|(_, f)| f.estimate_ns)
        && fence.key != 0
        && all_single
        && reached.iter().enumerate().all(|(i, f)| i == at || known(f.key).is_some())
    {
        let others = total(reached, |f| f.estimate_ns).saturating_sub(fence.estimate_ns);
        let took = seen.now_ns.saturating_sub(seen.before_ns.max(first.at_ns));
        let exact = EXACT_NS.max(took / EXACT_PART);
        let began_exactly = seen.before_late_ns <= exact || first.at_ns > seen.before_ns;
        if others <= exact.min(took) && seen.late_ns <= exact && began_exactly {
            let (key, ns, exclusive) = (fence.key, took - others, seen.exclusive);
            return learns(Lesson::Sample { key, ns, exclusive, tells: true });
        }
    }
    // However late they were seen, the commands cannot together have taken longer than this.
    let since_ns = seen.before_ns.saturating_sub(seen.before_late_ns).max(first.at_ns);
    let most = seen.now_ns.saturating_sub(since_ns);
    let expected = last.issued_ns.saturating_sub(seen.done_ns);
    if all_single && most < expected {
        for fence in reached {
            learns(Lesson::Lower { key: fence.key, ns: part(fence.estimate_ns, most, expected) });
        }
        return;
    }
    // For commands without an estimate, the time that the others leave is a first one. Not where some commands were only counted: most of
    // those may have been complete when the first fence was placed.
    let is_unknown = |f: &&Fence| f.key != 0 && known(f.key).is_none();
    let count = reached.iter().filter(is_unknown).count() as u64;
    let commands = total(reached, |f| f.commands);
    if commands == last.seq.saturating_sub(seen.done) {
        let left = most.saturating_sub(expected.saturating_sub(count.saturating_mul(UNKNOWN_NS)));
        let ns = left.checked_div(count).unwrap_or(0).max(most / commands.max(1));
        reached.iter().filter(is_unknown).for_each(|f| learns(Lesson::Lower { key: f.key, ns }));
    }
    let shorter = reached.iter().filter(|f| most < f.estimate_ns);
    shorter.for_each(|f| learns(Lesson::Lower { key: f.key, ns: most }));
}

/// Start of the interval in which a queue's pace is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    /// Time since which the device has worked on the queue without a pause, in ns; 0 = not known to have.
    pub since_ns: u64,
    /// Expected time of the numbered commands that were complete at `since_ns`, in ns.
    pub from_ns: u64,
}

/// Learns from the pace. Where the device has worked without a pause, all commands up to the current one cannot have taken less than that
/// time. Otherwise commands with too short an estimate would fill the device beyond the budget, and no thread would wait for the budget and
/// measure them. `next` = the first fence that is not reached; `measurable` = the queue is in order, budgeted, alone on the device and the
/// only one of its group with work. Returns where to measure from now on.
pub fn learn_pace(
    pace: Pace,
    seen: &Seen,
    reached: &[Fence],
    next: Option<&Fence>,
    measurable: bool,
    known: impl Fn(u64) -> Option<u64>,
    mut learns: impl FnMut(Lesson),
) -> Pace {
    let nothing = Pace { since_ns: 0, ..pace };
    let (Some(last), Some(next)) = (reached.last(), next) else { return nothing };
    let of_now = |f: &Fence| f.epoch == Some(seen.epoch);
    if !of_now(next) || !reached.iter().all(of_now) || !measurable {
        return nothing;
    }
    // The next command was launched before the first of the others was complete.
    let no_pause = pace.since_ns != 0 && next.at_ns <= seen.now_ns.saturating_sub(seen.late_ns);
    let took = seen.now_ns.saturating_sub(pace.since_ns);
    if no_pause && took < PACE_NS {
        return pace;
    }
    let expected = next.issued_ns.saturating_sub(pace.from_ns);
    if no_pause && expected != 0 && expected < took {
        for fence in reached.iter().filter(|f| known(f.key).is_some()) {
            let ns = part(fence.estimate_ns, took, expected);
            learns(Lesson::Sample { key: fence.key, ns, exclusive: true, tells: false });
        }
    }
    Pace { since_ns: seen.now_ns, from_ns: last.issued_ns }
}

/// Sums a number over fences. It saturates, because the numbers of a journal can be anything.
fn total(fences: &[Fence], number: impl Fn(&Fence) -> u64) -> u64 {
    fences.iter().map(number).fold(0, u64::saturating_add)
}

/// `ns` times `of / whole`.
fn part(ns: u64, of: u64, whole: u64) -> u64 {
    (u128::from(ns) * u128::from(of) / u128::from(whole)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taught(cell: Cell, times: usize, ns: u64, exclusive: bool) -> Cell {
        (0..times).fold(cell, |cell, _| cell.sample(ns, exclusive))
    }

    #[test]
    fn an_average_follows_its_samples_and_single_accidents_do_not_move_it() {
        let cell = Cell::default();
        assert_eq!(cell.expected_ns(), None);
        let cell = cell.sample(200_000, true);
        assert_eq!(cell.expected_ns(), Some(200_000));
        let cell = cell.sample(20_000_000, true);
        assert_eq!(cell.expected_ns(), Some(200_000), "one accident");
        let cell = taught(cell, 40, 100_000, true);
        let ns = cell.expected_ns().unwrap();
        assert!((95_000..110_000).contains(&ns), "{ns}");
        let cell = taught(cell, 3, 20_000_000, true);
        assert!(cell.expected_ns().unwrap() > 19_000_000, "three in a row are the truth");
        assert_eq!(Cell::from_bits(cell.bits()), cell);
    }

    #[test]
    fn in_company_only_the_shortest_of_several_times_says_that_a_command_is_long() {
        let cell = taught(Cell::default(), 3, 100_000_000, false);
        assert_eq!(cell.shortest_shared_ns(), None, "it may have waited each time");
        let cell = taught(cell, 2, 60_000, false);
        assert!(cell.shortest_shared_ns().is_some_and(|ns| ns < 10_000_000));
        let cell = taught(Cell::default(), 4, 100_000_000, false);
        assert!(cell.shortest_shared_ns().is_some_and(|ns| ns > 99_000_000));
        assert_eq!(taught(Cell::default(), 9, 100_000_000, true).shortest_shared_ns(), None, "measured alone");
    }
}
