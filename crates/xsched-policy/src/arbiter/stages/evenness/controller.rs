//! Progress controller: compares the positions of the groups of each pool, and finds those that are too far ahead. The formula stands in
//! [`super`].

use std::collections::BTreeMap;

use super::PoolGroup;
use super::eligible::{pool_of, takes_part};
use crate::arbiter::member::Member;
use crate::tuning::*;
use crate::{GroupId, Micros, PoolId, Verdict};

/// Part that a group plays in the comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Phase {
    /// The position is not known: there is no rate alone yet, or the evenness has changed since. Time since which the group does not
    /// take part.
    Unplaced { absent_since: Option<Micros> },
    /// The group takes part.
    Compared,
    /// The group does not take part: it is idle, kept off by the policy, or stuck. For [`SHORT_IDLE_US`] it keeps its distance to the
    /// slowest of the others, in µs; 0 = it was not behind.
    Absent { since: Micros, behind_us: f64 },
}

/// Position of one group in its pool.
pub(super) struct Position {
    /// Progress p, in µs alone at the mean weight of the compared groups.
    progress_us: f64,
    /// Scale s: mean weight of the compared groups, divided by the own one.
    scale: f64,
    /// Lead ahead of the slowest group as of the last decision, in µs.
    lead_us: f64,
    phase: Phase,
    /// Held for its lead, as of the last decision without a calibration run.
    pub(super) is_ahead: bool,
}

impl Position {
    pub(super) fn new() -> Position {
        let phase = Phase::Unplaced { absent_since: None };
        Position { progress_us: 0.0, scale: 1.0, lead_us: 0.0, phase, is_ahead: false }
    }

    /// Adds the time alone of completed commands.
    pub(super) fn advance(&mut self, us: f64, evenness: f64) {
        self.progress_us += self.counted(us * self.scale, evenness);
    }

    /// The part of new progress that counts: all within half the slack, then that of the evenness.
    fn counted(&self, us: f64, evenness: f64) -> f64 {
        let whole = (LEAD_SLACK_US / 2.0 - self.lead_us).clamp(0.0, us);
        whole + (us - whole) * evenness
    }

    /// Progress with the command in flight, which has run for so long.
    fn reached(&self, running_us: f64, evenness: f64) -> f64 {
        self.progress_us + self.counted(running_us * self.scale, evenness)
    }

    /// Begins to take part. `slowest` is the least progress of those that did so before, `floor` the greatest such value so far.
    fn join(&mut self, now: Micros, slowest: Option<f64>, floor: f64) {
        match std::mem::replace(&mut self.phase, Phase::Compared) {
            Phase::Compared => (),
            Phase::Unplaced { .. } => self.progress_us = slowest.unwrap_or(floor),
            // A pause between two steps takes no claim away and gives none. A longer one leaves none.
            Phase::Absent { since, behind_us } => {
                let is_short = now <= since + SHORT_IDLE_US;
                let start = match slowest {
                    Some(slowest) if is_short => slowest - behind_us,
                    None if is_short => self.progress_us,
                    slowest => slowest.unwrap_or(floor),
                };
                self.progress_us = self.progress_us.max(start);
            }
        }
    }

    /// Ceases to take part.
    fn leave(&mut self, now: Micros, slowest: Option<f64>) {
        self.phase = match self.phase {
            Phase::Compared => {
                let behind_us = slowest.map_or(0.0, |slowest| (slowest - self.progress_us).max(0.0));
                Phase::Absent { since: now, behind_us }
            }
            Phase::Unplaced { absent_since } => Phase::Unplaced { absent_since: absent_since.or(Some(now)) },
            absent => absent,
        };
    }

    /// Drops the claim of earlier progress, which was counted otherwise.
    pub(super) fn unplace(&mut self) {
        self.phase = Phase::Unplaced { absent_since: self.absent_since() };
    }

    /// Time since which the group does not take part.
    pub(super) fn absent_since(&self) -> Option<Micros> {
        match self.phase {
            Phase::Compared => None,
            Phase::Unplaced { absent_since } => absent_since,
            Phase::Absent { since, .. } => Some(since),
        }
    }

    /// True in a pause between two steps.
    fn pauses(&self, now: Micros) -> bool {
        matches!(self.phase, Phase::Absent { since, .. } if now < since + SHORT_IDLE_US)
    }
}

/// The pools of one device.
pub(super) struct Controller {
    /// Evenness e, 0..=1.
    pub(super) evenness: f64,
    pools: BTreeMap<PoolId, Pool>,
}

