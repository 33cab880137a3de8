//! Utilization partition: each group has the part of the device that its utilization, or weight, is of all that want it. They
//! take turns.

use xsched_proto::hint::Hint;

use crate::Policy;
use crate::choice::Params;
use crate::policies::turns::{Node, Turns};
use crate::registry::Entry;

pub(super) static ENTRY: Entry = Entry {
    name: "up",
    aliases: &["share"],
    about: "a weighted part of the device for each group (the queues of one process with one priority), in turns",
    good_for: "streams of one program as parties",
    make,
    hints: &[Hint::Weight, Hint::Utilization, Hint::Timeslice],
    takes_turns: true,
    ..Entry::PLAIN
};

fn make(_: &Params) -> Box<dyn Policy> {
    Box::new(Turns::new(|group, path| path.push(Node::party(group.id.0, group))))
}
