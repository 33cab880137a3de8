//! Pauses: groups that leave the device alone again and again go before their equals, as far as the shares of both allow.
//!
//! A group *pauses* if it was idle for a part of the last second or two. Its *lead* is the device time charged to it beyond its part,
//! by weight, of all that was charged to groups of its priority while others of them wanted the device. The lead shrinks while the
//! group is idle and others use the device. Two limits bound it, one from each side:
//!
//! - A group whose lead exceeds [`LEAD_MOST_US`] is an equal until [`LEAD_REST`] of that is left.
//! - While a group that is kept off lags by [`LEAD_MOST_US`] and [`CREDIT_US`] together, no group of its priority goes first. A single
//!   group that goes first never takes it that far; many would, each of them within its own limit.
//!
//! A lag is paid back while the groups that caused it are idle, up to nothing: running alone makes no lead. A lag is measured by the
//! weight of a group or by its number among its equals, whichever gives less: equals run side by side, which gives each as much, and
//! no pause is the reason for that.

use crate::policies::kept::Kept;
use crate::tuning::{
    CREDIT_US, LEAD_LOOK_US, LEAD_MOST_US, LEAD_REST, PAUSE_LONGEST_US, PAUSE_PERCENT, PAUSE_PERIOD_US,
};
use crate::{GroupId, GroupView, Micros};

/// The greatest lag and the greatest lead that are kept, in µs.
const LAG_MOST_US: f64 = LEAD_MOST_US + CREDIT_US;

/// Idle time of a group within a stretch of time, both in µs.
#[derive(Clone, Copy, Default)]
struct Span {
    idle_us: Micros,
    all_us: Micros,
}

impl Span {
    fn of(us: Micros, is_idle: bool) -> Span {
        Span { idle_us: if is_idle { us } else { 0 }, all_us: us }
    }

    fn with(self, other: Span) -> Span {
        Span { idle_us: self.idle_us + other.idle_us, all_us: self.all_us + other.all_us }
    }
}

/// The recent past of a group: a period of [`PAUSE_PERIOD_US`] that goes on, and the one before.
#[derive(Default)]
struct Past {
    last: Span,
    now: Span,
}

impl Past {
    /// The last pause and the last burst before now.
    fn of(now: Micros, group: &GroupView) -> Past {
        let mut past = Past::default();
        if let Some(left) = group.idle_since {
            let is_idle = left >= group.ready_since;
            let turned = left.max(group.ready_since);
            past.pass(turned - left.min(group.ready_since), !is_idle);
            past.pass(now.saturating_sub(turned), is_idle);
        }
        past
    }

    fn pass(&mut self, us: Micros, is_idle: bool) {
        let room = PAUSE_PERIOD_US - self.now.all_us;
        if us < room {
            self.now = self.now.with(Span::of(us, is_idle));
            return;
        }
        self.last = self.now.with(Span::of(room, is_idle));
        if us - room >= PAUSE_PERIOD_US {
            self.last = Span::of(PAUSE_PERIOD_US, is_idle);
        }
        self.now = Span::of((us - room) % PAUSE_PERIOD_US, is_idle);
    }

    fn has_pauses(&self) -> bool {
        let Span { idle_us, all_us } = self.last.with(self.now);
        idle_us > 0 && idle_us * 100 >= all_us * PAUSE_PERCENT
    }

