//! Completely fair: each group has a virtual runtime that grows with the device time it uses, slower for heavier ones. The one
//! that is furthest behind runs, for its part of a period. A newcomer begins at the device's least virtual runtime, and one that
//! wakes up far behind the running one takes its place as soon as that one has had shortest turn.
//!
//! The weight follows the priority as Linux' weights follow nice values: a quarter more for each of 40 whole steps, which the
//! priorities -255..=255 are spread over. A utilization or weight multiplies it.

use xsched_proto::hint::Hint;

use crate::entry::Entry;
use crate::params::{Accepts, Param, Params};
use crate::policies::kept::Kept;
use crate::tuning::{NICE_STEP, PART_LEAST, PRIORITIES_PER_STEP};
use crate::{GroupView, GroupId, Micros, Policy, Verdict};

pub(super) static ENTRY: Entry = Entry {
    params: &[LATENCY, GRANULARITY],
    hints: &[Hint::Weight, Hint::Utilization],
    takes_turns: true,
    ..Entry::new(
        "cfs",
        "completely fair: the program that has had the least for its priority and weight is next",
        "a mix of interactive and long work without any hints",
        make,
    )
};

const LATENCY: Param = Param {
    name: "latency_us",
    about: "period in which each program that wants the device has a turn, in µs",
    accepts: Accepts::Number { least: 1_000, most: 1_000_000, default: 20_000 },
};
const GRANULARITY: Param = Param {
    name: "granularity_us",
    about: "shortest turn, in µs; many programs make the period longer",
    accepts: Accepts::Number { least: 100, most: 100_000, default: 2_000 },
};

struct Entity {
    weight: f64,
    /// Priority and requested part that the weight was computed from.
    weighed: (i32, f64),
    used_us: f64,
    /// Virtual runtime, in µs at weight 1.
    vruntime: f64,
    ready: bool,
}

struct Cfs {
    latency_us: f64,
    granularity_us: f64,
    entities: Kept<Entity>,
    /// The least virtual runtime of those that want the device; never goes back.
    least: f64,
    current: Option<(GroupId, Micros)>,
}

fn make(params: &Params) -> Box<dyn Policy> {
    Box::new(Cfs {
        latency_us: params.number(&LATENCY) as f64,
        granularity_us: params.number(&GRANULARITY) as f64,
        entities: Kept::default(),
        least: 0.0,
        current: None,
    })
}

/// Weight of a group: 1 for priority 0 and the default weight.
fn weight(priority: i32, part: f64) -> f64 {
    // Whole steps: a power of anything else would link the preload library to libm.
    let step = f64::from(priority) / PRIORITIES_PER_STEP;
    NICE_STEP.powi((step + 0.5_f64.copysign(step)) as i32) * (part / 100.0).max(PART_LEAST)
}

/// Groups that want the device.
#[derive(Default)]
struct Wanting {
    count: usize,
    weight: f64,
    /// Index of the group that is furthest behind; of equals the older.
    first: Option<usize>,
}

impl Cfs {
    fn refresh(&mut self, groups: &[GroupView]) -> Wanting {
        let start = self.least;
        self.entities.follow(groups, |group| Entity {
            weight: 1.0,
            weighed: (0, 100.0),
            used_us: group.used_us,
            vruntime: start,
            ready: false,
        });
        let mut least = f64::INFINITY;
        for (entity, group) in self.entities.iter_mut().zip(groups) {
            entity.vruntime += (group.used_us - entity.used_us).max(0.0) / entity.weight;
            entity.used_us = group.used_us;
            let weighed = (group.priority, group.hints.part());
            if entity.weighed != weighed {
                (entity.weighed, entity.weight) = (weighed, weight(weighed.0, weighed.1));
            }
            if entity.ready {
                least = least.min(entity.vruntime);
            }
        }
        if least.is_finite() {
            self.least = self.least.max(least);
        }
        let mut wanting = Wanting::default();
        let mut behind = f64::INFINITY;
        for (at, (entity, group)) in self.entities.iter_mut().zip(groups).enumerate() {
            if group.ready && !entity.ready {
                // A group that slept gets half a period of credit: it runs soon, and no longer for having slept longer.
                let credit = self.latency_us / 2.0 / entity.weight;
                entity.vruntime = entity.vruntime.max(self.least - credit);
            }
            entity.ready = group.ready;
            if entity.ready {
                wanting.count += 1;
                wanting.weight += entity.weight;
                if entity.vruntime < behind {
                    (behind, wanting.first) = (entity.vruntime, Some(at));
                }
            }
        }
        wanting
    }

