//! Turns by weight: parties form a tree, and the party that is furthest behind is next.
//!
//! Each node of the tree has a virtual time: device time charged below it divided by its weight. In a round, all children of a
//! node come to the same virtual time, the goal, one after the other, down to the parties, whose groups run together. A turn lasts
//! the party's timeslice, up to four times as long for heavier ones. The time really used is charged, draining included: an excess over
//! the goal shortens the next turn. So shares are right in each round whatever a switch costs. A party that wants nothing is passed
//! over at once.

use std::collections::HashMap;

use crate::share::Node;
use crate::tuning::{LEFT_US, PART_LEAST, SHORT_IDLE_US, TURN_MAX, TURN_MIN_US, TURN_SLACK};
use crate::{GroupId, GroupView, Micros, Policy, Verdict};

/// Index of the top among the nodes.
const TOP: usize = 0;

struct State {
    parent: usize,
    /// True for a party, and the number of the node.
    id: (bool, u64),
    weight: f64,
    timeslice_us: u64,
    /// Device time charged to all groups below at the last decision, in µs.
    used_us: f64,
    /// Device time charged so far per unit of weight, in µs.
    virtual_time: f64,
    ready: bool,
    idle_since: Option<Micros>,
    /// Virtual time at which new children begin: the least of those that want the device; never goes back.
    floor: f64,
    /// The virtual time to which children come in this round.
    goal: f64,
    /// Number of its last turn; numbers grow.
    turn: u64,
    now: NodeView,
}

/// State of a node in this decision.
#[derive(Clone, Copy, Default)]
struct NodeView {
    is_there: bool,
    ready: bool,
    used_us: f64,
    /// Weights of the children that want the device.
    ready_weight: f64,
    /// Its part of the device if it wants it, 0..=1.
    part: f64,
    /// The least virtual time of those children.
    least: f64,
    /// Virtual time by which its children advance in a round.
    round: f64,
    /// The child that is next.
    next: Option<usize>,
}

impl State {
    fn new(parent: usize, id: (bool, u64), virtual_time: f64) -> State {
        State {
            parent,
            id,
            weight: 1.0,
            timeslice_us: 0,
            used_us: f64::NAN,
            virtual_time,
            ready: false,
            idle_since: None,
            floor: 0.0,
            goal: f64::NEG_INFINITY,
            turn: 0,
            now: NodeView::default(),
        }
    }
}

/// Takes turns by the tree that `path` describes.
pub(super) struct Turns<P> {
    path: P,
    /// Parents before their children; the top first.
    nodes: Vec<State>,
    places: HashMap<(usize, (bool, u64)), usize>,
    /// The party of each group.
    parties: Vec<usize>,
    /// Groups of the last decision, and the nodes on the way to each, one group after the other.
    known: Vec<GroupId>,
    ways: Vec<usize>,
    /// Kept to spare the allocation.
    steps: Vec<Node>,
    current: Option<Turn>,
    turns: u64,
}

#[derive(Clone, Copy)]
struct Turn {
    party: usize,
    since: Micros,
    /// Device time that the party had used when the turn began, in µs.
    from_us: f64,
}

impl<P: Fn(&GroupView, &mut Vec<Node>) + Send> Turns<P> {
    /// `path` appends the steps from the top to the party that a group belongs to, at least one.
    pub(super) fn new(path: P) -> Turns<P> {
        Turns {
            path,
            nodes: vec![State::new(TOP, (false, 0), 0.0)],
            places: HashMap::new(),
            parties: Vec::new(),
            known: Vec::new(),
            ways: Vec::new(),
            steps: Vec::new(),
            current: None,
            turns: 0,
        }
    }

