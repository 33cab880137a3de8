//! Rule for others beside a program that has a page: they yield, or their gates close. A comparison decides.
//!
//! One burst in 32 is a *probe*, beside which gates close (and every other one of the first 16). The time per command of bursts beside
//! which others yielded is compared with that of probes. Where it is worse than the program's target allows, gates close for 10 s; each
//! further such result doubles that, up to 640 s, and a hundred bursts without one reset it.

use std::time::Duration;

use xsched_policy::math::ln;

/// Interval of probes, in bursts: 3 % of all.
const PROBE_EACH: u64 = 32;
/// Number of first bursts of which every other one is a probe.
const FIRST: u64 = 16;
/// Least number of bursts of each kind for a comparison.
const LEAST: f64 = 8.0;
/// Number of bursts that a mean covers: older ones are forgotten.
const REMEMBERED: f64 = 200.0;
/// Number of standard errors by which a difference must exceed the target: with a hundred comparisons a minute fewer would be chance.
const ERRORS: f64 = 3.0;
/// Time for which gates close after the first comparison that was lost, and the longest.
const CLOSED: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(640));
/// Slowdown that is allowed without a target, in percent.
pub(crate) const TARGET_PERCENT: u32 = 105;

/// Mean and variance of logarithms: times of requests spread by factors, and a single one that took ten times as long means little.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    n: f64,
    mean: f64,
    variance: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.n = (self.n + 1.0).min(REMEMBERED);
        let off = value - self.mean;
        self.mean += off / self.n;
        self.variance += (off * (value - self.mean) - self.variance) / self.n;
    }

    /// Square of the standard error of the mean.
    fn error(&self) -> f64 {
        self.variance / (self.n - 1.0).max(1.0)
    }
}

/// A burst beside others.
#[derive(Clone, Copy, Debug)]
struct Burst {
    number: u64,
    /// True if gates close beside this burst.
    closed: bool,
    /// True if both rules were in force during this burst: nothing is learned from it.
    mixed: bool,
}

/// The rule for others beside one program, and the measurements behind it.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    yielding: Mean,
    closed: Mean,
    burst: Option<Burst>,
    /// Number of bursts beside others so far.
    seen: u64,
    /// End of the time for which gates close, in ns.
    closed_until_ns: u64,
    closes_for: Duration,
    /// Number of comparisons that closed the gates.
    flips: u64,
}

impl Default for Rule {
    fn default() -> Rule {
        Rule {
            yielding: Mean::default(),
            closed: Mean::default(),
            burst: None,
            seen: 0,
            closed_until_ns: 0,
            closes_for: CLOSED.0,
            flips: 0,
        }
    }
}

/// The rule in force beside a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InForce {
    /// Others yield to it.
    Yields,
    /// Gates close for one burst, for comparison.
    Probe,
    /// Gates close, since the program was slower beside others than its target allows.
    Closes,
}

impl Rule {
    /// The rule for the burst with this number. Due while the program keeps others from the device.
    pub(crate) fn in_force(&mut self, now_ns: u64, burst: u64) -> InForce {
        let current = self.burst.filter(|known| known.number == burst);
        if current.is_none() {
            self.seen += 1;
        }
        let told = self.told(now_ns);
        let closed = told != InForce::Yields;
        let mixed = current.is_some_and(|known| known.mixed || known.closed != closed);
        self.burst = Some(Burst { number: burst, closed, mixed });
        told
    }

    /// The rule in force, for observers: nothing is counted.
    pub(crate) fn told(&self, now_ns: u64) -> InForce {
        if now_ns < self.closed_until_ns {
            InForce::Closes
        } else if self.seen > 0 && self.seen.is_multiple_of(if self.seen < FIRST { 2 } else { PROBE_EACH }) {
            InForce::Probe
        } else {
            InForce::Yields
        }
    }

