//! Highest priority first by the processor's priorities: the nice value of each process, as it is now.

use crate::entry::Entry;
use crate::params::Params;
use crate::policies::rank;
use crate::{GroupView, Micros, Policy, Verdict};

pub(super) static ENTRY: Entry = Entry {
    reads_nice: true,
    ..Entry::new(
        "chpf",
        "highest priority first by nice value: what `nice` and `renice` say of the processor holds for the device",
        "machines whose users know nice",
        make,
    )
};

struct Chpf;

fn make(_: &Params) -> Box<dyn Policy> {
    Box::new(Chpf)
}

impl Policy for Chpf {
    fn decide(&mut self, now: Micros, groups: &[GroupView], verdicts: &mut [Verdict]) -> Option<Micros> {
        rank::decide(now, groups, verdicts, |g| -i64::from(g.nice), |g| g.ready)
    }
}
