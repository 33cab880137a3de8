//! Shares inside a pool: how far the programs get that run side by side in one hardware context, first come first served.
//!
//! Their kernel times are never exclusive, so what counts is *progress*: completed commands, divided by the rate of completions
//! that the same group has while it is alone on the device, divided by its weight. A group that is ahead of the slowest one by
//! more than a slack is held until the others have caught up; the slowest is never held, so some group of each pool always runs.
//!
//! The rate alone is learned in *spells alone*: those that come by themselves, and short ones that all others are held for.
//! Nothing is held on account of groups whose rate is not known yet. The policy decides first: only groups that it lets run
//! together are compared.
//!
//! With an evenness below 100 %, progress of a group that is ahead counts that part only: each group then gets at least that
//! part of the relative speed of the fastest.

use std::collections::BTreeMap;

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
    /// No further spell for groups whose rate is known before this time.
    spells_from: Micros,
}

#[derive(Default)]
struct Pool {
    /// The least progress of those that want the device; never falls.
    floor: f64,
    /// Until then there are several that want the device, or were lately.
    company_until: Micros,
}

/// What is known of one group.
#[derive(Default)]
struct Standing {
    /// As last told.
    completed: Option<u64>,
    longest_us: u64,
    /// The longest time between two completions that was seen while it was alone.
    longest_gap_us: u64,
    /// When it last completed something, or came on the device.
    advanced_at: Micros,
    /// How long the command in flight has probably run, µs.
    running_us: f64,
    /// Progress, in µs alone at the mean weight of those it is compared with.
    progress: f64,
    /// Progress counts since its rate is known.
    placed: bool,
    /// Mean weight of those it is compared with, divided by its own.
    scale: f64,
    /// Progress ahead of the slowest.
    lead: f64,
    /// It does not run though the policy says so: ahead of others, or for the spell of another.
    held: bool,
    is_ahead: bool,
    /// Since when it has wanted the device, but for short pauses.
    steady_since: Option<Micros>,
    /// Compared with others, as of the last look.
    is_present: bool,
    /// Since when it does not take part, and how far it was behind the slowest of the others then.
    away: Option<(Micros, f64)>,
    /// It was on the device at the last look.
    on: bool,
    /// When it was seen on the device last, unless it has left it for sure.
    last_on: Option<Micros>,
    rate: Rate,
    /// Commands and time in spells that came by themselves, not learned from yet.
    found: (u64, Micros),
    spell_due: Micros,
    spell_interval_us: Micros,
    spells: u32,
    /// So many spells in a row showed it slower, or faster if negative, than was known.
    news: i32,
}

/// Completions in time alone, both with slow forgetting. The ratio of the sums is right on average however the lengths of commands
/// vary, which a mean of ratios is not.
#[derive(Default)]
struct Rate {
    commands: f64,
    us: f64,
}

/// Time that stands still now and then.
#[derive(Clone, Copy, Default)]
struct Clock {
    us: Micros,
    goes_since: Option<Micros>,
}

impl Clock {
    fn at(&self, now: Micros) -> Micros {
        self.us + self.goes_since.map_or(0, |since| now - since)
    }

    fn set(&mut self, now: Micros, goes: bool) {
        *self = Clock { us: self.at(now), goes_since: goes.then_some(now) };
    }
}

/// What is counted of a group that is alone in its pool. Contexts besides take the pool off the device, again and again: its time
/// stands still then.
#[derive(Clone, Copy)]
struct Window {
    since: Micros,
    clock: Clock,
    /// When counting began, by the clock, and the count then; none = not yet.
    from: Option<(Micros, u64)>,
    /// As last told, by the clock.
    to: (Micros, u64),
    /// The spell is long enough; so is what is left of it, then.
    counts: bool,
    /// When something completed last, by the clock.
    advanced_at: Option<Micros>,
    /// Commands and time that were counted, not taken for true yet.
    found: (u64, Micros),
}

/// All others are held for this group.
struct Spell {
    id: GroupId,
    /// How long it may have had the device.
    clock: Clock,
}

impl Rate {
    fn learn(&mut self, commands: u64, us: Micros) {
        self.forget((us as f64 / RATE_MEMORY_US).max(1.0 / RATE_MEMORY_SPELLS));
        self.commands += commands as f64;
        self.us += us as f64;
    }

    fn forget(&mut self, memories: f64) {
        // As e to the power of minus `memories`, near enough; the preload library, which has policies in it, is without libm.
        let m = memories;
        let kept = 1.0 / (1.0 + m + m * m / 2.0 + m * m * m / 6.0);
        self.commands *= kept;
        self.us *= kept;
    }

