//! Highest priority first: a group runs unless one of strictly higher priority wants the device.

use crate::entry::Entry;
use crate::params::Params;
use crate::policies::rank;
use crate::{Group, Micros, Policy, Verdict};

pub(super) static ENTRY: Entry = Entry {
    aliases: &["priority"],
    ..Entry::new(
        "hpf",
        "highest priority first: a program runs while no more urgent one wants the device",
        "a service beside batch work",
        make,
    )
};

struct Hpf;

fn make(_: &Params) -> Box<dyn Policy> {
    Box::new(Hpf)
}

impl Policy for Hpf {
    fn decide(&mut self, now: Micros, groups: &[Group], verdicts: &mut [Verdict]) -> Option<Micros> {
        rank::decide(now, groups, verdicts, |g| g.priority.into(), |g| g.ready)
    }
}
