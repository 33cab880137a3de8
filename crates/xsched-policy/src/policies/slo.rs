//! Service level: programs name a target for their requests, others are admitted beside them as far as the targets hold.
//!
//! A request is a burst: from the first launch of an idle group to its last completion. Of each burst of a group with a target
//! the others may stay on the device for an *allowance*; then they leave it until the burst is over. A burst takes at most so
//! much longer than alone. Feedback finds the allowance:
//!
//! - a P99: each burst within the target adds a little, each beyond it takes 99 times as much. The two balance where one burst
//!   of a hundred is beyond.
//! - a slowdown: the allowance follows the difference between the time that bursts take and the time they may take, which is
//!   the mean of some bursts without any allowance, times the slowdown.
//!
//! An urgent program (class `high` or above) that names no target aims at a slowdown of 1.05; `none` is no target.
//! Where company alone is too much, so that the target is missed though nothing is allowed, closed gates do not yield either
//! ([`Policy::lets_yield`]) while such a group wants the device: the allowance then counts on below 0.
//!
//! Priorities hold as under `hpf`; among equals a group with a target goes before those without. Where the target cannot be met,
//! the allowance ends at nothing, which is `hpf`.

use std::collections::HashMap;

use xsched_proto::class::Class;
use xsched_proto::hint::{Hint, Slo};

use crate::entry::Entry;
use crate::params::Params;
use crate::policies::rank;
use crate::tuning::{
    SLO_ALLOWANCE_MOST, SLO_DEFAULT, SLO_GROWTH, SLO_PROBE_EACH, SLO_PROBES_FIRST, SLO_SLOWDOWN_GAIN, SLO_SMOOTHING, SLO_STRICT_MOST,
};
use crate::{GroupView, GroupId, Micros, Policy, Verdict};

pub(super) static ENTRY: Entry = Entry {
    hints: &[Hint::Slo],
    ..Entry::new(
        "slo",
        "programs name a target (P99 or slowdown), and others have the device as far as the targets hold",
        "a service with a latency target beside work that shall have the rest",
        make,
    )
};

/// Measurements of a group with a target.
#[derive(Default)]
struct Served {
    target: Option<Slo>,
    /// Number of bursts of the group at the last decision.
    bursts: u64,
    /// Number of bursts learned from, for this target.
    learned: u64,
    /// Number of these without allowance.
    probes: u64,
    allowance_us: f64,
    /// Mean length of bursts without allowance, µs.
    alone_us: f64,
    is_there: bool,
}

#[derive(Default)]
struct ServiceLevel {
    served: HashMap<GroupId, Served>,
    /// True while closed gates may not yield.
    is_strict: bool,
}

fn make(_: &Params) -> Box<dyn Policy> {
    Box::new(ServiceLevel::default())
}

/// Target of a group: that of its hint. An urgent group without one has a slowdown as target.
fn target(group: &GroupView) -> Option<Slo> {
    let urgent = !Class::of(group.priority).is_best_effort();
    group.hints.slo.or(urgent.then_some(SLO_DEFAULT)).filter(|slo| *slo != Slo::None)
}

impl Served {
    /// True if the burst with this number has no allowance, so that it shows the length of bursts alone.
    fn is_probe(&self, burst: u64) -> bool {
        matches!(self.target, Some(Slo::Slowdown(_)))
            && (burst < SLO_PROBES_FIRST || burst.is_multiple_of(SLO_PROBE_EACH))
    }

    /// The allowance of the burst that runs, or of the next.
    fn allowance_us(&self) -> Micros {
        // A negative allowance is none.
        if self.is_probe(self.learned) { 0 } else { self.allowance_us as Micros }
    }

    /// True in a probe, and if others beside the group are too much even while its queues keep up.
    fn is_strict(&self) -> bool {
        self.is_there && (self.allowance_us < 0.0 || self.is_probe(self.learned))
    }

