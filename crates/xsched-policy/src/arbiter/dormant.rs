//! Dormant groups: on a device with many groups, those that have wanted nothing for long. Decisions pass over them, so that they cost as
//! much as there are groups that may want something. The gate of a dormant group is closed. Its first launch after the long pause reports
//! that the group is ready, which wakes it, and waits for one decision.

use std::collections::BTreeMap;

use super::Action;
use super::device::Device;
use super::member::Member;
use crate::tuning::MANY_GROUPS;
use crate::{GroupId, Micros};

/// Dormant groups, by id.
pub(super) type Dormant = BTreeMap<GroupId, Member>;

impl Device {
    /// All groups, also dormant ones.
    pub(super) fn all(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().chain(self.dormant.values())
    }

    /// All groups, to be changed. No decision follows for dormant ones.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.members.iter_mut().chain(self.dormant.values_mut())
    }

    /// Makes groups dormant, after a decision.
    pub(super) fn set_aside(&mut self, now: Micros, actions: &mut Vec<Action>) {
        // A policy that leaves a device idle may have its own reasons to keep a gate open.
        let may = self.members.len() > MANY_GROUPS && self.choice().entry.conserves_work;
        if !may || self.members.iter().all(|m| !m.may_sleep(now)) {
            return;
        }
        for mut m in self.members.extract_if(.., |m| m.may_sleep(now)) {
            m.sleep(now, actions);
            self.dormant.insert(m.group.id, m);
        }
        // There is one verdict for each member: the next decision makes them anew.
        self.decision.verdicts.clear();
        self.decision.reasons.clear();
    }

    /// Wakes a group, if it is dormant.
    pub(super) fn wake(&mut self, id: GroupId) {
        if let Some(m) = self.dormant.remove(&id) {
            self.insert(m);
        }
    }

    /// Wakes all groups for which `wanted` holds.
    pub(super) fn wake_if(&mut self, wanted: impl Fn(&Member) -> bool) {
        let ids: Vec<GroupId> = self.dormant.values().filter(|m| wanted(m)).map(|m| m.group.id).collect();
        ids.into_iter().for_each(|id| self.wake(id));
    }

    /// Wakes all groups once they are few.
    pub(super) fn wake_few(&mut self) {
        if !self.dormant.is_empty() && self.members.len() + self.dormant.len() <= MANY_GROUPS / 2 {
            self.wake_if(|_| true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::DORMANT_US;
    use crate::{Arbiter, Choice, Event, GroupSpec, ProgramId};

    const ALL: u64 = 200;

    fn crowd() -> Arbiter {
        let mut arbiter = Arbiter::new(Choice::with("hpf", []).unwrap(), 1);
        for n in 1..=ALL {
            arbiter.event(0, Event::Add(GroupSpec::new(GroupId(n), ProgramId(n), "d")), &mut Vec::new());
        }
        arbiter
    }

    fn granted(arbiter: &Arbiter, now: Micros, id: u64) -> bool {
        arbiter.status(now, GroupId(id)).unwrap().granted
    }

    #[test]
    fn a_decision_looks_at_those_alone_that_wanted_something_lately() {
        let (mut arbiter, mut actions) = (crowd(), Vec::new());
        arbiter.event(1_000, Event::Ready(GroupId(3)), &mut actions);
        assert_eq!(arbiter.devices[0].members.len(), ALL as usize, "a pause is not long yet");
        assert!(granted(&arbiter, 1_000, 9), "an idle group of the same priority may begin at once");
        actions.clear();
        let later = DORMANT_US + 1_000;
        arbiter.event(later, Event::Progress(GroupId(3)), &mut actions);
        arbiter.event(later, Event::Ready(GroupId(4)), &mut actions);
        assert_eq!(arbiter.devices[0].members.len(), 2);
        assert_eq!(arbiter.groups().count(), ALL as usize, "they are told of all the same");
        let closed = actions.iter().filter(|action| matches!(action, Action::Close(_))).count();
        assert_eq!(closed, ALL as usize - 2);
        assert!(!granted(&arbiter, later, 9) && arbiter.any_closed());

        actions.clear();
        arbiter.event(later + 5, Event::Ready(GroupId(9)), &mut actions);
        assert!(actions.contains(&Action::Open(GroupId(9))), "{actions:?}");
        assert!(granted(&arbiter, later + 5, 9) && granted(&arbiter, later + 5, 3));
        arbiter.event(later + 6, Event::Hold(ProgramId(11)), &mut actions);
        arbiter.event(later + 7, Event::Ready(GroupId(11)), &mut actions);
        assert!(!granted(&arbiter, later + 7, 11), "an operator holds it");
        arbiter.event(later + 8, Event::Release(ProgramId(11)), &mut actions);
        assert!(granted(&arbiter, later + 8, 11));
    }

    #[test]
    fn the_last_groups_of_a_crowd_are_as_free_as_few_groups() {
        let (mut arbiter, mut actions) = (crowd(), Vec::new());
        arbiter.event(DORMANT_US + 1, Event::Ready(GroupId(1)), &mut actions);
        assert!(arbiter.devices[0].dormant.len() > 100);
        for n in 1..ALL {
            arbiter.event(DORMANT_US + 2, Event::Remove(GroupId(n)), &mut actions);
        }
        assert!(granted(&arbiter, DORMANT_US + 2, ALL), "alone on its device");
        assert!(actions.contains(&Action::Contended(GroupId(ALL), false)));
        arbiter.event(DORMANT_US + 3, Event::Remove(GroupId(ALL)), &mut actions);
        assert!(arbiter.devices.is_empty());
    }
}
