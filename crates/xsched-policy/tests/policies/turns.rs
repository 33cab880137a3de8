//! `up` and `pup`: shares by weight, over any twenty rounds.

use std::collections::BTreeMap;

use xsched_policy::{Action, GroupId, Micros};

use crate::world::{Work, World, spec};
use crate::{of_program, part};

/// Stretches of time in which a party had its gate open, with the device time of all parties at the end of each, in order.
pub(crate) struct Stretches(Vec<(u64, BTreeMap<u64, f64>)>);

impl Stretches {
    /// Lets `w` run. `party` says to whom a group belongs.
    pub(crate) fn of(w: &mut World, until: Micros, party: impl Fn(u64) -> u64) -> Stretches {
        let mut found: Vec<(u64, BTreeMap<u64, f64>)> = Vec::new();
        while w.now < until {
            let next = w.arbiter.next_timer().unwrap_or(until).min(until);
            let running = w.open().first().map(|id| party(*id));
            w.run(next);
            let mut used = BTreeMap::new();
            for (id, sim) in &w.sims {
                *used.entry(party(*id)).or_insert(0.0) += sim.used_us;
            }
            match (found.last_mut(), running) {
                (Some((last, then)), Some(party)) if *last == party => *then = used,
                (_, Some(party)) => found.push((party, used)),
                (_, None) => (),
            }
        }
        Stretches(found)
    }

    /// The ends of rounds: in each, all parties had a stretch.
    fn rounds(&self) -> Vec<&BTreeMap<u64, f64>> {
        let parties = self.0[0].1.len();
        let (mut seen, mut ends) = (Vec::new(), Vec::new());
        for (party, used) in &self.0 {
            if !seen.contains(party) {
                seen.push(*party);
            }
            if seen.len() == parties {
                ends.push(used);
                seen.clear();
            }
        }
        ends
    }

    /// Largest distance of a party's share from its aim, in points, over any so many rounds.
    pub(crate) fn worst(&self, rounds: usize, aims: &[(u64, f64)]) -> f64 {
        let ends = self.rounds();
        assert!(ends.len() > 5 * rounds, "{} rounds", ends.len());
        let mut worst: f64 = 0.0;
        for window in ends.windows(rounds + 1) {
            let had: Vec<f64> = aims.iter().map(|(party, _)| window[rounds][party] - window[0][party]).collect();
            let all: f64 = had.iter().sum();
            for ((_, aim), had) in aims.iter().zip(had) {
                worst = worst.max((100.0 * had / all - aim).abs());
            }
        }
        worst
    }
}

#[test]
fn up_shares_hold_within_a_point_over_any_twenty_rounds() {
    for drains in [[0, 0, 0], [300, 300, 300], [0, 1_000, 300], [1_000, 0, 50], [900, 100, 700]] {
        for aims in [vec![75, 25], vec![25, 75], vec![50, 30, 20], vec![20, 50, 30], vec![60, 40], vec![34, 33, 33]] {
            let mut w = World::new("up");
            for (id, (aim, drain_us)) in (1..).zip(aims.iter().zip(drains)) {
                w.add_ready(part(id, *aim), drain_us);
            }
            let aims: Vec<(u64, f64)> = (1..).zip(aims.iter().map(|aim| f64::from(*aim))).collect();
            let worst = Stretches::of(&mut w, 6_000_000, |id| id).worst(20, &aims);
            println!("up {aims:?} drains {drains:?}: {worst:.2}");
            assert!(worst <= 1.0, "{aims:?}, drains {drains:?}: {worst} points");
        }
    }
}

#[test]
fn pup_shares_hold_within_a_point_whatever_the_number_of_groups() {
    for (groups, aims) in [([1, 4, 0], [75, 25, 0]), ([5, 1, 0], [25, 75, 0]), ([3, 1, 2], [50, 30, 20])] {
        for drain_us in [0, 250, 800] {
            let mut w = World::new("pup");
            for (program, (count, aim)) in (1..).zip(groups.into_iter().zip(aims)) {
                for _ in 0..count {
                    w.ids += 1;
                    let drain_us = drain_us * (1 + w.ids % 2);
                    w.add_ready(of_program(program, part(w.ids, aim)), drain_us);
                }
            }
            let programs: BTreeMap<u64, u64> = w.arbiter.groups().map(|(_, g)| (g.id.0, g.program.0)).collect();
            let aims: Vec<_> = (1..).zip(aims.map(f64::from)).filter(|(_, aim)| *aim > 0.0).collect();
            let worst = Stretches::of(&mut w, 6_000_000, |id| programs[&id]).worst(20, &aims);
            println!("pup {groups:?} {aims:?} drain {drain_us}: {worst:.2}");
            assert!(worst <= 1.0, "{groups:?} {aims:?}, drain {drain_us}: {worst} points");
        }
    }
}

#[test]
fn pup_what_one_leaves_goes_to_the_others() {
    let mut w = World::new("pup");
    w.add_ready(part(1, 25), 300);
    w.add(part(2, 75), 300);
    w.run(1_001_000);
    assert_eq!(w.used(1), 1_000_000.0);
    w.add_ready(spec(3, "d1"), 0);
    assert_eq!(w.open(), [1, 3]);
}

/// Each return of the one that is behind would cost a switch, and the other would never have a whole turn.
#[test]
fn up_one_that_pauses_often_waits_for_the_end_of_the_others_turn() {
    let mut w = World::new("up");
    w.add_work(part(1, 50), 0, Work::new(5_000, 3_000, 1_000));
    w.add_ready(part(2, 50), 0);
    w.run(1_000_000);
    let closed: Vec<u64> = w.log.iter().filter(|(_, a)| *a == Action::Close(GroupId(2))).map(|(at, _)| *at).collect();
    let opened: Vec<u64> = w.log.iter().filter(|(_, a)| *a == Action::Open(GroupId(2))).map(|(at, _)| *at).collect();
    let shortest = closed.iter().filter_map(|at| opened.iter().rev().find(|o| *o < at).map(|o| at - o)).min();
    assert!(shortest.is_some_and(|us| us >= 4_900), "{shortest:?}");
}
