//! Shares of a device that programs ask for: weights in a tree, and the parts that follow from them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::GroupView;
use crate::tuning::PART_LEAST;

/// A step of the way from the top of the tree to a party.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    /// Number among the nodes of its kind with the same parent.
    pub id: u64,
    /// True for a party, whose id is none of an inner node's though it be the same number.
    pub is_party: bool,
    /// Weight among its siblings; 0 = the share that they leave.
    pub weight: f64,
}

impl Node {
    /// The party that a group belongs to.
    pub fn party(id: u64, group: &GroupView) -> Node {
        Node { id, is_party: true, weight: group.hints.part() }
    }
}

/// Appends the steps from the top to the party that a group belongs to, at least one.
pub type Way = fn(&GroupView, &mut Vec<Node>);

/// Way where all groups of a program are one party, and parties have nothing above them.
pub fn by_program(group: &GroupView, path: &mut Vec<Node>) {
    path.push(Node::party(group.program.0, group));
}

/// A party's share of its device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// Number of the party among those of the device: equal for groups of the same party.
    pub party: usize,
    /// Part of the device that the party asks for, 0 to 1.
    pub part: f64,
}

/// Shares of the groups on a device, in the order of their ways. Each node divides its part among its children by their weights; the
/// heaviest group of a node counts, as in the turns of `fair`.
pub fn asked<'a>(ways: impl IntoIterator<Item = &'a [Node]>) -> Vec<Asked> {
    /// A node with its parent's place; children come after their parents.
    struct Placed {
        parent: usize,
        weight: f64,
        of_children: f64,
        part: f64,
    }
    let placed = |parent, weight| Placed { parent, weight, of_children: 0.0, part: 1.0 };
    let mut nodes = vec![placed(0, 1.0)];
    let mut places: HashMap<(usize, bool, u64), usize> = HashMap::new();
    let mut parties = Vec::new();
    for way in ways {
        let mut at = 0;
        for step in way {
            let weight = step.weight.max(PART_LEAST);
            at = match places.entry((at, step.is_party, step.id)) {
                Entry::Occupied(known) => {
                    let place = *known.get();
                    nodes[place].weight = nodes[place].weight.max(weight);
                    place
                }
                Entry::Vacant(new) => {
                    nodes.push(placed(at, weight));
                    *new.insert(nodes.len() - 1)
                }
            };
        }
        parties.push(at);
    }
    for at in 1..nodes.len() {
        let (parent, weight) = (nodes[at].parent, nodes[at].weight);
        nodes[parent].of_children += weight;
    }
    for at in 1..nodes.len() {
        let above = &nodes[nodes[at].parent];
        nodes[at].part = above.part * nodes[at].weight / above.of_children;
    }
    parties.into_iter().map(|party| Asked { party, part: nodes[party].part }).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use xsched_proto::hint::Hints;

    use super::*;
    use crate::{Choice, GroupId, Level, Lineage, ProgramId};

    fn group(id: u64, program: u64, user: u64, user_weight: u32, weight: u32) -> GroupView {
        let user = Level { id: user, weight: user_weight };
        let namespace = Some(Level { id: 100 + program % 2, weight: 100 });
        let lineage = Lineage { user, cgroup: vec![Level { id: 200 + program, weight: 100 }], namespace };
        let hints = Hints { weight: Some(weight), ..Hints::default() };
        GroupView { hints, lineage: Some(Arc::new(lineage)), ..GroupView::new(GroupId(id), ProgramId(program)) }
    }

    /// Percent that each group asks for under a policy.
    fn percent(policy: &str, groups: &[GroupView]) -> Vec<u32> {
        let (name, params) = policy.split_once(' ').unwrap_or((policy, ""));
        let choice = Choice::with(name, params.split_once('=')).unwrap();
        let ways: Vec<Vec<Node>> = groups.iter().map(|group| choice.way(group)).collect();
        asked(ways.iter().map(Vec::as_slice)).iter().map(|asked| (asked.part * 100.0).round() as u32).collect()
    }

    #[test]
    fn users_come_first_under_fair_and_programs_alone_elsewhere() {
        // One user has two thirds, and two programs there; another one has nine programs.
        let mut groups = vec![group(1, 1, 7, 200, 100), group(2, 2, 7, 200, 300)];
        groups.extend((3..12).map(|n| group(n, n, 8, 100, 100)));
        let fair = percent("fair", &groups);
        assert_eq!((fair[0], fair[1]), (17, 50));
        assert!(fair[2..].iter().all(|part| *part == 4), "{fair:?}");
        let flat = percent("pup", &groups);
        assert_eq!((flat[0], flat[1], flat[2]), (8, 23, 8));
        for by in ["fair by=cgroup", "fair by=namespace"] {
            let all = percent(by, &groups);
            assert!((95..=105).contains(&all.iter().sum::<u32>()) && all != flat, "{by}: {all:?}");
        }
    }

    #[test]
    fn groups_of_a_program_are_one_party_but_under_up() {
        let groups = [group(1, 1, 7, 100, 100), group(2, 1, 7, 100, 100), group(3, 2, 7, 100, 100)];
        assert_eq!(percent("pup", &groups), [50, 50, 50]);
        assert_eq!(percent("up", &groups), [33, 33, 33]);
        let ways = groups.each_ref().map(|group| Choice::named("pup").unwrap().way(group));
        let parties = asked(ways.iter().map(Vec::as_slice)).iter().map(|asked| asked.party).collect::<Vec<_>>();
        assert!(parties[0] == parties[1] && parties[1] != parties[2], "{parties:?}");
    }

    #[test]
    fn a_weight_of_nothing_is_the_rest() {
        let none = |weight| GroupView {
            hints: Hints { utilization: Some(weight), ..Hints::default() },
            ..group(u64::from(weight), u64::from(weight), 1, 1, 1)
        };
        assert_eq!(percent("pup", &[none(0), none(50)]), [0, 100]);
        assert!(asked([]).is_empty());
    }
}
