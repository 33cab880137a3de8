//! Second stage: fairness between classes, on top of any policy. A class may have a guaranteed part of the device, and groups of a class may
//! keep the device to the end of a quantum.

use xsched_proto::trace::Why;

use super::{Round, Stage};
use crate::arbiter::ClassRule;
use crate::arbiter::member::Member;
use crate::tuning::CLAIM_QUANTA;
use crate::{GroupId, Micros, Verdict};

/// One class on one device.
struct ClassAccount {
    rule: ClassRule,
    /// Device time owed to the class, in µs; negative = it had more than its part.
    credit_us: f64,
    /// Device time charged to its groups so far, in µs.
    used_us: f64,
    wanted: bool,
}

/// Decisions that hold for some time.
#[derive(Clone, Default)]
pub(in crate::arbiter) struct Claims {
    /// Turn by guarantee: the class that has it, and its end.
    turn: Option<(usize, Micros)>,
    /// Groups that keep the device to the end of their quantum, against the policy's verdict, and that end.
    kept: Vec<(GroupId, Micros)>,
}

/// The classes on one device.
#[derive(Default)]
pub(in crate::arbiter) struct Guarantees {
    classes: Vec<ClassAccount>,
    at: Micros,
    claims: Claims,
    /// Claims of [`Round::Refill`]: those of refused groups stay in `claims`, and others have the device meanwhile.
    meanwhile: Claims,
    /// True if the last round was [`Round::Refill`].
    refused: bool,
}

impl Guarantees {
    pub(in crate::arbiter) fn set(&mut self, rules: &[ClassRule]) {
        let account = |rule: &ClassRule| ClassAccount { rule: *rule, credit_us: 0.0, used_us: 0.0, wanted: false };
        self.classes = rules.iter().map(account).collect();
        self.claims = Claims::default();
        self.meanwhile = Claims::default();
    }

    /// Claims of [`Round::Refill`], to be restored should the decision of that round not be the last.
    pub(in crate::arbiter) fn meanwhile(&self) -> Claims {
        self.meanwhile.clone()
    }

    pub(in crate::arbiter) fn restore(&mut self, meanwhile: Claims) {
        self.meanwhile = meanwhile;
    }

    fn change(&mut self, now: Micros, members: &[Member], verdicts: &mut [Verdict]) -> Option<Micros> {
        let turn = self.give_turns(now, members, verdicts);
        // Last, so that a turn by guarantee waits for the end of a quantum too, but for no longer.
        let kept = self.keep_within_quantum(now, members, verdicts);
        turn.into_iter().chain(kept).min()
    }

    fn class_of(&self, member: &Member) -> Option<usize> {
        self.classes.iter().position(|c| (c.rule.lowest..=c.rule.highest).contains(&member.own_priority))
    }

    fn account(&mut self, now: Micros, members: &[Member]) {
        let passed = now.saturating_sub(self.at) as f64;
        self.at = self.at.max(now);
        let mut seen = vec![(0.0, false); self.classes.len()];
        for m in members {
            if let Some(class) = self.class_of(m) {
                seen[class].0 += m.group.used_us;
                seen[class].1 |= m.wants();
            }
        }
        for (c, (used, wants)) in self.classes.iter_mut().zip(seen) {
            // Less than before: a group was removed, and its past with it.
            let spent = (used - c.used_us).max(0.0);
            let earned = if c.wanted { passed * f64::from(c.rule.guarantee_percent) / 100.0 } else { 0.0 };
            let most = CLAIM_QUANTA * c.rule.quantum_us as f64;
            c.credit_us = (c.credit_us + earned - spent).clamp(-most, most);
            (c.used_us, c.wanted) = (used, wants);
        }
    }

