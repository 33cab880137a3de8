//! Gaps within the requests of an urgent program: through which of them it keeps the device, although nothing of it is there.
//!
//! A *gap* lasts from a group's last completion to its next launch. Given away, it lets less urgent programs work, and costs the group
//! their leaving. Kept, it costs the group nothing and the others their work. The group *holds* the device for a time `h` of each gap, and
//! a gap that outlasts `h` is given away. With gaps `g` of the learned distribution, means over all gaps, and times in ns:
//!
//! ```text
//! lost(h) = r · P(g > h)                       r  return: what the leaving of others costs, learned; [`RETURN_NS`] at first
//! won(h)  = E[max(0, g − h − COMING_NS)]       work of others
//! may     = SPENT · (o + E[min(g, b)]) · (s − 1) ÷ s
//!                                              o  time from the end of a gap to the next gap, without returns
//!                                              b  longest hold that the daemon allows
//!                                              s  slowdown budget: 1.05, or that of `--slo slowdown=`
//! ```
//!
//! [`plan`] begins with the `h` that loses least, and of those that lose as little the one that wins most. Then, while `lost` is below
//! `may`, it goes on to the `h` that wins most for each ns more that it loses, if that is at least [`WORTH`]. Where the last step
//! exceeds `may`, only a part of the gaps takes it, evenly spread, so that `lost` is `may` on average. So gaps are given away in the
//! order of work won per time lost: long ones always, short ones while budget is left.
//!
//! The return is learned by comparison. Where some gaps in a row are kept, as in a *probe* now and then, the time from the end of a gap to
//! the next gap is that of the group alone. Else such times exceed it by the return of each gap given away, and by what of the others the
//! device executes later.

use serde::{Deserialize, Serialize};

use crate::tuning::*;

/// Lower limits of the classes of gaps, in ns. They are the lengths of holds to choose from, too.
const LIMITS_NS: [u64; 32] = {
    let us = [
        0, 50, 100, 150, 200, 250, 300, 350, 400, 450, 500, 550, 600, 650, 700, 750, 800, 900, 1_000, 1_100, 1_200,
        1_300, 1_450, 1_600, 1_800, 2_000, 2_300, 2_600, 3_000, 3_500, 5_000, 20_000,
    ];
    let mut ns = [0; 32];
    let mut at = 0;
    while at < ns.len() {
        ns[at] = us[at] * 1_000;
        at += 1;
    }
    ns
};

/// Weight of the newest gap.
const NEWEST: u32 = 1 << 20;

/// Terms on which a group may keep gaps, by the daemon, which knows its company.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Longest hold, in ns; 0 = the group keeps no gaps beyond its grace time.
    pub hold_ns: u64,
    /// Slowdown budget, in percent of the time alone: 105 = 1.05.
    pub slowdown_percent: u32,
}

/// A gap that is over, with the time until the next gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cycle {
    /// Length of the gap, in ns.
    pub gap_ns: u64,
    /// Time from the end of the gap to the next gap, in ns.
    pub own_ns: u64,
    /// True if the group kept the device through the gap.
    pub kept: bool,
}

/// Holds for the gaps to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Hold of most gaps, in ns.
    pub patient_ns: u64,
    /// Hold of the others, in ns, which is shorter.
    pub eager_ns: u64,
    /// Part of the gaps with the shorter hold, 0 to 1.
    pub eager_part: f64,
}

/// Weights of the classes of gaps, see [`LIMITS_NS`].
pub type Weights = [u32; LIMITS_NS.len()];

/// Gaps of one group, as learned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gaps {
    weights: Weights,
    /// Mean time from the end of a gap to the next gap, in ns: of all, and of those in probes.
    own_ns: f64,
    alone_ns: Option<f64>,
    /// Mean excess over that, in ns, and part of the gaps given away, among those that might have been kept, and those soon after.
    excess_ns: f64,
    given: f64,
    /// Number of gaps kept since one was given away, and true if that one might have been kept.
    kept_since: u32,
    is_choice: bool,
    /// Number of gaps so far, and since the last probe began.
    seen: u32,
    since_probe: u32,
    plan: Plan,
    /// Sum of the parts of gaps that the shorter hold is due for.
    due: f64,
}

