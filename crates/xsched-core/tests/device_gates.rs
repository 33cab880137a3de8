//! Gates on the device stand open where they would hold more than they should.

use std::sync::atomic::Ordering::*;

use xsched_core::fast_path::{self, Entered};
use xsched_core::{Admission, Registration, Runtime, Work};
use xsched_proto::gate::Gate;
use xsched_proto::segment::GATE_FOLLOWS;

mod nothing;

fn with_queue(rt: &'static Runtime, handle: usize, priority_steps: i32) {
    rt.queue(handle, || nothing::spec(handle, priority_steps)).expect("a queue");
}

/// Makes a process with a queue, at this level.
fn at_level(level: u32) -> &'static Runtime {
    let rt = nothing::runtime();
    with_queue(rt, 16, 0);
    rt.segment().groups[0].level.store(level, SeqCst);
    rt
}

fn is_loose(rt: &Runtime) -> bool {
    rt.segment().groups[0].gate.load().is_bypassed()
}

/// Does what the agent does at each wake-up, as by a new group.
fn look(rt: &Runtime) {
    rt.groups().for_each(|group| group.set_device_gates(rt));
}

#[test]
fn gates_inside_commands_open_when_the_process_has_several_groups_though_nothing_is_launched_any_more() {
    let rt = at_level(2);
    rt.groups().next().expect("a group").hold_inside(rt);
    look(rt);
    assert!(!is_loose(rt));
    with_queue(rt, 32, 1);
    look(rt);
    assert!(is_loose(rt));
    assert!(!rt.segment().groups[1].gate.load().is_bypassed(), "nothing waits for its word");
}

#[test]
fn gates_inside_commands_follow_the_level() {
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
fn a_process_without_commands_with_gates_inside_keeps_its_plain_word() {
    let rt = at_level(1);
    with_queue(rt, 32, 1);
    look(rt);
    assert!(!is_loose(rt));
}

/// Makes a process at level 2 that shares its device, with a default stream and another queue. The budget is so small that every
/// command gets a gate.
fn in_company() -> &'static Runtime {
    let rt = at_level(2);
    with_queue(rt, 1, 0);
    rt.attach(std::ptr::null_mut());
    rt.segment().groups[0].budget_us.store(50, SeqCst);
    rt.groups().next().expect("a group").set_registration(rt, Registration::Attached);
    rt.segment().groups[0].gate.mark(Gate::CONTENDED, true);
    open(rt);
    rt
}

fn open(rt: &Runtime) {
    let words = &rt.segment().groups[0];
    words.grants.fetch_add(1, SeqCst);
    words.gate.grant();
}

fn close(rt: &Runtime) {
    rt.segment().groups[0].gate.close();
}

const KERNEL: Work =
    Work { key: 1, blocking: false, unbounded: false, may_prequeue: true, loads: false, copies: false, part: 0 };

fn launch(rt: &'static Runtime, handle: usize, work: Work) -> Admission {
    rt.remember(handle, || None).expect("a queue");
    let Entered::Slow(queue, counter) = fast_path::enter(handle) else { panic!("it is watched") };
    let admission = nothing::admit(rt, queue, work, counter);
    queue.commit(rt, &admission, true, counter);
    admission
}

/// Does what the agent does at this time, in ns.
fn look_at(rt: &Runtime, now: u64) {
    rt.groups().for_each(|group| group.release_held(rt, now));
}

#[test]
fn gates_open_while_code_is_loaded() {
    let rt = in_company();
    assert!(launch(rt, 16, KERNEL).device_gate && !is_loose(rt));
    rt.begin_load();
    rt.begin_load();
    assert!(is_loose(rt));
    rt.end_load();
    look(rt);
    assert!(is_loose(rt), "another thread still loads");
    rt.end_load();
    assert!(!is_loose(rt));
}

#[test]
fn what_loads_code_is_not_given_while_the_gate_is_closed() {
    let rt = in_company();
    close(rt);
    assert!(launch(rt, 16, KERNEL).prequeued);
    let loads = std::thread::spawn(move || launch(rt, 16, Work { loads: true, ..KERNEL }));
    xsched_testkit::until("it comes to the gate", || rt.gate_waits() > 0 || loads.is_finished());
    assert!(!loads.is_finished(), "it waits at the gate");
    open(rt);
    let admission = loads.join().expect("it goes on");
    assert!(admission.loads && !admission.prequeued);
}

