//! Batch size: the most commands between two completion fences. The commands that a fence covers make room at once.

use std::sync::atomic::Ordering::*;

use xsched_core::fast_path::{self, Entered};
use xsched_core::{QueueSpec, Registration, Work, XQueue};
use xsched_proto::gate::Gate;

mod nothing;

#[test]
fn a_batch_ends_with_a_fence_where_a_budget_is_in_force() {
    let rt = nothing::runtime();
    // This interface reports completions by calls: each is seen at once.
    rt.queue(16, || nothing::spec(16, 0).map(|s| QueueSpec { platform: 1, ..s })).expect("a queue");
    rt.attach(std::ptr::null_mut());
    let words = &rt.segment().groups[0];
    words.gate.mark(Gate::CONTENDED, true);
    words.gate.grant();
    rt.groups().next().expect("its group").set_registration(rt, Registration::Attached);
    rt.remember(16, || None).expect("a queue");
    // Number of commands before the next fence, at most.
    let longest = |threshold: u32, batch: u32| {
        words.budget_commands.store(threshold, SeqCst);
        words.batch_commands.store(batch, SeqCst);
        let (mut unfenced, mut longest) = (0, 0);
        for _ in 0..1_000 {
            let Entered::Slow(queue, counter) = fast_path::enter(16) else { panic!("it is watched") };
            let admission = nothing::admit(rt, queue, Work::default(), counter);
            unfenced += 1;
            if let Some(fence) = queue.commit(rt, &admission, true, counter) {
                XQueue::complete(rt, &fence);
                longest = longest.max(unfenced);
                unfenced = 0;
            }
        }
        longest
    };
    // The first commands have a fence each, whatever the batch.
    longest(16, 0);
    for (threshold, batch, expected) in
        [(16, 0, 8), (16, 1, 1), (16, 4, 4), (16, 16, 16), (16, 64, 16), (1_000, 64, 32)]
    {
        assert_eq!(longest(threshold, batch), expected, "threshold {threshold}, batch {batch}");
    }
}