impl Default for Gaps {
    fn default() -> Gaps {
        Gaps {
            weights: [0; LIMITS_NS.len()],
            own_ns: 0.0,
            alone_ns: None,
            excess_ns: RETURN_NS as f64 / 2.0,
            given: 0.5,
            kept_since: 0,
            is_choice: false,
            seen: 0,
            since_probe: PROBE_EACH,
            plan: Plan::default(),
            due: 0.0,
        }
    }
}

fn class_of(gap_ns: u64) -> usize {
    LIMITS_NS.partition_point(|limit| *limit <= gap_ns) - 1
}

/// Mean length of the gaps of a class, in ns.
fn typical_ns(class: usize) -> u64 {
    LIMITS_NS.get(class + 1).map_or(2 * LIMITS_NS[class], |next| (LIMITS_NS[class] + next) / 2)
}

fn approach(mean: f64, sample: f64) -> f64 {
    mean + (sample - mean) / f64::from(RETURN_PARTS)
}

/// Chooses the holds, see the formula at the [top](self). `own_ns` and `return_ns` are its `o` and `r`.
pub fn plan(weights: &Weights, own_ns: f64, return_ns: f64, terms: Terms) -> Plan {
    let all: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
    if all == 0.0 || terms.hold_ns == 0 {
        return Plan::default();
    }
    let mean = |of: &dyn Fn(u64) -> u64| {
        let sum: f64 = weights.iter().enumerate().map(|(class, w)| f64::from(*w) * of(typical_ns(class)) as f64).sum();
        sum / all
    };
    let holds = || LIMITS_NS.iter().take_while(|limit| **limit <= terms.hold_ns).enumerate();
    // (hold, lost, won)
    let of = |(class, hold_ns): (usize, &u64)| {
        let outlasts: u64 = weights[class..].iter().map(|weight| u64::from(*weight)).sum();
        let won_ns = mean(&|gap_ns| gap_ns.saturating_sub(hold_ns + COMING_NS));
        (*hold_ns, return_ns * outlasts as f64 / all, won_ns)
    };
    let better = |one: (u64, f64, f64), other: (u64, f64, f64)| {
        if other.1 < one.1 || other.1 == one.1 && other.2 > one.2 { other } else { one }
    };
    let Some(mut at) = holds().map(of).reduce(better) else { return Plan::default() };
    let slowdown = f64::from(terms.slowdown_percent.max(100)) / 100.0;
    let may_ns = SPENT * (own_ns + mean(&|gap_ns| gap_ns.min(terms.hold_ns))) * (slowdown - 1.0) / slowdown;
    let mut patient_ns = at.0;
    loop {
        let worth = |to: &(u64, f64, f64)| (to.2 - at.2) / (to.1 - at.1);
        let steps = holds().map(of).filter(|to| to.1 > at.1 && to.2 > at.2 && worth(to) >= WORTH);
        let Some(next) = steps.reduce(|one, other| if worth(&other) > worth(&one) { other } else { one }) else {
            break;
        };
        if next.1 > may_ns {
            let eager_part = ((may_ns - at.1) / (next.1 - at.1)).clamp(0.0, 1.0);
            return Plan { patient_ns: at.0, eager_ns: next.0, eager_part };
        }
        patient_ns = at.0;
        at = next;
    }
    let eager_part = if patient_ns == at.0 { 0.0 } else { 1.0 };
    Plan { patient_ns, eager_ns: at.0, eager_part }
}

