//! Third stage: even progress of the groups of a pool, which run side by side in one hardware context, first come first served.
//!
//! A controller holds the groups that are ahead. Kernel times of such groups overlap, so the controlled value is not device time but
//! *progress*, for each group in µs:
//!
//! ```text
//! progress  p += c(n · a · s)         n  commands completed since the last count
//!                                     a  mean time of a command alone on the device, µs
//!                                     s  mean weight of the compared groups ÷ own weight
//! reached   r  = p + c(t · s)         t  time that the command in flight has run, estimated, µs; a at most
//! lead      l  = r − min r            over the groups that are slower beside the others than alone
//! held      while l > S               S  LEAD_SLACK_US, 10 ms; once held, until l ≤ S ÷ 2
//!
//! c(x) = x₀ + e · (x − x₀)            e  evenness, 0..=1; x₀ = part of x within S ÷ 2 of the slowest group
//! ```
//!
//! With e = 1 all groups make progress by their weights. With less, each gets at least that part of the relative speed of the fastest.
//! The slowest group is never held, so that some group of each pool always runs. No group is held for one that runs as fast beside the
//! others as alone: the host of that one is slow, and it would gain nothing. The policy decides first: only groups that it lets run are
//! compared.
//!
//! - [`controller`]: positions, leads, and the phases in which a group is compared with others or not.
//! - [`meter`]: rates of completion, alone (1 ÷ a) and beside others.
//! - [`calibration`]: samples of the rate alone, for which all others are held now and then.
//!
//! Nothing is held on account of a group whose rate alone is not known yet.

mod calibration;
mod controller;
mod eligible;
mod meter;

use std::collections::BTreeMap;

use xsched_proto::trace::Why;

use self::calibration::{Calibration, Schedule};
use self::controller::{Controller, Position};
use self::eligible::{can_be_held, pool_of};
pub(in crate::arbiter) use self::meter::Count;
use self::meter::Meter;
use super::{Round, Stage};
use crate::arbiter::member::Member;
use crate::tuning::*;
use crate::{GroupId, Micros, Verdict};

/// All pools on one device.
pub(in crate::arbiter) struct Evenness {
    groups: BTreeMap<GroupId, PoolGroup>,
    controller: Controller,
    calibration: Calibration,
    /// Time of the next counts; none = counts are not needed.
    count_at: Option<Micros>,
    /// End of the time in which some group goes on beside a more urgent one of its server, or did so a moment ago. Neither that time nor
    /// completions in it tell how fast a group is.
    accompanied_until: Micros,
    /// True in that time, as of the last decision: clocks stand still.
    is_accompanied: bool,
}

/// One group of a pool.
struct PoolGroup {
    meter: Meter,
    position: Position,
    schedule: Schedule,
}

/// GroupView that is the only one of its pool on the device.
#[derive(Clone, Copy)]
struct Sole<'a> {
    /// None = several groups are there.
    member: Option<&'a Member>,
    /// Another context has taken the pool off the device.
    is_displaced: bool,
}

impl Evenness {
    pub(in crate::arbiter) fn new(percent: u32) -> Evenness {
        Evenness {
            groups: BTreeMap::new(),
            controller: Controller::new(part(percent)),
            calibration: Calibration::default(),
            count_at: None,
            accompanied_until: 0,
            is_accompanied: false,
        }
    }

    pub(in crate::arbiter) fn set(&mut self, percent: u32) {
        self.controller.evenness = part(percent);
        self.groups.values_mut().for_each(|group| group.position.unplace());
    }

    /// True if fresh counts are due.
    pub(in crate::arbiter) fn counts_due(&self, now: Micros) -> bool {
        self.count_at.is_some_and(|at| at <= now)
    }

    /// True if the counts of a group are needed.
    pub(in crate::arbiter) fn is_counted(&self, id: GroupId) -> bool {
        self.count_at.is_some() && self.groups.contains_key(&id)
    }

