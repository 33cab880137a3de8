//! Waits for the in-flight budget while grants are short.

use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use xsched_core::fast_path::{self, Entered};
use xsched_core::{Runtime, Work};

mod nothing;

/// Launches a command that is never complete.
fn launch(rt: &'static Runtime) {
    rt.remember(16, || None).expect("a queue");
    let Entered::Slow(queue, counter) = fast_path::enter(16) else { panic!("it is watched") };
    let admission = nothing::admit(rt, queue, Work { key: 1, ..Work::default() }, counter);
    queue.commit(rt, &admission, true, counter);
}

/// Commands may wait for something that the program does only after further launches. Such a launch once had to wait for all of its
/// patience within one grant, and grants beside a busy program are shorter.
#[test]
fn a_wait_for_the_budget_in_one_grant_counts_in_the_next() {
    let rt = nothing::runtime();
    rt.queue(16, || nothing::spec(16, 0)).expect("a queue");
    let words = nothing::attach_with_room_for_ten(rt);
    let others = std::thread::spawn(move || (0..40).for_each(|_| launch(rt)));
    let end = Instant::now() + Duration::from_secs(60);
    while !others.is_finished() {
        assert!(Instant::now() < end, "{} overrides", words.liveness_overrides.load(SeqCst));
        words.gate.grant();
        // A grant shorter than the 5 ms after which one more command goes through.
        std::thread::sleep(Duration::from_millis(1));
        words.gate.close();
        std::thread::sleep(Duration::from_micros(100));
    }
    others.join().expect("it launches all");
    assert!(words.liveness_overrides.load(SeqCst) > 0);
}
