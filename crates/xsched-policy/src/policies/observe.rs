//! For measurements: every gate stays open, and programs still say when they want a device and when they do not.
//!
//! It conserves no work by its entry, so that a program alone announces its bursts, too. Nothing has a limit in flight.

use crate::entry::Entry;
use crate::params::Params;
use crate::{GroupView, Micros, Policy, Verdict};

pub(super) static ENTRY: Entry = Entry {
    conserves_work: false,
    listed: false,
    ..Entry::new("observe", "lets all programs run and only watches when they are busy", "measurements", make)
};

struct Observe;

fn make(_: &Params) -> Box<dyn Policy> {
    Box::new(Observe)
}

impl Policy for Observe {
    fn decide(&mut self, _: Micros, _: &[GroupView], verdicts: &mut [Verdict]) -> Option<Micros> {
        verdicts.fill(Verdict { run: true, budgeted: false });
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::tests::group;
    use crate::{Action, Arbiter, Choice, Event, GroupId, GroupSpec, ProgramId};

    #[test]
    fn every_group_runs_unbounded_whatever_its_priority() {
        let groups = [GroupView { ready: true, priority: -128, ..group(1) }, GroupView { ready: true, ..group(2) }];
        let mut verdicts = [Verdict::default(); 2];
        assert_eq!(Observe.decide(0, &groups, &mut verdicts), None);
        assert_eq!(verdicts, [Verdict { run: true, budgeted: false }; 2]);
    }

    #[test]
    fn a_gate_opens_once_and_a_group_alone_is_watched() {
        let mut arbiter = Arbiter::new(Choice::named("observe").unwrap(), 0);
        let mut actions = Vec::new();
        for id in [1, 2] {
            let spec = GroupSpec { priority: -(id as i32), ..GroupSpec::new(GroupId(id), ProgramId(id), "d") };
            arbiter.event(0, Event::Add(spec), &mut actions);
            assert!(actions.contains(&Action::Contended(GroupId(id), true)), "{actions:?}");
        }
        for (now, id) in [(1_000, 1), (2_000, 2), (10_000_000, 1)] {
            arbiter.event(now, Event::Ready(GroupId(id)), &mut actions);
            arbiter.event(now + 500, Event::Timer, &mut actions);
            arbiter.event(now + 900, Event::Idle(GroupId(id)), &mut actions);
        }
        let gates = actions.iter().filter(|a| matches!(a, Action::Open(_) | Action::Close(_) | Action::Budget(..)));
        assert_eq!(gates.collect::<Vec<_>>(), [&Action::Open(GroupId(1)), &Action::Open(GroupId(2))]);
    }
}
