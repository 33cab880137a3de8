//! Shares inside a pool: how far the programs get that run side by side in one hardware context, first come first served.
//!
//! Their kernel times are never exclusive, so what counts is *progress*: completed commands, divided by the rate of completions
//! that the same group has while it is alone on the device, divided by its weight. A group that is ahead of the slowest one by
//! more than a slack is held until the others have caught up; the slowest is never held, so some group of each pool always runs.
//!
//! The rate alone is learned in *spells alone*: those that come by themselves, and short ones that all others are held for.
//! Nothing is held on account of groups whose rate is not known yet, nor of those that others hardly slow down: a program whose host
//! is slow for a while gains nothing by that. The policy decides first: only groups that it lets run together are compared.
//!
//! With an evenness below 100 %, progress of a group that is ahead counts that part only: each group then gets at least that
//! part of the relative speed of the fastest.

mod rate;
mod standing;

use std::collections::BTreeMap;

use xsched_proto::class::Class;

use self::rate::{Clock, Window};
use self::standing::Standing;
use super::device::{Member, may_run};
use crate::tuning::*;
use crate::{GroupId, Micros, PoolId, Verdict};

/// All pools on one device.
pub(super) struct Shares {
    /// Part of a lead that counts, 0..=1; 0 = nothing is held.
    evenness: f64,
    groups: BTreeMap<GroupId, Standing>,
    pools: BTreeMap<PoolId, Pool>,
    /// When fresh counts are due; none = they are not needed.
    look_at: Option<Micros>,
    /// The only group on the device, and what is counted of it.
    alone: Option<(GroupId, Window)>,
    spell: Option<Spell>,
    /// Some go on beside a more urgent one of their server, or did so a moment ago, until then: neither the time nor what completes in it
    /// tells how fast a group is.
    accompanied_until: Micros,
    /// So it was at the last look.
    stands: bool,
    /// No further spell for groups whose rate is known before this time.
    spells_from: Micros,
}

/// Counts of a group, as its client tells them.
#[derive(Clone, Copy)]
pub(super) struct Count {
    pub(super) completed: u64,
    pub(super) limited: u32,
    pub(super) longest_us: u64,
    pub(super) drained: bool,
}

#[derive(Default)]
struct Pool {
    /// The least progress of those that want the device; never falls.
    floor: f64,
    /// Until then there are several that want the device, or were lately.
    company_until: Micros,
}

/// All others are held for this group.
struct Spell {
    id: GroupId,
    /// How long it may have had the device.
    clock: Clock,
}

/// The pool in which a group's progress is compared with others': an urgent one there is not held for those that get on worse.
fn pool_of(m: &Member) -> Option<PoolId> {
    m.group.pool.filter(|_| Class::of(m.group.priority).is_best_effort())
}

/// Compared with others, should the policy let it run, or go on beside a more urgent one: not one that goes first since it pauses, nor one of a job on several devices, which waits
/// for the others of its job.
fn takes_part(m: &Member, verdict: &Verdict) -> bool {
    pool_of(m).is_some() && !m.interactive && (verdict.run || m.yields) && may_run(m) && m.spanning.is_none()
}

impl Shares {
    pub(super) fn new(evenness_percent: u32) -> Shares {
        Shares {
            evenness: f64::from(evenness_percent.min(100)) / 100.0,
            groups: BTreeMap::new(),
            pools: BTreeMap::new(),
            look_at: None,
            alone: None,
            spell: None,
            accompanied_until: 0,
            stands: false,
            spells_from: 0,
        }
    }

    pub(super) fn set(&mut self, evenness_percent: u32) {
        self.evenness = Shares::new(evenness_percent).evenness;
        // What counted less or more before is no claim.
        self.groups.values_mut().for_each(|s| s.placed = false);
    }

    /// Whether fresh counts are due.
    pub(super) fn counts_due(&self, now: Micros) -> bool {
        self.look_at.is_some_and(|at| at <= now)
    }

    /// Whether the counts of a group are needed.
    pub(super) fn is_counted(&self, id: GroupId) -> bool {
        self.look_at.is_some() && self.groups.contains_key(&id)
    }

    /// Whether a group is held that the policy would let run.
    pub(super) fn holds(&self, id: GroupId) -> bool {
        self.groups.get(&id).is_some_and(|s| s.held)
    }

    /// Whether all others are held for this group.
    pub(super) fn has_spell(&self, id: GroupId) -> bool {
        self.spell.as_ref().is_some_and(|spell| spell.id == id)
    }

