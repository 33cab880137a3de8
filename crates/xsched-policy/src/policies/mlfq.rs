//! Multi-level feedback queue: a group begins at the top level and goes down one when it has used up its level's quantum. Groups
//! of the highest level that want the device take turns; quanta double from level to level. So work in short bursts stays
//! above work that never ends, without a hint.
//!
//! Recovery: `soft` pays back what a group used while it leaves the device alone, and lets it rise when all is paid back;
//! `periodic` lifts all groups to the top once in a period.

use xsched_proto::hint::Hint;

use crate::entry::Entry;
use crate::params::{Accepts, Param, Params};
use crate::policies::kept::Kept;
use crate::tuning::SLEEP_PER_RUN;
use crate::{GroupView, GroupId, Micros, Policy, Verdict};

pub(super) static ENTRY: Entry = Entry {
    params: &[LEVELS, RECOVERY, PERIOD],
    hints: &[Hint::Timeslice],
    takes_turns: true,
    ..Entry::new(
        "mlfq",
        "multi-level feedback queue: short bursts go before work that never ends, without a hint",
        "interactive programs beside batch work, unsorted",
        make,
    )
};

const LEVELS: Param = Param {
    name: "levels",
    about: "number of levels",
    accepts: Accepts::Number { least: 2, most: 8, default: 4 },
};
const RECOVERY: Param = Param {
    name: "recovery",
    about: "way back to the top: soft = by leaving the device alone, periodic = all groups once in a period",
    accepts: Accepts::Word(&["soft", "periodic"]),
};
const PERIOD: Param = Param {
    name: "period_us",
    about: "period of periodic recovery, in µs",
    accepts: Accepts::Number { least: 10_000, most: 100_000_000, default: 1_000_000 },
};

#[derive(Default)]
struct Entity {
    level: u32,
    /// Device time used of its level's quantum, µs.
    spent_us: f64,
    used_us: f64,
    ready: bool,
    idle_since: Micros,
    /// Number of its last turn that is over; numbers grow.
    turn: u64,
    /// True if the group has used up a quantum since the last decision.
    is_over: bool,
}

struct Mlfq {
    lowest: u32,
    period_us: Option<Micros>,
    lifts_at: Option<Micros>,
    entities: Kept<Entity>,
    current: Option<GroupId>,
    turns: u64,
}

fn make(params: &Params) -> Box<dyn Policy> {
    Box::new(Mlfq::new(params))
}

fn quantum_us(group: &GroupView, level: u32) -> f64 {
    (group.hints.turn_us() << level) as f64
}

impl Mlfq {
    fn new(params: &Params) -> Mlfq {
        Mlfq {
            lowest: params.number(&LEVELS) as u32 - 1,
            period_us: params.is(&RECOVERY, "periodic").then(|| params.number(&PERIOD)),
            lifts_at: None,
            entities: Kept::default(),
            current: None,
            turns: 0,
        }
    }

    fn refresh(&mut self, now: Micros, groups: &[GroupView]) {
        let new = |group: &GroupView| Entity { used_us: group.used_us, idle_since: now, ..Entity::default() };
        self.entities.follow(groups, new);
        for (entity, group) in self.entities.iter_mut().zip(groups) {
            entity.spent_us += (group.used_us - entity.used_us).max(0.0);
            entity.used_us = group.used_us;
            if group.ready && !entity.ready && self.period_us.is_none() {
                entity.pay_back(now.saturating_sub(entity.idle_since), group);
            } else if !group.ready && entity.ready {
                entity.idle_since = now;
            }
            entity.ready = group.ready;
            entity.is_over = entity.spent_us >= quantum_us(group, entity.level);
            if entity.is_over {
                // This includes a group that was off the device already, whose work in flight used up the rest.
                self.turns += 1;
                entity.turn = self.turns;
            }
            while entity.spent_us >= quantum_us(group, entity.level) {
                entity.spent_us -= quantum_us(group, entity.level);
                if entity.level >= self.lowest {
                    (entity.level, entity.spent_us) = (self.lowest, 0.0);
                    break;
                }
                entity.level += 1;
            }
        }
        if let Some(period) = self.period_us {
            if self.lifts_at.is_some_and(|at| at <= now) {
                self.entities.iter_mut().for_each(|e| (e.level, e.spent_us) = (0, 0.0));
                self.lifts_at = None;
            }
            self.lifts_at.get_or_insert(now + period);
        }
    }

    /// Index of the group that is next.
    fn first(&self) -> Option<usize> {
        let ready = self.entities.iter().enumerate().filter(|(_, e)| e.ready);
        ready.min_by_key(|(at, e)| (e.level, e.turn, *at)).map(|(at, _)| at)
    }

    /// Index of the group that has the device, if it goes on. A group that has to leave it to a higher level in mid-turn finishes its
    /// turn later.
    fn holder(&mut self) -> Option<usize> {
        let at = self.entities.place(self.current?)?;
        if !self.entities[at].ready {
            self.turns += 1;
            self.entities[at].turn = self.turns;
        }
        let top = self.entities.iter().filter(|e| e.ready).map(|e| e.level).min();
        let entity = &self.entities[at];
        (entity.ready && !entity.is_over && Some(entity.level) == top).then_some(at)
    }
}

impl Entity {
    fn pay_back(&mut self, slept: Micros, group: &GroupView) {
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
    fn decide(&mut self, now: Micros, groups: &[GroupView], verdicts: &mut [Verdict]) -> Option<Micros> {
        self.refresh(now, groups);
        let current = self.holder().or_else(|| self.first());
        self.current = current.map(|at| groups[at].id);
        for (group, verdict) in groups.iter().zip(verdicts) {
            let run = self.current.is_none_or(|id| id == group.id);
            *verdict = Verdict { run, budgeted: groups.len() > 1 };
        }
        let waiting = self.entities.iter().filter(|e| e.ready).count();
        let at = current.filter(|_| waiting > 1)?;
        let entity = &self.entities[at];
        let left = quantum_us(&groups[at], entity.level) - entity.spent_us;
        let ends = now + left.max(1.0).ceil() as Micros;
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
        let mut g = [GroupView { ready: true, ..group(1) }, group(2)];
        ask(&mut mlfq, 0, &g);
        g[0].used_us = ran_us;
        let now = ran_us as Micros;
        ask(&mut mlfq, now, &g);
        g[0].ready = false;
        ask(&mut mlfq, now, &g);
        g[0].ready = true;
        ask(&mut mlfq, now + slept_us, &g);
        mlfq.entities[0].level
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
