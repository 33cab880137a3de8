//! Gates inside recorded commands stand open where they would hold more than they should.

use std::sync::atomic::Ordering::*;

use xsched_core::Runtime;
use xsched_proto::segment::gate;

mod nothing;

fn with_queue(rt: &'static Runtime, handle: usize, priority_steps: i32) {
    rt.queue(handle, || nothing::spec(handle, priority_steps)).expect("a queue");
}

/// A process with a queue, at this level.
fn at_level(level: u32) -> &'static Runtime {
    let rt = nothing::runtime();
    with_queue(rt, 16, 0);
    rt.segment().groups[0].level.store(level, SeqCst);
    rt
}

fn is_loose(rt: &Runtime) -> bool {
    rt.segment().groups[0].gate.load(SeqCst) & gate::LOOSE != 0
}

/// What the agent does each time that it is woken, as by a new group.
fn look(rt: &Runtime) {
    rt.groups().for_each(|group| group.set_inner_gates(rt));
}

#[test]
fn they_open_when_the_process_has_several_groups_though_nothing_is_launched_any_more() {
    let rt = at_level(2);
    rt.groups().next().expect("a group").hold_inside(rt);
    look(rt);
    assert!(!is_loose(rt));
    with_queue(rt, 32, 1);
    look(rt);
    assert!(is_loose(rt));
    assert_eq!(rt.segment().groups[1].gate.load(SeqCst) & gate::LOOSE, 0, "nothing waits for its word");
}

#[test]
fn they_follow_the_level() {
    let rt = at_level(1);
    let group = rt.groups().next().expect("a group");
    group.hold_inside(rt);
    assert!(is_loose(rt));
    rt.segment().groups[0].level.store(2, SeqCst);
    group.hold_inside(rt);
    assert!(!is_loose(rt));
    rt.segment().groups[0].level.store(1, SeqCst);
    look(rt);
    assert!(is_loose(rt));
}

#[test]
fn a_process_without_such_commands_keeps_its_plain_word() {
    let rt = at_level(1);
    with_queue(rt, 32, 1);
    look(rt);
    assert!(!is_loose(rt));
}
