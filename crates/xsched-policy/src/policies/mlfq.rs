//! Multi-level feedback queue: a group begins at the top level and goes down one when it has used up its level's quantum. Groups
//! of the highest level that want the device take turns; quanta double from level to level. So work in short bursts stays
//! above work that never ends, without a hint.
//!
//! Recovery: `soft` pays back what a group used while it leaves the device alone, and lets it rise when all is paid back;
//! `periodic` lifts all groups to the top once in a period.

use std::collections::HashMap;

use xsched_proto::hint::Hint;

use crate::choice::{Accepts, Param, Params};
use crate::registry::Entry;
use crate::tuning::SLEEP_PER_RUN;
use crate::{Group, GroupId, Micros, Policy, Verdict};

pub(super) static ENTRY: Entry = Entry {
    name: "mlfq",
    about: "multi-level feedback queue: short bursts go before work that never ends, without a hint",
    good_for: "interactive programs beside batch work that nobody has sorted",
    make,
    params: &[LEVELS, RECOVERY, PERIOD],
    hints: &[Hint::Timeslice],
    takes_turns: true,
    ..Entry::PLAIN
};

const LEVELS: Param = Param {
    name: "levels",
    about: "how many levels there are",
    accepts: Accepts::Number { least: 2, most: 8, default: 4 },
};
const RECOVERY: Param = Param {
    name: "recovery",
    about: "how a group rises again: by leaving the device alone, or all of them once in a period",
    accepts: Accepts::Word(&["soft", "periodic"]),
};
const PERIOD: Param = Param {
    name: "period_us",
    about: "the period of periodic recovery, in µs",
    accepts: Accepts::Number { least: 10_000, most: 100_000_000, default: 1_000_000 },
};

struct Entity {
    level: u32,
    /// Device time used at its level, µs.
    spent_us: f64,
    used_us: f64,
    ready: bool,
    idle_since: Micros,
    /// When it last lost the device, as a number that grows.
    turn: u64,
    is_there: bool,
}

struct Mlfq {
    lowest: u32,
    period_us: Option<Micros>,
    lifts_at: Option<Micros>,
    entities: HashMap<GroupId, Entity>,
    current: Option<(GroupId, Micros)>,
    turns: u64,
}

fn make(params: &Params) -> Box<dyn Policy> {
    Box::new(Mlfq::new(params))
}

fn quantum_us(group: &Group, level: u32) -> f64 {
    (group.hints.turn_us() << level) as f64
}

impl Mlfq {
    fn new(params: &Params) -> Mlfq {
        Mlfq {
            lowest: params.number(&LEVELS) as u32 - 1,
            period_us: params.is(&RECOVERY, "periodic").then(|| params.number(&PERIOD)),
            lifts_at: None,
            entities: HashMap::new(),
            current: None,
            turns: 0,
        }
    }

    fn refresh(&mut self, now: Micros, groups: &[Group]) {
        self.entities.values_mut().for_each(|e| e.is_there = false);
        for group in groups {
            let entity = self.entities.entry(group.id).or_insert(Entity {
                level: 0,
                spent_us: 0.0,
                used_us: group.used_us,
                ready: false,
                idle_since: now,
                turn: 0,
                is_there: true,
            });
            entity.is_there = true;
            entity.spent_us += (group.used_us - entity.used_us).max(0.0);
            entity.used_us = group.used_us;
            if group.ready && !entity.ready && self.period_us.is_none() {
                entity.pay_back(now.saturating_sub(entity.idle_since), group);
            } else if !group.ready && entity.ready {
                entity.idle_since = now;
            }
            entity.ready = group.ready;
            while entity.spent_us >= quantum_us(group, entity.level) {
                entity.spent_us -= quantum_us(group, entity.level);
                if entity.level == self.lowest {
                    entity.spent_us = 0.0;
                    break;
                }
                entity.level += 1;
            }
        }
        self.entities.retain(|_, e| e.is_there);
        if let Some(period) = self.period_us {
            if self.lifts_at.is_some_and(|at| at <= now) {
                self.entities.values_mut().for_each(|e| (e.level, e.spent_us) = (0, 0.0));
                self.lifts_at = None;
            }
            self.lifts_at.get_or_insert(now + period);
        }
    }