    /// What a command of a group takes alone, in µs.
    pub(super) fn alone_us(&self, id: GroupId) -> Option<f64> {
        self.groups.get(&id)?.rate.command_us()
    }

    /// A fresh count of what a group has completed.
    pub(super) fn count(&mut self, now: Micros, id: GroupId, count: Count) {
        let Count { completed, limited, longest_us, drained } = count;
        let Some(s) = self.groups.get_mut(&id) else { return };
        self.look_at = self.look_at.map(|at| at.max(now + SHARE_LOOK_US));
        s.longest_us = longest_us;
        // A count that falls or leaps is no count.
        let commands = completed.wrapping_sub(s.completed.replace(completed).unwrap_or(completed));
        let commands = if commands < 1 << 40 { commands } else { 0 };
        s.note_limits(now, commands, limited);
        if commands > 0 {
            s.advanced_at = now;
            s.running_us = 0.0;
            if let Some(us) = s.rate.command_us() {
                s.progress += s.counts(commands as f64 * us * s.scale, self.evenness);
            }
        }
        // With its clock a window's count stands still, where anything may complete meanwhile.
        let often = self.accompanied_until != 0 && now < self.accompanied_until + COMPANY_US;
        let mut window = self.alone.as_mut().filter(|(alone, _)| *alone == id).map(|(_, window)| window);
        if let Some(window) = window.as_mut().filter(|window| often && window.clock.goes_since.is_none()) {
            window.skip(commands);
        }
        if self.stands {
            return;
        }
        s.count_beside(now, commands);
        if !s.on {
            s.last_on = s.last_on.filter(|_| !drained);
        }
        if !s.on && commands > 0 {
            // What completes behind a closed gate was in the driver already, and may not have been the last. Others were not alone.
            s.last_on = Some(now).filter(|_| !drained);
            self.alone = self.alone.take().filter(|(alone, _)| *alone == id);
            return;
        }
        let Some((_, window)) = self.alone.as_mut().filter(|(alone, _)| *alone == id) else { return };
        let at = window.clock.at(now);
        if commands > 0 {
            // Counts come from time to time only.
            let gap_us = (at - window.advanced_at.unwrap_or(at)).saturating_sub(2 * SHARE_LOOK_US);
            s.longest_gap_us = s.longest_gap_us.max(gap_us);
            window.advanced_at = Some(at);
        }
        window.to = (at, completed);
        let forced = self.spell.as_ref().is_some_and(|spell| spell.id == id);
        let Some((from, count)) = window.from else {
            // Short spells that begin and end anywhere would miss long commands: from one completion to another.
            if !forced || commands > 0 {
                window.from = Some((at, completed));
            }
            return;
        };
        if !forced {
            if window.is_enough() {
                window.find();
            }
            if window.is_proven(now) {
                s.take(now, window);
            }
        } else if commands > 0 && at >= from + SPELL_US {
            s.learn(now, completed.wrapping_sub(count), at - from);
            s.spells = 0;
            window.from = None;
            self.end_spell(now);
        }
    }

    fn end_spell(&mut self, now: Micros) {
        if let Some(spell) = self.spell.take() {
            self.spells_from = now + spell.clock.at(now) * SPELL_PARTS;
        }
    }

    /// Changes the policy's verdicts so that those of a pool get on evenly. Returns when to look again.
    pub(super) fn apply(&mut self, now: Micros, members: &[Member], verdicts: &mut [Verdict]) -> Option<Micros> {
        if self.evenness == 0.0 || members.iter().all(|m| pool_of(m).is_none()) {
            if !self.groups.is_empty() {
                *self = Shares { evenness: self.evenness, ..Shares::new(0) };
            }
            return None;
        }
        self.take_in(now, members);
        self.see_company(now, members, verdicts);
        self.see_who_is_there(now, members, verdicts);
        self.spell(now, members, verdicts);
        let held = self.held(now, members, verdicts);
        for (m, held) in members.iter().zip(&held) {
            if let Some(s) = self.groups.get_mut(&m.group.id) {
                s.held = *held;
                s.is_ahead = if self.spell.is_none() { *held } else { s.is_ahead };
            }
        }
        self.carry_out(now, members, verdicts, &held)
    }

