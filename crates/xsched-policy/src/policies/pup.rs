//! Process utilization partition: as `up`, with all groups of a program as one party.

use xsched_proto::hint::Hint;

use crate::Policy;
use crate::entry::Entry;
use crate::params::Params;
use crate::policies::turns::Turns;
use crate::share;

pub(super) static ENTRY: Entry = Entry {
    hints: &[Hint::Weight, Hint::Utilization, Hint::Timeslice],
    takes_turns: true,
    ..Entry::new(
        "pup",
        "a weighted part of the device for each program, in turns; what one leaves goes to the others",
        "several jobs of equal right",
        make,
    )
};

fn make(_: &Params) -> Box<dyn Policy> {
    Box::new(Turns::new(share::by_program))
}