    /// Time, in µs, until [`Past::has_pauses`] may change if the group goes on as it does.
    fn turns_in_us(&self, is_idle: bool) -> Option<Micros> {
        let Span { idle_us, all_us } = self.last.with(self.now);
        let turns = match (self.has_pauses(), is_idle) {
            (false, true) => (all_us * PAUSE_PERCENT).saturating_sub(idle_us * 100).div_ceil(100 - PAUSE_PERCENT),
            (true, false) => (idle_us * 100 / PAUSE_PERCENT).saturating_sub(all_us) + 1,
            _ => return None,
        };
        Some(turns.min(PAUSE_PERIOD_US - self.now.all_us))
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    Wants,
    Idle,
    /// Kept off the device for another reason, or never wanting it.
    #[default]
    Away,
}

impl State {
    fn of(group: &GroupView) -> State {
        match group.idle_since {
            _ if group.ready => State::Wants,
            // A group kept off for another reason has wanted the device since its last pause.
            Some(left) if left >= group.ready_since => State::Idle,
            _ => State::Away,
        }
    }
}

/// A group as of the last decision.
#[derive(Default)]
struct Party {
    priority: i32,
    weight: f64,
    state: State,
    used_us: f64,
    /// Device time charged between the last two decisions, in µs.
    charged_us: f64,
    /// Index of its equals.
    equals: usize,
    past: Past,
    lead_us: f64,
    has_pauses: bool,
    /// End of the time that a pause may last; none = the group is not idle.
    leaves_at: Option<Micros>,
    /// True once its lead has exceeded the limit, until it has come down.
    is_ahead: bool,
    /// True once its lag has reached the limit, until it has come down.
    is_behind: bool,
    goes_first: bool,
}

impl Party {
    /// Accounts for the device time since the last decision.
    fn charge(&mut self, equals: &Equals) {
        let (used_us, all_us) = (self.charged_us, equals.charged_us);
        match self.state {
            State::Wants => {
                let gain = used_us - all_us * self.weight / equals.wanting_weight;
                let lag = used_us - all_us * self.due(equals);
                // Pay-back raises the lead up to 0, only a gain beyond that.
                let lead_us = (self.lead_us + lag.max(0.0)).min(0.0).max(self.lead_us + gain.max(0.0)) + lag.min(0.0);
                self.lead_us = lead_us.clamp(-LAG_MOST_US, LAG_MOST_US);
            }
            State::Idle => {
                let part = self.weight / (equals.wanting_weight + self.weight);
                self.lead_us = (self.lead_us + used_us - all_us * part).max(-CREDIT_US);
            }
            State::Away => {}
        }
    }

    /// Part of the device below which the group lags.
    fn due(&self, equals: &Equals) -> f64 {
        (self.weight / equals.weight).min(1.0 / f64::from(equals.count))
    }

    /// True if time of the others is taken off its lead, so that the group has a claim to a part of that time.
    fn has_claim(&self) -> bool {
        self.state == State::Wants || self.state == State::Idle && self.lead_us > -CREDIT_US
    }

    fn look(&mut self, now: Micros, group: &GroupView) {
        self.priority = group.priority;
        self.weight = f64::from(group.hints.weight());
        self.state = State::of(group);
        self.leaves_at = group.idle_since.filter(|_| self.state == State::Idle).map(|left| left + PAUSE_LONGEST_US);
        let is_there = group.idle_since.is_some() && self.leaves_at.is_none_or(|at| now < at);
        self.has_pauses = is_there && self.past.has_pauses();
        let limit = |was: bool, most: f64| if was { most * LEAD_REST } else { most };
        self.is_ahead = self.lead_us > limit(self.is_ahead, LEAD_MOST_US);
        self.is_behind = -self.lead_us >= limit(self.is_behind, LAG_MOST_US);
        self.goes_first = self.has_pauses && !self.is_ahead;
    }

    /// Time until the group may begin or cease to go first, in µs.
    fn changes_in_us(&self, now: Micros, equals: &Equals) -> Option<f64> {
        if equals.members < 2 {
            return None;
        }
        let wants = self.state == State::Wants;
        let due = self.due(equals);
        let rise = 1.0 - self.weight / equals.wanting_weight;
        let (distance_us, rate) = match self.state {
            State::Wants if self.goes_first => (LEAD_MOST_US - self.lead_us, rise),
            State::Wants if self.is_behind => (self.lead_us.abs() - LAG_MOST_US * LEAD_REST, 1.0 - due),
            State::Wants if equals.first_wants && self.is_ahead => (self.lead_us - LEAD_MOST_US * LEAD_REST, due),
            State::Wants if equals.first_wants => (LAG_MOST_US + self.lead_us, due),
            State::Idle if equals.wanting_weight > 0.0 && self.is_ahead => {
                let part = self.weight / (equals.wanting_weight + self.weight);
                (self.lead_us - LEAD_MOST_US * LEAD_REST, part)
            }
            _ => (0.0, 0.0),
        };
        let by_lead = (rate > 0.0).then(|| distance_us / rate);
        let by_past = self.past.turns_in_us(!wants).filter(|_| self.state != State::Away).map(|us| us as f64);
        let by_leaving = self.leaves_at.filter(|_| self.has_pauses).map(|at| at.saturating_sub(now) as f64);
        by_lead.into_iter().chain(by_past).chain(by_leaving).reduce(f64::min)
    }
}

/// Groups of one priority as of the last decision.
#[derive(Default)]
struct Equals {
    priority: i32,
    members: u32,
    /// Weight of the groups that want the device.
    wanting_weight: f64,
    /// Weight and number of the groups that want the device or have a claim to it.
    weight: f64,
    count: u32,
    pausing: u32,
    /// True if a group that goes first wants the device.
    first_wants: bool,
    /// True if a group that does not go first lags so far that no group goes first.
    one_lags: bool,
    /// Device time charged to all of them since the last decision, in µs.
    charged_us: f64,
}

/// The groups of one device.
#[derive(Default)]
pub(super) struct Pauses {
    parties: Kept<Party>,
    /// Equals, sorted by priority.
    equals: Vec<Equals>,
    ranks: Vec<i64>,
    at: Micros,
}

impl Pauses {
    /// Takes in the state of the groups. Returns the time of the next decision though nothing happens.
    pub(super) fn look(&mut self, now: Micros, groups: &[GroupView]) -> Option<Micros> {
        let new = |g: &GroupView| Party { used_us: g.used_us, past: Past::of(now, g), ..Party::default() };
        self.parties.follow(groups, new);
        self.charge(now, groups);
        self.place(now, groups);
        self.find_first();
        let changes = self.parties.iter().filter_map(|p| p.changes_in_us(now, &self.equals[p.equals]));
        changes.reduce(f64::min).map(|us| now + LEAD_LOOK_US.max(us.ceil() as Micros))
    }