    /// Keeps the device for groups of classes that are not preemptible to the end of their quantum, with no other in between.
    fn keep_within_quantum(&mut self, now: Micros, members: &[Member], verdicts: &mut [Verdict]) -> Option<Micros> {
        if self.classes.iter().all(|c| c.rule.preemptible) {
            return None;
        }
        let mut keeps = vec![false; members.len()];
        let mut ends = Vec::new();
        for (at, m) in members.iter().enumerate() {
            let Some(rule) = self.class_of(m).map(|c| self.classes[c].rule).filter(|r| !r.preemptible) else {
                continue;
            };
            if !m.may_run() || !m.group.granted && !verdicts[at].run {
                continue;
            }
            let since = m.gate.running_since.unwrap_or(now);
            if verdicts[at].run {
                keeps[at] = true;
                continue;
            }
            let known = self.claims.kept.iter().find(|(id, _)| *id == m.group.id).map(|(_, until)| *until);
            let quanta = now.saturating_sub(since).div_ceil(rule.quantum_us).max(1);
            let until = known.unwrap_or(since + quanta * rule.quantum_us);
            keeps[at] = now < until;
            // Stays listed when it is over, until the group is really off the device.
            ends.push((m.group.id, until));
        }
        self.claims.kept = ends;
        if !keeps.contains(&true) {
            return None;
        }
        for (at, m) in members.iter().enumerate() {
            verdicts[at].run = keeps[at] || verdicts[at].run && m.may_run() && m.group.granted;
            verdicts[at].budgeted = members.len() > 1;
        }
        self.claims.kept.iter().map(|(_, until)| *until).filter(|until| now < *until).min()
    }

    /// Gives a class that is owed a quantum its turn, before the groups that the policy chose.
    fn give_turns(&mut self, now: Micros, members: &[Member], verdicts: &mut [Verdict]) -> Option<Micros> {
        if self.classes.iter().all(|c| c.rule.guarantee_percent == 0) {
            return None;
        }
        if members.len() > 1 {
            // Even the most urgent group may have to make room.
            verdicts.iter_mut().for_each(|v| v.budgeted = true);
        }
        let classes: Vec<_> = members.iter().map(|m| self.class_of(m).filter(|_| m.may_run())).collect();
        let wanted = |class: usize| classes.contains(&Some(class));
        let left_out = |class: usize| {
            wanted(class) && !classes.iter().zip(verdicts.iter()).any(|(c, v)| *c == Some(class) && v.run)
        };
        let waiting: Vec<usize> =
            (0..self.classes.len()).filter(|&c| self.classes[c].rule.guarantee_percent > 0 && left_out(c)).collect();
        self.claims.turn = self.claims.turn.filter(|&(class, until)| now < until && wanted(class));
        if self.claims.turn.is_none() {
            let owed = |c: &&usize| self.classes[**c].credit_us >= self.classes[**c].rule.quantum_us as f64;
            let by_claim = |a: &&usize, b: &&usize| self.classes[**a].credit_us.total_cmp(&self.classes[**b].credit_us);
            let next = waiting.iter().filter(owed).max_by(by_claim).copied();
            self.claims.turn = next.map(|class| (class, now + self.classes[class].rule.quantum_us));
        }
        if let Some((class, until)) = self.claims.turn {
            let own = |at: &usize| classes[*at] == Some(class);
            let top = (0..members.len()).filter(own).map(|at| members[at].group.priority).max();
            for (at, v) in verdicts.iter_mut().enumerate() {
                v.run = own(&at) && Some(members[at].group.priority) == top;
            }
            return Some(until);
        }
        let due = |&c: &usize| {
            let c = &self.classes[c];
            let short = (c.rule.quantum_us as f64 - c.credit_us).max(1.0);
            now + (short * 100.0 / f64::from(c.rule.guarantee_percent)).ceil() as Micros
        };
        waiting.iter().map(due).min()
    }
}

impl Stage for Guarantees {
    fn reason(&self) -> Why {
        Why::Guarantee
    }

    /// Changes the verdicts where a class has a claim.
    fn apply(&mut self, now: Micros, round: Round, members: &mut [Member], verdicts: &mut [Verdict]) -> Option<Micros> {
        if self.classes.is_empty() {
            return None;
        }
        if round == Round::All {
            if !std::mem::take(&mut self.refused) {
                self.meanwhile = Claims::default();
            }
            self.account(now, members);
            return self.change(now, members, verdicts);
        }
        self.refused = true;
        std::mem::swap(&mut self.claims, &mut self.meanwhile);
        let next = self.change(now, members, verdicts);
        std::mem::swap(&mut self.claims, &mut self.meanwhile);
        next
    }
}
