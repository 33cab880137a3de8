//! The groups of one device: charged time, a decision by the stages, and the actions that follow from it.

use xsched_proto::class::Class;
use xsched_proto::device::DeviceState;
use xsched_proto::hint::Slo;
use xsched_proto::trace::Why;

use super::dormant::Dormant;
use super::member::{Member, any_waits, order_domains};
use super::stages::drain::{self, DrainStage};
use super::stages::evenness::Evenness;
use super::stages::guarantees::{Claims, Guarantees};
use super::stages::guard::Guard;
use super::stages::policy::PolicyStage;
use super::stages::{Decision, Round, Stages};
use super::starvation::Starvation;
use super::{Action, ClassRule};
use crate::tuning::{DECISION_COST, SLOWDOWN_DEFAULT_PERCENT, WAITS_US};
use crate::{Choice, GroupId, Micros};

pub(super) struct Device {
    pub(super) name: String,
    /// Groups that may want something, sorted by id.
    pub(super) members: Vec<Member>,
    /// The other groups, over which decisions pass.
    pub(super) dormant: Dormant,
    pub(super) stages: Stages,
    pub(super) decision: Decision,
    starvation: Starvation,
    charged_at: Micros,
    /// Members that decisions have covered so far; see [`DECISION_COST`].
    pub(super) cost: usize,
}

/// Settings of an arbiter that a new device starts with.
pub(super) struct Settings<'a> {
    pub(super) seed: u64,
    pub(super) guard_us: Option<Micros>,
    /// See [`super::Arbiter::set_evenness`].
    pub(super) evenness_percent: u32,
    pub(super) classes: &'a [ClassRule],
}

/// Decision that may be restored.
pub(super) struct Saved {
    decision: Decision,
    claims: Claims,
}

impl Device {
    pub(super) fn new(name: String, choice: Choice, now: Micros, settings: &Settings<'_>) -> Device {
        let mut guarantees = Guarantees::default();
        guarantees.set(settings.classes);
        let stages = Stages {
            policy: PolicyStage::new(choice, settings.seed, &name),
            guarantees,
            evenness: Evenness::new(settings.evenness_percent),
            guard: Guard::new(settings.guard_us),
            drain: DrainStage::default(),
            before: Vec::new(),
        };
        Device {
            name,
            members: Vec::new(),
            dormant: Dormant::new(),
            stages,
            decision: Decision::default(),
            starvation: Starvation::default(),
            charged_at: now,
            cost: 0,
        }
    }

    /// Puts another policy in force, or the same with other parameters.
    pub(super) fn choose(&mut self, choice: Choice) {
        self.stages.policy.choose(choice, &self.name);
    }

    /// The policy in force.
    pub(super) fn choice(&self) -> &Choice {
        &self.stages.policy.choice
    }

    /// Passes the state of the device on to the policy.
    pub(super) fn observe(&mut self, now: Micros, state: Option<&DeviceState>) {
        self.stages.policy.observe(now, state);
    }

    fn at(&self, id: GroupId) -> Result<usize, usize> {
        self.members.binary_search_by_key(&id, |m| m.group.id)
    }

    pub(super) fn member(&self, id: GroupId) -> Option<&Member> {
        self.at(id).ok().map(|at| &self.members[at]).or_else(|| self.dormant.get(&id))
    }

    pub(super) fn member_mut(&mut self, id: GroupId) -> Option<&mut Member> {
        match self.at(id) {
            Ok(at) => Some(&mut self.members[at]),
            Err(_) => self.dormant.get_mut(&id),
        }
    }

    pub(super) fn insert(&mut self, member: Member) {
        if let Err(at) = self.at(member.group.id) {
            self.members.insert(at, member);
        }
    }

    pub(super) fn remove(&mut self, id: GroupId) -> Option<Member> {
        self.at(id).ok().map(|at| self.members.remove(at)).or_else(|| self.dormant.remove(&id))
    }

    /// True if some group waits for the device.
    pub(super) fn any_waits(&self) -> bool {
        any_waits(&self.members)
    }

