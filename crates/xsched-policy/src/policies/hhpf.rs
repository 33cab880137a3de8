//! Highest priority first over all devices that a program uses: while it wants one of them, less urgent programs leave the
//! others free for it, too. A program that goes back and forth between a GPU and another accelerator finds both ready.
//!
//! XSched 1.2.0 keeps less urgent work off every device of the machine; here devices that the urgent program does not use are
//! left alone.

use crate::entry::Entry;
use crate::params::Params;
use crate::policies::rank;
use crate::{GroupView, Micros, Policy, Verdict};

pub(super) static ENTRY: Entry = Entry {
    across_devices: true,
    conserves_work: false,
    ..Entry::new(
        "hhpf",
        "highest priority first over all devices of a program: while it wants one, the others stay free for it",
        "an urgent program that goes from one kind of device to another",
        make,
    )
};

struct Hhpf;

fn make(_: &Params) -> Box<dyn Policy> {
    Box::new(Hhpf)
}

impl Policy for Hhpf {
    fn decide(&mut self, now: Micros, groups: &[GroupView], verdicts: &mut [Verdict]) -> Option<Micros> {
        rank::decide(now, groups, verdicts, |g| g.priority.into(), |g| g.ready || g.wanted_elsewhere)
    }
}
