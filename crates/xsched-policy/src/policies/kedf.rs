//! The k groups with the earliest deadlines run. A request's deadline is its begin plus the group's; a group without one comes
//! after all that have one.
//!
//! The number of groups that may have the device together is the least that any of them accepts, by its own hint or else by the policy's
//! parameter.

use xsched_proto::hint::{Hint, K_MAX};

use crate::entry::Entry;
use crate::params::{Accepts, Param, Params};
use crate::{GroupView, Micros, Policy, Verdict};

pub(super) static ENTRY: Entry = Entry {
    aliases: &["edf"],
    params: &[K],
    hints: &[Hint::Deadline, Hint::K],
    ..Entry::new(
        "kedf",
        "earliest deadline first: the k programs whose requests are due next have the device",
        "periodic work with deadlines: video, control, inference at a rate",
        make,
    )
};

const K: Param = Param {
    name: "k",
    about: "number of programs that may have the device together",
    accepts: Accepts::Number { least: 1, most: K_MAX as u64, default: 1 },
};

struct Kedf {
    k: u64,
    /// Ready groups by deadline; kept to spare the allocation.
    order: Vec<(Micros, Micros, usize)>,
}

fn make(params: &Params) -> Box<dyn Policy> {
    Box::new(Kedf { k: params.number(&K), order: Vec::new() })
}

/// Deadline of a request that begins at `begin`.
fn deadline(group: &GroupView, begin: Micros) -> Micros {
    match group.hints.deadline_us {
        None | Some(0) => Micros::MAX,
        Some(us) => begin.saturating_add(us),
    }
}

impl Kedf {
    fn accepts(&self, group: &GroupView) -> u64 {
        group.hints.k.filter(|k| *k > 0).map_or(self.k, u64::from)
    }
}

impl Policy for Kedf {
    fn decide(&mut self, now: Micros, groups: &[GroupView], verdicts: &mut [Verdict]) -> Option<Micros> {
        self.order.clear();
        let ready = groups.iter().enumerate().filter(|(_, g)| g.ready);
        self.order.extend(ready.map(|(at, g)| (deadline(g, g.ready_since), g.ready_since, at)));
        self.order.sort_unstable();
        let (mut running, mut accepted, mut last) = (0, u64::MAX, None);
        for &(due, _, at) in &self.order {
            let both = accepted.min(self.accepts(&groups[at]));
            if running >= both {
                break;
            }
            (running, accepted, last) = (running + 1, both, Some(due));
            verdicts[at].run = true;
        }
        for (group, verdict) in groups.iter().zip(verdicts) {
            verdict.budgeted = groups.len() > 1;
            if !group.ready {
                // Decided as for a request that begins now: it may run with room left, or before the last of those that run.
                let room = running < accepted.min(self.accepts(group));
                verdict.run = room || last.is_none_or(|last| deadline(group, now) < last);
            }
        }
        None
    }
}
