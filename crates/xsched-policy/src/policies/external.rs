//! Decisions of a program outside: the question goes out, the answer comes back as an event, and until then the last answer holds. A
//! group without an answer yet is decided as by `hpf`.

use std::collections::HashMap;

use xsched_proto::device::DeviceState;
use xsched_proto::hint::{Hint, Hints};

use crate::entry::Entry;
use crate::params::Params;
use crate::{Answer, GroupView, GroupId, Micros, Policy, Question, Verdict};

pub(super) static ENTRY: Entry = Entry {
    hints: &Hint::ALL,
    conserves_work: false,
    listed: false,
    ..Entry::new(
        "external",
        "a scheduler of your own, see `xsched daemon --scheduler`",
        "everything else",
        make,
    )
};

/// Properties of a group whose change makes a new question.
type Key = (GroupId, i32, Hints, bool);

#[derive(Default)]
struct External {
    number: u64,
    asked: Vec<Key>,
    question: Option<(Micros, Vec<GroupView>)>,
    answered: HashMap<GroupId, bool>,
    again_at: Option<Micros>,
    /// State of the device, and when it was observed.
    state: Option<(Micros, DeviceState)>,
}

fn make(_: &Params) -> Box<dyn Policy> {
    Box::new(External::default())
}

impl Policy for External {
    fn decide(&mut self, now: Micros, groups: &[GroupView], verdicts: &mut [Verdict]) -> Option<Micros> {
        let key = |g: &GroupView| (g.id, g.priority, g.hints, g.ready);
        let due = self.again_at.is_some_and(|at| at <= now);
        if due || !groups.iter().map(key).eq(self.asked.iter().copied()) {
            self.asked = groups.iter().map(key).collect();
            self.again_at = None;
            self.number += 1;
            self.question = Some((now, groups.to_vec()));
        }
        let top_ready = groups.iter().filter(|g| g.ready).map(|g| g.priority).max().unwrap_or(i32::MIN);
        for (group, verdict) in groups.iter().zip(verdicts) {
            let run = self.answered.get(&group.id).copied().unwrap_or(group.priority >= top_ready);
            *verdict = Verdict { run, budgeted: groups.len() > 1 };
        }
        self.again_at
    }

    /// A new state is no question by itself: it comes with the next one.
    fn observe(&mut self, now: Micros, state: Option<&DeviceState>) {
        self.state = state.map(|state| (now, state.clone()));
    }

    fn question(&mut self) -> Option<Question> {
        let (now, groups) = self.question.take()?;
        let state = self.state.as_ref().map(|(told, state)| DeviceState {
            age_ms: state.age_ms + now.saturating_sub(*told) / 1_000,
            ..state.clone()
        });
        Some(Question { number: self.number, groups, state })
    }

    fn answer(&mut self, now: Micros, answer: &Answer) {
        if answer.number != self.number {
            // The groups have changed since, and another question is on its way.
            return;
        }
        self.answered = self.asked.iter().map(|key| (key.0, answer.run.contains(&key.0))).collect();
        self.again_at = answer.again_in_us.map(|us| now.saturating_add(us));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::tests::group;

    fn run(policy: &mut External, now: Micros, groups: &[GroupView]) -> Vec<bool> {
        let mut verdicts = vec![Verdict::default(); groups.len()];
        policy.decide(now, groups, &mut verdicts);
        verdicts.iter().map(|v| v.run).collect()
    }

    #[test]
    fn an_answer_holds_until_the_next_and_a_late_one_is_dropped() {
        let mut p = External::default();
        let mut groups = [GroupView { ready: true, ..group(1) }, GroupView { priority: 9, ready: true, ..group(2) }];
        assert_eq!(run(&mut p, 0, &groups), [false, true], "as hpf until it is answered");
        let first = p.question().expect("a question");
        assert_eq!((first.number, first.groups.len()), (1, 2));
        assert_eq!(run(&mut p, 1, &groups), [false, true]);
        assert_eq!(p.question(), None, "asked once");
        p.answer(5, &Answer { number: 1, run: vec![GroupId(1)], again_in_us: Some(100) });
        assert_eq!(run(&mut p, 5, &groups), [true, false]);
        assert_eq!(p.question(), None);
        run(&mut p, 105, &groups);
        assert_eq!(p.question().expect("asked again").number, 2);
        groups[0].ready = false;
        assert_eq!(run(&mut p, 106, &groups), [true, false], "what was answered last holds");
        p.answer(107, &Answer { number: 2, run: vec![], again_in_us: None });
        assert_eq!(run(&mut p, 107, &groups), [true, false], "that was about something else");
        assert_eq!(p.question().expect("the newest").number, 3);
        p.answer(108, &Answer { number: 3, run: vec![GroupId(2)], again_in_us: None });
        assert_eq!(run(&mut p, 108, &groups), [false, true]);
    }

    #[test]
    fn a_state_comes_with_the_next_question_and_asks_none() {
        let mut p = External::default();
        let mut groups = [GroupView { ready: true, ..group(1) }];
        run(&mut p, 0, &groups);
        assert_eq!(p.question().expect("a question").state, None);
        let state = DeviceState { age_ms: 300, active_percent: Some(97), ..DeviceState::default() };
        p.observe(1_000, Some(&state));
        run(&mut p, 2_000, &groups);
        assert_eq!(p.question(), None);
        groups[0].ready = false;
        run(&mut p, 501_000, &groups);
        assert_eq!(p.question().expect("a question").state, Some(DeviceState { age_ms: 800, ..state }));
        p.observe(600_000, None);
        groups[0].ready = true;
        run(&mut p, 700_000, &groups);
        assert_eq!(p.question().expect("a question").state, None);
    }
}
