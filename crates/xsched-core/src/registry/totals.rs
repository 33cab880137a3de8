//! Totals over all groups, for the statistics that a process reports at its end.

use core::sync::atomic::Ordering::*;

use xsched_proto::segment::HeardLate;

use super::Registry;
use crate::backlog_pages::Yielded;
use crate::clock::now_ns;

impl Registry {
    /// Launches of the whole process, and those that went by without a gate decision: attach, passthrough, error.
    pub fn totals(&self) -> (u64, [u64; 3]) {
        let mut launches = self.unplaced.load(Relaxed);
        let mut unscheduled = [0, 0, launches];
        for group in self.groups() {
            let slot = group.slot(self);
            launches = launches.wrapping_add(slot.launches_retired.load(Relaxed));
            for q in self.queues_of(group) {
                launches = self.counters_of(q).fold(launches, |n, c| n.wrapping_add(c.total()));
            }
            for (sum, word) in unscheduled.iter_mut().zip([
                &slot.unscheduled_attach,
                &slot.unscheduled_passthrough,
                &slot.unscheduled_error,
            ]) {
                *sum += word.load(Relaxed);
            }
        }
        (launches, unscheduled)
    }

    /// Counts a command of an unknown queue that entered the driver. `ps` shows it with the first group.
    pub fn note_unscheduled(&self) {
        match self.groups().next() {
            Some(group) => {
                let slot = group.slot(self);
                slot.launches_retired.fetch_add(1, Relaxed);
                slot.unscheduled_error.fetch_add(1, Relaxed);
            }
            None => _ = self.unplaced.fetch_add(1, Relaxed),
        }
    }

    /// Launches of the system domain, among those whose origin was inspected.
    pub fn system_launches(&self) -> u64 {
        let retired = self.groups().map(|g| g.slot(self).system_retired.load(Relaxed));
        let counters = self.queues().flat_map(|q| self.counters_of(q).map(|c| c.system.load(Relaxed)));
        retired.chain(counters).fold(0, u64::wrapping_add)
    }

    /// Launches of the system domain that went past a closed gate by an operator's rule.
    pub fn exempt_launches(&self) -> u64 {
        self.groups().map(|g| g.slot(self).exempt.load(Relaxed)).fold(0, u64::wrapping_add)
    }

    /// Delays of the daemon in noticing that a group wanted its device; times that a group was presumed idle because it made no
    /// progress; times that commands which gates on the device had held for long were released.
    pub fn overlaps(&self) -> (HeardLate, u64, u64) {
        let now = now_ns();
        self.groups().map(|g| g.slot(self)).fold((HeardLate::default(), 0, 0), |(all, stalls, releases), slot| {
            // Without a daemon there is none that could be late.
            let late = if slot.gate.load().is_detached() { slot.heard_late() } else { slot.heard_late_by(now) };
            (all.and(late), stalls + u64::from(slot.stalls.load(Relaxed)), releases + slot.releases.load(Relaxed))
        })
    }

    /// Launches admitted over budget because nothing was complete for long, and launches whose wait a signal handler ended.
    pub fn overrides(&self) -> (u64, u64) {
        self.groups().map(|g| g.slot(self)).fold((0, 0), |(liveness, signal), slot| {
            (liveness + slot.liveness_overrides.load(Relaxed), signal + u64::from(slot.signal_overrides.load(Relaxed)))
        })
    }

    /// Counts of the groups that yield.
    pub fn yielded(&self) -> Yielded {
        self.groups().fold(Yielded::default(), |sum, group| Yielded {
            holds: sum.holds + group.yields.holds.load(Relaxed),
            held_us: sum.held_us + group.slot(self).yield_wait_ns.load(Relaxed) / 1000,
            passed: sum.passed + group.slot(self).yield_passed.load(Relaxed),
        })
    }
}
