//! For tests: suspends and resumes all groups at random for 0.1 to 20 ms, and gives them budgets at random.
//!
//! Programs must give the same results under it. Open and closed phases alternate, so no gate is ever closed for
//! longer than the longest phase. The same seed and the same events give the same decisions.

use crate::entry::Entry;
use crate::params::Params;
use crate::tuning::{PHASE_MAX_US, PHASE_MIN_US};
use crate::{GroupView, GroupId, Micros, Policy, Verdict};

pub(super) static ENTRY: Entry = Entry {
    conserves_work: false,
    listed: false,
    ..Entry::new(
        "chaos",
        "suspends and resumes all programs at random, to test them",
        "tests",
        make,
    )
};

struct Phase {
    group: GroupId,
    until: Micros,
    verdict: Verdict,
}

struct Chaos {
    random: u64,
    phases: Vec<Phase>,
}

fn make(params: &Params) -> Box<dyn Policy> {
    // xorshift must not start at zero; the multiplier spreads small seeds.
    let random = params.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    Box::new(Chaos { random, phases: Vec::new() })
}

impl Chaos {
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn coin(&mut self) -> bool {
        self.next().is_multiple_of(2)
    }

    fn phase(&mut self, now: Micros, run: bool) -> (Micros, Verdict) {
        // Lengths are spread evenly over orders of magnitude, so that short ones are as common as long ones.
        let octave = self.next() % 8;
        let longest = (PHASE_MIN_US << (octave + 1)).min(PHASE_MAX_US);
        let length = PHASE_MIN_US + self.next() % (longest - PHASE_MIN_US + 1);
        (now + length, Verdict { run, budgeted: self.coin() })
    }
}

impl Policy for Chaos {
    fn decide(&mut self, now: Micros, groups: &[GroupView], verdicts: &mut [Verdict]) -> Option<Micros> {
        self.phases.retain(|p| groups.iter().any(|g| g.id == p.group));
        for (group, verdict) in groups.iter().zip(verdicts) {
            let at = match self.phases.iter().position(|p| p.group == group.id) {
                Some(at) => at,
                None => {
                    let run = self.coin();
                    let (until, verdict) = self.phase(now, run);
                    self.phases.push(Phase { group: group.id, until, verdict });
                    self.phases.len() - 1
                }
            };
            if self.phases[at].until <= now {
                let run = !self.phases[at].verdict.run;
                let (until, verdict) = self.phase(now, run);
                self.phases[at] = Phase { group: group.id, until, verdict };
            }
            *verdict = self.phases[at].verdict;
        }
        self.phases.iter().map(|p| p.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Choice;
    use crate::policies::tests::group;

    #[test]
    fn everybody_is_suspended_and_resumed_again_and_again_and_a_seed_repeats_itself() {
        let record = |seed| {
            let mut chaos = Choice::named("chaos").unwrap().make(seed);
            let groups = [group(1), group(2), group(3)];
            let (mut now, mut trace, mut flips) = (0, Vec::new(), [0; 3]);
            let mut last = [Verdict::default(); 3];
            while now < 2_000_000 {
                let mut verdicts = [Verdict::default(); 3];
                let next = chaos.decide(now, &groups, &mut verdicts).unwrap();
                assert!(next > now && next <= now + PHASE_MAX_US);
                for i in 0..3 {
                    flips[i] += u32::from(verdicts[i].run != last[i].run);
                }
                trace.push((now, verdicts));
                (last, now) = (verdicts, next);
            }
            assert!(flips.iter().all(|&n| n > 100), "{flips:?}");
            trace
        };
        assert_eq!(record(7), record(7));
        assert_ne!(record(7), record(8));
    }
}
