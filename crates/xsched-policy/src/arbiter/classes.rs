//! Fairness between classes, on top of any policy: a guaranteed part of the device, and classes that are only taken off
//! it at the end of a quantum.

use super::ClassRule;
use super::device::{Member, may_run};
use crate::tuning::CLAIM_QUANTA;
use crate::{GroupId, Micros, Verdict};

/// One class on one device.
struct Standing {
    rule: ClassRule,
    /// Device time it is owed, µs; negative = it had more than its part.
    credit_us: f64,
    /// Charged to its groups at the last look, µs.
    used_us: f64,
    wanted: bool,
}

/// What was decided earlier and still holds.
#[derive(Clone, Default)]
pub(super) struct Claims {
    /// Whose turn it is by its guarantee, and until when.
    turn: Option<(usize, Micros)>,
    /// Who keeps the device against the policy's word to the end of its quantum, and when that is.
    kept: Vec<(GroupId, Micros)>,
}

/// The classes on one device.
#[derive(Default)]
pub(super) struct Fairness {
    classes: Vec<Standing>,
    at: Micros,
    claims: Claims,
    /// The same while a job that was chosen is refused: what it has a claim to is kept for it, others go on meanwhile.
    meanwhile: Claims,
    /// The last decision was made without those refused.
    refused: bool,
}

impl Fairness {
    pub(super) fn set(&mut self, rules: &[ClassRule]) {
        let standing = |rule: &ClassRule| Standing { rule: *rule, credit_us: 0.0, used_us: 0.0, wanted: false };
        self.classes = rules.iter().map(standing).collect();
        self.claims = Claims::default();
        self.meanwhile = Claims::default();
    }

    /// Changes the policy's verdicts where a class has a claim. Returns when to look again.
    pub(super) fn apply(&mut self, now: Micros, members: &[Member], verdicts: &mut [Verdict]) -> Option<Micros> {
        if self.classes.is_empty() {
            return None;
        }
        if !std::mem::take(&mut self.refused) {
            self.meanwhile = Claims::default();
        }
        self.account(now, members);
        self.change(now, members, verdicts)
    }

    /// As [`Self::apply`], with those refused taken as not wanting the device.
    pub(super) fn apply_meanwhile(
        &mut self,
        now: Micros,
        members: &[Member],
        verdicts: &mut [Verdict],
    ) -> Option<Micros> {
        if self.classes.is_empty() {
            return None;
        }
        self.refused = true;
        std::mem::swap(&mut self.claims, &mut self.meanwhile);
        let next = self.change(now, members, verdicts);
        std::mem::swap(&mut self.claims, &mut self.meanwhile);
        next
    }

    /// What [`Self::apply_meanwhile`] keeps in mind, to be put back should its decision not be the last.
    pub(super) fn meanwhile(&self) -> Claims {
        self.meanwhile.clone()
    }

    pub(super) fn put_back(&mut self, meanwhile: Claims) {
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
            // Less than before: a group is gone, and its past with it.
            let spent = (used - c.used_us).max(0.0);
            let earned = if c.wanted { passed * f64::from(c.rule.guarantee_percent) / 100.0 } else { 0.0 };
            let most = CLAIM_QUANTA * c.rule.quantum_us as f64;
            c.credit_us = (c.credit_us + earned - spent).clamp(-most, most);
            (c.used_us, c.wanted) = (used, wants);
        }
    }

    /// A group that runs in a class that is not preemptible runs to the end of its quantum, with no other in between.
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
            if !may_run(m) || !m.group.granted && !verdicts[at].run {
                continue;
            }
            let since = m.running_since.unwrap_or(now);
            if verdicts[at].run {
                keeps[at] = true;
                continue;
            }
            let known = self.claims.kept.iter().find(|(id, _)| *id == m.group.id).map(|(_, until)| *until);
            let quanta = now.saturating_sub(since).div_ceil(rule.quantum_us).max(1);
            let until = known.unwrap_or(since + quanta * rule.quantum_us);
            keeps[at] = now < until;
            // Kept in mind also when it is over, until the group is really off the device.
            ends.push((m.group.id, until));
        }
        self.claims.kept = ends;
        if !keeps.contains(&true) {
            return None;
        }
        for (at, m) in members.iter().enumerate() {
            verdicts[at].run = keeps[at] || verdicts[at].run && may_run(m) && m.group.granted;
            verdicts[at].bounded = members.len() > 1;
        }
        self.claims.kept.iter().map(|(_, until)| *until).filter(|until| now < *until).min()
    }

    /// A class that is owed a quantum gets it, before whomever the policy chose.
    fn give_turns(&mut self, now: Micros, members: &[Member], verdicts: &mut [Verdict]) -> Option<Micros> {
        if self.classes.iter().all(|c| c.rule.guarantee_percent == 0) {
            return None;
        }
        if members.len() > 1 {
            // Even the most urgent may have to make room.
            verdicts.iter_mut().for_each(|v| v.bounded = true);
        }
        let classes: Vec<_> = members.iter().map(|m| self.class_of(m).filter(|_| may_run(m))).collect();
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
