//! Answers of the models that no scenario reaches: each condition by itself.

use xsched_flow::activity::{Activity, Looks, Step, View};
use xsched_flow::admission::{self, AtGate, Place, Placed};
use xsched_flow::timeline::{Evidence, Presumed, presumes};
use xsched_flow::tuning::*;
use xsched_flow::watchdog::{Bypass, bypasses, is_silent, patience_ns};
use xsched_proto::gate::Gate;
use xsched_proto::segment::state;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

#[test]
fn each_of_the_five_states_follows_from_its_view() {
    let of = |view: View| Activity::of(&View { told: state::READY, now_ns: 2 * MS, ..view });
    let (open, closed) = (Gate::CONTENDED.bits() | Gate::GRANTED.bits(), Gate::CONTENDED.bits());
    let complete = View { complete: true, grace_ns: 200 * US, ..View::default() };
    assert_eq!(of(View { word: closed | Gate::MUST_ANNOUNCE.bits(), ..complete }), Activity::Idle);
    assert_eq!(of(View { word: open, ..View::default() }), Activity::Ready);
    let draining = View { word: closed, waiters: 1, waits_since_ns: MS, ..View::default() };
    assert_eq!(of(draining), Activity::Draining { for_ns: MS });
    assert!(of(draining).is_late() && !of(View { waits_since_ns: MS + 1, ..draining }).is_late());
    let late = Activity::of(&View { now_ns: MS + DRAINS_NS, told: state::READY, ..draining });
    assert_eq!(late, Activity::Ready, "the device no longer counts as its own");
    let drained = of(View { word: closed, waiters: 1, ..complete });
    assert_eq!((drained, drained.step()), (Activity::Drained, Step::TellDrained));
    for word in [open, closed] {
        let begins = of(View { word, ..complete });
        assert_eq!((begins, begins.step()), (Activity::Grace { left_ns: None }, Step::BeginGrace));
    }
    let runs = of(View { word: open, waiters: 1, grace_since_ns: 2 * MS - 50 * US, ..complete });
    assert_eq!((runs.grace_left_ns(), runs.step()), (Some(150 * US), Step::Nothing));
}

#[test]
fn only_what_nothing_tells_of_is_presumed_complete() {
    let ask = Presumed { fenced: false, held: false, in_order: true, counted_done: true, silent: true };
    for evidence in [Evidence::Overdue, Evidence::Silence] {
        assert!(presumes(&ask, evidence));
        assert!(!presumes(&Presumed { fenced: true, ..ask }, evidence), "a fence will tell");
        assert!(!presumes(&Presumed { held: true, ..ask }, evidence), "held commands cannot complete");
    }
    assert!(!presumes(&Presumed { counted_done: false, ..ask }, Evidence::Overdue), "there may be much more");
    assert!(!presumes(&Presumed { silent: false, ..ask }, Evidence::Silence));
}

#[test]
fn commands_are_prequeued_only_behind_gates_that_hold() {
    let ask =
        AtGate { word: Gate::CONTENDED.bits(), can_prequeue: true, loads: false, has_gates: true, budgeted: true };
    assert!(admission::at_gate(&ask, || PREQUEUED_COMMANDS - 1));
    assert!(!admission::at_gate(&ask, || PREQUEUED_COMMANDS));
    for other in [
        AtGate { can_prequeue: false, ..ask },
        AtGate { loads: true, ..ask },
        AtGate { has_gates: false, ..ask },
        AtGate { budgeted: false, ..ask },
        AtGate { word: Gate::CONTENDED.bits() | Gate::DEVICE_GATES_BYPASSED.bits(), ..ask },
    ] {
        assert!(!admission::at_gate(&other, || 0), "{other:?}");
    }
}

#[test]
fn device_gates_are_bypassed_for_each_cause() {
    let none = Bypass {
        word: Gate::CONTENDED.bits(),
        gates_inside: false,
        fits_inside: true,
        released: false,
        loading: false,
        cross_stream: false,
    };
    assert!(!bypasses(&none));
    for one in [
        Bypass { loading: true, ..none },
        Bypass { cross_stream: true, ..none },
        Bypass { released: true, ..none },
        Bypass { gates_inside: true, fits_inside: false, ..none },
    ] {
        assert!(bypasses(&one), "{one:?}");
    }
    let open = Bypass { word: Gate::CONTENDED.bits() | Gate::GRANTED.bits(), released: true, ..none };
    assert!(!bypasses(&open), "the next grant ends a release");
}

#[test]
fn one_command_in_64_is_sampled_and_the_one_after_it() {
    let fenced = (1..10_000u64).filter(|seq| {
        let (seq, estimate_ns) = (*seq, Some(US));
        let ask = Place { seq, fenced: seq - 1, estimate_ns, budget_us: 500, in_order: true, ..Place::default() };
        let ask = Place { issued_ns: seq * US, fenced_ns: (seq - 1) * US, ..ask };
        admission::place(&ask, || 0, || true) == Placed { fence: true, device_gate: false }
    });
    let n = fenced.count();
    assert!((200..500).contains(&n), "{n} of 10,000");
}

