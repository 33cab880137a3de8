//! Unfenced suffix of a group that waits for its grant: the agent presumes it complete soon.

use std::sync::atomic::Ordering::*;

use xsched_core::fast_path::{self, Entered};
use xsched_core::{CompletionFence, Registration, Runtime, Work, now_ns};
use xsched_proto::gate::Gate;
use xsched_proto::segment::state;
use xsched_testkit::until;

mod nothing;

fn launch(rt: &'static Runtime) -> Option<CompletionFence> {
    rt.remember(16, || None).expect("a queue");
    let Entered::Slow(queue, counter) = fast_path::enter(16) else { panic!("it is watched") };
    let admission = nothing::admit(rt, queue, Work::default(), counter);
    queue.commit(rt, &admission, true, counter)
}

#[test]
fn unfenced_commands_are_taken_for_complete_when_all_that_is_followed_is() {
    let rt = nothing::runtime();
    let queue = rt.queue(16, || nothing::spec(16, 0)).expect("a queue");
    let (group, words) = (queue.group(rt), &rt.segment().groups[0]);
    rt.attach(std::ptr::null_mut());
    group.set_registration(rt, Registration::Attached);
    words.gate.mark(Gate::CONTENDED, true);
    words.gate.grant();
    // The first commands have a fence each.
    let mut last = launch(rt).expect("a fence");
    while let Some(fence) = {
        assert!(!queue.is_held_on_device(rt));
        launch(rt)
    } {
        queue.slot(rt).completed_word.store(last.number, SeqCst);
        last = fence;
    }
    // These commands are an unfenced suffix.
    let began = now_ns();
    words.gate.close();
    let waiting = std::thread::spawn(move || launch(rt).is_some());
    // At some time of the next second the suffix is overdue, if it waits now.
    let is_late = || (0..1000).any(|ms| group.activity(rt, began + ms * 1_000_000).is_late());
    until("it waits", is_late);
    let gives_up = || {
        group.presume(rt, xsched_flow::timeline::Evidence::Overdue);
        group.update_idle_state(rt);
        words.state.load(SeqCst) == state::DRAINED
    };
    assert!(!gives_up(), "the device is at work still, as far as is known");
    queue.slot(rt).completed_word.store(last.number, SeqCst);
    assert!(gives_up());
    words.gate.grant();
    waiting.join().expect("it goes on");
}