    /// True if a group may make no progress because of another program, whose gate is closed but which has not left the device: its
    /// command may be long, and a turn for others would only let the next one begin. A group that others are held for is also so, as a
    /// long command shows no progress. The limit of [`super::starvation`] holds all the same.
    pub(super) fn is_hindered(&self, id: GroupId) -> bool {
        let Some(m) = self.member(id) else { return false };
        let mut waiting = self.members.iter().filter(|m| m.waits());
        if self.stages.evenness.calibrates(id) || m.group.pool.is_some() && waiting.all(|m| m.paced) {
            return true;
        }
        let mut others = self.members.iter().filter(|o| o.group.program != m.group.program && !o.group.granted);
        others.any(|o| o.group.ready && (o.group.busy || o.group.holds_up))
    }

    /// Groups of which it matters now whether the device executes their work.
    pub(super) fn drains_due(&self, now: Micros) -> impl Iterator<Item = GroupId> {
        let is_due = self.stages.drain.due_at.is_some_and(|at| at <= now);
        self.members.iter().filter(move |m| is_due && drain::is_due(m, now)).map(|m| m.group.id)
    }

    /// Device time not yet charged to each busy group, in µs.
    pub(super) fn uncharged(&self, now: Micros) -> f64 {
        let busy = self.members.iter().filter(|m| m.group.busy).count();
        now.saturating_sub(self.charged_at) as f64 / busy.max(1) as f64
    }

    /// Charges the time since the last call to the busy groups: an equal part each.
    pub(super) fn charge(&mut self, now: Micros) {
        let each = self.uncharged(now);
        self.charged_at = self.charged_at.max(now);
        for m in self.members.iter_mut().filter(|m| m.group.busy) {
            m.group.used_us += each;
            m.group.busy = m.group.granted || m.job.spanning.is_none() || now < m.gate.closed_at + WAITS_US;
        }
    }

    /// Decides which groups may run. Returns the cost of the decision, in members.
    pub(super) fn decide(&mut self, now: Micros, round: Round) -> usize {
        let cost = DECISION_COST + self.members.len();
        self.cost += cost;
        if round == Round::All {
            self.charge(now);
            self.members.iter_mut().for_each(|m| m.job.refused = false);
            self.decision.next = self.starvation.search(now, &mut self.members);
        }
        self.stages.decide(now, round, &mut self.members, &mut self.decision);
        cost
    }

    /// The decision, to be restored by [`Self::restore`].
    pub(super) fn save(&self) -> Saved {
        Saved { decision: self.decision.clone(), claims: self.stages.guarantees.meanwhile() }
    }

    pub(super) fn restore(&mut self, saved: Saved) {
        self.decision = saved.decision;
        self.stages.guarantees.restore(saved.claims);
    }

    /// Reason for the state of a group's gate, as the last decision left it.
    pub(super) fn why(&self, id: GroupId) -> Why {
        // A group that was added after the last decision has no verdict yet.
        let Some((m, why)) = self.at(id).ok().and_then(|at| Some((&self.members[at], *self.decision.reasons.get(at)?)))
        else {
            return Why::Unsaid;
        };
        m.kept_off().filter(|_| !m.group.granted).unwrap_or(why)
    }

    fn runs(&self, at: usize) -> bool {
        let m = &self.members[at];
        self.decision.verdicts[at].run && !m.is_held() && !m.job.refused && !m.behind
    }

    /// Carries out the first half of a decision: closes gates.
    pub(super) fn close(&mut self, now: Micros, actions: &mut Vec<Action>) {
        order_domains(&mut self.members);
        for at in 0..self.members.len() {
            if self.members[at].group.granted && !self.runs(at) {
                let m = &mut self.members[at];
                m.gate.running_since = None;
                m.close(now, actions);
            }
        }
    }