    /// Brings the tree up to date with the groups and the device time charged to them.
    fn refresh(&mut self, now: Micros, groups: &[GroupView]) {
        for node in &mut self.nodes {
            node.now = NodeView::default();
        }
        self.nodes[TOP].now.is_there = true;
        if !self.known.iter().copied().eq(groups.iter().map(|g| g.id)) {
            self.find_ways(groups);
        }
        let mut ways = self.ways.iter();
        for (group, party) in groups.iter().zip(&self.parties) {
            self.steps.clear();
            (self.path)(group, &mut self.steps);
            let timeslice_us = group.hints.turn_us();
            for (step, at) in self.steps.iter().zip(&mut ways) {
                let node = &mut self.nodes[*at];
                let weight = step.weight.max(PART_LEAST);
                // The heaviest of its groups counts.
                let first = !std::mem::replace(&mut node.now.is_there, true);
                node.weight = if first { weight } else { node.weight.max(weight) };
                node.timeslice_us = if first { timeslice_us } else { node.timeslice_us.max(timeslice_us) };
            }
            let node = &mut self.nodes[*party];
            node.now.used_us += group.used_us;
            node.now.ready |= group.ready;
        }
        if self.nodes.iter().any(|n| !n.now.is_there) {
            self.remove_empty();
        }
        // Children come after their parents, so that a backward pass charges each node before the one above it.
        for at in (TOP + 1..self.nodes.len()).rev() {
            let NodeView { used_us, ready, .. } = self.nodes[at].now;
            let parent = self.nodes[at].parent;
            let timeslice_us = self.nodes[at].timeslice_us;
            let above = &mut self.nodes[parent];
            above.now.used_us += used_us;
            above.now.ready |= ready;
            above.timeslice_us = above.timeslice_us.max(timeslice_us);
        }
        for node in &mut self.nodes {
            let used = node.now.used_us;
            // Less than before happens when a group was removed; its past is no longer of interest.
            if used > node.used_us {
                node.virtual_time += (used - node.used_us) / node.weight;
            }
            node.used_us = used;
        }
        self.raise_floors();
        for at in TOP + 1..self.nodes.len() {
            let floor = self.nodes[self.nodes[at].parent].floor;
            let node = &mut self.nodes[at];
            let ready = node.now.ready;
            if ready && !node.ready {
                let short = node.idle_since.is_some_and(|since| now.saturating_sub(since) <= SHORT_IDLE_US);
                let credit = if short { node.timeslice_us as f64 / node.weight } else { 0.0 };
                node.virtual_time = node.virtual_time.max(floor - credit);
            } else if !ready && node.ready {
                node.idle_since = Some(now);
            }
            node.ready = ready;
        }
    }

    /// Finds the nodes on the way to each group's party; those that are not there yet begin where their siblings are.
    fn find_ways(&mut self, groups: &[GroupView]) {
        self.known.clear();
        self.ways.clear();
        self.parties.clear();
        for group in groups {
            self.steps.clear();
            (self.path)(group, &mut self.steps);
            let mut at = TOP;
            for step in &self.steps {
                let id = (step.is_party, step.id);
                at = *self.places.entry((at, id)).or_insert_with(|| {
                    let floor = self.nodes[at].floor;
                    self.nodes.push(State::new(at, id, floor));
                    self.nodes.len() - 1
                });
                self.ways.push(at);
            }
            self.known.push(group.id);
            self.parties.push(at);
        }
    }

    /// Removes nodes without groups. The order of the others stays.
    fn remove_empty(&mut self) {
        let mut new_place = vec![usize::MAX; self.nodes.len()];
        let there = self.nodes.iter().enumerate().filter(|(_, n)| n.now.is_there);
        for (kept, (at, node)) in there.enumerate() {
            new_place[at] = kept;
            debug_assert!(at == TOP || new_place[node.parent] != usize::MAX, "a parent is there if its child is");
        }
        self.nodes.retain(|n| n.now.is_there);
        self.places.clear();
        for at in TOP + 1..self.nodes.len() {
            let parent = new_place[self.nodes[at].parent];
            self.nodes[at].parent = parent;
            self.places.insert((parent, self.nodes[at].id), at);
        }
        for place in self.parties.iter_mut().chain(&mut self.ways) {
            *place = new_place[*place];
        }
        self.current = self.current.filter(|turn| new_place[turn.party] != usize::MAX);
        self.current = self.current.map(|turn| Turn { party: new_place[turn.party], ..turn });
    }