    /// Learns from a burst.
    fn learn(&mut self, took_us: f64) {
        let number = self.learned;
        self.learned += 1;
        match self.target {
            Some(Slo::P99(target)) => {
                let target = target as f64;
                let step = target * SLO_GROWTH;
                self.allowance_us += if took_us <= target { step } else { -99.0 * step };
                self.allowance_us = self.allowance_us.clamp(-SLO_STRICT_MOST * target, SLO_ALLOWANCE_MOST * target);
            }
            Some(Slo::Slowdown(_)) if self.is_probe(number) => {
                self.probes += 1;
                // The first count alike: the very first may have begun beside others.
                let weight = (1.0 / self.probes as f64).max(SLO_SMOOTHING);
                self.alone_us += (took_us - self.alone_us) * weight;
            }
            Some(Slo::Slowdown(percent)) => {
                let aim = self.alone_us * f64::from(percent) / 100.0;
                // A single long burst counts no more than one of twice the aim.
                self.allowance_us += SLO_SLOWDOWN_GAIN * (aim - took_us.min(2.0 * aim));
                self.allowance_us = self.allowance_us.clamp(-SLO_STRICT_MOST * aim, SLO_ALLOWANCE_MOST * aim);
            }
            Some(Slo::None) | None => (),
        }
    }
}

impl ServiceLevel {
    fn refresh(&mut self, groups: &[GroupView]) {
        self.served.values_mut().for_each(|s| s.is_there = false);
        for group in groups.iter().filter(|g| target(g).is_some()) {
            let served = self.served.entry(group.id).or_insert(Served { bursts: group.bursts, ..Served::default() });
            served.is_there = true;
            if served.target != target(group) {
                *served = Served { target: target(group), bursts: group.bursts, is_there: true, ..Served::default() };
            }
            if group.bursts > served.bursts {
                served.learn(group.burst_us as f64);
                served.bursts = group.bursts;
            }
        }
        self.served.retain(|_, s| s.is_there);
    }

    /// Time at which the others have to leave the device to a group with a target.
    fn alone_from(&self, group: &GroupView) -> Option<Micros> {
        self.served.get(&group.id).map(|served| group.ready_since + served.allowance_us())
    }
}

impl Policy for ServiceLevel {
    fn decide(&mut self, now: Micros, groups: &[GroupView], verdicts: &mut [Verdict]) -> Option<Micros> {
        self.refresh(groups);
        self.is_strict = groups.iter().any(|g| g.ready && self.served.get(&g.id).is_some_and(Served::is_strict));
        let rank = |g: &GroupView| 2 * i64::from(g.priority) + i64::from(target(g).is_some());
        let shares = |g: &GroupView| g.ready && self.alone_from(g).is_some_and(|at| now < at);
        let next = rank::decide(now, groups, verdicts, rank, |g| g.ready && !shares(g));
        let over = groups.iter().filter(|g| shares(g)).filter_map(|g| self.alone_from(g));
        over.chain(next).min()
    }

    fn lets_yield(&self) -> bool {
        !self.is_strict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::tests::group;

    #[test]
    fn others_stay_for_the_allowance_of_a_burst_and_then_leave() {
        let mut slo = ServiceLevel::default();
        let mut served = GroupView { ready: true, ready_since: 1_000, ..group(1) };
        served.hints.slo = Some(Slo::P99(10_000));
        let other = GroupView { ready: true, ..group(2) };
        let mut verdicts = [Verdict::default(); 2];
        assert_eq!(slo.decide(1_000, &[served.clone(), other.clone()], &mut verdicts), None);
        assert_eq!(verdicts.map(|v| v.run), [true, false], "nothing is allowed before the first burst");
        for _ in 0..50 {
            served.bursts += 1;
            served.burst_us = 6_000;
            slo.decide(1_000, &[served.clone(), other.clone()], &mut verdicts);
        }
        // 50 times 0.2 % of the target.
        assert_eq!(slo.decide(1_000, &[served.clone(), other.clone()], &mut verdicts), Some(2_000));
        assert_eq!(verdicts.map(|v| (v.run, v.budgeted)), [(true, false), (true, true)]);
        assert_eq!(slo.decide(2_000, &[served.clone(), other.clone()], &mut verdicts), None);
        assert_eq!(verdicts.map(|v| v.run), [true, false]);
        served.bursts += 1;
        served.burst_us = 10_001;
        slo.decide(2_000, &[served.clone(), other.clone()], &mut verdicts);
        assert_eq!(slo.served[&served.id].allowance_us, -980.0, "a miss takes what 99 hits gave");
    }
}
