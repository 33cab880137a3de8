//! Last stage: work that a suspended group has in flight comes to its end.
//!
//! Where the hardware gives such work short slices while a more urgent group has the device, it advances in each of them but for the time
//! in which a slice begins, and costs the urgent group two switches of contexts each time. Some commands get nowhere in such a slice. So
//! where the device still executes something after a while, the more urgent groups pause for a moment, some times for each time that a gate
//! closes: the work that they have in flight comes first, and may take the whole of such a moment. For work that uses memory of the host,
//! and advances at the speed of the link, they pause at once, and once, if their requests are long enough for that. Whether such work ends
//! within that pause is seen by the pauses themselves: after some in vain they are given now and then only.

use xsched_proto::trace::Why;

use super::{Round, Stage};
use crate::arbiter::member::Member;
use crate::tuning::{
    DRAIN_FIRST_IN_VAIN, DRAIN_FIRST_LEFT_OUT, DRAIN_FIRST_US, DRAIN_PATIENCE_US, DRAIN_POLL_US, DRAIN_US, DRAINS,
};
use crate::{Drains, Micros, PoolId, Verdict};

/// State of one group that leaves the device.
#[derive(Clone, Copy, Default)]
pub(in crate::arbiter) struct Drain {
    /// See [`crate::Event::Drains`].
    pub(in crate::arbiter) how: Drains,
    /// The others' pause begins with the closing of the gate, and is the only one.
    at_once: bool,
    /// True if the device executes work of this group, as of the last poll since its gate closed; none = not polled yet.
    pub(in crate::arbiter) executes: Option<bool>,
    /// End of the pause of the others; past once they have paused for the last time.
    until: Option<Micros>,
    /// Pauses that did not suffice, and the begin of the next one after them.
    vain: u8,
    again_at: Micros,
    /// Pauses at once, one after the other, that did not suffice, and from then on closings of the gate without one.
    firsts_in_vain: u8,
    /// The group last wanted the device for so long that others may have it for a moment first.
    pub(in crate::arbiter) has_long_requests: bool,
}

/// The drains of one device.
#[derive(Default)]
pub(in crate::arbiter) struct DrainStage {
    /// Time from which [`crate::Event::Executes`] matters; none = it does not.
    pub(in crate::arbiter) due_at: Option<Micros>,
}

/// True if it matters now whether the device executes work of this group.
pub(in crate::arbiter) fn is_due(m: &Member, now: Micros) -> bool {
    m.drain.how != Drains::ByItself
        && !m.yields
        && !m.group.granted
        && m.drain.begins(m.gate.closed_at) <= now
        && m.drain.until.is_none_or(|until| now < until)
}

impl Drain {
    /// State of a group that does not leave the device.
    fn at_rest(&self) -> Drain {
        let Drain { how, firsts_in_vain, has_long_requests, .. } = *self;
        Drain { how, firsts_in_vain, has_long_requests, ..Drain::default() }
    }

    /// The group leaves the device no longer. Notes whether a pause at once was enough.
    fn end(&mut self) {
        let is_in_vain = self.executes == Some(true);
        self.firsts_in_vain = match self.firsts_in_vain {
            n if self.how != Drains::First || self.until.is_none() => n,
            n if self.at_once && is_in_vain => n + 1,
            _ if self.at_once => 0,
            n if n < DRAIN_FIRST_IN_VAIN => n,
            // With one more in vain, as many are left out again.
            n if n + 1 == DRAIN_FIRST_IN_VAIN + DRAIN_FIRST_LEFT_OUT => DRAIN_FIRST_IN_VAIN - 1,
            n => n + 1,
        };
        *self = self.at_rest();
    }

    /// Begin of the next pause of the others.
    fn begins(&self, closed_at: Micros) -> Micros {
        match self.vain {
            _ if self.at_once => closed_at,
            0 => closed_at + DRAIN_PATIENCE_US,
            _ => self.again_at,
        }
    }

    /// Length of a pause, and number of pauses.
    fn pauses(&self) -> (Micros, u8) {
        if self.at_once { (DRAIN_FIRST_US, 1) } else { (DRAIN_US, DRAINS) }
    }

    /// Continues the drain of a group whose gate closed at `closed_at`. Returns the time of the next poll, and true if all others pause
    /// now; none = the drain is over.
    fn go_on(&mut self, now: Micros, closed_at: Micros) -> Option<(Micros, bool)> {
        let (begins, (length, count)) = (self.begins(closed_at), self.pauses());
        let (poll, pauses) = match self.executes {
            _ if now < begins => (begins, false),
            // Not polled yet. Where nothing is ever polled, there is no pause.
            None if now < begins + length => (now + DRAIN_POLL_US, false),
            Some(true) => {
                let until = *self.until.get_or_insert(now + length);
                if until <= now && self.vain + 1 < count {
                    let again_at = now + DRAIN_PATIENCE_US;
                    *self = Drain { vain: self.vain + 1, again_at, ..self.at_rest() };
                    return Some((again_at, false));
                }
                (until.min(now + DRAIN_POLL_US), now < until)
            }
            _ => {
                self.until = self.until.or(Some(now)).map(|until| until.min(now));
                return None;
            }
        };
        Some((poll, pauses))
    }
}

impl Stage for DrainStage {
    fn reason(&self) -> Why {
        Why::Drain
    }

    /// Pauses all groups while one needs a moment to drain.
    fn apply(
        &mut self,
        now: Micros,
        _round: Round,
        members: &mut [Member],
        verdicts: &mut [Verdict],
    ) -> Option<Micros> {
        let runs = |(m, verdict): &(&Member, &Verdict)| verdict.run && m.wants();
        let runners = || members.iter().zip(verdicts.iter()).filter(runs).map(|(m, _)| m);
        // A job that pauses on one device has its groups on others wait, too.
        let spans = runners().any(|m| m.job.spanning.is_some());
        let most_urgent = runners().map(|m| m.group.priority).max().filter(|_| !spans);
        let of_most_urgent = || runners().filter(|m| Some(m.group.priority) == most_urgent);
        let requests_are_long = of_most_urgent().all(|m| m.drain.has_long_requests);
        // Beside a long command of the same pool nothing ends soon, whichever groups pause.
        let long =
            members.iter().filter(|m| m.group.ready && m.drain.how == Drains::ByItself).filter_map(|m| m.group.pool);
        let long: Vec<PoolId> = long.collect();
        let mut pauses = false;
        self.due_at = None;
        for (m, verdict) in members.iter_mut().zip(verdicts.iter()) {
            let ends = m.drain.how != Drains::ByItself && m.group.pool.is_none_or(|pool| !long.contains(&pool));
            let leaves = ends && !m.yields && m.job.spanning.is_none() && m.group.ready && !verdict.run;
            if !leaves || m.group.granted {
                m.drain.end();
            }
            if !leaves || most_urgent.is_none_or(|priority| priority <= m.group.priority) {
                continue;
            }
            if m.drain.until.is_none() {
                let is_worth_it = m.drain.firsts_in_vain < DRAIN_FIRST_IN_VAIN;
                m.drain.at_once = m.drain.how == Drains::First && requests_are_long && is_worth_it;
            }
            let closed_at = if m.group.granted { now } else { m.gate.closed_at };
            let Some((poll, others_pause)) = m.drain.go_on(now, closed_at) else { continue };
            pauses |= others_pause;
            if m.drain.until.is_none_or(|until| now < until) {
                self.due_at = [self.due_at, Some(poll)].into_iter().flatten().min();
            }
        }
        if pauses {
            verdicts.iter_mut().for_each(|verdict| verdict.run = false);
        }
        self.due_at
    }
}