    /// Raises the virtual time at which newcomers begin, by the nodes that wanted the device until now.
    fn raise_floors(&mut self) {
        let mut least = vec![f64::INFINITY; self.nodes.len()];
        for node in self.nodes[TOP + 1..].iter().filter(|n| n.ready) {
            least[node.parent] = least[node.parent].min(node.virtual_time);
        }
        for (node, least) in self.nodes.iter_mut().zip(least).filter(|(_, least)| least.is_finite()) {
            node.floor = node.floor.max(least);
        }
    }

    /// Computes the part of each node that wants the device, and the length of a round. Returns the number of parties that want it.
    fn weigh(&mut self) -> usize {
        for node in &mut self.nodes {
            node.now.least = f64::INFINITY;
        }
        for at in TOP + 1..self.nodes.len() {
            let State { parent, weight, virtual_time, ready, .. } = self.nodes[at];
            if ready {
                let above = &mut self.nodes[parent].now;
                above.ready_weight += weight;
                above.least = above.least.min(virtual_time);
            }
        }
        self.nodes[TOP].now.part = 1.0;
        let (mut parties, mut least) = (0, 1.0_f64);
        for at in TOP + 1..self.nodes.len() {
            let State { parent, weight, ready, .. } = self.nodes[at];
            if ready {
                let above = &self.nodes[parent].now;
                let part = above.part * weight / above.ready_weight;
                self.nodes[at].now.part = part;
                if self.nodes[at].now.ready_weight == 0.0 {
                    (parties, least) = (parties + 1, least.min(part));
                }
            }
        }
        for at in TOP + 1..self.nodes.len() {
            let State { parent, weight, timeslice_us, ready, .. } = self.nodes[at];
            if ready {
                // A switch costs a larger part of a short turn: the lightest has a whole timeslice.
                let times = (self.nodes[at].now.part / least).min(TURN_MAX);
                let turn_us = (timeslice_us as f64 * times).max(TURN_MIN_US as f64);
                let above = &mut self.nodes[parent].now;
                above.round = above.round.max(turn_us / weight);
            }
        }
        parties
    }

    /// Device time that a node still has in this round, µs.
    fn left(&self, at: usize) -> f64 {
        let node = &self.nodes[at];
        (self.nodes[node.parent].goal - node.virtual_time) * node.weight
    }

    /// Finds the next child of each node. A round in which no child has a turn left is over.
    fn order(&mut self) {
        for node in &mut self.nodes {
            // Children for which the goal was set may be gone. A turn is not cut short: a child that comes back behind waits for its end.
            node.goal = node.goal.min(node.now.least + node.now.round);
        }
        let mut is_over = false;
        loop {
            for at in TOP + 1..self.nodes.len() {
                let parent = self.nodes[at].parent;
                if self.nodes[at].ready && self.left(at) >= TURN_MIN_US as f64 / 2.0 {
                    // Next is the child whose last turn is the longest ago; of equals the older.
                    let first =
                        self.nodes[parent].now.next.is_none_or(|other| self.nodes[at].turn < self.nodes[other].turn);
                    if first {
                        self.nodes[parent].now.next = Some(at);
                    }
                }
            }
            if std::mem::replace(&mut is_over, true) {
                return;
            }
            let over = |n: &&mut State| n.now.ready_weight > 0.0 && n.now.next.is_none();
            let mut again = false;
            for node in self.nodes.iter_mut().filter(over) {
                node.goal = node.now.least + node.now.round;
                again = true;
            }
            if !again {
                return;
            }
        }
    }

    fn next(&mut self, now: Micros) -> Option<Turn> {
        self.order();
        let mut at = self.nodes[TOP].now.next?;
        self.turns += 1;
        self.nodes[at].turn = self.turns;
        while let Some(next) = self.nodes[at].now.next {
            at = next;
            self.nodes[at].turn = self.turns;
        }
        Some(Turn { party: at, since: now, from_us: self.nodes[at].used_us })
    }

