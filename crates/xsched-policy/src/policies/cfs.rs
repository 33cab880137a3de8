//! Completely fair: each group has a virtual runtime that grows with the device time it uses, slower for heavier ones. The one
//! that is furthest behind runs, for its part of a period. A newcomer begins at the device's least virtual runtime, and one that
//! wakes up far behind the running one takes its place at once.
//!
//! The weight follows the priority as Linux' weights follow nice values: a quarter more for each of 40 steps, which the
//! priorities -255..=255 are spread over. A utilization or weight multiplies it.

use std::collections::HashMap;

use xsched_proto::hint::Hint;

use crate::choice::{Accepts, Param, Params};
use crate::registry::Entry;
use crate::tuning::{NICE_STEP, PART_LEAST, PRIORITIES_PER_STEP};
use crate::{Group, GroupId, Micros, Policy, Verdict};

pub(super) static ENTRY: Entry = Entry {
    name: "cfs",
    about: "completely fair: the program that has had the least for its priority and weight is next",
    good_for: "a mix of interactive and long work without any hints",
    make,
    params: &[LATENCY, GRANULARITY],
    hints: &[Hint::Weight, Hint::Utilization],
    takes_turns: true,
    ..Entry::PLAIN
};

const LATENCY: Param = Param {
    name: "latency_us",
    about: "the period in which each program that wants the device has a turn, in µs",
    accepts: Accepts::Number { least: 1_000, most: 1_000_000, default: 20_000 },
};
const GRANULARITY: Param = Param {
    name: "granularity_us",
    about: "the shortest turn, in µs; many programs make the period longer",
    accepts: Accepts::Number { least: 100, most: 100_000, default: 2_000 },
};

struct Entity {
    weight: f64,
    used_us: f64,
    /// µs at weight 1.
    vruntime: f64,
    ready: bool,
    is_there: bool,
}

struct Cfs {
    latency_us: f64,
    granularity_us: f64,
    entities: HashMap<GroupId, Entity>,
    /// The least virtual runtime of those that want the device; never goes back.
    least: f64,
    current: Option<(GroupId, Micros)>,
}

fn make(params: &Params) -> Box<dyn Policy> {
    Box::new(Cfs {
        latency_us: params.number(&LATENCY) as f64,
        granularity_us: params.number(&GRANULARITY) as f64,
        entities: HashMap::new(),
        least: 0.0,
        current: None,
    })
}

/// 1 for priority 0 and the default weight.
fn weight(group: &Group) -> f64 {
    let part = (group.hints.part() / 100.0).max(PART_LEAST);
    NICE_STEP.powf(f64::from(group.priority) / PRIORITIES_PER_STEP) * part
}

impl Cfs {
    fn refresh(&mut self, groups: &[Group]) {
        self.entities.values_mut().for_each(|e| e.is_there = false);
        for group in groups {
            let least = self.least;
            let entity = self.entities.entry(group.id).or_insert_with(|| Entity {
                weight: 1.0,
                used_us: group.used_us,
                vruntime: least,
                ready: false,
                is_there: true,
            });
            entity.is_there = true;
            entity.vruntime += (group.used_us - entity.used_us).max(0.0) / entity.weight;
            entity.used_us = group.used_us;
            entity.weight = weight(group);
        }
        self.entities.retain(|_, e| e.is_there);
        let least = self.entities.values().filter(|e| e.ready).map(|e| e.vruntime).min_by(f64::total_cmp);
        self.least = self.least.max(least.unwrap_or(f64::MIN));
        for group in groups {
            let Some(entity) = self.entities.get_mut(&group.id) else { continue };
            if group.ready && !entity.ready {
                // Half a period of credit for one that slept: it runs soon, and no longer for having slept longer.
                let credit = self.latency_us / 2.0 / entity.weight;
                entity.vruntime = entity.vruntime.max(self.least - credit);
            }
            entity.ready = group.ready;
        }
    }

    /// How long a turn of the group lasts, µs.
    fn slice(&self, id: GroupId) -> f64 {
        let ready = || self.entities.values().filter(|e| e.ready);
        let (count, sum) = ready().fold((0.0, 0.0), |(n, sum), e| (n + 1.0, sum + e.weight));
        let period = self.latency_us.max(self.granularity_us * count);
        let weight = self.entities.get(&id).map_or(1.0, |e| e.weight);
        (period * weight / sum).max(self.granularity_us)
    }

    /// The group that is furthest behind; of equals the older.
    fn first(&self) -> Option<(GroupId, f64)> {
        let ready = self.entities.iter().filter(|(_, e)| e.ready).map(|(id, e)| (*id, e.vruntime));
        ready.min_by(|(a, va), (b, vb)| va.total_cmp(vb).then(a.cmp(b)))
    }
}

impl Policy for Cfs {
    fn decide(&mut self, now: Micros, groups: &[Group], verdicts: &mut [Verdict]) -> Option<Micros> {
        self.refresh(groups);
        let first = self.first();
        self.current = self.current.filter(|(id, since)| {
            let Some(entity) = self.entities.get(id).filter(|e| e.ready) else { return false };
            let Some((other, behind)) = first.filter(|(other, _)| other != id) else { return true };
            let far_behind = entity.vruntime - behind > self.granularity_us / self.entities[&other].weight;
            let ran = now.saturating_sub(*since) as f64;
            ran < self.slice(*id) && !(far_behind && ran >= self.granularity_us)
        });
        self.current = self.current.or_else(|| first.map(|(id, _)| (id, now)));
        for (group, verdict) in groups.iter().zip(verdicts) {
            let run = self.current.is_none_or(|(id, _)| id == group.id);
            *verdict = Verdict { run, bounded: groups.len() > 1 };
        }
        let (id, since) = self.current?;
        if self.entities.values().filter(|e| e.ready).count() < 2 {
            return None;
        }
        // Looked at again after the shortest turn, should another one be far behind by then.
        let ran = now.saturating_sub(since) as f64;
        let until = if ran < self.granularity_us { self.granularity_us } else { self.slice(id) };
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
        let mut g = vec![Group { ready: true, ..group(1) }, group(2)];
        assert_eq!(ask(&mut *cfs, 0, &g), (vec![true, false], None));
        g[0].used_us = 1e6;
        g[1].ready = true;
        let (run, _) = ask(&mut *cfs, 1_000_000, &g);
        assert_eq!(run, [false, true], "it has slept");
        g[1].used_us = 11_000.0;
        g.push(Group { ready: true, ..group(3) });
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
        let of = |priority| weight(&Group { priority, ..group(1) });
        assert_eq!(of(0), 1.0);
        assert!((of(128) / of(-128) - 1.25_f64.powf(256.0 / 12.75)).abs() < 1e-9);
    }
}
