//! Timers of the loop: one ordered set of all work at set times.

use std::collections::{BTreeMap, BTreeSet};

/// Kind of work at a set time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Decision of a policy at a time that the policy chose.
    Policy,
    /// Poll of the progress of groups that run while others wait.
    Look,
    /// Update of the heartbeat page.
    Beat,
    /// Update of limits and reserves of memory.
    Memory,
    /// Poll of nice values.
    Nice,
    /// End of connections that do not read.
    Unread,
    /// Connections that have sent nothing.
    Silent,
    /// Log lines that were held back.
    Lines,
    /// Write of the file with settings that outlive the daemon.
    State,
    /// Poll of the state of devices.
    Devices,
    /// Measurement of device time that is not followed.
    Measure,
    /// Sweep of all programs for usage records.
    Usage,
    /// Sweep of all programs for a question about usage.
    UsageQuery,
    /// Start and end of pools.
    Pools,
    /// Check for descriptors that close slowly.
    Reaper,
    /// Answers about programs that ask for a pool, and polls of programs that may prove themselves.
    Trust,
    /// Time limit of the identification of processes.
    Identify,
    /// Comparison of programs with the stored facts about them.
    TrustWorker,
    /// Time limit of questions to programs.
    Questions,
    /// Time limit of answers of the operator's own scheduler.
    Scheduler,
    /// Message to the service manager.
    Service,
    /// Release of free memory.
    Trim,
    /// Lookup of accounts that the configuration names and that are not known yet.
    Accounts,
    /// Work on snapshots for `ps`.
    Snapshots,
    /// Work that waits for its user's ration.
    Rations,
    /// Next attempt to listen for monitors.
    Metrics,
    /// End of a daemon without programs.
    Idle,
}

/// All timers. Each kind has at most one time.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    at_ns: BTreeMap<Timer, u64>,
    order: BTreeSet<(u64, Timer)>,
}

impl Timers {
    /// Sets a timer to a time in ns, or clears it.
    pub(crate) fn set(&mut self, timer: Timer, at_ns: Option<u64>) {
        let before = match at_ns {
            Some(at_ns) => self.at_ns.insert(timer, at_ns),
            None => self.at_ns.remove(&timer),
        };
        if before != at_ns {
            before.map(|before| self.order.remove(&(before, timer)));
            at_ns.map(|at_ns| self.order.insert((at_ns, timer)));
        }
    }

    /// Sets a timer unless it is set.
    pub(crate) fn set_if_none(&mut self, timer: Timer, at_ns: u64) {
        if !self.at_ns.contains_key(&timer) {
            self.set(timer, Some(at_ns));
        }
    }

    /// Keeps a timer set while it is wanted: sets it if it is not set, and clears it once it is not wanted.
    pub(crate) fn keep(&mut self, timer: Timer, wanted: bool, at_ns: u64) {
        if wanted {
            self.set_if_none(timer, at_ns);
        } else {
            self.set(timer, None);
        }
    }

    /// Reports whether a timer is set.
    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.at_ns.contains_key(&timer)
    }

    /// Removes and returns all timers that are due, the earliest first.
    pub(crate) fn due(&mut self, now_ns: u64) -> Vec<Timer> {
        let mut due = Vec::new();
        while let Some(&(at_ns, timer)) = self.order.first().filter(|(at_ns, _)| *at_ns <= now_ns) {
            self.order.remove(&(at_ns, timer));
            self.at_ns.remove(&timer);
            due.push(timer);
        }
        due
    }

    /// Time of the first timer, in ns.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.order.first().map(|(at_ns, _)| *at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_come_in_order_once_and_have_one_time_each() {
        let mut timers = Timers::default();
        timers.set(Timer::Beat, Some(30));
        timers.set(Timer::Look, Some(20));
        timers.set(Timer::Beat, Some(10));
        timers.set_if_none(Timer::Beat, 5);
        timers.keep(Timer::Nice, true, 20);
        timers.keep(Timer::Nice, true, 7);
        timers.keep(Timer::Idle, true, 1);
        timers.keep(Timer::Idle, false, 1);
        assert_eq!(timers.next_ns(), Some(10));
        assert_eq!(timers.due(9), []);
        assert_eq!(timers.due(20), [Timer::Beat, Timer::Look, Timer::Nice]);
        assert_eq!((timers.due(u64::MAX), timers.next_ns()), (vec![], None));
        assert!(!timers.is_set(Timer::Beat));
    }
}