#[derive(Default)]
struct Pool {
    /// Greatest value so far of the least progress of those that take part, in µs.
    floor: f64,
    /// End of the time in which several groups want the device, or did so lately.
    company_until: Micros,
}

impl Controller {
    pub(super) fn new(evenness: f64) -> Controller {
        Controller { evenness, pools: BTreeMap::new() }
    }

    /// Forgets pools without groups, and learns of others.
    pub(super) fn update_pools(&mut self, members: &[Member]) {
        members.iter().filter_map(pool_of).for_each(|pool| {
            self.pools.entry(pool).or_default();
        });
        self.pools.retain(|id, _| members.iter().any(|m| pool_of(m) == Some(*id)));
    }

    /// Finds the pools in which several groups want the device. Returns true if there is one, or was lately.
    pub(super) fn update_company(&mut self, now: Micros, members: &[Member], verdicts: &[Verdict]) -> bool {
        for (id, pool) in &mut self.pools {
            let of_pool = members.iter().zip(verdicts).filter(|(m, v)| pool_of(m) == Some(*id) && takes_part(m, v));
            if of_pool.count() > 1 {
                pool.company_until = now + COMPANY_US;
            }
        }
        self.pools.values().any(|pool| now < pool.company_until)
    }

    /// True if several groups of this pool want the device, or did so lately.
    pub(super) fn has_company(&self, now: Micros, pool: PoolId) -> bool {
        self.pools.get(&pool).is_some_and(|pool| now < pool.company_until)
    }

    /// Brings positions and leads up to date with the groups that come and go.
    pub(super) fn update_positions(
        &mut self,
        now: Micros,
        members: &[Member],
        verdicts: &[Verdict],
        groups: &mut BTreeMap<GroupId, PoolGroup>,
    ) {
        let mut present = vec![false; members.len()];
        for (&id, pool) in &mut self.pools {
            let of_pool = || members.iter().enumerate().filter(|(_, m)| pool_of(m) == Some(id));
            let (mut slowest, mut weight, mut count) = (None::<f64>, 0.0, 0_u32);
            for (at, m) in of_pool() {
                let Some(group) = groups.get(&m.group.id) else { continue };
                let is_known = group.meter.alone.command_us().is_some() && !group.meter.is_stuck(now);
                present[at] = is_known && takes_part(m, &verdicts[at]);
                if present[at] {
                    weight += f64::from(m.group.hints.weight());
                    count += 1;
                    if group.position.phase == Phase::Compared {
                        slowest = [slowest, Some(group.position.progress_us)].into_iter().flatten().reduce(f64::min);
                    }
                }
            }
            for (at, m) in of_pool() {
                let Some(group) = groups.get_mut(&m.group.id) else { continue };
                if present[at] {
                    group.position.scale = weight / f64::from(count) / f64::from(m.group.hints.weight());
                    group.position.join(now, slowest, pool.floor);
                } else {
                    group.position.leave(now, slowest);
                }
            }
            let ids = of_pool().filter(|(at, _)| present[*at]).map(|(_, m)| m.group.id);
            pool.update_leads(&ids.collect::<Vec<_>>(), groups);
        }
    }

    /// Finds the groups that are too far ahead of the slowest one, in the order of the members.
    pub(super) fn ahead(
        &self,
        now: Micros,
        members: &[Member],
        verdicts: &[Verdict],
        groups: &BTreeMap<GroupId, PoolGroup>,
    ) -> Vec<bool> {
        let mut ahead = vec![false; members.len()];
        for &pool in self.pools.keys() {
            let of_pool = || members.iter().enumerate().filter(|(_, m)| pool_of(m) == Some(pool));
            let compared = |(at, m): (usize, &Member)| {
                let group = groups.get(&m.group.id).filter(|group| group.position.phase == Phase::Compared)?;
                takes_part(m, &verdicts[at]).then_some((at, group))
            };
            let compared: Vec<(usize, &PoolGroup)> = of_pool().filter_map(compared).collect();
            let reached = |group: &PoolGroup| group.position.reached(group.meter.running_us, self.evenness);
            let slowed = compared.iter().filter(|(_, group)| group.is_slowed());
            let Some(slowest) = slowed.map(|(_, group)| reached(group)).reduce(f64::min) else { continue };
            // A long command is not begun in the pause between two steps of a slower group.
            let pausing = of_pool().filter(|(_, m)| !m.group.ready && m.job.spanning.is_none());
            let pausing = pausing.filter_map(|(_, m)| groups.get(&m.group.id)).filter(|g| g.position.pauses(now));
            let slowest_pausing = pausing.map(|group| group.position.progress_us).fold(slowest, f64::min);
            for (at, group) in compared {
                let was_ahead = group.position.is_ahead;
                let is_long = was_ahead && group.meter.command_us() > SHORT_IDLE_US as f64;
                let lead = reached(group) - if is_long { slowest_pausing } else { slowest };
                let slack = if was_ahead { LEAD_SLACK_US / 2.0 } else { LEAD_SLACK_US };
                ahead[at] = lead > slack && members[at].lent.is_none();
            }
        }
        ahead
    }
}