    fn charge(&mut self, now: Micros, groups: &[GroupView]) {
        let passed = now.saturating_sub(self.at);
        self.at = now;
        // A group that has just come is none of the equals yet.
        let placed = |p: &&mut Party| p.state != State::Away;
        for (party, group) in self.parties.iter_mut().zip(groups) {
            party.charged_us = (group.used_us - party.used_us).max(0.0);
            party.used_us = group.used_us;
        }
        for party in self.parties.iter_mut().filter(placed) {
            party.past.pass(passed, party.state == State::Idle);
            self.equals[party.equals].charged_us += party.charged_us;
        }
        for party in self.parties.iter_mut().filter(placed) {
            party.charge(&self.equals[party.equals]);
        }
    }

    /// Assigns each group to its equals.
    fn place(&mut self, now: Micros, groups: &[GroupView]) {
        self.parties.iter_mut().zip(groups).for_each(|(party, group)| party.look(now, group));
        self.equals.iter_mut().for_each(|equals| *equals = Equals { priority: equals.priority, ..Equals::default() });
        let is_in_place = |p: &Party| self.equals.get(p.equals).is_some_and(|equals| equals.priority == p.priority);
        if self.parties.iter().all(is_in_place) {
            return;
        }
        let mut priorities: Vec<i32> = self.parties.iter().map(|party| party.priority).collect();
        priorities.sort_unstable();
        priorities.dedup();
        for party in self.parties.iter_mut() {
            party.equals = priorities.partition_point(|priority| *priority < party.priority);
        }
        self.equals = priorities.into_iter().map(|priority| Equals { priority, ..Equals::default() }).collect();
    }

    fn find_first(&mut self) {
        for party in self.parties.iter() {
            let equals = &mut self.equals[party.equals];
            equals.members += 1;
            equals.pausing += u32::from(party.has_pauses);
            if party.state == State::Wants {
                equals.wanting_weight += party.weight;
                equals.one_lags |= party.is_behind && !party.goes_first;
            }
            if party.has_claim() {
                equals.weight += party.weight;
                equals.count += 1;
            }
        }
        self.ranks.clear();
        for party in self.parties.iter_mut() {
            let equals = &mut self.equals[party.equals];
            party.goes_first &= !equals.one_lags;
            equals.first_wants |= party.goes_first && party.state == State::Wants;
            self.ranks.push(2 * i64::from(party.priority) + i64::from(party.goes_first));
        }
    }

    /// True for a group that goes before those of its priority that do not.
    pub(super) fn goes_first(&self, id: GroupId) -> bool {
        self.parties.place(id).is_some_and(|at| self.parties[at].goes_first)
    }

    /// Ranks of the groups, in their order: by priority, then groups that go first before others.
    pub(super) fn ranks(&self) -> &[i64] {
        &self.ranks
    }

    /// True for each group, in order, before which another of its priority goes, or will go once the other's lead has come down.
    pub(super) fn may_be_preceded(&self) -> impl Iterator<Item = bool> {
        let others = |p: &Party| self.equals[p.equals].pausing > u32::from(p.has_pauses);
        self.parties.iter().map(move |party| !party.goes_first && others(party))
    }
}
