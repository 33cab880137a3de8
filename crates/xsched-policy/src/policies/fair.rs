//! Fair share by hierarchy: users, cgroups or namespaces share the device by their weights, and the programs of each share its part.
//! A user with ten programs gets no more than one with a single program.

use xsched_proto::hint::Hint;

use crate::entry::Entry;
use crate::params::{Accepts, Param, Params};
use crate::policies::turns::{Node, Turns};
use crate::{GroupView, Level, Policy};

pub(super) static ENTRY: Entry = Entry {
    params: &[BY],
    hints: &[Hint::Weight, Hint::Utilization, Hint::Timeslice],
    takes_turns: true,
    ..Entry::new(
        "fair",
        "a weighted part of the device for each user, cgroup or namespace, divided among its programs, in turns",
        "a machine that users or teams share",
        make,
    )
};

const BY: Param =
    Param { name: "by", about: "whose parts come first", accepts: Accepts::Word(&["user", "cgroup", "namespace"]) };

fn make(params: &Params) -> Box<dyn Policy> {
    let program = |group: &GroupView| Node::party(group.program.0, group);
    let node = |level: &Level| Node { id: level.id, is_party: false, weight: level.weight.into() };
    if params.is(&BY, "namespace") {
        // Programs in no pod form one party per user, which shares with the namespaces as one of them.
        Box::new(Turns::new(move |group, path| {
            path.extend(group.lineage.iter().map(|lineage| node(lineage.namespace.as_ref().unwrap_or(&lineage.user))));
            path.push(program(group));
        }))
    } else if params.is(&BY, "cgroup") {
        Box::new(Turns::new(move |group, path| {
            path.extend(group.lineage.iter().flat_map(|lineage| &lineage.cgroup).map(node));
            path.push(program(group));
        }))
    } else {
        Box::new(Turns::new(move |group, path| {
            path.extend(group.lineage.iter().map(|lineage| node(&lineage.user)));
            path.push(program(group));
        }))
    }
}
