//! Fourth stage: no group waits for longer than a limit for a device that others have, whatever the policy says. Then it gets one turn.

use xsched_proto::trace::Why;

use super::{Round, Stage};
use crate::arbiter::member::Member;
use crate::tuning::TURN_MIN_US;
use crate::{GroupId, Micros, Verdict};

/// Wait of one group.
#[derive(Default)]
pub(in crate::arbiter) struct Wait {
    /// Time since which the group wants the device and has not had it, but for `had_us`.
    pub(in crate::arbiter) denied_since: Option<Micros>,
    /// Time for which the group had the device in this wait nevertheless, in µs.
    had_us: Micros,
}

/// The guard of one device.
pub(in crate::arbiter) struct Guard {
    /// Longest wait, in µs; none = no limit. See [`crate::Arbiter::set_guard`].
    pub(in crate::arbiter) limit_us: Option<Micros>,
    /// The group that has a turn for its long wait, and the turn's end.
    rescued: Option<(GroupId, Micros)>,
}

impl Guard {
    pub(in crate::arbiter) fn new(limit_us: Option<Micros>) -> Guard {
        Guard { limit_us, rescued: None }
    }

    /// Brings the waits of all groups up to date. Returns the longest wait of a group that does not run now: its begin, and the
    /// member's index.
    fn longest_wait(&self, now: Micros, members: &mut [Member], verdicts: &[Verdict]) -> Option<(Micros, usize)> {
        let rescued = self.rescued.map(|(id, _)| id);
        let mut longest: Option<(Micros, usize)> = None;
        for (at, (m, verdict)) in members.iter_mut().zip(verdicts).enumerate() {
            // A group of a job on several devices would have this one alone, and wait for the others.
            let may_wait = m.may_run() && m.job.spanning.is_none() && rescued != Some(m.group.id);
            // A group that still has the device loses it now.
            let denied = may_wait && !verdict.run;
            // The turn of another group may take away what the policy gives: a wait ends once the group has the device.
            let waits_on = may_wait && m.wait.denied_since.is_some() && !m.group.granted;
            // Nothing may have been decided while the group had the device. A short moment of it hardly wakes up a thread that waits.
            let had_us = m.gate.running_since.filter(|_| denied && m.group.granted).map_or(0, |since| now - since);
            m.wait.had_us += if had_us >= TURN_MIN_US { had_us } else { 0 };
            let since = m.wait.denied_since.filter(|_| m.wait.had_us < m.group.hints.turn_us());
            m.wait.denied_since = (denied || waits_on).then(|| since.unwrap_or(now));
            if since.is_none() {
                m.wait.had_us = 0;
            }
            let wait = m.wait.denied_since.filter(|_| denied).map(|since| (since, at));
            longest = match (longest, wait) {
                (Some(longest), Some(wait)) => Some(longest.min(wait)),
                (longest, wait) => longest.or(wait),
            };
        }
        longest
    }

    /// Changes the verdicts in favour of the rescued group.
    fn rescue(&self, members: &[Member], verdicts: &mut [Verdict]) {
        let Some((id, _)) = self.rescued else { return };
        let own = members.iter().find(|m| m.group.id == id);
        let spatial = own.and_then(|m| m.group.runs_beside());
        // A group that was only held so that others catch up goes on beside them.
        let pool = own.filter(|m| m.paced).and_then(|m| m.group.pool);
        for (m, verdict) in members.iter().zip(verdicts) {
            let beside =
                spatial.is_some() && m.group.runs_beside() == spatial || pool.is_some() && m.group.pool == pool;
            *verdict = Verdict { run: m.group.id == id || beside && verdict.run, budgeted: true };
        }
    }
}

impl Stage for Guard {
    fn reason(&self) -> Why {
        Why::Guard
    }

    fn apply(&mut self, now: Micros, round: Round, members: &mut [Member], verdicts: &mut [Verdict]) -> Option<Micros> {
        if round == Round::Refill {
            self.rescue(members, verdicts);
            return None;
        }
        let Some(limit) = self.limit_us else {
            self.rescued = None;
            members.iter_mut().for_each(|m| m.wait.denied_since = None);
            return None;
        };
        let wants = |id: GroupId| {
            members.iter().find(|m| m.group.id == id).is_some_and(|m| m.may_run() && m.job.spanning.is_none())
        };
        self.rescued = self.rescued.filter(|(id, until)| now < *until && wants(*id));
        let longest = self.longest_wait(now, members, verdicts);
        if let Some((since, at)) = longest.filter(|_| self.rescued.is_none()) {
            if now < since + limit / 2 {
                return Some(since + limit / 2);
            }
            // In time, so that those that have the device have little in flight when they lose it.
            verdicts.iter_mut().for_each(|v| v.budgeted = true);
            if now < since + limit {
                return Some(since + limit);
            }
            let m = &mut members[at];
            // After its turn the group waits anew.
            m.wait.denied_since = None;
            self.rescued = Some((m.group.id, now + m.group.hints.turn_us()));
        }
        self.rescue(members, verdicts);
        self.rescued.map(|(_, until)| until)
    }
}