    /// Rest of a turn, in µs of device time: the least rest of the round among its party and the nodes above it.
    fn rest(&self, now: Micros, turn: Turn) -> f64 {
        let (mut at, mut rest) = (turn.party, f64::INFINITY);
        while at != TOP {
            rest = rest.min(self.left(at));
            at = self.nodes[at].parent;
        }
        let party = &self.nodes[turn.party];
        let longest = TURN_MAX * TURN_SLACK * (party.timeslice_us as f64).max(TURN_MIN_US as f64);
        let ran = now.saturating_sub(turn.since) as f64;
        // A party that is not charged, because it waits for another device, ends its turn by the clock.
        rest.min(longest - (party.used_us - turn.from_us)).min(2.0 * longest - ran).max(TURN_MIN_US as f64 - ran)
    }
}

impl<P: Fn(&GroupView, &mut Vec<Node>) + Send> Policy for Turns<P> {
    fn decide(&mut self, now: Micros, groups: &[GroupView], verdicts: &mut [Verdict]) -> Option<Micros> {
        self.refresh(now, groups);
        let waiting = self.weigh();
        let holds = self
            .current
            .filter(|&turn| self.nodes[turn.party].ready && (waiting == 1 || self.rest(now, turn) > LEFT_US));
        self.current = holds.or_else(|| self.next(now));
        let many = self.parties.windows(2).any(|two| two[0] != two[1]);
        for (verdict, party) in verdicts.iter_mut().zip(&self.parties) {
            let run = self.current.is_none_or(|turn| turn.party == *party);
            *verdict = Verdict { run, budgeted: many };
        }
        let turn = self.current.filter(|_| waiting > 1)?;
        Some(now + self.rest(now, turn).max(1.0).ceil() as Micros)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ask, group};
    use super::*;
    use crate::{Choice, Level, Lineage, ProgramId};

    fn make(name: &str) -> Box<dyn Policy> {
        Choice::named(name).unwrap().make(0)
    }

    fn weighing(id: u64, weight: u32) -> GroupView {
        let mut group = GroupView { ready: true, ..group(id) };
        group.hints.weight = Some(weight);
        group
    }

    #[test]
    fn one_at_a_time_runs_for_a_turn_scaled_by_weight() {
        let mut up = make("up");
        let mut g = [weighing(1, 75), weighing(2, 25)];
        assert_eq!(ask(&mut *up, 0, &g), (vec![true, false], Some(15_000)));
        g[0].used_us = 15_000.0;
        assert_eq!(ask(&mut *up, 15_000, &g), (vec![false, true], Some(20_000)));
        g[1].used_us = 5_001.0;
        assert_eq!(ask(&mut *up, 20_000, &g).0, [true, false], "the one that is further behind");
    }

    #[test]
    fn a_utilization_counts_before_a_weight() {
        let mut up = make("up");
        let mut g = [weighing(1, 75), weighing(2, 75)];
        g[1].hints.utilization = Some(25);
        assert_eq!(ask(&mut *up, 0, &g), (vec![true, false], Some(15_000)));
    }

    #[test]
    fn who_wants_nothing_is_passed_over_and_who_is_alone_runs_on() {
        let mut up = make("up");
        let mut g = [GroupView { ready: true, ..group(1) }, group(2)];
        assert_eq!(ask(&mut *up, 0, &g), (vec![true, false], None));
        assert_eq!(ask(&mut *up, 9_000_000, &g).0, [true, false]);
        g[0].ready = false;
        g[1].ready = true;
        assert_eq!(ask(&mut *up, 9_000_001, &g).0, [false, true]);
        g[1].ready = false;
        assert_eq!(ask(&mut *up, 9_000_002, &g).0, [true, true], "nobody wants it: whoever comes first starts at once");
    }

