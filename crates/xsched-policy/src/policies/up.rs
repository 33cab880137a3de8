//! Utilization partition: each group has the part of the device that its utilization, or weight, is of all that want it. They
//! take turns.

use xsched_proto::hint::Hint;

use crate::Policy;
use crate::entry::Entry;
use crate::params::Params;
use crate::policies::turns::{Node, Turns};

pub(super) static ENTRY: Entry = Entry {
    aliases: &["share"],
    hints: &[Hint::Weight, Hint::Utilization, Hint::Timeslice],
    takes_turns: true,
    ..Entry::new(
        "up",
        "a weighted part of the device for each group (the queues of one process with one priority), in turns",
        "streams of one program as parties",
        make,
    )
};

fn make(_: &Params) -> Box<dyn Policy> {
    Box::new(Turns::new(|group, path| path.push(Node::party(group.id.0, group))))
}