    /// Determines which groups may keep the device through short gaps. A group in a pool may not: others of the pool work beside it without
    /// a switch. Nor may one that would keep off an equal, or a group of its own program.
    fn set_gaps(&mut self, actions: &mut Vec<Action>) {
        let keeper = if self.choice().entry.keeps_gaps { self.keeper_of_gaps() } else { None };
        for at in 0..self.members.len() {
            let slowdown_percent = match self.members[at].group.hints.slo {
                Some(Slo::Slowdown(percent)) => u16::try_from(percent).unwrap_or(u16::MAX),
                _ => SLOWDOWN_DEFAULT_PERCENT as u16,
            };
            let keeps_gaps = (keeper == Some(at)).then_some(slowdown_percent);
            let m = &mut self.members[at];
            if std::mem::replace(&mut m.announced.keeps_gaps, keeps_gaps) != keeps_gaps {
                actions.push(Action::KeepsGaps(m.group.id, keeps_gaps.map(u32::from)));
            }
        }
    }

    /// Place of the group that may keep the device through gaps: the least urgent one of its program, and more urgent than all of others.
    /// One scan, since a decision may concern very many groups.
    fn keeper_of_gaps(&self) -> Option<usize> {
        let groups = || self.members.iter().map(|member| &member.group);
        let program = groups().max_by_key(|group| group.priority)?.program;
        let most_urgent_other = groups().filter(|group| group.program != program).map(|group| group.priority).max()?;
        let own = || groups().enumerate().filter(|(_, group)| group.program == program);
        let (at, least_urgent) = own().min_by_key(|(_, group)| group.priority)?;
        let is_alone = own().filter(|(_, group)| group.priority == least_urgent.priority).count() == 1;
        let may_keep = is_alone
            && least_urgent.priority > most_urgent_other
            && Class::of(least_urgent.priority) >= Class::High
            && least_urgent.pool.is_none()
            && least_urgent.spatial.is_none();
        may_keep.then_some(at)
    }

    /// Carries out the second half: budgets, open gates, and the rest that a client knows of its rivals.
    pub(super) fn open(&mut self, now: Micros, actions: &mut Vec<Action>) {
        // A group alone is left alone, unless the policy may close its gate all the same: it must report then that it has drained.
        let contended = self.members.len() + self.dormant.len() > 1 || !self.choice().entry.conserves_work;
        // A group that preempts waits for all that others have in flight, so they share a budget.
        let is_sharer =
            |at: &usize| self.decision.verdicts[*at].budgeted && self.members[*at].wants() && self.runs(*at);
        let sharers = (0..self.members.len()).filter(is_sharer).count().max(1) as u32;
        for at in 0..self.members.len() {
            let run = self.runs(at);
            let budget = if self.decision.verdicts[at].budgeted { sharers } else { 0 };
            let m = &mut self.members[at];
            let id = m.group.id;
            // The budget is in place before the gate opens.
            if std::mem::replace(&mut m.announced.contended, contended) != contended {
                actions.push(Action::Contended(id, contended));
            }
            if std::mem::replace(&mut m.announced.sharers, budget) != budget {
                actions.push(Action::Budget(id, budget));
            }
            if run && !m.group.granted {
                m.group.granted = true;
                m.watch.progress_at = now;
                actions.push(Action::Open(id));
            }
            if m.group.ready && m.group.granted {
                m.group.busy = true;
                m.gate.running_since.get_or_insert(now);
            }
        }
        let busy = self.members.iter().filter(|m| m.group.busy).count();
        for m in &mut self.members {
            // Without rivals there is nothing to say, and a gate word without further bits is the fast path.
            let exclusive = contended && busy == usize::from(m.group.busy);
            if std::mem::replace(&mut m.announced.exclusive, exclusive) != exclusive {
                actions.push(Action::Exclusive(m.group.id, exclusive));
            }
            let stalled = m.watch.stalled;
            if std::mem::replace(&mut m.announced.stalled, stalled) != stalled {
                actions.push(Action::Stalled(m.group.id, stalled));
            }
        }
        self.set_gaps(actions);
        self.stages.evenness.gates_set(now, &self.members);
        let search = self.starvation.gates_set(now, &mut self.members);
        self.decision.next = [self.decision.next, search].into_iter().flatten().min();
    }
}