    /// Time alone for a command, µs; none = not known.
    fn command_us(&self) -> Option<f64> {
        (self.commands > 0.0).then(|| self.us / self.commands)
    }
}

impl Window {
    fn new(now: Micros) -> Window {
        Window {
            since: now,
            clock: Clock { us: 0, goes_since: Some(now) },
            from: None,
            to: (0, 0),
            advanced_at: None,
            counts: false,
            found: (0, 0),
        }
    }

    /// Whether a spell that came by itself is so long that it does not matter where in a step it began.
    fn is_enough(&self) -> bool {
        let Some((from, _)) = self.from else { return false };
        let us = self.to.0 - from;
        us > 0 && (self.counts || us >= SPELL_US)
    }

    /// Counts up to here.
    fn find(&mut self) {
        let Some((from, count)) = self.from.replace(self.to) else { return };
        self.counts = true;
        self.found.0 += self.to.1.wrapping_sub(count);
        self.found.1 += self.to.0 - from;
    }

    /// Whether nothing that others had in the driver can still be found to have been running.
    fn is_proven(&self, now: Micros) -> bool {
        now >= self.since + SPELL_PROVEN_US
    }
}

impl Standing {
    /// Takes what a spell that came by itself has told so far.
    fn take(&mut self, now: Micros, window: &mut Window) {
        let (commands, us) = std::mem::take(&mut window.found);
        self.found = (self.found.0 + commands, self.found.1 + us);
        if self.found.1 >= SPELL_US && self.found.0 > 0 {
            let (commands, us) = std::mem::take(&mut self.found);
            self.learn(now, commands, us);
        }
    }

    /// How much progress counts, from where the group stands.
    fn counts(&self, us: f64, evenness: f64) -> f64 {
        let whole = (SHARE_SLACK_US / 2.0 - self.lead).clamp(0.0, us);
        whole + (us - whole) * evenness
    }

    /// Progress, with the command that is in flight.
    fn reached(&self, evenness: f64) -> f64 {
        self.progress + self.counts(self.running_us * self.scale, evenness)
    }

    fn command_us(&self) -> f64 {
        self.rate.command_us().unwrap_or(0.0)
    }

    /// Until when something of it may be on the device once its gate is closed, as long as its client does not say that nothing
    /// is: at a level above 1 a group counts as off the device though what runs goes on.
    fn off_at(&self, last_on: Micros) -> Micros {
        last_on + SETTLE_US.max(self.longest_us.max(self.longest_gap_us).min(SPELL_MOST_US) * 5 / 4)
    }

    fn is_off(&self, now: Micros) -> bool {
        self.last_on.is_none_or(|at| self.off_at(at) <= now)
    }

    /// It has the device, and nothing of it completes: whatever it waits for, the others are not what keeps it back.
    fn is_stuck(&self, now: Micros) -> bool {
        let patience = SHARE_PATIENCE_US.max((SHARE_PATIENCE_COMMANDS * self.command_us()) as Micros);
        self.on && now > self.advanced_at + patience
    }

    /// Puts its next forced spell off.
    fn wait_for_spell(&mut self, now: Micros) {
        self.spell_interval_us = (self.spell_interval_us * 2).clamp(SPELL_SOON_US, SPELL_RARE_US);
        self.spell_due = now + self.spell_interval_us;
    }

    fn learn(&mut self, now: Micros, commands: u64, us: Micros) {
        let seen = us as f64 / commands.max(1) as f64 / self.rate.command_us().unwrap_or(0.0);
        let news = if seen.is_infinite() || (1.0 / SPELL_NEWS..=SPELL_NEWS).contains(&seen) {
            0
        } else {
            (seen - 1.0).signum() as i32
        };
        self.news = if news == self.news.signum() { self.news + news } else { news };
        if self.news.unsigned_abs() >= SPELLS_NEWS {
            self.rate.forget(NEWS_FORGETS);
        }
        self.rate.learn(commands, us);
        self.longest_gap_us -= self.longest_gap_us / 8;
        self.wait_for_spell(now);
        if news != 0 {
            self.spell_interval_us = SPELL_SOON_US;
            self.spell_due = now + SPELL_SOON_US;
        }
    }
}

