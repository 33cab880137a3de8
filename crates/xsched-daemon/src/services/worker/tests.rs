use std::sync::mpsc::{Receiver, Sender, channel};

use xsched_testkit::until;

use super::*;

/// Task of a user, with a number. The task waits for a token, and its outcome is the number.
type Task = (u32, u64);

/// Makes a worker whose tasks each wait for a token, and the sender of the tokens.
fn gated(spec: Spec, queue: impl Queue<Task> + 'static) -> (Worker<Task, u64>, Sender<()>) {
    let (tokens, gate) = channel::<()>();
    let gate: Arc<Mutex<Receiver<()>>> = Arc::new(Mutex::new(gate));
    let worker = Worker::new(spec, queue, move || {
        let gate = gate.clone();
        Box::new(move |(_, number): Task| {
            let _ = gate.lock().map(|gate| gate.recv());
            Some(number)
        })
    });
    (worker.expect("descriptors"), tokens)
}

fn outcomes(worker: &Worker<Task, u64>, count: usize) -> Vec<u64> {
    let mut all = Vec::new();
    until("the outcomes are there", || {
        all.extend(std::iter::from_fn(|| worker.take()));
        all.len() >= count
    });
    all
}

/// Waits until the thread works on a task, and so many others wait.
fn until_at_work<T: Send + 'static, O: Send + 'static>(worker: &Worker<T, O>, queued: usize) {
    until("a thread has taken a task", || {
        worker.queued() == queued
            && worker.shared.lock().threads.iter().any(|thread| !thread.lost && thread.busy.is_some())
    });
}

#[test]
fn one_task_of_each_user_is_next_and_outcomes_are_counted() {
    let (worker, tokens) = gated(Spec::named("fair"), ByUser::new(|(user, _)| *user));
    assert!(!worker.is_busy() && worker.take().is_none());
    worker.push((7, 0)).expect("room");
    until_at_work(&worker, 0);
    for task in [(7, 1), (7, 2), (7, 3), (8, 4), (9, 5)] {
        worker.push(task).expect("room");
    }
    assert!(worker.is_busy());
    (0..6).for_each(|_| tokens.send(()).expect("it works"));
    until("they are counted", || readable(worker.as_fd(), Some(0)));
    assert_eq!(outcomes(&worker, 6), [0, 1, 4, 5, 2, 3]);
    until("nothing is left", || !worker.is_busy());
    assert!(worker.take().is_none() && !readable(worker.as_fd(), Some(0)));
}

#[test]
fn a_full_queue_gives_the_task_back_and_the_newest_alone_waits_where_that_is_wanted() {
    let (worker, tokens) = gated(Spec { queued_max: 2, ..Spec::named("full") }, VecDeque::new());
    worker.push((7, 0)).expect("room");
    until_at_work(&worker, 0);
    assert_eq!([1, 2, 3].map(|n| worker.push((7, n))), [Ok(()), Ok(()), Err((7, 3))]);
    worker.push_beyond((7, 4));
    (0..4).for_each(|_| tokens.send(()).expect("it works"));
    assert_eq!(outcomes(&worker, 4), [0, 1, 2, 4]);
    let (worker, tokens) = gated(Spec::named("newest"), None);
    worker.push((7, 0)).expect("room");
    until_at_work(&worker, 0);
    (1..10).for_each(|n| worker.push((7, n)).expect("room"));
    (0..2).for_each(|_| tokens.send(()).expect("it works"));
    assert_eq!(outcomes(&worker, 2), [0, 9]);
}

#[test]
fn a_stuck_thread_is_replaced_so_many_times_and_its_outcome_comes_late() {
    let spec = Spec { lost_max: 2, ..Spec::named("stuck") };
    let (block, gate) = channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let worker = Worker::new(spec, ByUser::new(|(user, _): &Task| *user), move || {
        let gate = gate.clone();
        Box::new(move |(user, number): Task| {
            if user == 7 {
                let _ = gate.lock().map(|gate| gate.recv());
            }
            Some(number)
        })
    });
    let worker: Worker<Task, u64> = worker.expect("descriptors");
    assert_eq!(worker.tend(now_ns()), None, "it is not busy");
    worker.push((7, 0)).expect("room");
    until_at_work(&worker, 0);
    let now = now_ns();
    let next = worker.tend(now).expect("it is busy");
    assert!(next > now && next <= now + LOST_NS, "no sooner than it is overdue");
    worker.push((8, 1)).expect("room");
    assert_eq!(worker.tend(next), None, "given up");
    assert_eq!(outcomes(&worker, 1), [1], "the other one does what waited");
    assert!(!worker.may_risk(7) && worker.may_risk(8));
    worker.push((7, 2)).expect("room");
    until_at_work(&worker, 0);
    worker.tend(now_ns() + LOST_NS);
    worker.push((7, 3)).expect("room");
    until_at_work(&worker, 0);
    // Two threads are lost, the most that are replaced.
    assert_eq!(worker.tend(now_ns() + LOST_NS), None);
    worker.push((8, 4)).expect("room");
    worker.tend(now_ns() + LOST_NS);
    assert_eq!((worker.queued(), worker.shared.lock().threads.len()), (1, 3));
    assert!(!worker.may_risk(8));
    (0..3).for_each(|_| block.send(()).expect("they wait"));
    let mut late = outcomes(&worker, 4);
    late.sort_unstable();
    assert_eq!(late, [0, 2, 3, 4]);
    until("those that were given up have ended", || worker.shared.lock().threads.len() == 1);
    assert!(worker.may_risk(7));
}

