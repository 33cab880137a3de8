//! Utilization partition: each group has the part of the device that its utilization, or weight, is of all that want it. They
//! take turns.

use xsched_proto::hint::Hint;

use crate::{GroupView, Policy};
use crate::entry::Entry;
use crate::params::Params;
use crate::policies::turns::Turns;
use crate::share::Node;

pub(super) static ENTRY: Entry = Entry {
    aliases: &["share"],
    hints: &[Hint::Weight, Hint::Utilization, Hint::Timeslice],
    takes_turns: true,
    way: |_| way,
    ..Entry::new(
        "up",
        "a weighted part of the device for each group (the queues of one process with one priority), in turns",
        "streams of one program as parties",
        make,
    )
};

fn make(_: &Params) -> Box<dyn Policy> {
    Box::new(Turns::new(way))
}

fn way(group: &GroupView, path: &mut Vec<Node>) {
    path.push(Node::party(group.id.0, group));
}
