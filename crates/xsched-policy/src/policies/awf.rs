//! Active window first: the groups of the program with the active window run, the others while it wants nothing, those by
//! priority.

use xsched_proto::hint::Hint;

use crate::entry::Entry;
use crate::params::Params;
use crate::policies::rank;
use crate::{GroupView, Micros, Policy, Verdict};

pub(super) static ENTRY: Entry = Entry {
    hints: &[Hint::Active],
    ..Entry::new(
        "awf",
        "active window first: the program that its user looks at goes before the others",
        "a desktop",
        make,
    )
};

/// Offset greater than the distance of any two priorities.
const ABOVE_ALL: i64 = 1_000;

struct Awf;

fn make(_: &Params) -> Box<dyn Policy> {
    Box::new(Awf)
}

impl Policy for Awf {
    fn decide(&mut self, now: Micros, groups: &[GroupView], verdicts: &mut [Verdict]) -> Option<Micros> {
        let is_active = |g: &GroupView| g.hints.active.unwrap_or(g.active);
        let rank = |g: &GroupView| i64::from(g.priority) + if is_active(g) { ABOVE_ALL } else { 0 };
        rank::decide(now, groups, verdicts, rank, |g| g.ready)
    }
}