impl Gaps {
    /// Learns from a gap and the time after it.
    pub fn learn(&mut self, cycle: Cycle) {
        self.weights.iter_mut().for_each(|weight| *weight -= weight.div_ceil(GAPS_KEPT));
        self.weights[class_of(cycle.gap_ns)] += NEWEST;
        let own_ns = cycle.own_ns as f64;
        self.own_ns = if self.seen == 0 { own_ns } else { approach(self.own_ns, own_ns.min(4.0 * self.own_ns)) };
        self.seen = self.seen.saturating_add(1);
        self.learn_return(cycle.kept, cycle.gap_ns, own_ns);
    }

    fn learn_return(&mut self, kept: bool, gap_ns: u64, own_ns: f64) {
        if kept {
            self.kept_since += 1;
        } else {
            self.kept_since = 0;
            self.is_choice = gap_ns < self.plan.patient_ns;
        }
        if self.kept_since > KEPT_ALONE {
            let before = self.alone_ns.unwrap_or(own_ns);
            self.alone_ns = Some(before + (own_ns.min(2.0 * before) - before) / f64::from(ALONE_PARTS));
            if self.plan.eager_part == 0.0 {
                // A return that is not tried any more fades, so that it is tried again.
                self.excess_ns += (RETURN_NS as f64 * self.given - self.excess_ns) / f64::from(RETURN_FADES);
            }
        } else if let Some(alone_ns) = self.alone_ns.filter(|_| self.is_choice) {
            let most_ns = RETURN_MOST as f64 * RETURN_NS as f64;
            self.excess_ns = approach(self.excess_ns, (own_ns - alone_ns).clamp(-most_ns, most_ns));
            self.given = approach(self.given, f64::from(!kept));
        }
    }

    /// Returns the hold of the gap that begins, in ns.
    pub fn hold_ns(&mut self, terms: Terms) -> u64 {
        if terms.hold_ns == 0 || self.seen < FIRST_GAPS {
            return 0;
        }
        if self.seen.is_multiple_of(PLAN_GAPS) || self.plan == Plan::default() {
            let alone_ns = (self.own_ns - self.excess_ns.max(0.0)).max(0.0);
            self.plan = plan(&self.weights, alone_ns, self.return_ns() as f64, terms);
        }
        let probe_each = if self.seen < 4 * PROBE_EACH { PROBE_EACH / 4 } else { PROBE_EACH };
        self.since_probe = if self.since_probe >= probe_each { 1 } else { self.since_probe + 1 };
        self.due = (self.due + self.plan.eager_part).min(PROBE_GAPS.into());
        let is_eager = self.due >= 1.0 && self.since_probe > PROBE_GAPS;
        if is_eager {
            self.due -= 1.0;
        }
        let hold_ns = if is_eager { self.plan.eager_ns } else { self.plan.patient_ns };
        hold_ns.min(terms.hold_ns)
    }

    /// Mean length of the gaps that the present plan keeps, in ns; 0 = it keeps none.
    pub fn kept_ns(&self) -> u64 {
        let kept = self.weights.iter().enumerate().filter(|(class, _)| LIMITS_NS[*class] < self.plan.patient_ns);
        let (sum, all) = kept.fold((0, 0), |(sum, all), (class, weight)| {
            (sum + u64::from(*weight) * typical_ns(class), all + u64::from(*weight))
        });
        sum.checked_div(all).unwrap_or(0)
    }

