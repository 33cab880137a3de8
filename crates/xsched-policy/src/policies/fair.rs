//! Weighted fair share: contenders take turns, one at a time.
//!
//! A contender is a group (`up`) or all groups of a program (`pup`). Each has a virtual time: device time charged to
//! it divided by its weight. The contender that is furthest behind gets the next turn. A turn lasts the contender's
//! timeslice, up to four times as long for heavier ones; what it really used, draining included, is charged, so shares come out right over a few
//! turns whatever a switch costs. A contender that wants nothing is passed over at once.

use crate::params::Params;
use crate::tuning::{SHORT_IDLE_US, TURN_MAX, TURN_MIN_US};
use crate::{Group, Micros, Policy, Verdict};

struct Contender {
    key: u64,
    weight: f64,
    timeslice_us: u64,
    /// Charged time over all its groups at the last look, µs.
    used_us: f64,
    /// µs per unit of weight.
    virtual_time: f64,
    ready: bool,
    idle_since: Option<Micros>,
}

struct Fair {
    by_program: bool,
    contenders: Vec<Contender>,
    /// Where newcomers start: the least virtual time of those that want the device; never goes back.
    floor: f64,
    /// Key of whose turn it is, and since when.
    current: Option<(u64, Micros)>,
}

pub(crate) fn make_by_group(_: Params) -> Box<dyn Policy> {
    Box::new(Fair { by_program: false, contenders: Vec::new(), floor: 0.0, current: None })
}

pub(crate) fn make_by_program(_: Params) -> Box<dyn Policy> {
    Box::new(Fair { by_program: true, contenders: Vec::new(), floor: 0.0, current: None })
}

impl Fair {
    fn key(&self, group: &Group) -> u64 {
        if self.by_program { group.program.0 } else { group.id.0 }
    }

    /// Brings the contenders up to date with the groups and what was charged to them.
    fn refresh(&mut self, now: Micros, groups: &[Group]) {
        for group in groups {
            let key = self.key(group);
            if !self.contenders.iter().any(|c| c.key == key) {
                self.contenders.push(Contender {
                    key,
                    weight: 1.0,
                    timeslice_us: 0,
                    used_us: f64::NAN,
                    virtual_time: self.floor,
                    ready: false,
                    idle_since: None,
                });
            }
        }
        let by_program = self.by_program;
        let of = |key: u64| groups.iter().filter(move |g| key == if by_program { g.program.0 } else { g.id.0 });
        self.contenders.retain(|c| of(c.key).next().is_some());
        for c in &mut self.contenders {
            let used: f64 = of(c.key).map(|g| g.used_us).sum();
            // Less than before happens when a group of the program was removed; its past is no longer of interest.
            if used > c.used_us {
                c.virtual_time += (used - c.used_us) / c.weight;
            }
            c.used_us = used;
            c.weight = of(c.key).map(|g| f64::from(g.weight.max(1))).fold(1.0, f64::max);
            c.timeslice_us = of(c.key).map(|g| g.timeslice_us).max().unwrap_or(0);
        }
        // Those that wanted the device until now say where newcomers start.
        if let Some(least) = self.contenders.iter().filter(|c| c.ready).map(|c| c.virtual_time).min_by(f64::total_cmp) {
            self.floor = self.floor.max(least);
        }
        for c in &mut self.contenders {
            let ready = of(c.key).any(|g| g.ready);
            if ready && !c.ready {
                let short = c.idle_since.is_some_and(|since| now.saturating_sub(since) <= SHORT_IDLE_US);
                let credit = if short { c.timeslice_us as f64 / c.weight } else { 0.0 };
                c.virtual_time = c.virtual_time.max(self.floor - credit);
            } else if !ready && c.ready {
                c.idle_since = Some(now);
            }
            c.ready = ready;
        }
    }

    /// How long a turn of `c` lasts, µs.
    fn turn(&self, c: &Contender) -> u64 {
        // What a switch costs, of a short turn it takes a larger part: the lightest has a whole timeslice.
        let lightest = self.contenders.iter().filter(|c| c.ready).map(|c| c.weight).fold(c.weight, f64::min);
        ((c.timeslice_us as f64 * (c.weight / lightest).min(TURN_MAX)) as u64).max(TURN_MIN_US)
    }
}

