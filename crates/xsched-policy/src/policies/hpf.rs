//! Highest priority first: a group runs unless one of strictly higher priority wants the device.

use crate::choice::Params;
use crate::policies::rank;
use crate::registry::Entry;
use crate::{Group, Micros, Policy, Verdict};

pub(super) static ENTRY: Entry = Entry {
    name: "hpf",
    aliases: &["priority"],
    about: "highest priority first: a program runs while no more urgent one wants the device",
    good_for: "a service beside batch work",
    make,
    ..Entry::PLAIN
};

struct Hpf;

pub(crate) fn make(_: &Params) -> Box<dyn Policy> {
    Box::new(Hpf)
}

impl Policy for Hpf {
    fn decide(&mut self, now: Micros, groups: &[Group], verdicts: &mut [Verdict]) -> Option<Micros> {
        rank::decide(now, groups, verdicts, |g| g.priority.into(), |g| g.ready)
    }
}
