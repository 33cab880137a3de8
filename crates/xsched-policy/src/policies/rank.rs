//! Order by rank: a group runs unless one of higher rank wants the device. Policies that use this order differ in the rank and in
//! the meaning of wanting.
//!
//! Idle groups are ranked alike, so the gate of an idle top group stands open and its first launch does not wait. Equals run side by
//! side, and so do groups of one MPS server that is not xsched's. A group with commands that cannot be interrupted gets the device only
//! once the groups above have left it for a while.

use crate::tuning::REST_US;
use crate::{GroupView, Micros, PoolId, Verdict};

/// The highest rank, and the highest outside the server of the group that has it.
#[derive(Clone, Copy)]
struct Tops {
    first: i64,
    server: Option<PoolId>,
    second: i64,
}

impl Tops {
    const NONE: Tops = Tops { first: i64::MIN, server: None, second: i64::MIN };

    fn add(&mut self, rank: i64, server: Option<PoolId>) {
        if server.is_some() && server == self.server {
            self.first = self.first.max(rank);
        } else if rank > self.first {
            *self = Tops { first: rank, server, second: self.first };
        } else {
            self.second = self.second.max(rank);
        }
    }

    /// The highest rank among groups that do not run beside `group` anyway.
    fn against(&self, group: &GroupView) -> i64 {
        let server = group.runs_beside();
        if server.is_some() && server == self.server { self.second } else { self.first }
    }
}

/// Time at which groups of each rank and above left the device last, from the highest rank down.
struct Departures(Vec<(i64, Micros)>);

impl Departures {
    fn of(groups: &[GroupView], ranks: &[i64]) -> Departures {
        if !groups.iter().any(|g| g.holds_up) {
            return Departures(Vec::new());
        }
        let mut all: Vec<_> = groups.iter().zip(ranks).filter_map(|(g, rank)| Some((*rank, g.idle_since?))).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let mut latest = 0;
        for (_, left) in &mut all {
            latest = latest.max(*left);
            *left = latest;
        }
        Departures(all)
    }

    /// End of the pause that a group with commands that cannot be interrupted lets pass, after the groups above have left the device.
    fn rests_until(&self, now: Micros, group: &GroupView, rank: i64) -> Option<Micros> {
        if !group.holds_up {
            return None;
        }
        let above = self.0.partition_point(|(other, _)| *other > rank);
        let left = self.0[..above].last()?.1;
        Some(left + REST_US).filter(|until| now < *until)
    }
}

/// Decides by `rank`, higher first; `wants` is true for groups that those below make room for. Returns the time of the next decision.
pub(super) fn decide(
    now: Micros,
    groups: &[GroupView],
    verdicts: &mut [Verdict],
    rank: impl Fn(&GroupView) -> i64,
    wants: impl Fn(&GroupView) -> bool,
) -> Option<Micros> {
    let ranks: Vec<i64> = groups.iter().map(rank).collect();
    decide_by(now, groups, verdicts, &ranks, wants)
}

