//! A launch that waits at the closed gate when its daemon is gone.

use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use xsched_core::Work;
use xsched_core::fast_path::{self, Entered};

mod nothing;

/// The launch that goes on when the daemon is gone must count, not only later ones.
#[test]
fn the_launch_that_a_lost_daemon_lets_go_counts_as_unscheduled() {
    let rt = nothing::runtime();
    rt.queue(16, || nothing::spec(16, 0)).expect("a queue");
    let words = nothing::attach_with_room_for_ten(rt);
    let launch = move || {
        rt.remember(16, || None).expect("a queue");
        let Entered::Slow(queue, counter) = fast_path::enter(16) else { panic!("it is contended") };
        let admission = nothing::admit(rt, queue, Work::default(), counter);
        queue.commit(rt, &admission, true, counter);
    };
    launch();
    assert_eq!(words.unscheduled_attach.load(SeqCst), 0);
    words.gate.close();
    let waits = std::thread::spawn(launch);
    let end = Instant::now() + Duration::from_secs(60);
    while words.waiting.load(SeqCst) == 0 {
        assert!(Instant::now() < end, "it waits");
        std::thread::yield_now();
    }
    rt.detach();
    waits.join().expect("it goes on");
    assert_eq!(words.unscheduled_attach.load(SeqCst), 1);
    launch();
    assert_eq!(words.unscheduled_attach.load(SeqCst), 2);
}
