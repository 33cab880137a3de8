//! Whether the commands of a group that is held to a bound are short, which the daemon chooses time slices by.

use std::sync::atomic::Ordering::*;

use xsched_core::thread::{self, Entered};
use xsched_core::{Registration, Runtime, Work, XQueue};
use xsched_proto::segment::{gate, length};

mod nothing;

/// A command of this kind, complete at once.
fn launch(rt: &'static Runtime, key: u64) {
    let Entered::Careful(queue, counter) = thread::enter(16) else { panic!("it is watched") };
    let admission = queue.admit(rt, Work { key, ..Work::default() }, counter);
    if let Some(mark) = queue.commit(rt, &admission, true, counter) {
        XQueue::complete(rt, &mark);
    }
}

#[test]
fn commands_count_as_long_until_most_of_their_time_is_known_to_be_short_ones() {
    let rt = nothing::runtime();
    rt.queue(16, || nothing::spec(16, 0)).expect("a queue");
    rt.attach(std::ptr::null_mut());
    let words = &rt.segment().groups[0];
    words.bound_us.store(100_000, SeqCst);
    words.gate.fetch_or(gate::GRANTED | gate::WATCHED, SeqCst);
    rt.groups().next().expect("its group").set_registration(rt, Registration::Attached);
    rt.remember(16, || None).expect("a queue");
    assert_eq!(words.lengths.load(SeqCst), length::UNKNOWN);
    // Each unknown, so taken for 100 µs: a thousand are as much as anything is said of.
    (0..1_000).for_each(|n| launch(rt, 2 * n + 1));
    assert_eq!(words.lengths.load(SeqCst), length::LONG);
    // Those of one kind are soon known to be over at once, and make up all the time.
    let became_short = (0..5_000_000).any(|_| {
        launch(rt, 1);
        words.lengths.load(SeqCst) == length::SHORT
    });
    assert!(became_short);
}