    /// As [`Self::apply`] while a job that was chosen is refused: others may be there than were looked at, and nothing is learned.
    pub(super) fn apply_meanwhile(&self, now: Micros, members: &[Member], verdicts: &mut [Verdict]) -> Option<Micros> {
        if self.groups.is_empty() {
            return None;
        }
        let held = self.held(now, members, verdicts);
        self.carry_out(now, members, verdicts, &held)
    }

    fn carry_out(&self, now: Micros, members: &[Member], verdicts: &mut [Verdict], held: &[bool]) -> Option<Micros> {
        for ((m, verdict), held) in members.iter().zip(verdicts.iter_mut()).zip(held) {
            verdict.run &= !held;
            // A group tells all of its completions only while it is bounded.
            verdict.bounded |= pool_of(m).and_then(|pool| self.pools.get(&pool)).is_some_and(|p| now < p.company_until);
        }
        let pauses = self.groups.values().filter_map(|s| s.away).map(|(since, _)| since + SHORT_IDLE_US);
        let pause = pauses.filter(|end| now < *end).min().filter(|_| held.contains(&true));
        self.look_at.into_iter().chain(pause).min()
    }

    fn take_in(&mut self, now: Micros, members: &[Member]) {
        let is_there = |id: &GroupId| {
            members.binary_search_by_key(id, |m| m.group.id).is_ok_and(|at| pool_of(&members[at]).is_some())
        };
        self.groups.retain(|id, _| is_there(id));
        for m in members {
            if let Some(pool) = pool_of(m) {
                self.pools.entry(pool).or_default();
                let new = || Standing { scale: 1.0, advanced_at: now, ..Standing::default() };
                let s = self.groups.entry(m.group.id).or_insert_with(new);
                let paused = m.group.idle_since.is_none_or(|since| now > since + SHORT_IDLE_US);
                match (m.group.ready, s.steady_since) {
                    (true, None) => s.steady_since = Some(now),
                    (false, _) if paused => s.steady_since = None,
                    _ => (),
                }
            }
        }
        self.pools.retain(|id, _| members.iter().any(|m| pool_of(m) == Some(*id)));
    }

    /// Says which pools have several groups that want the device, and when to look again for that.
    fn see_company(&mut self, now: Micros, members: &[Member], verdicts: &[Verdict]) {
        for (id, pool) in &mut self.pools {
            let of_pool = members.iter().zip(verdicts).filter(|(m, v)| pool_of(m) == Some(*id) && takes_part(m, v));
            if of_pool.count() > 1 {
                pool.company_until = now + COMPANY_US;
            }
        }
        let company = self.pools.values().any(|pool| now < pool.company_until);
        self.look_at = company.then(|| self.look_at.filter(|at| now < *at).unwrap_or(now + SHARE_LOOK_US));
        if !company {
            self.groups.values_mut().for_each(|s| (s.completed, s.on) = (None, false));
            self.alone = None;
        }
    }

    /// Brings progress up to date with those that come and go.
    fn see_who_is_there(&mut self, now: Micros, members: &[Member], verdicts: &[Verdict]) {
        for (&pool, state) in &mut self.pools {
            let (mut stay, mut total, mut present) = (None::<f64>, 0.0, 0_u32);
            for (m, verdict) in members.iter().zip(verdicts).filter(|(m, _)| pool_of(m) == Some(pool)) {
                let Some(s) = self.groups.get_mut(&m.group.id) else { continue };
                s.is_present = takes_part(m, verdict) && s.rate.command_us().is_some() && !s.is_stuck(now);
                if s.is_present {
                    total += f64::from(m.group.hints.weight());
                    present += 1;
                }
                if s.is_present && s.placed && s.away.is_none() {
                    stay = Some(s.progress.min(stay.unwrap_or(f64::MAX)));
                }
            }
            let (mut slowest, mut fastest) = (None::<f64>, f64::MIN);
            for m in members.iter().filter(|m| pool_of(m) == Some(pool)) {
                let Some(s) = self.groups.get_mut(&m.group.id) else { continue };
                if !s.is_present {
                    let behind = stay.map_or(0.0, |others| (others - s.progress).max(0.0));
                    s.away.get_or_insert((now, behind));
                    continue;
                }
                s.scale = total / f64::from(present) / f64::from(m.group.hints.weight());
                let away = s.away.take();
                if !std::mem::replace(&mut s.placed, true) {
                    s.progress = stay.unwrap_or(state.floor);
                } else if let Some((since, behind)) = away {
                    // A pause between two steps takes no claim away, and gives none; a longer one leaves none.
                    let start = match stay {
                        Some(stay) if now <= since + SHORT_IDLE_US => stay - behind,
                        None if now <= since + SHORT_IDLE_US => s.progress,
                        stay => stay.unwrap_or(state.floor),
                    };
                    s.progress = s.progress.max(start);
                }
                fastest = fastest.max(s.progress);
                if s.is_slowed() {
                    slowest = Some(s.progress.min(slowest.unwrap_or(f64::MAX)));
                }
            }
            if present > 0 {
                // What others do not slow down has no claim against them.
                let least = slowest.unwrap_or(fastest - SHARE_SLACK_US);
                state.floor = state.floor.max(least);
                for m in members.iter().filter(|m| pool_of(m) == Some(pool)) {
                    if let Some(s) = self.groups.get_mut(&m.group.id).filter(|s| s.is_present) {
                        s.progress = s.progress.max(least);
                        s.lead = s.progress - least;
                    }
                }
            }
        }
    }