    /// True if all others are held to calibrate this group.
    pub(in crate::arbiter) fn calibrates(&self, id: GroupId) -> bool {
        self.calibration.runs_for(id)
    }

    /// Time that a command of a group takes alone, in µs; none = not known.
    pub(in crate::arbiter) fn alone_us(&self, id: GroupId) -> Option<f64> {
        self.groups.get(&id)?.meter.alone.command_us()
    }

    /// Takes in a fresh count of one group.
    pub(in crate::arbiter) fn count(&mut self, now: Micros, id: GroupId, count: Count) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        self.count_at = self.count_at.map(|at| at.max(now + COUNT_US));
        let commands = group.meter.count(now, &count);
        if let Some(us) = group.meter.alone.command_us().filter(|_| commands > 0) {
            group.position.advance(commands as f64 * us, self.controller.evenness);
        }
        // Where groups go on beside a more urgent one, commands complete while the clock of a window stands still.
        if self.accompanied_until != 0 && now < self.accompanied_until + COMPANY_US {
            self.calibration.skip(id, commands);
        }
        if self.is_accompanied {
            return;
        }
        if let Some(seems_slowed) = group.meter.count_beside(now, commands) {
            group.schedule.observe_beside(now, seems_slowed);
        }
        if group.meter.count_off_device(now, commands, count.drained) {
            if !self.calibration.was_sole(id) {
                self.calibration.drop_window();
            }
            return;
        }
        self.calibration.count(now, id, group, count.completed, commands);
    }

    /// Forgets groups that have left their pool, and takes in others.
    fn update_groups(&mut self, now: Micros, members: &[Member]) {
        let is_there = |id: &GroupId| {
            members.binary_search_by_key(id, |m| m.group.id).is_ok_and(|at| pool_of(&members[at]).is_some())
        };
        self.groups.retain(|id, _| is_there(id));
        for m in members.iter().filter(|m| pool_of(m).is_some()) {
            let group = self.groups.entry(m.group.id).or_insert_with(|| PoolGroup {
                meter: Meter::new(now),
                position: Position::new(),
                schedule: Schedule::default(),
            });
            group.schedule.observe(now, m);
        }
        self.controller.update_pools(members);
    }

    /// Counts groups only while several of a pool want the device, or did so lately.
    fn update_counting(&mut self, now: Micros, members: &[Member], verdicts: &[Verdict]) {
        let company = self.controller.update_company(now, members, verdicts);
        self.count_at = company.then(|| self.count_at.filter(|at| now < *at).unwrap_or(now + COUNT_US));
        if !company {
            self.groups.values_mut().for_each(|group| group.meter.pause());
            self.calibration.drop_window();
        }
    }

    /// Finds the groups to be held, in the order of the members: all that a calibration run needs off the device, else those ahead.
    fn held(&self, now: Micros, members: &[Member], verdicts: &[Verdict]) -> Vec<bool> {
        let own = self.calibration.running().and_then(|id| members.iter().find(|m| m.group.id == id));
        if let Some(own) = own.filter(|own| pool_of(own).is_some()) {
            // Also while that group waits for a more urgent one, beside which the others would go on.
            return members.iter().map(|m| m.group.id != own.group.id && can_be_held(m, own)).collect();
        }
        self.controller.ahead(now, members, verdicts, &self.groups)
    }

    /// Changes the verdicts. Returns the time of the next decision.
    fn hold(&self, now: Micros, members: &[Member], verdicts: &mut [Verdict], held: &[bool]) -> Option<Micros> {
        for ((m, verdict), held) in members.iter().zip(verdicts.iter_mut()).zip(held) {
            verdict.run &= !held;
            // A group reports all of its completions only while it has an in-flight budget.
            verdict.budgeted |= pool_of(m).is_some_and(|pool| self.controller.has_company(now, pool));
        }
        let pauses = self.groups.values().filter_map(|group| group.position.absent_since());
        let pause = pauses.map(|since| since + SHORT_IDLE_US).filter(|end| now < *end).min();
        self.count_at.into_iter().chain(pause.filter(|_| held.contains(&true))).min()
    }

    /// Takes in the gates as a decision has left them: the groups that are on the device until the next one.
    pub(in crate::arbiter) fn gates_set(&mut self, now: Micros, members: &[Member]) {
        if self.count_at.is_none() {
            return;
        }
        for m in members {
            if let Some(group) = self.groups.get_mut(&m.group.id) {
                group.meter.gate_set(now, m.group.granted, m.group.ready);
            }
        }
        if members.iter().any(|m| m.yields) {
            self.accompanied_until = now + SETTLES_US;
        }
        self.is_accompanied = now < self.accompanied_until;
        if self.is_accompanied {
            self.calibration.stop(now);
            self.groups.values_mut().for_each(|group| group.meter.run_beside(now, false));
            return;
        }
        let Sole { member, is_displaced } = self.sole(now, members);
        let has_device = member.is_some_and(runs) && !is_displaced;
        let stays = member.filter(|m| m.group.ready && (runs(m) || is_displaced));
        self.calibration.set_sole(now, stays.map(|m| m.group.id), has_device, &mut self.groups);
        for m in members {
            if let Some(group) = self.groups.get_mut(&m.group.id) {
                group.meter.run_beside(now, runs(m) && member.is_none() && !is_displaced);
            }
        }
    }

    /// Finds the only group of a pool on the device. Once nothing of any pool is there any more, it is still the last such group.
    fn sole<'a>(&self, now: Micros, members: &'a [Member]) -> Sole<'a> {
        let is_on =
            |m: &&Member| m.group.busy || self.groups.get(&m.group.id).is_some_and(|group| !group.meter.is_off(now));
        let mut on = members.iter().filter(|m| pool_of(m).is_some() && is_on(m));
        let member = match (on.next(), on.next()) {
            (Some(m), None) => Some(m),
            (None, _) => members.iter().find(|m| self.calibration.was_sole(m.group.id)),
            _ => None,
        };
        Sole { member, is_displaced: members.iter().any(|m| pool_of(m).is_none() && is_on(&m)) }
    }
}