    /// Present plan.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// Learned cost of the leaving of others, in ns.
    pub fn return_ns(&self) -> u64 {
        let learned_ns = self.excess_ns.max(0.0) / self.given.max(0.05);
        (learned_ns as u64).clamp(RETURN_NS / RETURN_MOST, RETURN_NS * RETURN_MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const TERMS: Terms = Terms { hold_ns: 3_500 * US, slowdown_percent: 105 };
    /// Time between two gaps, alone.
    const OWN_NS: u64 = 1_200 * US;

    /// Gaps of these lengths in turn, and what a gap costs that is given away: in the time after it, and in the time after the next gap.
    /// Returns the rate against alone, and the given parts of the gaps of each length, once all is learned.
    fn play<const N: usize>(gaps: [u64; N], costs: (u64, u64), terms: Terms) -> (f64, [f64; N]) {
        let mut known = Gaps::default();
        let (mut hold_ns, mut before, mut given, mut took_ns) = (0, true, [0; N], 0);
        let all_ns: u64 = gaps.iter().map(|gap_ns| gap_ns + OWN_NS).sum();
        for round in 0..4_000 {
            for (at, gap_ns) in gaps.into_iter().enumerate() {
                let kept = gap_ns < hold_ns.max(GRACE_NS.0);
                let own_ns = OWN_NS
                    + if !kept {
                        costs.0
                    } else if before {
                        0
                    } else {
                        costs.1
                    };
                before = kept;
                known.learn(Cycle { gap_ns, own_ns, kept });
                hold_ns = known.hold_ns(terms);
                assert!(hold_ns <= terms.hold_ns);
                if round >= 1_000 {
                    given[at] += u64::from(!kept);
                    took_ns += gap_ns + own_ns;
                }
            }
        }
        (all_ns as f64 * 3_000.0 / took_ns as f64, given.map(|n| n as f64 / 3_000.0))
    }

    #[test]
    fn short_gaps_are_given_away_while_budget_is_left() {
        for cost_us in [100, 200, 300, 400] {
            for gap_us in [800, 1_000, 1_200, 1_500, 2_000, 2_500, 3_000] {
                let (rate, [part]) = play([gap_us * US], (cost_us * US, 0), TERMS);
                let budget = 0.05 * (OWN_NS / US + gap_us) as f64 / cost_us as f64;
                assert!(rate >= 0.95, "{gap_us} us for {cost_us} us: {rate}");
                let is_worth_it = (gap_us as f64 - 100.0) / cost_us as f64 > 2.2;
                assert!(
                    !is_worth_it || part > 0.7 * budget.min(1.0),
                    "{gap_us} us for {cost_us} us: {part} of {budget}"
                );
            }
        }
    }

    #[test]
    fn a_gap_is_kept_in_which_others_would_do_little() {
        for gap_us in [300, 500, 600] {
            let (rate, [part]) = play([gap_us * US], (300 * US, 0), TERMS);
            assert!(part < 0.01 && rate > 0.999, "{gap_us} us: {part}, {rate}");
        }
    }

    #[test]
    fn long_gaps_are_given_away_always_and_before_short_ones() {
        let (rate, [short, long]) = play([800 * US, 6_000 * US], (250 * US, 0), TERMS);
        assert!(long > 0.99 && short > 0.05 && rate > 0.95, "{short}, {long}: {rate}");
        // The long ones alone cost more than the budget.
        let (_, [short, long, longer]) = play([800 * US, 6_000 * US, 9_000 * US], (250 * US, 0), TERMS);
        assert!(long > 0.99 && longer > 0.99 && short < 0.01, "{short}, {long}, {longer}");
    }

    #[test]
    fn the_return_is_learned_with_what_follows_later() {
        let (rate, [part]) = play([1_200 * US], (200 * US, 100 * US), TERMS);
        assert!((0.95..0.97).contains(&rate) && part > 0.3, "{rate}, {part}");
    }

    #[test]
    fn the_budget_and_the_longest_hold_are_the_daemons() {
        let with = |slowdown_percent, hold_ns| play([1_200 * US], (250 * US, 0), Terms { hold_ns, slowdown_percent });
        let (rate, [part]) = with(101, TERMS.hold_ns);
        assert!(rate > 0.989 && (0.03..0.12).contains(&part), "{rate}, {part}");
        let (_, [part]) = with(120, TERMS.hold_ns);
        assert!(part > 0.9, "{part}");
        for hold_ns in [0, 1_000 * US] {
            assert_eq!(with(105, hold_ns).1, [1.0], "longer than it may be kept");
        }
    }
}