    /// Which of the members are held.
    fn held(&self, now: Micros, members: &[Member], verdicts: &[Verdict]) -> Vec<bool> {
        let mut held = vec![false; members.len()];
        if let Some(spell) = &self.spell
            && let Some(own) = members.iter().find(|m| m.group.id == spell.id && pool_of(m).is_some())
        {
            // Also while it waits for a more urgent one itself, beside which the others would go on.
            for (at, m) in members.iter().enumerate() {
                held[at] = m.group.id != spell.id && gives_way(m, own);
            }
            return held;
        }
        for &pool in self.pools.keys() {
            let known = |at: &usize| {
                let (m, v) = (&members[*at], &verdicts[*at]);
                let s = self.groups.get(&m.group.id).filter(|_| pool_of(m) == Some(pool))?;
                (takes_part(m, v) && s.placed && s.away.is_none()).then_some((*at, s))
            };
            let all: Vec<(usize, &Standing)> = (0..members.len()).filter_map(|at| known(&at)).collect();
            let slowed = all.iter().filter(|(_, s)| s.is_slowed());
            let Some(least) = slowed.map(|(_, s)| s.reached(self.evenness)).reduce(f64::min) else { continue };
            // Those that pause between two steps: a long command is not begun in between.
            let pauses = |m: &&Member| pool_of(m) == Some(pool) && !m.group.ready && m.spanning.is_none();
            let pausing = members.iter().filter(pauses).filter_map(|m| self.groups.get(&m.group.id));
            let pausing = pausing.filter(|s| s.placed && s.away.is_some_and(|(since, _)| now < since + SHORT_IDLE_US));
            let rests = pausing.map(|s| s.progress).fold(least, f64::min);
            for (at, s) in all {
                let is_long = s.is_ahead && s.command_us() > SHORT_IDLE_US as f64;
                let lead = s.reached(self.evenness) - if is_long { rests } else { least };
                let slack = if s.is_ahead { SHARE_SLACK_US / 2.0 } else { SHARE_SLACK_US };
                held[at] = lead > slack && members[at].lent.is_none();
            }
        }
        held
    }

    /// Begins and ends spells that all others are held for.
    fn spell(&mut self, now: Micros, members: &[Member], verdicts: &[Verdict]) {
        let part = || members.iter().zip(verdicts).filter(|(m, v)| takes_part(m, v)).map(|(m, _)| m);
        if let Some(mut spell) = self.spell.take() {
            let own = members.iter().zip(verdicts).find(|(m, _)| m.group.id == spell.id);
            // Taken off the device by a more urgent program: it goes on afterwards.
            let waits = own.is_some_and(|(m, v)| !v.run && takes_part(m, &Verdict { run: true, ..*v }));
            let runs = own.is_some_and(|(m, v)| takes_part(m, v) && self.may_be_alone(m, members, verdicts));
            spell.clock.set(now, runs && now >= self.accompanied_until);
            let goes_on = (runs || waits) && spell.clock.us < SPELL_MOST_US;
            self.spell = Some(spell);
            if goes_on {
                return;
            }
            self.end_spell(now);
        }
        let has_company = |own: &Member| part().filter(|m| pool_of(m) == pool_of(own)).count() > 1;
        let due = part().filter(|m| {
            let Some(s) = self.groups.get(&m.group.id) else { return false };
            let is_new = s.rate.command_us().is_none() && s.spells < SPELLS_FIRST;
            s.spell_due <= now && !s.is_stuck(now) && (is_new || self.spells_from <= now)
        });
        // Nothing is to be divided where the device holds nobody up.
        let matters = part().any(|m| self.groups.get(&m.group.id).is_some_and(Standing::is_limited));
        let steady = matters && part().all(|m| self.is_steady(now, m));
        let possible = due.filter(|m| steady && has_company(m) && self.may_be_alone(m, members, verdicts));
        let first = possible.min_by_key(|m| {
            let s = &self.groups[&m.group.id];
            (s.rate.command_us().is_some(), s.spell_due, m.group.id)
        });
        let Some(id) = first.map(|m| m.group.id) else { return };
        self.spell = Some(Spell { id, clock: Clock { us: 0, goes_since: Some(now) } });
        self.alone = None;
        if let Some(s) = self.groups.get_mut(&id) {
            s.spells += 1;
            s.wait_for_spell(now);
        }
    }

