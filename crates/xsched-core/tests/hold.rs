//! Queues that the program itself holds or sets apart.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use xsched_core::fast_path::{self, Entered};
use xsched_core::{Hold, Runtime};
use xsched_proto::hint::Hints;
use xsched_proto::wire::ClientMsg;

mod nothing;

const LONG: Duration = Duration::from_secs(60);

/// True: this thread finds the queue with this key without the registry's tables.
fn is_remembered(key: usize) -> bool {
    !matches!(fast_path::enter(key), Entered::Unknown)
}

#[test]
fn a_held_queue_is_found_by_no_thread_until_it_is_released() {
    let rt = nothing::runtime();
    let queue = rt.queue(16, || nothing::spec(16, 0)).expect("a queue");
    let other = rt.queue(32, || nothing::spec(32, 0)).expect("a queue");
    for key in [16, 32] {
        rt.remember(key, || None).expect("a queue");
        assert!(is_remembered(key));
    }
    queue.hold(rt, Hold::Suspended, true);
    queue.hold(rt, Hold::NotExecuted, true);
    assert!(!is_remembered(16), "what was remembered is outdated");
    assert!(is_remembered(32) && !other.is_held(), "another queue goes on");
    let (done, is_done) = channel();
    let thread = std::thread::spawn(move || {
        rt.remember(16, || None).expect("a queue");
        done.send(is_remembered(16)).expect("it is waited for");
    });
    // A window in which nothing may happen.
    assert_eq!(is_done.recv_timeout(Duration::from_millis(20)), Err(RecvTimeoutError::Timeout));
    queue.hold(rt, Hold::Suspended, false);
    assert_eq!(is_done.recv_timeout(Duration::from_millis(20)), Err(RecvTimeoutError::Timeout), "one reason is left");
    queue.hold(rt, Hold::NotExecuted, false);
    assert_eq!(is_done.recv_timeout(LONG), Ok(true));
    thread.join().expect("it ends");
}

#[test]
fn a_queue_is_released_when_scheduling_is_over() {
    let rt = nothing::runtime();
    let queue = rt.queue(16, || nothing::spec(16, 0)).expect("a queue");
    queue.hold(rt, Hold::Suspended, true);
    let (done, is_done) = channel();
    let thread = std::thread::spawn(move || {
        rt.remember(16, || None).expect("a queue");
        done.send(()).expect("it is waited for");
    });
    rt.detach_for_good();
    assert_eq!(is_done.recv_timeout(LONG), Ok(()));
    thread.join().expect("it ends");
    queue.hold(rt, Hold::Suspended, true);
    rt.remember(16, || None).expect("a queue that is not held any more");
}

/// Messages that a new daemon would get of the groups, besides those that add them.
fn said(rt: &Runtime) -> Vec<(u16, Option<i32>, Option<u32>)> {
    let said = rt.introduce().into_iter().filter_map(|message| match message {
        ClientMsg::GroupHint { slot, priority, hints } => Some((slot, priority, hints.utilization)),
        _ => None,
    });
    said.collect()
}

#[test]
fn a_queue_set_apart_has_a_group_of_its_own_whose_hints_are_its_own() {
    let rt = nothing::runtime();
    let [one, other] = [16, 32].map(|key| rt.queue(key, || nothing::spec(key, 0)).expect("a queue"));
    assert_eq!(one.group(rt).index(), other.group(rt).index());
    assert!(rt.set_apart(one) && rt.is_apart(one) && !rt.is_apart(other));
    assert_ne!(one.group(rt).index(), other.group(rt).index());
    let own = one.group(rt).index();
    rt.say(one, |priority, hints, _| {
        *priority = Some(5);
        *hints = Hints { utilization: Some(30), ..*hints };
    });
    assert_eq!(said(rt), [(own, Some(5), Some(30))]);
    rt.put_back(one);
    assert_eq!(one.group(rt).index(), other.group(rt).index());
    // The place is used again, without what was said before.
    assert!(rt.set_apart(one));
    assert_eq!(one.group(rt).index(), own);
    assert_eq!(said(rt), [(own, None, Some(100))]);
}

#[test]
fn groups_of_queues_set_apart_are_used_again() {
    let rt = nothing::runtime();
    for _ in 0..200 {
        let queue = rt.queue(16, || nothing::spec(16, 0)).expect("a queue");
        assert!(rt.set_apart(queue));
        rt.put_back(queue);
        rt.remove_queue(16);
    }
    assert_eq!(rt.groups().count(), 2);
}