    /// Length of a turn of the group with this index, in µs.
    fn slice(&self, at: usize, wanting: &Wanting) -> f64 {
        let period = self.latency_us.max(self.granularity_us * wanting.count as f64);
        (period * self.entities[at].weight / wanting.weight).max(self.granularity_us)
    }

    /// True if the group with this index keeps the device, which it has had for `ran` µs.
    fn holds(&self, at: usize, ran: f64, wanting: &Wanting) -> bool {
        let Some(first) = wanting.first.filter(|_| self.entities[at].ready) else { return false };
        let distance = self.entities[at].vruntime - self.entities[first].vruntime;
        let far_behind = distance > self.granularity_us / self.entities[first].weight;
        ran < self.slice(at, wanting) && !(far_behind && ran >= self.granularity_us)
    }
}

impl Policy for Cfs {
    fn decide(&mut self, now: Micros, groups: &[GroupView], verdicts: &mut [Verdict]) -> Option<Micros> {
        let wanting = self.refresh(groups);
        let ran = |since: Micros| now.saturating_sub(since) as f64;
        let place = |id: GroupId| self.entities.place(id);
        self.current = self.current.filter(|&(id, since)| place(id).is_some_and(|at| self.holds(at, ran(since), &wanting)));
        // A group that is still furthest behind gets another turn.
        self.current = self.current.or_else(|| wanting.first.map(|at| (self.entities.id(at), now)));
        for (group, verdict) in groups.iter().zip(verdicts) {
            let run = self.current.is_none_or(|(id, _)| id == group.id);
            *verdict = Verdict { run, budgeted: groups.len() > 1 };
        }
        let (id, since) = self.current.filter(|_| wanting.count > 1)?;
        // The next decision comes after shortest turn, should another group be far behind by then.
        let slice = self.slice(self.entities.place(id)?, &wanting);
        let until = if ran(since) < self.granularity_us { self.granularity_us } else { slice };
        Some((since + until.ceil() as Micros).max(now + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Choice;
    use crate::policies::tests::{ask, group};

    #[test]
    fn a_newcomer_begins_where_the_others_are_and_a_sleeper_runs_soon() {
        let mut cfs = Choice::named("cfs").unwrap().make(0);
        let mut g = vec![GroupView { ready: true, ..group(1) }, group(2)];
        assert_eq!(ask(&mut *cfs, 0, &g), (vec![true, false], None));
        g[0].used_us = 1e6;
        g[1].ready = true;
        let (run, _) = ask(&mut *cfs, 1_000_000, &g);
        assert_eq!(run, [false, true], "it has slept");
        g[1].used_us = 11_000.0;
        g.push(GroupView { ready: true, ..group(3) });
        let (_, next) = ask(&mut *cfs, 1_011_000, &g);
        let mut now = next.unwrap();
        let mut turns = [0.0; 3];
        for _ in 0..300 {
            let (run, next) = ask(&mut *cfs, now, &g);
            let at = run.iter().position(|run| *run).unwrap();
            turns[at] += (next.unwrap() - now) as f64;
            g[at].used_us += (next.unwrap() - now) as f64;
            now = next.unwrap();
        }
        let all: f64 = turns.iter().sum();
        assert!(turns.iter().all(|t| (t / all - 1.0 / 3.0).abs() < 0.02), "the newcomer has no past to make up: {turns:?}");
    }

    #[test]
    fn a_step_of_nice_is_a_quarter_more() {
        let of = |priority| weight(priority, 100.0);
        assert_eq!(of(0), 1.0);
        assert_eq!((of(6), of(13), of(-13), of(26)), (1.0, 1.25, 0.8, 1.5625));
        assert_eq!((of(255), of(-255)), (1.25_f64.powi(20), 1.25_f64.powi(-20)));
    }
}