    /// Whether it has work pending all the time, as far as can be told: others that serve requests are not kept waiting for a spell.
    fn is_steady(&self, now: Micros, m: &Member) -> bool {
        let since = self.groups.get(&m.group.id).and_then(|s| s.steady_since);
        since.is_some_and(|since| now >= since + STEADY_US)
    }

    /// Whether all others that run can be held for a while.
    fn may_be_alone(&self, own: &Member, members: &[Member], verdicts: &[Verdict]) -> bool {
        let mut others = members.iter().zip(verdicts).filter(|(m, _)| m.group.id != own.group.id);
        others.all(|(m, v)| gives_way(m, own) || !(v.run && m.group.ready && !m.is_held()))
    }

    /// Gates are as they were decided: says who is on the device until the next decision.
    pub(super) fn note(&mut self, now: Micros, members: &[Member]) {
        if self.look_at.is_none() {
            return;
        }
        for m in members {
            let Some(s) = self.groups.get_mut(&m.group.id) else { continue };
            let on = m.group.granted && m.group.ready;
            if on && !std::mem::replace(&mut s.on, on) {
                s.advanced_at = now - s.running_us as Micros;
            }
            s.on = on;
            s.last_on = if on { Some(now) } else { s.last_on.filter(|_| m.group.ready) };
            if on {
                s.running_us = s.command_us().min(now.saturating_sub(s.advanced_at) as f64);
            } else if s.is_off(now) {
                s.running_us = 0.0;
            }
        }
        if members.iter().any(|m| m.yields) {
            self.accompanied_until = now + SETTLES_US;
        }
        self.stands = now < self.accompanied_until;
        if self.stands {
            if let Some((_, window)) = &mut self.alone {
                window.clock.set(now, false);
            }
            self.groups.values_mut().for_each(|s| s.beside_clock.set(now, false));
            return;
        }
        let is_off = |m: &&Member| !m.group.busy && self.groups.get(&m.group.id).is_none_or(|s| s.is_off(now));
        let is_pooled = |m: &&Member| pool_of(m).is_some();
        let runs = |m: &&Member| m.group.granted && m.group.ready;
        let mut on = members.iter().filter(|m| is_pooled(m) && !is_off(m));
        let only = match (on.next(), on.next()) {
            (Some(m), None) => Some(m),
            // Nothing of the pool is on the device any more: who was alone there last?
            (None, _) => members.iter().find(|m| self.alone.is_some_and(|(id, _)| id == m.group.id)),
            _ => None,
        };
        let is_taken_off = members.iter().any(|m| !is_pooled(&m) && !is_off(&m));
        let alone = only.filter(|m| m.group.ready && (runs(m) || is_taken_off)).map(|m| m.group.id);
        if self.alone.as_ref().map(|(id, _)| *id) != alone {
            if let Some((id, mut window)) = self.alone.take()
                && let Some(s) = self.groups.get_mut(&id)
            {
                s.take(now, &mut window);
            }
            self.alone = alone.map(|id| (id, Window::new(now)));
        }
        if let Some((_, window)) = &mut self.alone {
            window.clock.set(now, !is_taken_off && only.is_some_and(|m| runs(&m)));
        }
        for m in members {
            if let Some(s) = self.groups.get_mut(&m.group.id) {
                s.beside_clock.set(now, runs(&m) && only.is_none() && !is_taken_off);
            }
        }
    }
}

/// Whether a group can be held for a spell of another one.
fn gives_way(m: &Member, own: &Member) -> bool {
    let may_be_held = pool_of(m).is_some() && !m.interactive && m.spanning.is_none() && m.lent.is_none();
    may_be_held && m.group.priority <= own.group.priority
}
