//! Highest priority first: a group runs unless one of strictly higher priority wants the device. Among equals, a group that pauses
//! goes before one that never does, as far as the shares of both allow: see [`pauses`](super::pauses).

use crate::entry::Entry;
use crate::params::{Accepts, Param, Params};
use crate::policies::pauses::Pauses;
use crate::policies::rank;
use crate::{GroupView, GroupId, Micros, Policy, Verdict};

pub(super) static ENTRY: Entry = Entry {
    aliases: &["priority"],
    params: &[INTERACTIVE],
    keeps_gaps: true,
    ..Entry::new(
        "hpf",
        "highest priority first: a program runs while no more urgent one wants the device; among equals, one that pauses goes first",
        "a service beside batch work",
        make,
    )
};

const INTERACTIVE: Param = Param {
    name: "interactive",
    about: "precedence of programs that pause over those of their priority that never do",
    accepts: Accepts::Word(&["on", "off"]),
};

struct Hpf {
    /// None = equals run side by side whether they pause or not.
    pauses: Option<Pauses>,
}

fn make(params: &Params) -> Box<dyn Policy> {
    Box::new(Hpf { pauses: params.is(&INTERACTIVE, "on").then(Pauses::default) })
}

impl Policy for Hpf {
    fn decide(&mut self, now: Micros, groups: &[GroupView], verdicts: &mut [Verdict]) -> Option<Micros> {
        let Some(pauses) = &mut self.pauses else {
            return rank::decide(now, groups, verdicts, |g| g.priority.into(), |g| g.ready);
        };
        let changes = pauses.look(now, groups);
        let next = rank::decide_by(now, groups, verdicts, pauses.ranks(), |g| g.ready);
        for (verdict, preceded) in verdicts.iter_mut().zip(pauses.may_be_preceded()) {
            // Little is in flight then when another one goes first.
            verdict.budgeted |= preceded;
        }
        next.into_iter().chain(changes).min()
    }

    fn is_interactive(&self, id: GroupId) -> bool {
        self.pauses.as_ref().is_some_and(|pauses| pauses.goes_first(id))
    }
}