    fn first(&self) -> Option<GroupId> {
        let ready = self.entities.iter().filter(|(_, e)| e.ready);
        ready.min_by_key(|(id, e)| (e.level, e.turn, **id)).map(|(id, _)| *id)
    }
}

impl Entity {
    fn pay_back(&mut self, slept: Micros, group: &Group) {
        let mut back = slept as f64 / SLEEP_PER_RUN;
        while back >= self.spent_us {
            back -= self.spent_us;
            self.spent_us = 0.0;
            if self.level == 0 {
                return;
            }
            self.level -= 1;
            self.spent_us = quantum_us(group, self.level);
        }
        self.spent_us -= back;
        // Whole again only with something paid back: it would go down at once.
        if self.spent_us >= quantum_us(group, self.level) {
            (self.level, self.spent_us) = (self.level + 1, 0.0);
        }
    }
}

impl Policy for Mlfq {
    fn decide(&mut self, now: Micros, groups: &[Group], verdicts: &mut [Verdict]) -> Option<Micros> {
        self.refresh(now, groups);
        let top = self.entities.values().filter(|e| e.ready).map(|e| e.level).min();
        let at = |id: GroupId| groups.binary_search_by_key(&id, |g| g.id).ok().map(|at| &groups[at]);
        let turn_us = |id: GroupId| {
            let level = self.entities.get(&id).map_or(0, |e| e.level);
            at(id).map_or(0.0, |group| quantum_us(group, level)) as Micros
        };
        let holds = self.current.filter(|(id, since)| {
            let entity = self.entities.get(id).filter(|e| e.ready && Some(e.level) == top);
            let alone = self.entities.values().filter(|e| e.ready && Some(e.level) == top).count() == 1;
            entity.is_some() && (alone || now < since + turn_us(*id))
        });
        if holds.is_none() {
            if let Some(last) = self.current.and_then(|(id, _)| self.entities.get_mut(&id)) {
                self.turns += 1;
                last.turn = self.turns;
            }
            self.current = self.first().map(|id| (id, now));
        }
        for (group, verdict) in groups.iter().zip(verdicts) {
            let run = self.current.is_none_or(|(id, _)| id == group.id);
            *verdict = Verdict { run, bounded: groups.len() > 1 };
        }
        let waiting = self.entities.values().filter(|e| e.ready).count();
        let (id, since) = self.current.filter(|_| waiting > 1)?;
        let entity = self.entities.get(&id)?;
        // It may go down before its turn is over.
        let level = quantum_us(at(id)?, entity.level);
        let left = now + (level - entity.spent_us).max(1.0).ceil() as Micros;
        let turn = since + level as Micros;
        let ends = if turn > now { left.min(turn) } else { left };
        Some(self.lifts_at.map_or(ends, |at| at.min(ends)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Choice;
    use crate::policies::tests::{ask, group};

    /// The level of a group that had the device for `ran_us`, then left it for `slept_us`.
    fn level(params: &[(&str, &str)], ran_us: f64, slept_us: u64) -> u32 {
        let choice = Choice::with("mlfq", params.iter().copied()).unwrap();
        let mut mlfq = Mlfq::new(&choice.params);
        let mut g = [Group { ready: true, ..group(1) }, group(2)];
        ask(&mut mlfq, 0, &g);
        g[0].used_us = ran_us;
        let now = ran_us as Micros;
        ask(&mut mlfq, now, &g);
        g[0].ready = false;
        ask(&mut mlfq, now, &g);
        g[0].ready = true;
        ask(&mut mlfq, now + slept_us, &g);
        mlfq.entities[&g[0].id].level
    }

    #[test]
    fn a_group_goes_down_by_what_it_uses_and_rises_by_leaving_the_device_alone() {
        assert_eq!(level(&[], 4_999.0, 0), 0);
        assert_eq!(level(&[], 5_000.0, 0), 1);
        assert_eq!(level(&[], 12_000.0, 20_000), 1, "a quarter is paid back: 2 ms are left");
        assert_eq!(level(&[], 12_000.0, 30_000), 0);
        assert_eq!(level(&[], 1e6, 0), 3, "there is no lower one");
        let periodic = [("recovery", "periodic"), ("period_us", "50000")];
        assert_eq!(level(&periodic, 12_000.0, 30_000), 1, "sleep does not count");
        assert_eq!(level(&periodic, 12_000.0, 50_000), 0, "the period is over");
    }
}
