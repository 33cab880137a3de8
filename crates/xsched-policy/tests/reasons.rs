//! Reasons of gates: each stage of a decision names itself where it was the last to change a verdict.

use xsched_policy::{Action, Arbiter, Choice, ClassRule, Drains, Event, GroupId, GroupSpec, Micros, PoolId, ProgramId};
use xsched_proto::trace::Why;

const LOW: GroupId = GroupId(1);
const HIGH: GroupId = GroupId(2);

/// Two groups on one device that want it, under `hpf`.
struct Pair {
    arbiter: Arbiter,
    now: Micros,
}

impl Pair {
    fn new(low: GroupSpec, high: GroupSpec) -> Pair {
        let mut pair = Pair { arbiter: Arbiter::new(Choice::named("hpf").expect("it is listed"), 1), now: 1_000 };
        pair.arbiter.set_guard(None);
        for spec in [low, high] {
            let id = spec.id;
            pair.event(Event::Add(spec));
            pair.event(Event::Ready(id));
        }
        // The first one had the device until the other came.
        pair.event(Event::Drained(LOW));
        pair
    }

    fn by_priority() -> Pair {
        Pair::new(GroupSpec { priority: -10, ..spec(LOW) }, GroupSpec { priority: 10, ..spec(HIGH) })
    }

    fn event(&mut self, event: Event) {
        let mut actions: Vec<Action> = Vec::new();
        self.arbiter.event(self.now, event, &mut actions);
    }

    /// Runs the timers up to a time. While both have progress, no group starves.
    fn run_to(&mut self, end: Micros) {
        while let Some(at) = self.arbiter.next_timer().filter(|at| *at <= end) {
            self.now = at.max(self.now + 1);
            self.event(Event::Progress(LOW));
            self.event(Event::Progress(HIGH));
            self.event(Event::Timer);
        }
        self.now = end;
    }

    /// For both groups, true with an open gate, and the reason.
    fn gates(&self) -> [(bool, Why); 2] {
        [LOW, HIGH].map(|id| {
            let granted = self.arbiter.status(self.now, id).expect("it was added").granted;
            (granted, self.arbiter.why(id).0)
        })
    }
}

fn spec(id: GroupId) -> GroupSpec {
    GroupSpec::new(id, ProgramId(id.0), "d")
}

#[test]
fn the_policy_is_the_reason_where_no_later_stage_decides_otherwise() {
    let mut pair = Pair::by_priority();
    assert_eq!(pair.gates(), [(false, Why::Policy), (true, Why::Policy)]);
    pair.event(Event::Idle(HIGH));
    assert_eq!(pair.gates(), [(true, Why::Policy), (true, Why::Policy)], "a launch of the idle group need not wait");
}

#[test]
fn a_turn_by_guarantee_has_the_class_as_its_reason_on_both_sides() {
    let mut pair = Pair::by_priority();
    let rule = ClassRule { lowest: -255, highest: -1, quantum_us: 5_000, preemptible: true, guarantee_percent: 20 };
    pair.arbiter.set_classes(pair.now, vec![rule], &mut Vec::new());
    assert_eq!(pair.gates(), [(false, Why::Policy), (true, Why::Policy)]);
    // A quantum at 20 % of the device is owed after five of them.
    pair.run_to(pair.now + 26_000);
    assert_eq!(pair.gates(), [(true, Why::Guarantee), (false, Why::Guarantee)]);
    pair.run_to(pair.now + 5_000);
    assert_eq!(pair.gates(), [(false, Why::Policy), (true, Why::Policy)]);
}

#[test]
fn the_guard_is_the_reason_also_where_a_guarantee_says_otherwise() {
    let mut pair = Pair::by_priority();
    pair.arbiter.set_guard(Some(300_000));
    let rule = ClassRule { lowest: 0, highest: 255, quantum_us: 5_000, preemptible: true, guarantee_percent: 90 };
    pair.arbiter.set_classes(pair.now, vec![rule], &mut Vec::new());
    pair.run_to(pair.now + 299_000);
    assert_eq!(pair.gates(), [(false, Why::Policy), (true, Why::Policy)]);
    pair.run_to(pair.now + 2_000);
    assert_eq!(pair.gates(), [(true, Why::Guard), (false, Why::Guard)]);
}

#[test]
fn all_pause_with_the_drain_as_the_reason_while_a_suspended_group_still_executes() {
    let mut pair = Pair::by_priority();
    pair.event(Event::Idle(HIGH));
    pair.event(Event::Drains(LOW, Drains::InSlices));
    pair.event(Event::Ready(HIGH));
    assert_eq!(pair.gates(), [(false, Why::Policy), (true, Why::Policy)]);
    pair.now += 4_000;
    assert_eq!(pair.arbiter.drains_due(pair.now).collect::<Vec<_>>(), [LOW]);
    pair.event(Event::Executes(LOW, true));
    pair.event(Event::Timer);
    assert_eq!(pair.gates(), [(false, Why::Policy), (false, Why::Drain)]);
    pair.event(Event::Executes(LOW, false));
    assert_eq!(pair.gates(), [(false, Why::Policy), (true, Why::Policy)]);
}

#[test]
fn a_group_that_is_held_for_the_calibration_of_another_has_evenness_as_its_reason() {
    let pooled = |id| GroupSpec { pool: Some(PoolId(1)), priority: -128, ..spec(id) };
    let mut pair = Pair::new(pooled(LOW), pooled(HIGH));
    let mut completed = 0;
    let is_held = |pair: &Pair| pair.gates().iter().any(|(granted, _)| !granted);
    while !is_held(&pair) {
        pair.now += 4_000;
        assert!(pair.now < 2_000_000, "none is ever calibrated");
        completed += 10;
        for group in [LOW, HIGH] {
            let count = Event::Counted { group, completed, limited: completed as u32, longest_us: 400, drained: false };
            pair.arbiter.take(pair.now, count);
            pair.event(Event::Progress(group));
        }
        pair.event(Event::Timer);
    }
    let mut gates = pair.gates();
    gates.sort_by_key(|(granted, _)| *granted);
    assert_eq!(gates, [(false, Why::Evenness), (true, Why::Policy)]);
    assert_eq!([LOW, HIGH].map(|id| pair.arbiter.holds_back(id)).iter().filter(|held| **held).count(), 1);
}

#[test]
fn a_gate_that_no_stage_may_open_has_its_own_reason() {
    let mut pair = Pair::by_priority();
    pair.event(Event::Hold(ProgramId(HIGH.0)));
    assert_eq!(pair.gates(), [(true, Why::Policy), (false, Why::Suspended)]);
    pair.event(Event::Release(ProgramId(HIGH.0)));
    pair.event(Event::Drained(LOW));
    let other = GroupId(3);
    pair.event(Event::Add(GroupSpec { program: ProgramId(HIGH.0), priority: 10, system: true, ..spec(other) }));
    pair.event(Event::Ready(other));
    assert_eq!(pair.gates(), [(false, Why::Policy), (false, Why::Domain)]);
    pair.event(Event::Stalled(other));
    assert_eq!(pair.gates(), [(false, Why::Policy), (true, Why::Policy)], "the other may wait for this one");
    assert_eq!(pair.arbiter.why(GroupId(9)).0, Why::Unsaid);
}
