//! Laxity: a group keeps its low priority until its laxity is used up, then it has its critical one until it is idle. One
//! without laxity has its own priority all the time.

use xsched_proto::class::Class;
use xsched_proto::hint::{Hint, Laxity};

use crate::entry::Entry;
use crate::params::Params;
use crate::policies::rank;
use crate::{GroupView, Micros, Policy, Verdict};

pub(super) static ENTRY: Entry = Entry {
    aliases: &["laxity"],
    hints: &[Hint::Laxity],
    ..Entry::new(
        "lax",
        "a program waits at a low priority as long as it can afford to (its laxity), then it gets a critical one",
        "work that may wait, but not for long",
        make,
    )
};

struct Lax;

fn make(_: &Params) -> Box<dyn Policy> {
    Box::new(Lax)
}

/// A group's laxity, and when it is used up.
fn laxity(group: &GroupView) -> Option<(Laxity, Micros)> {
    let laxity = group.hints.laxity.filter(|laxity| laxity.us > 0)?;
    Some((laxity, group.ready_since.saturating_add(laxity.us)))
}

fn rank(now: Micros, group: &GroupView) -> i64 {
    let priority = match laxity(group) {
        None => group.priority,
        Some((laxity, until)) if group.ready && until <= now => {
            laxity.critical.unwrap_or(Class::High.nominal()).max(group.priority)
        }
        Some((laxity, _)) => laxity.lax.unwrap_or(group.priority),
    };
    priority.into()
}

impl Policy for Lax {
    fn decide(&mut self, now: Micros, groups: &[GroupView], verdicts: &mut [Verdict]) -> Option<Micros> {
        let rests = rank::decide(now, groups, verdicts, |g| rank(now, g), |g| g.ready);
        let becomes_critical = |g: &GroupView| laxity(g).map(|(_, until)| until).filter(|until| g.ready && now < *until);
        groups.iter().filter_map(becomes_critical).chain(rests).min()
    }
}
