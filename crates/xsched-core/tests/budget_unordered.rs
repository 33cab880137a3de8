//! Queues whose commands complete in any order.

use std::sync::atomic::Ordering::*;

use xsched_core::fast_path::{self, Entered};
use xsched_core::{CompletionFence, QueueSpec, Runtime, Work, XQueue};

mod nothing;

fn launch(rt: &'static Runtime) -> CompletionFence {
    let Entered::Slow(queue, counter) = fast_path::enter(16) else { panic!("it is watched") };
    let admission = nothing::admit(rt, queue, Work::default(), counter);
    queue.commit(rt, &admission, true, counter).expect("each command is followed")
}

/// Complete commands no longer count: the budget once took all commands that such a queue had ever been given for in flight.
#[test]
fn the_budget_leaves_room_on_an_unordered_queue_however_many_commands_came_before() {
    let rt = nothing::runtime();
    rt.queue(16, || nothing::spec(16, 0).map(|s| QueueSpec { in_order: false, platform: 1, ..s })).expect("a queue");
    let words = nothing::attach_with_room_for_ten(rt);
    rt.remember(16, || None).expect("a queue");
    for _ in 0..20 {
        let fences: Vec<CompletionFence> = (0..5).map(|_| launch(rt)).collect();
        fences.iter().rev().for_each(|fence| XQueue::complete(rt, fence));
    }
    assert_eq!(words.liveness_overrides.load(SeqCst), 0);
}
