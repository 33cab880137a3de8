//! Sharing a device at the same time with an urgent program: when the urgent program's queues are behind, and when the groups that yield to
//! it may go on.
//!
//! [`Behind`] is the urgent program's side, evaluated before each of its commands. [`Yielding`] is the other side, one for each group that
//! yields. A yielding group is held while some queue is behind and for a dwell time afterwards. So a program whose queues are behind at
//! each of its steps is left undisturbed, instead of being freed and disturbed hundreds of times a second.

use serde::{Deserialize, Serialize};

use crate::tuning::{BEHIND_NS, DWELL_NS};

/// A command that an urgent program is about to give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behind {
    /// Expected time of the queue's work in flight including this command, in ns.
    pub in_flight_ns: u64,
    /// Expected time since the queue's last fence, including this command, in ns.
    pub unfenced_ns: u64,
    /// Expected time since the last command that others must wait for, including this command, in ns.
    pub unwanted_ns: u64,
    /// True if few fences of the queue are under way.
    pub few_fences: bool,
    /// True if the command's device time is known.
    pub known: bool,
    /// True if the call returns only when the command is complete.
    pub blocking: bool,
    /// True for a copy, which no kernel of others slows down.
    pub copies: bool,
}

/// Answer of [`Behind::published`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// True if others must wait until the device has reached this command.
    pub wanted: bool,
    /// True if a fence follows the command.
    pub fence: bool,
}

impl Behind {
    /// Decides what is published with the command. `consumed_ns` returns the part of the work in flight that the device has probably done,
    /// and is called only where it decides.
    ///
    /// A queue is behind with more than [`BEHIND_NS`] in flight. Once others wait for a command, the next ones need no fence until as much
    /// work follows it: when the device reaches the fence, no more than that is left. A queue that keeps up gets a fence for each half of
    /// that time, so that others see that it keeps up.
    #[inline]
    pub fn published(&self, consumed_ns: impl FnOnce() -> u64) -> Published {
        if self.copies && !self.blocking {
            return Published::default();
        }
        let wanted = self.blocking
            || !self.known
            || self.in_flight_ns > BEHIND_NS
                && self.unwanted_ns > BEHIND_NS
                && self.in_flight_ns.saturating_sub(consumed_ns()) > BEHIND_NS;
        let fence = wanted || self.few_fences && self.unfenced_ns > BEHIND_NS / 2;
        Published { wanted, fence: fence && !self.blocking }
    }
}

/// State of a group that yields to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Yielding {
    /// Number of commands launched since the group was last released; none = it is held.
    pub given: Option<u32>,
    /// Time of that release, in ns.
    pub opened_ns: u64,
    /// Time since which all queues have kept up, in ns; 0 = some are behind. Used only while the group is held.
    pub clear_since_ns: u64,
    /// Dwell time: how long all queues must have kept up before the group is released, in ns.
    pub dwell_ns: u64,
}

impl Default for Yielding {
    fn default() -> Yielding {
        Yielding { given: Some(0), opened_ns: 0, clear_since_ns: 0, dwell_ns: DWELL_NS.0 }
    }
}

impl Yielding {
    /// Polls before a command. `clear` = all queues keep up. Returns the new state, and true if the command may be launched.
    ///
    /// A release that ended soon and let no more than one command through was not worth its cost: it doubles the next dwell time. Any other
    /// release halves it.
    #[must_use]
    pub fn look(self, now_ns: u64, clear: bool) -> (Yielding, bool) {
        match (self.given, clear) {
            (Some(given), true) => (Yielding { given: Some(given.saturating_add(1)), ..self }, true),
            (Some(given), false) => {
                let soon = given <= 1 && now_ns.saturating_sub(self.opened_ns) < DWELL_NS.1;
                let dwell_ns = if soon { self.dwell_ns * 2 } else { self.dwell_ns / 2 };
                let dwell_ns = dwell_ns.clamp(DWELL_NS.0, DWELL_NS.1);
                (Yielding { given: None, clear_since_ns: 0, dwell_ns, ..self }, false)
            }
            (None, false) => (Yielding { clear_since_ns: 0, ..self }, false),
            (None, true) => {
                let since_ns = if self.clear_since_ns == 0 { now_ns } else { self.clear_since_ns };
                if now_ns.saturating_sub(since_ns) >= self.dwell_ns {
                    (Yielding { given: Some(1), opened_ns: now_ns, clear_since_ns: 0, ..self }, true)
                } else {
                    (Yielding { clear_since_ns: since_ns, ..self }, false)
                }
            }
        }
    }

