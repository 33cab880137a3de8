//! What a suspended group has in flight comes to its end.
//!
//! Where hardware gives it short slices while a more urgent group has the device, it gets on in each of them but for what the slice's
//! begin takes, and costs the urgent one two switches of contexts each time. Some commands get nowhere in such a slice. So where
//! something is still executed after a while, the more urgent groups stay away for a moment: once for each time a gate closes.

use super::device::Member;
use crate::tuning::{DRAIN_LOOK_US, DRAIN_PATIENCE_US, DRAIN_US};
use crate::{Micros, PoolId, Verdict};

/// How a group leaves the device.
#[derive(Clone, Copy, Default)]
pub(super) struct Drain {
    /// Whether the device executes something of it, as of the last look since its gate closed.
    pub(super) executes: Option<bool>,
    /// The others stay away until then, or have done so.
    until: Option<Micros>,
}

/// Whether it matters now what the device executes of a group.
pub(super) fn is_due(m: &Member, now: Micros) -> bool {
    m.drains_in_slices
        && !m.yields
        && !m.group.granted
        && m.closed_at + DRAIN_PATIENCE_US <= now
        && m.drain.until.is_none_or(|until| now < until)
}

/// Keeps all groups off the device where one needs a moment to drain. Returns when to look again.
pub(super) fn apply(now: Micros, members: &mut [Member], verdicts: &mut [Verdict]) -> Option<Micros> {
    let runs = |(m, verdict): &(&Member, &Verdict)| verdict.run && m.wants();
    let runners = || members.iter().zip(verdicts.iter()).filter(runs).map(|(m, _)| m);
    // What is kept waiting on one device by a job has its others wait, too.
    let spans = runners().any(|m| m.spanning.is_some());
    let most_urgent = runners().map(|m| m.group.priority).max().filter(|_| !spans);
    // Beside a long command of the same pool nothing ends soon, whoever stays away.
    let long = members.iter().filter(|m| m.group.ready && !m.drains_in_slices).filter_map(|m| m.group.pool);
    let long: Vec<PoolId> = long.collect();
    let (mut next, mut pauses): (Option<Micros>, bool) = (None, false);
    for (m, verdict) in members.iter_mut().zip(verdicts.iter()) {
        let ends = m.drains_in_slices && m.group.pool.is_none_or(|pool| !long.contains(&pool));
        let leaves = ends && !m.yields && m.spanning.is_none() && m.group.ready && !verdict.run;
        if !leaves || m.group.granted {
            m.drain = Drain::default();
        }
        if !leaves || most_urgent.is_none_or(|priority| priority <= m.group.priority) {
            continue;
        }
        // Its gate is about to close, should it still be open.
        let begins = if m.group.granted { now } else { m.closed_at } + DRAIN_PATIENCE_US;
        let look = match m.drain.executes {
            _ if now < begins => begins,
            // It was not looked at yet. Where nobody looks, it is left alone.
            None if now < begins + DRAIN_US => now + DRAIN_LOOK_US,
            Some(true) => {
                let until = *m.drain.until.get_or_insert(now + DRAIN_US);
                pauses |= now < until;
                until.min(now + DRAIN_LOOK_US)
            }
            _ => {
                m.drain.until = m.drain.until.or(Some(now)).map(|until| until.min(now));
                continue;
            }
        };
        if m.drain.until.is_none_or(|until| now < until) {
            next = Some(next.map_or(look, |next| next.min(look)));
        }
    }
    if pauses {
        verdicts.iter_mut().for_each(|verdict| verdict.run = false);
    }
    next
}
