//! Length of a group's budgeted commands, short or long, by which the daemon chooses time slices. Tests, in virtual time.

use core::sync::atomic::Ordering::*;
use core::time::Duration;

use xsched_proto::gate::Gate;
use xsched_proto::segment::length;

use crate::clock::virtual_time::{self, pass};
use crate::fast_path::{self, Entered};
use crate::{QueueSpec, Registration, Runtime, Work, XQueue, nothing};

/// Launches a command of this kind, which is complete after `us` µs.
fn launch(rt: &'static Runtime, key: u64, us: u64) {
    let Entered::Slow(queue, counter) = fast_path::enter(16) else { panic!("it is watched") };
    let admission = nothing::admit(rt, queue, Work { key, ..Work::default() }, counter);
    if let Some(fence) = queue.commit(rt, &admission, true, counter) {
        pass(Duration::from_micros(us));
        XQueue::complete(rt, &fence);
    }
}

#[test]
fn the_length_is_that_of_the_commands_that_take_most_of_the_time() {
    virtual_time::begin();
    let rt = nothing::runtime();
    // This interface reports completions by calls: each is seen at once.
    rt.queue(16, || nothing::spec(16, 0).map(|s| QueueSpec { platform: 1, ..s })).expect("a queue");
    rt.attach(std::ptr::null_mut());
    let words = &rt.segment().groups[0];
    words.budget_us.store(100_000, SeqCst);
    words.gate.mark(Gate::CONTENDED, true);
    words.gate.grant();
    rt.groups().next().expect("its group").set_registration(rt, Registration::Attached);
    rt.remember(16, || None).expect("a queue");
    let until = |wanted: u32, launches: usize, one: &dyn Fn()| {
        let found = (0..launches).any(|_| {
            one();
            words.lengths.load(SeqCst) == wanted
        });
        assert!(found, "{}", words.lengths.load(SeqCst));
    };
    (0..1_000).for_each(|n| launch(rt, 2 * n + 1_000_001, 0));
    assert_eq!(words.lengths.load(SeqCst), length::UNKNOWN, "nothing is said of commands of which nothing is known");
    until(length::LONG, 1_000, &|| launch(rt, 1, 2_000));
    until(length::SHORT, 50_000, &|| launch(rt, 3, 20));
    // A long command among a hundred short ones takes half of the time.
    until(length::LONG, 1_000, &|| {
        (0..100).for_each(|_| launch(rt, 3, 20));
        launch(rt, 1, 2_000);
    });
}