/// As [`decide`], with the rank of each group in the order of the groups.
pub(super) fn decide_by(
    now: Micros,
    groups: &[GroupView],
    verdicts: &mut [Verdict],
    ranks: &[i64],
    wants: impl Fn(&GroupView) -> bool,
) -> Option<Micros> {
    let departures = Departures::of(groups, ranks);
    let (mut wanting, mut all) = (Tops::NONE, Tops::NONE);
    for (group, &rank) in groups.iter().zip(ranks) {
        all.add(rank, group.runs_beside());
        // A group that rests leaves the device to groups below that are off it soon.
        if wants(group) && departures.rests_until(now, group, rank).is_none() {
            wanting.add(rank, group.runs_beside());
        }
    }
    let mut next: Option<Micros> = None;
    for ((group, verdict), &rank) in groups.iter().zip(verdicts).zip(ranks) {
        *verdict = Verdict { run: rank >= wanting.against(group), budgeted: rank < all.against(group) };
        if let Some(at) = departures.rests_until(now, group, rank).filter(|_| verdict.run) {
            verdict.run = false;
            next = Some(next.map_or(at, |before| before.min(at)));
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::super::tests::group;
    use super::*;

    fn by_priority(now: Micros, groups: &[GroupView]) -> (Vec<(bool, bool)>, Option<Micros>) {
        let mut verdicts = vec![Verdict::default(); groups.len()];
        let next = decide(now, groups, &mut verdicts, |g| g.priority.into(), |g| g.ready);
        (verdicts.iter().map(|v| (v.run, v.budgeted)).collect(), next)
    }

    fn g(id: u64, priority: i32, ready: bool) -> GroupView {
        GroupView { priority, ready, ..group(id) }
    }

    #[test]
    fn the_highest_ready_rank_runs_and_who_can_be_preempted_is_bounded() {
        let run = |groups: &[GroupView]| {
            let (verdicts, next) = by_priority(0, groups);
            assert_eq!(next, None, "it needs no timer");
            verdicts
        };
        assert_eq!(run(&[g(1, 0, true)]), [(true, false)]);
        assert_eq!(run(&[g(1, 0, true), g(2, 128, true)]), [(false, true), (true, false)]);
        assert_eq!(run(&[g(1, 0, true), g(2, 128, false)]), [(true, true), (true, false)], "its gate stays open");
        assert_eq!(run(&[g(1, 0, false), g(2, 128, true)]), [(false, true), (true, false)]);
        assert_eq!(run(&[g(1, 7, true), g(2, 7, true)]), [(true, false), (true, false)], "equals run together");
    }

    #[test]
    fn those_of_one_server_run_beside_each_other_and_take_turns_with_the_rest() {
        let run = |groups: &[GroupView]| by_priority(0, groups).0;
        let served = |id, server, priority| GroupView { spatial: Some(PoolId(server)), ..g(id, priority, true) };
        assert_eq!(run(&[served(1, 1, 0), served(2, 1, 128)]), [(true, false), (true, false)]);
        assert_eq!(run(&[served(1, 1, 0), served(2, 2, 128)]), [(false, true), (true, false)], "two servers");
        assert_eq!(
            run(&[served(1, 1, 0), g(2, 5, true), served(3, 1, 128)]),
            [(false, true), (false, true), (true, false)],
            "one outside that goes before one inside closes that one"
        );
        assert_eq!(run(&[served(1, 1, 9), g(2, 5, true), served(3, 1, 128)])[0], (true, false));
        let long = GroupView { holds_up: true, ..served(1, 1, 0) };
        assert_eq!(run(&[long, served(2, 1, 128)])[0], (false, true), "its commands would hold the others up");
    }

    #[test]
    fn who_cannot_be_taken_off_the_device_waits_until_the_others_have_left_it_for_a_while() {
        let long = GroupView { holds_up: true, ..g(1, 0, true) };
        let urgent = |idle_since| GroupView { idle_since, ..g(2, 128, false) };
        let equal = GroupView { idle_since: Some(1_000_000), ..group(3) };
        let first = |now, groups: &[GroupView]| {
            let (verdicts, next) = by_priority(now, groups);
            (verdicts[0].0, next)
        };
        let left = Some(1_000_000);
        assert_eq!(first(1_000_100, &[long.clone(), urgent(left), equal.clone()]), (false, Some(1_002_000)));
        assert_eq!(first(1_002_000, &[long.clone(), urgent(left), equal.clone()]), (true, None));
        assert_eq!(first(1_000_100, &[long.clone(), urgent(None), equal.clone()]), (true, None), "it was never there");
        assert_eq!(first(1_000_100, &[group(1), urgent(left)]), (true, None), "soon off the device");
        let busy = GroupView { ready: true, ..urgent(left) };
        assert!(!first(1_002_000, &[long.clone(), busy]).0);
        let pause = [long, urgent(left), g(3, -1, true)];
        let (verdicts, next) = by_priority(1_000_100, &pause);
        assert_eq!(next, Some(1_002_000));
        assert_eq!(verdicts.iter().map(|v| v.0).collect::<Vec<_>>(), [false, true, true], "for who can be preempted");
        let (verdicts, _) = by_priority(1_002_000, &pause);
        assert_eq!(verdicts.iter().map(|v| v.0).collect::<Vec<_>>(), [true, true, false]);
    }
}