#[test]
fn gates_open_for_queues_that_wait_for_each_other_and_no_more_are_placed() {
    let rt = in_company();
    assert!(launch(rt, 16, KERNEL).device_gate);
    rt.note_cross_stream();
    assert!(is_loose(rt));
    assert!(!launch(rt, 16, KERNEL).device_gate);
    look(rt);
    assert!(is_loose(rt), "for a while");
    let rt = at_level(1);
    rt.note_cross_stream();
    assert!(!is_loose(rt), "there are none at level 1");
}

#[test]
fn a_default_stream_and_others_wait_for_each_other() {
    for (first, second) in [(1, 16), (16, 1)] {
        let rt = in_company();
        assert!(launch(rt, first, KERNEL).device_gate && !is_loose(rt));
        assert!(!launch(rt, second, KERNEL).device_gate && is_loose(rt));
    }
    let rt = in_company();
    with_queue(rt, 32, 0);
    assert!(launch(rt, 16, KERNEL).device_gate && launch(rt, 32, KERNEL).device_gate && !is_loose(rt));
}

#[test]
fn what_is_held_for_long_is_let_go_on_until_the_next_turn() {
    const MS: u64 = 1_000_000;
    let rt = in_company();
    close(rt);
    assert!(launch(rt, 16, KERNEL).prequeued);
    look_at(rt, MS);
    look_at(rt, 1_000 * MS);
    assert!(!is_loose(rt), "999 ms");
    look_at(rt, 1_001 * MS);
    assert!(is_loose(rt));
    look(rt);
    assert!(is_loose(rt), "until its turn comes");
    let next_turn = |held: u64, loose: u64| {
        open(rt);
        look(rt);
        assert!(!is_loose(rt));
        close(rt);
        look_at(rt, held * MS);
        look_at(rt, (loose - 1) * MS);
        assert!(!is_loose(rt), "counted from when it was held again");
        look_at(rt, loose * MS);
    };
    next_turn(2_000, 2_500);
    assert!(is_loose(rt), "in half the time");
    next_turn(3_000, 3_250);
    assert!(is_loose(rt), "and in half of that");
    next_turn(4_000, 4_100);
    assert!(!is_loose(rt));
    next_turn(5_000, 5_250);
    assert!(is_loose(rt), "a turn that came sooner doubled it");
}

/// Takes a kernel into the device's queue, and appends what is placed with it: fences by their numbers, gates, the kernel.
fn give(rt: &'static Runtime, placed: &mut Vec<Thing>) {
    let Entered::Slow(queue, counter) = fast_path::enter(1) else { panic!("it is watched") };
    let admission = nothing::admit(rt, queue, KERNEL, counter);
    if admission.untold_gate {
        placed.push(Thing::Fence(queue.fence_before_gate(rt, &admission).number));
    }
    if admission.device_gate {
        placed.push(Thing::Gate);
    }
    placed.push(Thing::Kernel);
    placed.extend(queue.commit(rt, &admission, true, counter).map(|fence| Thing::Fence(fence.number)));
}

#[derive(Clone, Copy, PartialEq)]
enum Thing {
    Fence(u32),
    Gate,
    Kernel,
}

#[test]
fn the_last_fence_before_a_gate_says_that_it_follows_and_no_other_does() {
    let rt = in_company();
    let words = &rt.segment().groups[0];
    words.budget_us.store(300, SeqCst);
    rt.remember(1, || None).expect("a queue");
    let (mut placed, queue) = (Vec::new(), &rt.segment().queues[1]);
    for turn in 0..20 {
        (0..2).for_each(|_| give(rt, &mut placed));
        // The device reaches all of it.
        let last = placed.iter().rev().find_map(|thing| if let Thing::Fence(n) = thing { Some(*n) } else { None });
        queue.completed_word.store(last.unwrap_or(0), SeqCst);
        assert_eq!(Some(queue.fence.load(SeqCst)), last);
        close(rt);
        (0..turn % 4).for_each(|_| give(rt, &mut placed));
        open(rt);
    }
    let gates = placed.windows(2).filter(|two| two[1] == Thing::Gate).inspect(|two| {
        assert!(matches!(two[0], Thing::Fence(n) if n & GATE_FOLLOWS != 0), "a gate that no fence tells of");
    });
    assert!(gates.count() > 10);
    let told = placed.windows(2).filter(|two| matches!(two[0], Thing::Fence(n) if n & GATE_FOLLOWS != 0));
    assert!(told.into_iter().all(|two| two[1] == Thing::Gate));
    assert_eq!(words.untold_gates.load(SeqCst), 0);
}