/// Compared with others, should the policy let it run: not one of a job on several devices, which waits for the others of its job.
fn takes_part(m: &Member, verdict: &Verdict) -> bool {
    m.group.pool.is_some() && verdict.run && may_run(m) && m.spanning.is_none()
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
    pub(super) fn count(&mut self, now: Micros, id: GroupId, completed: u64, longest_us: u64, drained: bool) {
        let Some(s) = self.groups.get_mut(&id) else { return };
        self.look_at = self.look_at.map(|at| at.max(now + SHARE_LOOK_US));
        s.longest_us = longest_us;
        // A count that falls or leaps is no count.
        let commands = completed.wrapping_sub(s.completed.replace(completed).unwrap_or(completed));
        let commands = if commands < 1 << 40 { commands } else { 0 };
        if commands > 0 {
            s.advanced_at = now;
            s.running_us = 0.0;
            if let Some(us) = s.rate.command_us() {
                s.progress += s.counts(commands as f64 * us * s.scale, self.evenness);
            }
        }
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
        if self.evenness == 0.0 || members.iter().all(|m| m.group.pool.is_none()) {
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
            verdict.bounded |=
                m.group.pool.and_then(|pool| self.pools.get(&pool)).is_some_and(|p| now < p.company_until);
        }
        let pauses = self.groups.values().filter_map(|s| s.away).map(|(since, _)| since + SHORT_IDLE_US);
        let pause = pauses.filter(|end| now < *end).min().filter(|_| held.contains(&true));
        self.look_at.into_iter().chain(pause).min()
    }

    fn take_in(&mut self, now: Micros, members: &[Member]) {
        let is_there = |id: &GroupId| {
            members.binary_search_by_key(id, |m| m.group.id).is_ok_and(|at| members[at].group.pool.is_some())
        };
        self.groups.retain(|id, _| is_there(id));
        for m in members {
            if let Some(pool) = m.group.pool {
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
        self.pools.retain(|id, _| members.iter().any(|m| m.group.pool == Some(*id)));
    }

    /// Says which pools have several groups that want the device, and when to look again for that.
    fn see_company(&mut self, now: Micros, members: &[Member], verdicts: &[Verdict]) {
        for (id, pool) in &mut self.pools {
            let of_pool = members.iter().zip(verdicts).filter(|(m, v)| m.group.pool == Some(*id) && takes_part(m, v));
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
            for (m, verdict) in members.iter().zip(verdicts).filter(|(m, _)| m.group.pool == Some(pool)) {
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
            let mut least = f64::MAX;
            for m in members.iter().filter(|m| m.group.pool == Some(pool)) {
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
                least = least.min(s.progress);
            }
            if present > 0 {
                state.floor = state.floor.max(least);
                for m in members.iter().filter(|m| m.group.pool == Some(pool)) {
                    if let Some(s) = self.groups.get_mut(&m.group.id).filter(|s| s.is_present) {
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
            && let Some((own, _)) =
                members.iter().zip(verdicts).find(|(m, v)| m.group.id == spell.id && takes_part(m, v))
        {
            for (at, m) in members.iter().enumerate() {
                held[at] = m.group.id != spell.id && gives_way(m, own);
            }
            return held;
        }
        for &pool in self.pools.keys() {
            let known = |at: &usize| {
                let (m, v) = (&members[*at], &verdicts[*at]);
                let s = self.groups.get(&m.group.id).filter(|_| m.group.pool == Some(pool))?;
                (takes_part(m, v) && s.placed && s.away.is_none()).then_some((*at, s))
            };
            let all: Vec<(usize, &Standing)> = (0..members.len()).filter_map(|at| known(&at)).collect();
            let Some(least) = all.iter().map(|(_, s)| s.reached(self.evenness)).reduce(f64::min) else { continue };
            // Those that pause between two steps: a long command is not begun in between.
            let pauses = |m: &&Member| m.group.pool == Some(pool) && !m.group.ready && m.spanning.is_none();
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
            spell.clock.set(now, runs);
            let goes_on = (runs || waits) && spell.clock.us < SPELL_MOST_US;
            self.spell = Some(spell);
            if goes_on {
                return;
            }
            self.end_spell(now);
        }
        let has_company = |own: &Member| part().filter(|m| m.group.pool == own.group.pool).count() > 1;
        let due = part().filter(|m| {
            let Some(s) = self.groups.get(&m.group.id) else { return false };
            let is_new = s.rate.command_us().is_none() && s.spells < SPELLS_FIRST;
            s.spell_due <= now && !s.is_stuck(now) && (is_new || self.spells_from <= now)
        });
        let steady = part().all(|m| self.is_steady(now, m));
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
        others.all(|(m, v)| gives_way(m, own) || !(v.run && m.group.ready && !m.held))
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
        let is_off = |m: &&Member| !m.group.busy && self.groups.get(&m.group.id).is_none_or(|s| s.is_off(now));
        let is_pooled = |m: &&Member| m.group.pool.is_some();
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
    }
}

/// Whether a group can be held for a spell of another one.
fn gives_way(m: &Member, own: &Member) -> bool {
    m.group.pool.is_some() && m.spanning.is_none() && m.lent.is_none() && m.group.priority <= own.group.priority
}