    /// Returns when a held group polls again, in ns from now: at the end of the dwell time, or soon, since nothing wakes the group up when
    /// a device has caught up.
    #[must_use]
    pub fn look_in_ns(&self, now_ns: u64) -> u64 {
        let left = match self.clear_since_ns {
            0 => crate::tuning::BEHIND_LOOK_NS,
            since_ns => (since_ns + self.dwell_ns).saturating_sub(now_ns),
        };
        left.min(crate::tuning::BEHIND_LOOK_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMAND: Behind = Behind {
        in_flight_ns: 0,
        unfenced_ns: 0,
        unwanted_ns: u64::MAX,
        few_fences: true,
        known: true,
        blocking: false,
        copies: false,
    };

    #[test]
    fn a_queue_is_behind_by_the_time_that_is_left_in_flight() {
        let of = |in_flight_ns, consumed_ns| Behind { in_flight_ns, ..COMMAND }.published(|| consumed_ns).wanted;
        assert!(!of(BEHIND_NS, 0) && of(BEHIND_NS + 1, 0));
        assert!(!of(BEHIND_NS + 1, 1) && !of(u64::MAX, u64::MAX));
    }

    #[test]
    fn what_is_unknown_or_waited_for_is_behind_and_copies_alone_are_not() {
        let both = Published { wanted: true, fence: true };
        assert_eq!(Behind { known: false, ..COMMAND }.published(|| 0), both);
        let waited_for = Published { wanted: true, fence: false };
        assert_eq!(Behind { blocking: true, ..COMMAND }.published(|| 0), waited_for);
        let copy = Behind { copies: true, in_flight_ns: u64::MAX, unfenced_ns: u64::MAX, known: false, ..COMMAND };
        assert_eq!(copy.published(|| 0), Published::default());
        assert_eq!(Behind { blocking: true, ..copy }.published(|| 0), waited_for);
    }

    /// Simulates a program that launches a command of `command` ns each `host` ns, 10,000 in all, on a device that executes one at a time.
    /// Returns the number of fences, the number of commands that others wait for, and the longest time in flight while no one waited, in
    /// ns.
    fn given(command: u64, host: u64) -> (u64, u64, u64) {
        let (mut fences, mut wants, mut longest) = (0, 0, 0);
        let (mut done_at, mut fenced, mut wanted, mut issued) = (0, 0, 0, 0);
        // Fences under way: time at which the device reaches the fence, and work up to it, in ns.
        let mut under_way = std::collections::VecDeque::new();
        let mut done = 0;
        for now in (0..10_000).map(|n| n * host) {
            while under_way.front().is_some_and(|(at, _)| *at <= now) {
                done = under_way.pop_front().unwrap().1;
            }
            issued += command;
            done_at = now.max(done_at) + command;
            let published = Behind {
                in_flight_ns: issued - done,
                unfenced_ns: issued - fenced,
                unwanted_ns: issued - wanted,
                few_fences: under_way.len() < 8,
                ..COMMAND
            }
            .published(|| 0);
            if published.wanted {
                (wanted, wants) = (issued, wants + 1);
            }
            if published.fence {
                under_way.push_back((done_at, issued));
                (fenced, fences) = (issued, fences + 1);
            }
            if wanted <= done {
                longest = longest.max(done_at - now);
            }
        }
        (fences, wants, longest)
    }

    #[test]
    fn a_program_that_keeps_up_has_few_fences_and_nobody_waits_for_it() {
        let (fences, wants, longest) = given(10_000, 30_000);
        assert!(fences < 1_000 && wants == 0 && longest == 10_000, "{fences} fences, {wants} wanted, {longest} ns");
    }

    #[test]
    fn others_wait_as_long_as_a_queue_is_behind_and_its_fences_stay_few() {
        let (fences, wants, longest) = given(10_000, 5_000);
        assert!(wants > 450 && longest <= BEHIND_NS + 10_000, "{wants} wanted, {longest} ns");
        assert!(fences < 1_100, "{fences} fences");
    }

    /// Simulates one second of a program that has a backlog for `behind` of each `period` ns, beside one whose commands take `command` ns.
    /// Returns how often the second one is released and how many commands it launches.
    fn beside(period: u64, behind: u64, command: u64) -> (u64, u64) {
        let (mut yielding, mut now, mut openings, mut commands) = (Yielding::default(), 1, 0, 0);
        while now < 1_000_000_000 {
            let held = yielding.given.is_none();
            let (next, goes_on) = yielding.look(now, now % period >= behind);
            yielding = next;
            openings += u64::from(held && goes_on);
            commands += u64::from(goes_on);
            now += if goes_on { command } else { yielding.look_in_ns(now).max(1) };
        }
        (openings, commands)
    }

    #[test]
    fn short_pauses_of_a_program_that_is_behind_at_each_step_are_left_alone() {
        // One token each 1.4 ms, in which the device is at work for all but 0.1 ms.
        let (openings, commands) = beside(1_400_000, 1_300_000, 200_000);
        assert!(openings < 20 && commands < 40, "{openings} openings, {commands} commands");
    }

    #[test]
    fn pauses_that_are_long_enough_are_used() {
        // One request each 25 ms that keeps the device for 1 ms.
        let (openings, commands) = beside(25_000_000, 1_000_000, 20_000);
        assert!(openings.abs_diff(40) <= 1, "{openings}");
        assert!(commands > 46_000, "{commands} of 48,000");
    }

    #[test]
    fn nothing_goes_on_while_a_queue_is_behind_and_the_dwell_time_has_its_limits() {
        let mut yielding = Yielding::default();
        for now in 1..10_000 {
            let (next, goes_on) = yielding.look(now, false);
            assert!(!goes_on);
            yielding = next;
        }
        for _ in 0..100 {
            let now = 1_000_000_000;
            yielding = yielding.look(now, true).0;
            let (opened, goes_on) = yielding.look(now + DWELL_NS.1, true);
            assert!(goes_on);
            yielding = opened.look(now + DWELL_NS.1 + 1, false).0;
        }
        assert_eq!(yielding.dwell_ns, DWELL_NS.1);
        for _ in 0..100 {
            let used = Yielding { given: Some(2), ..yielding };
            yielding = used.look(0, false).0;
        }
        assert_eq!(yielding.dwell_ns, DWELL_NS.0);
    }
}