impl Stage for Evenness {
    fn reason(&self) -> Why {
        Why::Evenness
    }

    fn apply(&mut self, now: Micros, round: Round, members: &mut [Member], verdicts: &mut [Verdict]) -> Option<Micros> {
        if round == Round::Refill {
            // Other groups may be there than in the round of all: nothing is learned.
            if self.groups.is_empty() {
                return None;
            }
            let held = self.held(now, members, verdicts);
            return self.hold(now, members, verdicts, &held);
        }
        if self.controller.evenness == 0.0 || members.iter().all(|m| pool_of(m).is_none()) {
            if !self.groups.is_empty() {
                let evenness = self.controller.evenness;
                *self = Evenness { controller: Controller::new(evenness), ..Evenness::new(0) };
                members.iter_mut().for_each(|m| m.paced = false);
            }
            return None;
        }
        self.update_groups(now, members);
        self.update_counting(now, members, verdicts);
        self.controller.update_positions(now, members, verdicts, &mut self.groups);
        let undisturbed = now >= self.accompanied_until;
        self.calibration.update_run(now, undisturbed, members, verdicts, &mut self.groups);
        let held = self.held(now, members, verdicts);
        for (m, held) in members.iter_mut().zip(&held) {
            m.paced = *held;
            if let Some(group) = self.groups.get_mut(&m.group.id).filter(|_| self.calibration.running().is_none()) {
                group.position.is_ahead = *held;
            }
        }
        self.hold(now, members, verdicts, &held)
    }
}

/// True while the gate of a group that wants the device is open.
fn runs(m: &Member) -> bool {
    m.group.granted && m.group.ready
}

fn part(percent: u32) -> f64 {
    f64::from(percent.min(100)) / 100.0
}