    /// Learns from a burst that has ended: its number, its length and its commands. `percent` is the target.
    pub(crate) fn learn(&mut self, now_ns: u64, burst: u64, us: u64, commands: u64, percent: u32) {
        let Some(known) = self.burst.take().filter(|known| known.number == burst && !known.mixed) else { return };
        if us == 0 || commands == 0 || now_ns < self.closed_until_ns {
            return;
        }
        let value = ln(us as f64 / commands as f64);
        if known.closed {
            self.closed.add(value)
        } else {
            self.yielding.add(value)
        }
        if self.yielding.n < LEAST || self.closed.n < LEAST {
            return;
        }
        let errors = ERRORS * (self.yielding.error() + self.closed.error()).sqrt();
        let excess = self.yielding.mean - self.closed.mean - ln(f64::from(percent) / 100.0);
        if excess > errors {
            self.flips += 1;
            self.closed_until_ns = now_ns + self.closes_for.as_nanos() as u64;
            self.closes_for = (self.closes_for * 2).min(CLOSED.1);
            // Earlier measurements are no reason to close again.
            (self.yielding, self.closed) = (Mean::default(), Mean::default());
            self.seen = 0;
        } else if self.yielding.n >= REMEMBERED / 2.0 {
            self.closes_for = CLOSED.0;
        }
    }

    /// Number of comparisons that closed the gates.
    pub(crate) fn flips(&self) -> u64 {
        self.flips
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bursts at 40 a second for so many seconds: `cost` is the factor by which company slows them down. Returns the part of bursts
    /// beside which gates closed, of the second half of the time, and the flips.
    fn run(seconds: u64, percent: u32, mut cost: impl FnMut(u64) -> f64) -> (f64, u64) {
        let (mut rule, mut random, mut closed, mut all) = (Rule::default(), 1_u64, 0, 0);
        for burst in 0..seconds * 40 {
            let now_ns = 1 + burst * 25_000_000;
            let closes = rule.in_force(now_ns, burst) != InForce::Yields;
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Hosts are noisy: 8 to 12 ms.
            let host = 8_000.0 + (random >> 33) as f64 / (1_u64 << 31) as f64 * 4_000.0;
            let us = if closes { host } else { host * cost(burst) };
            rule.learn(now_ns, burst, us as u64, 100, percent);
            if burst >= seconds * 20 {
                (closed, all) = (closed + u64::from(closes), all + 1);
            }
        }
        (closed as f64 / all as f64, rule.flips())
    }

    #[test]
    fn company_that_costs_nothing_is_let_alone_but_for_probes() {
        let (closed, flips) = run(120, TARGET_PERCENT, |_| 1.0);
        assert!(closed < 0.04 && flips == 0, "{closed} {flips}");
        let (closed, flips) = run(120, TARGET_PERCENT, |_| 1.04);
        assert!(closed < 0.04 && flips == 0, "within the target: {closed} {flips}");
    }

    #[test]
    fn company_that_costs_more_than_the_target_is_kept_off_longer_and_longer() {
        let (closed, flips) = run(240, TARGET_PERCENT, |_| 1.5);
        assert!(closed > 0.9 && (2..6).contains(&flips), "{closed} {flips}");
        let (closed, flips) = run(240, 160, |_| 1.5);
        assert!(closed < 0.04 && flips == 0, "its target allows that: {closed} {flips}");
    }

    #[test]
    fn it_is_tried_again() {
        let (closed, _) = run(240, TARGET_PERCENT, |burst| if burst < 40 * 20 { 1.5 } else { 1.0 });
        assert!(closed < 0.2, "{closed}");
    }

    #[test]
    fn a_burst_with_both_rules_tells_nothing() {
        let mut rule = Rule::default();
        for burst in 0..40 {
            let now_ns = 1 + burst * 1_000_000_000;
            rule.in_force(now_ns, burst);
            rule.closed_until_ns = if burst % 2 == 0 { now_ns + 10 } else { 0 };
            rule.in_force(now_ns, burst);
            rule.learn(now_ns + 20, burst, 1_000, 1, TARGET_PERCENT);
        }
        assert!(rule.yielding.n + rule.closed.n < 40.0);
    }
}
