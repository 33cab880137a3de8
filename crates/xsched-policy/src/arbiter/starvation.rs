//! Groups that have the device and show no progress while others wait.
//!
//! A group found without progress for `LOOK_US` counts as idle ([`super::Event::Stalled`]); once its gate is closed for that, it is
//! believed again after `DOUBT_US`. A group that has the device for `STARVATION_US` without progress lets those that wait have a turn.

use super::member::{Member, any_waits};
use crate::Micros;
use crate::tuning::{DOUBT_US, STARVATION_US};

/// State of one group in this search.
#[derive(Default)]
pub(super) struct Watch {
    /// Time of the last progress.
    pub(super) progress_at: Micros,
    /// Counts as idle: neither issues nor completes anything while others wait.
    pub(super) stalled: bool,
    /// Time at which the gate of a stalled group was seen closed.
    pub(super) suspect_since: Option<Micros>,
    /// End of the turn of those that wait.
    pub(super) yields_until: Option<Micros>,
}

/// The search on one device.
#[derive(Default)]
pub(super) struct Starvation {
    /// Time since which some group wants the device and does not have it.
    waited_since: Option<Micros>,
}

impl Starvation {
    /// Finds the groups without progress, before a decision. Returns the time at which this is due again.
    pub(super) fn search(&mut self, now: Micros, members: &mut [Member]) -> Option<Micros> {
        self.waited_since = any_waits(members).then(|| self.waited_since.unwrap_or(now));
        let turn = members.iter().filter(|m| m.waits()).map(|m| m.group.hints.turn_us()).max().unwrap_or(0);
        let is_alone = members.iter().filter(|m| m.group.ready && !m.is_held()).count() <= 1;
        members.iter_mut().filter_map(|m| self.review(now, m, turn, is_alone)).min()
    }

    /// Reviews one group. Others that wait get a turn of `turn` µs.
    fn review(&self, now: Micros, m: &mut Member, turn: Micros, is_alone: bool) -> Option<Micros> {
        let mut next: Option<Micros> = None;
        let mut due = |at: Micros| next = Some(next.map_or(at, |next| next.min(at)));
        if is_alone {
            // No other group would profit.
            m.watch.stalled = false;
            m.watch.yields_until = None;
        }
        if m.watch.stalled && !m.group.granted {
            let trusted_at = *m.watch.suspect_since.get_or_insert(now) + DOUBT_US;
            if now >= trusted_at {
                m.watch.stalled = false;
            } else {
                due(trusted_at);
            }
        }
        if !m.watch.stalled {
            m.watch.suspect_since = None;
        }
        if m.watch.yields_until.is_some_and(|until| until <= now) {
            m.watch.yields_until = None;
            m.watch.progress_at = now;
        }
        let has_device = m.group.ready && m.group.granted && !m.watch.stalled && m.watch.yields_until.is_none();
        if let Some(since) = self.waited_since.filter(|_| has_device) {
            let patience = m.watch.progress_at.max(since) + STARVATION_US;
            if patience <= now {
                m.watch.yields_until = Some(now + turn);
            } else {
                due(patience);
            }
        }
        if let Some(until) = m.watch.yields_until {
            due(until);
        }
        next
    }

    /// Takes in the gates as a decision has left them. Returns the time at which the search is due, if that is news.
    pub(super) fn gates_set(&mut self, now: Micros, members: &mut [Member]) -> Option<Micros> {
        let mut next = [None; 2];
        if self.waited_since.is_none() && any_waits(members) {
            self.waited_since = Some(now);
            next[0] = Some(now + STARVATION_US);
        }
        for m in members.iter_mut().filter(|m| m.watch.stalled && !m.group.granted) {
            // A group closed while it was in doubt is reviewed.
            if m.watch.suspect_since.is_none() {
                m.watch.suspect_since = Some(now);
                next[1] = Some(now + DOUBT_US);
            }
        }
        next.into_iter().flatten().min()
    }
}