#[test]
fn all_is_done_before_the_end_where_that_is_wanted_and_else_no_more_than_was_begun() {
    for (end, expected) in [(End::Drained(Duration::from_secs(60)), vec![0, 1, 2]), (End::Now, vec![0])] {
        let (begun, has_begun) = channel();
        let (tokens, gate) = channel::<()>();
        let (gate, done) = (Arc::new(Mutex::new(gate)), Arc::new(Mutex::new(Vec::new())));
        let its = done.clone();
        let worker = Worker::<u64, ()>::new(Spec { end, ..Spec::named("end") }, VecDeque::new(), move || {
            let (begun, gate, done) = (begun.clone(), gate.clone(), its.clone());
            Box::new(move |number| {
                let _ = begun.send(());
                let _ = gate.lock().map(|gate| gate.recv());
                let _ = done.lock().map(|mut done| done.push(number));
                None
            })
        });
        let worker = worker.expect("descriptors");
        (0..3).for_each(|n| worker.push(n).expect("room"));
        has_begun.recv().expect("the first one");
        worker.end();
        (0..3).for_each(|_| tokens.send(()).expect("it works"));
        let shared = worker.shared.clone();
        drop(worker);
        until("the thread has left", || shared.lock().threads.is_empty());
        assert_eq!(*done.lock().expect("whole"), expected);
    }
}

#[test]
fn the_loop_waits_for_the_end_of_a_stuck_thread_no_longer_than_it_may() {
    let end = End::Drained(Duration::from_millis(1));
    let (worker, tokens) = gated(Spec { end, ..Spec::named("patience") }, VecDeque::new());
    worker.push((7, 0)).expect("room");
    until_at_work(&worker, 0);
    // Dropping the worker would block for ever if it waited for the task.
    drop(worker);
    drop(tokens);
}

#[test]
fn a_task_with_a_fault_costs_itself_only_and_the_next_finds_a_service_made_anew() {
    let worker = Worker::<u64, u64>::new(Spec::named("fault"), VecDeque::new(), || {
        let mut before = 0;
        Box::new(move |number: u64| {
            assert!(number != 1, "a fault that this test makes");
            before += 1;
            Some(number * 10 + before)
        })
    });
    let worker = worker.expect("descriptors");
    (0..3).for_each(|n| worker.push(n).expect("room"));
    let mut all = Vec::new();
    until("the others are done", || {
        all.extend(worker.take());
        all.len() == 2
    });
    assert_eq!(all, [1, 21], "the second service begins anew");
    let faults = worker.take_faults();
    assert!(matches!(&faults[..], [one] if one.line().contains("a fault that this test makes")), "{faults:?}");
    assert_eq!(worker.take_faults(), []);
}

/// Service that counts its starts and ends, and retires when it has nothing to do.
struct Short(Arc<Mutex<(u32, u32)>>);

impl Service<u64, u64> for Short {
    fn perform(&mut self, task: u64, outcomes: &mut Vec<u64>) {
        outcomes.extend([task, task]);
    }

    fn wait(&mut self, _: BorrowedFd<'_>, _: &mut Vec<u64>) -> Next {
        Next::Retire
    }
}

impl Drop for Short {
    fn drop(&mut self) {
        self.0.lock().expect("whole").1 += 1;
    }
}

#[test]
fn a_thread_that_retires_is_started_again_with_the_next_task() {
    let counts = Arc::new(Mutex::new((0, 0)));
    let its = counts.clone();
    let worker = Worker::new(Spec::named("short"), VecDeque::new(), move || {
        its.lock().expect("whole").0 += 1;
        Box::new(Short(its.clone()))
    });
    let worker = worker.expect("descriptors");
    for n in 1..=3 {
        worker.push(n).expect("room");
        until("it has left", || worker.shared.lock().threads.is_empty());
        assert_eq!([worker.take(), worker.take(), worker.take()], [Some(n), Some(n), None]);
        until("it is gone", || *counts.lock().expect("whole") == (n as u32, n as u32));
    }
}