#[test]
fn a_queue_that_keeps_up_while_it_yields_needs_fewer_fences() {
    let seq = (70..).find(|seq| {
        let ask = Place {
            seq: *seq,
            fenced: seq - 1,
            estimate_ns: Some(US),
            budget_us: 500,
            in_order: true,
            ..Place::default()
        };
        !admission::place(&ask, || 0, || true).fence
    });
    let seq = seq.expect("one that is no sample");
    let ask = Place {
        seq,
        fenced: seq - 6,
        estimate_ns: Some(10 * US),
        issued_ns: 50 * US,
        budget_us: 100,
        in_order: true,
        ..Place::default()
    };
    assert!(admission::place(&ask, || 0, || true).fence, "by time");
    assert!(admission::leaves_out(&ask, true) && !admission::leaves_out(&ask, false));
    for other in [
        Place { issued_ns: 190 * US, ..ask },
        Place { estimate_ns: None, ..ask },
        Place { fenced: seq - FENCE_COMMANDS, ..ask },
        Place { fence_commands: 4, ..ask },
        Place { in_order: false, ..ask },
        Place { calls_back: true, ..ask },
    ] {
        assert!(!admission::leaves_out(&other, true), "{other:?}");
    }
    let samples =
        (1..=4096).filter(|seq| !admission::leaves_out(&Place { seq: *seq, fenced: seq - 1, ..ask }, true)).count();
    assert!(samples > 64, "{samples} samples");
}

/// Returns the fences and gates in a queue of `commands` commands of `ns` each, with gates on the device under this budget: `f` is a fence,
/// `F` one that announces a gate, `G` a gate that no fence announces, `g` one that the fence before it announces.
fn placed_between(commands: u64, ns: u64, budget_us: u32) -> String {
    let plain = Place { estimate_ns: Some(ns), budget_us, in_order: true, has_gates: true, ..Place::default() };
    let is_sampled = |seq: u64| admission::place(&Place { seq, fenced: seq - 1, ..plain }, || 0, || true).fence;
    // Skips commands that are fenced in any case: only the distance to the last fence should count.
    let seq = (100..200).find(|seq| !is_sampled(*seq)).unwrap_or(100);
    let (mut ask, mut out) = (Place { seq, fenced: seq - 1, ..plain }, String::new());
    for _ in 0..commands {
        let placed = admission::place(&ask, || 0, || true);
        if placed.device_gate {
            out.push(if ask.gate_due { 'g' } else { 'G' });
            ask.gated_ns = ask.issued_ns;
            // A fence is placed before a gate that no earlier fence announced.
            (ask.fenced, ask.fenced_ns) =
                if ask.gate_due { (ask.fenced, ask.fenced_ns) } else { (seq - 1, ask.issued_ns) };
        }
        ask.gate_due = admission::gate_follows(&ask, &placed);
        ask.issued_ns += ns;
        (ask.fenced, ask.fenced_ns) =
            if placed.fence { (seq - 1, ask.issued_ns) } else { (ask.fenced - 1, ask.fenced_ns) };
        out.push_str(match placed.fence {
            true if ask.gate_due => "F",
            true => "f",
            false => "",
        });
    }
    out
}

#[test]
fn fences_and_gates_on_the_device_come_together() {
    for (ns, budget_us) in [(10 * US, 300), (40 * US, 300), (100 * US, 500)] {
        let out = placed_between(2_000, ns, budget_us);
        assert!(!out.contains(['f', 'G']) && out.matches("Fg").count() > 60, "{ns} ns: {out}");
    }
    assert!(placed_between(10, 200 * US, 300).ends_with("gFgFgFgFgF"), "each long one has its gate, and is measured");
    let out = placed_between(2_000, 10 * US, 5_000);
    assert!(out.starts_with("ffffff") && out.contains('F'), "more in flight than its completions may be late: {out}");
}

#[test]
fn stopped_time_does_not_bring_a_rare_look_about() {
    let mut looks = Looks::default();
    let due = (0..1_000).filter(|ms| looks.look(ms * MS, ms % 10 != 0)).count();
    assert_eq!(due, 0, "of the second less than 100 ms are its own");
}

#[test]
fn patience_ends_and_a_daemon_that_need_not_beat_is_not_silent() {
    assert_eq!(patience_ns(500 * US, 3_600_000 * MS), OVERRIDE_LONG_NS);
    let second = 1_000 * MS;
    assert!(is_silent(second, second, second + LEASE_NS + 1));
    assert!(!is_silent(0, 100 * second, 100 * second + MS), "it beats only while a gate is closed");
}

#[test]
fn gates_inside_a_graph_follow_the_budget_of_its_group() {
    assert_eq!(admission::inside_ns(400, false), 400 * US);
    assert_eq!(admission::inside_ns(0, false), INSIDE_NS, "a rival may come");
    assert_eq!(admission::inside_ns(400, true), 0, "each kernel");
}
