//! Streams without XQueues, at the program's request: only the queues that it makes itself are there.

mod nothing;

#[test]
fn a_stream_without_a_queue_gets_one_only_when_the_program_makes_it() {
    let rt = nothing::runtime_without_queues();
    assert!(rt.queue(16, || panic!("the driver is not asked")).is_none());
    assert!(rt.remember(16, || panic!("the driver is not asked")).is_none());
    let made = rt.make_queue(16, || nothing::spec(16, 0)).expect("a queue");
    assert!(rt.remember(16, || None).is_some_and(|found| std::ptr::eq(found, made)));
    assert!(rt.queue(32, || nothing::spec(32, 0)).is_none(), "another stream has none still");
}