impl Policy for Fair {
    fn decide(&mut self, now: Micros, groups: &[Group], verdicts: &mut [Verdict]) -> Option<Micros> {
        self.refresh(now, groups);
        let waiting = self.contenders.iter().filter(|c| c.ready).count();
        let holds = self.current.and_then(|(key, since)| {
            let c = self.contenders.iter().find(|c| c.key == key && c.ready)?;
            (waiting == 1 || now < since + self.turn(c)).then_some((key, since))
        });
        self.current = holds.or_else(|| {
            // Of two that are equally far behind, the one that did not run just now.
            let last = self.current.map(|(key, _)| key);
            let next = self.contenders.iter().filter(|c| c.ready).min_by(|a, b| {
                a.virtual_time.total_cmp(&b.virtual_time).then((Some(a.key) == last).cmp(&(Some(b.key) == last)))
            })?;
            Some((next.key, now))
        });
        let many = self.contenders.len() > 1;
        for (group, verdict) in groups.iter().zip(verdicts) {
            let run = self.current.is_none_or(|(key, _)| key == self.key(group));
            *verdict = Verdict { run, bounded: many };
        }
        let (key, since) = self.current.filter(|_| waiting > 1)?;
        let current = self.contenders.iter().find(|c| c.key == key)?;
        Some(since + self.turn(current))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{GroupId, ProgramId};

    pub(crate) fn group(id: u64) -> Group {
        Group {
            id: GroupId(id),
            program: ProgramId(id),
            priority: 0,
            weight: 100,
            timeslice_us: 5_000,
            ready: false,
            ready_since: 0,
            granted: false,
            busy: false,
            used_us: 0.0,
            side_by_side: false,
            holds_up: false,
            idle_since: None,
        }
    }

    fn ask(policy: &mut dyn Policy, now: Micros, groups: &[Group]) -> (Vec<bool>, Option<Micros>) {
        let mut verdicts = vec![Verdict::default(); groups.len()];
        let next = policy.decide(now, groups, &mut verdicts);
        assert!(verdicts.iter().all(|v| v.bounded == (groups.len() > 1)));
        (verdicts.iter().map(|v| v.run).collect(), next)
    }

    #[test]
    fn one_at_a_time_runs_for_a_turn_scaled_by_weight() {
        let mut up = make_by_group(Params::default());
        let mut g = [Group { ready: true, weight: 75, ..group(1) }, Group { ready: true, weight: 25, ..group(2) }];
        assert_eq!(ask(&mut *up, 0, &g), (vec![true, false], Some(15_000)));
        g[0].used_us = 15_000.0;
        assert_eq!(ask(&mut *up, 15_000, &g), (vec![false, true], Some(20_000)));
        g[1].used_us = 5_001.0;
        assert_eq!(ask(&mut *up, 20_000, &g).0, [true, false], "whoever is further behind");
    }

    #[test]
    fn who_wants_nothing_is_passed_over_and_who_is_alone_runs_on() {
        let mut up = make_by_group(Params::default());
        let mut g = [Group { ready: true, ..group(1) }, group(2)];
        assert_eq!(ask(&mut *up, 0, &g), (vec![true, false], None));
        assert_eq!(ask(&mut *up, 9_000_000, &g).0, [true, false]);
        g[0].ready = false;
        g[1].ready = true;
        assert_eq!(ask(&mut *up, 9_000_001, &g).0, [false, true]);
        g[1].ready = false;
        assert_eq!(ask(&mut *up, 9_000_002, &g).0, [true, true], "nobody wants it: whoever comes first starts at once");
    }

    #[test]
    fn idle_time_earns_no_credit_but_a_moment_costs_no_claim() {
        let mut up = make_by_group(Params::default());
        let mut g = [Group { ready: true, ..group(1) }, group(2)];
        ask(&mut *up, 1, &g);
        g[0].used_us = 1e6;
        g[1].ready = true;
        ask(&mut *up, 1_000_000, &g);
        // Both stand at one million now: they alternate, and the newcomer does not get a second on its own.
        let mut ran = [0.0; 2];
        let mut now = 1_000_000;
        for _ in 0..100 {
            let (run, next) = ask(&mut *up, now, &g);
            let who = usize::from(run[1]);
            let next = next.unwrap();
            g[who].used_us += (next - now) as f64;
            ran[who] += (next - now) as f64;
            now = next;
        }
        assert!((ran[0] - ran[1]).abs() <= 5_000.0, "{ran:?}");
        // A short gap of the one that is behind: it is still the next to run.
        let behind = usize::from(ask(&mut *up, now, &g).0[1]);
        g[behind].ready = false;
        ask(&mut *up, now, &g);
        g[1 - behind].used_us += 1_000.0;
        g[behind].ready = true;
        let (_, next) = ask(&mut *up, now + 1_000, &g);
        assert!(ask(&mut *up, next.unwrap(), &g).0[behind]);
    }

    #[test]
    fn by_program_the_groups_of_a_program_run_together_and_share_its_weight() {
        let mut pup = make_by_program(Params::default());
        let of = |id, program| Group { ready: true, program: ProgramId(program), ..group(id) };
        let mut g = [of(1, 1), of(2, 1), of(3, 2)];
        let mut used = [0.0; 2];
        let mut now = 0;
        for _ in 0..1_000 {
            let (run, next) = ask(&mut *pup, now, &g);
            assert!(run == [true, true, false] || run == [false, false, true], "{run:?}");
            let step = (next.unwrap() - now) as f64;
            now = next.unwrap();
            if run[0] {
                g[0].used_us += step / 2.0;
                g[1].used_us += step / 2.0;
            } else {
                g[2].used_us += step;
            }
            used[usize::from(run[2])] += step;
        }
        let share = used[0] / (used[0] + used[1]);
        assert!((share - 0.5).abs() < 0.01, "{share}");
    }
}