    #[test]
    fn idle_time_earns_no_credit_but_a_moment_costs_no_claim() {
        let mut up = make("up");
        let mut g = [GroupView { ready: true, ..group(1) }, group(2)];
        ask(&mut *up, 1, &g);
        g[0].used_us = 1e6;
        g[1].ready = true;
        ask(&mut *up, 1_000_000, &g);
        // Both stand at one million now: they alternate, and the newcomer does not get a second on its own.
        let mut ran = [0.0; 2];
        let mut now = 1_000_000;
        for _ in 0..100 {
            let (run, next) = ask(&mut *up, now, &g);
            let who = usize::from(run[1]);
            let next = next.unwrap();
            g[who].used_us += (next - now) as f64;
            ran[who] += (next - now) as f64;
            now = next;
        }
        assert!((ran[0] - ran[1]).abs() <= 5_000.0, "{ran:?}");
        // A short gap of the one that is behind: it is still the next to run.
        let behind = usize::from(ask(&mut *up, now, &g).0[1]);
        g[behind].ready = false;
        ask(&mut *up, now, &g);
        g[1 - behind].used_us += 1_000.0;
        g[behind].ready = true;
        let (_, next) = ask(&mut *up, now + 1_000, &g);
        g[1 - behind].used_us += (next.unwrap() - now - 1_000) as f64;
        assert!(ask(&mut *up, next.unwrap(), &g).0[behind]);
    }

    #[test]
    fn by_program_the_groups_of_a_program_run_together_and_share_its_weight() {
        let mut pup = make("pup");
        let of = |id, program| GroupView { ready: true, program: ProgramId(program), ..group(id) };
        let mut g = [of(1, 1), of(2, 1), of(3, 2)];
        let mut used = [0.0; 2];
        let mut now = 0;
        for _ in 0..1_000 {
            let (run, next) = ask(&mut *pup, now, &g);
            assert!(run == [true, true, false] || run == [false, false, true], "{run:?}");
            let step = (next.unwrap() - now) as f64;
            now = next.unwrap();
            if run[0] {
                g[0].used_us += step / 2.0;
                g[1].used_us += step / 2.0;
            } else {
                g[2].used_us += step;
            }
            used[usize::from(run[2])] += step;
        }
        let share = used[0] / (used[0] + used[1]);
        assert!((share - 0.5).abs() < 0.01, "{share}");
    }

    #[test]
    fn users_share_by_their_weights_and_their_programs_share_what_they_have() {
        let mut fair = make("fair");
        let of = |id, user, weight| {
            let lineage = Lineage { user: Level { id: user, weight }, cgroup: Vec::new(), namespace: None };
            GroupView { ready: true, lineage: Some(lineage.into()), ..group(id) }
        };
        // Three programs of the first user, one of the second, whose weight is half.
        let mut g = [of(1, 1, 200), of(2, 1, 200), of(3, 1, 200), of(4, 2, 100)];
        let mut now = 0;
        for _ in 0..3_000 {
            let (run, next) = ask(&mut *fair, now, &g);
            let at = run.iter().position(|&run| run).unwrap();
            assert_eq!(run.iter().filter(|&&run| run).count(), 1);
            g[at].used_us += (next.unwrap() - now) as f64;
            now = next.unwrap();
        }
        let parts: Vec<_> = g.iter().map(|g| 100.0 * g.used_us / now as f64).collect();
        for (part, aim) in parts.iter().zip([22.2, 22.2, 22.2, 33.3]) {
            assert!((part - aim).abs() < 0.5, "{parts:?}");
        }
        // With two programs of the first gone, the third has all of its user's part.
        let before = g[2].used_us;
        let start = now;
        for _ in 0..3_000 {
            let (run, next) = ask(&mut *fair, now, &g[2..]);
            let at = 2 + run.iter().position(|&run| run).unwrap();
            g[at].used_us += (next.unwrap() - now) as f64;
            now = next.unwrap();
        }
        let part = 100.0 * (g[2].used_us - before) / (now - start) as f64;
        assert!((part - 66.7).abs() < 0.5, "{part}");
    }
}
