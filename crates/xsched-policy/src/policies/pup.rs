//! Process utilization partition: as `up`, with all groups of a program as one party.

use xsched_proto::hint::Hint;

use crate::Policy;
use crate::choice::Params;
use crate::policies::turns::{Node, Turns};
use crate::registry::Entry;

pub(super) static ENTRY: Entry = Entry {
    name: "pup",
    about: "a weighted part of the device for each program, in turns; what one leaves goes to the others",
    good_for: "several jobs of equal right",
    make,
    hints: &[Hint::Weight, Hint::Utilization, Hint::Timeslice],
    takes_turns: true,
    ..Entry::PLAIN
};

fn make(_: &Params) -> Box<dyn Policy> {
    Box::new(Turns::new(|group, path| path.push(Node::party(group.program.0, group))))
}
