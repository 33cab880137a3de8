//! Fair share by hierarchy: users, cgroups or namespaces share the device by their weights, and the programs of each share its part.
//! A user with ten programs gets no more than one with a single program.

use xsched_proto::hint::Hint;

use crate::entry::Entry;
use crate::params::{Accepts, Param, Params};
use crate::policies::turns::Turns;
use crate::share::{self, Node};
use crate::{GroupView, Level, Policy};

pub(super) static ENTRY: Entry = Entry {
    params: &[BY],
    hints: &[Hint::Weight, Hint::Utilization, Hint::Timeslice],
    takes_turns: true,
    way,
    ..Entry::new(
        "fair",
        "a weighted part of the device for each user, cgroup or namespace, divided among its programs, in turns",
        "a machine that users or teams share",
        make,
    )
};

const BY: Param =
    Param { name: "by", about: "parties among whom the device is divided first", accepts: Accepts::Word(&["user", "cgroup", "namespace"]) };

fn make(params: &Params) -> Box<dyn Policy> {
    Box::new(Turns::new(way(params)))
}

/// Way to a group's program by the hierarchy that was chosen.
fn way(params: &Params) -> share::Way {
    if params.is(&BY, "namespace") {
        by_namespace
    } else if params.is(&BY, "cgroup") {
        by_cgroup
    } else {
        by_user
    }
}

fn node(level: &Level) -> Node {
    Node { id: level.id, is_party: false, weight: level.weight.into() }
}

/// A program in no pod is its user's, who shares with the namespaces as one of them.
fn by_namespace(group: &GroupView, path: &mut Vec<Node>) {
    path.extend(group.lineage.iter().map(|lineage| node(lineage.namespace.as_ref().unwrap_or(&lineage.user))));
    share::by_program(group, path);
}

fn by_cgroup(group: &GroupView, path: &mut Vec<Node>) {
    path.extend(group.lineage.iter().flat_map(|lineage| &lineage.cgroup).map(node));
    share::by_program(group, path);
}

fn by_user(group: &GroupView, path: &mut Vec<Node>) {
    path.extend(group.lineage.iter().map(|lineage| node(&lineage.user)));
    share::by_program(group, path);
}