impl Pool {
    /// Computes the leads of the groups that take part. The slowest is the slowest of those that others slow down: the rest has no claim
    /// against others, so that without any the fastest itself is within the slack.
    fn update_leads(&mut self, ids: &[GroupId], groups: &mut BTreeMap<GroupId, PoolGroup>) {
        let present = || ids.iter().filter_map(|id| groups.get(id));
        let Some(fastest) = present().map(|group| group.position.progress_us).reduce(f64::max) else { return };
        let slowed = present().filter(|group| group.is_slowed()).map(|group| group.position.progress_us);
        let slowest = slowed.reduce(f64::min).unwrap_or(fastest - LEAD_SLACK_US);
        self.floor = self.floor.max(slowest);
        for id in ids {
            if let Some(group) = groups.get_mut(id) {
                group.position.progress_us = group.position.progress_us.max(slowest);
                group.position.lead_us = group.position.progress_us - slowest;
            }
        }
    }
}

impl PoolGroup {
    /// True if others are held for this group: the device holds it up, and more so beside others than alone.
    fn is_slowed(&self) -> bool {
        let meter = &self.meter;
        meter.is_limited() && self.schedule.confirms_slowed() && meter.is_slower_beside(meter.alone.command_us())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group that takes part with this progress, in µs.
    fn compared(progress_us: f64) -> Position {
        Position { progress_us, phase: Phase::Compared, ..Position::new() }
    }

    #[test]
    fn a_short_absence_keeps_the_distance_to_the_slowest_and_a_long_one_loses_it() {
        let mut short = compared(1_000.0);
        short.leave(10, Some(4_000.0));
        assert_eq!(short.phase, Phase::Absent { since: 10, behind_us: 3_000.0 });
        short.leave(20, Some(9_000.0));
        assert_eq!(short.absent_since(), Some(10), "it has been away since then");
        short.join(10 + SHORT_IDLE_US, Some(50_000.0), 0.0);
        assert_eq!((short.phase, short.progress_us), (Phase::Compared, 47_000.0));

        let mut long = compared(1_000.0);
        long.leave(10, Some(4_000.0));
        long.join(11 + SHORT_IDLE_US, Some(50_000.0), 0.0);
        assert_eq!(long.progress_us, 50_000.0);
    }

    #[test]
    fn an_absence_gives_no_claim_to_a_group_that_was_ahead() {
        let mut ahead = compared(9_000.0);
        ahead.leave(10, Some(4_000.0));
        assert_eq!(ahead.phase, Phase::Absent { since: 10, behind_us: 0.0 });
        ahead.join(20, Some(5_000.0), 0.0);
        assert_eq!(ahead.progress_us, 9_000.0);
        ahead.leave(30, None);
        ahead.join(40_000, None, 70_000.0);
        assert_eq!(ahead.progress_us, 70_000.0, "alone it begins where the pool stood");
    }

    #[test]
    fn a_group_without_a_position_begins_at_the_slowest_whatever_it_had() {
        let mut new = compared(90_000.0);
        new.unplace();
        assert_eq!(new.phase, Phase::Unplaced { absent_since: None });
        new.leave(10, None);
        assert_eq!(new.absent_since(), Some(10));
        new.join(11, Some(4_000.0), 1_000.0);
        assert_eq!((new.phase, new.progress_us), (Phase::Compared, 4_000.0));
    }

    #[test]
    fn progress_beyond_half_the_slack_counts_by_the_evenness() {
        let at = |lead_us| Position { lead_us, scale: 2.0, ..compared(0.0) };
        let advanced = |mut position: Position, us, evenness| {
            position.advance(us, evenness);
            position.progress_us
        };
        assert_eq!(advanced(at(0.0), 1_000.0, 0.5), 2_000.0, "within half the slack all counts");
        assert_eq!(advanced(at(4_000.0), 1_000.0, 0.5), 1_500.0);
        assert_eq!(advanced(at(9_000.0), 1_000.0, 0.5), 1_000.0);
        assert_eq!(advanced(at(9_000.0), 1_000.0, 1.0), 2_000.0);
    }
}
