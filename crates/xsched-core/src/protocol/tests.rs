//! Models of the protocols under loom, which runs every order of their steps and gives each load every value that the memory model
//! lets it have. Each barrier has a second test that shows the model fail without it.
//!
//! loom knows no membarrier: full fences stand for both sides of one. It knows no futex: a mutex and a condition variable for each
//! word stand for it, as the kernel's lock of the word's bucket does. Sleeps have no end but a wake-up, so that one that is lost
//! is a deadlock, which loom reports.

use core::sync::atomic::Ordering::{self, *};

use std::sync::Arc;
use xsched_proto::backlog::Backlog;
use xsched_proto::gate::{Gate, GateWord};
use xsched_proto::memory::{Memory, Sleepers, Woken, Word};
use xsched_proto::segment::state;

use super::idle::{self, Readiness};
use super::park::{self, Left, Progress};
use super::registration::{Answered, Holding, Registration, wait_registered};

mod residency;

/// Part that a memory lacks: nothing.
const NOTHING: u8 = 0;
/// One of the barriers.
const LIGHT: u8 = 1;
const HEAVY: u8 = 2;
const AFTER_RMW: u8 = 3;
/// The comparison of a sleep: it begins whatever the word is.
const COMPARE: u8 = 4;
/// The wake-ups: they are lost.
const WAKE: u8 = 5;
/// The store of [`GateWord::settle`], which only loads.
const SETTLE: u8 = 6;
/// The load of a swap, which only stores.
const SWAP: u8 = 7;

struct Word32<const WITHOUT: u8> {
    word: loom::sync::atomic::AtomicU32,
    bucket: loom::sync::Mutex<()>,
    sleepers: loom::sync::Condvar,
}

impl<const WITHOUT: u8> Word<u32> for Word32<WITHOUT> {
    fn new(value: u32) -> Self {
        let word = loom::sync::atomic::AtomicU32::new(value);
        Word32 { word, bucket: loom::sync::Mutex::new(()), sleepers: loom::sync::Condvar::new() }
    }
    fn load(&self, order: Ordering) -> u32 {
        self.word.load(order)
    }
    fn store(&self, value: u32, order: Ordering) {
        self.word.store(value, order)
    }
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        if WITHOUT == SWAP {
            self.word.store(value, Release);
            return 0;
        }
        self.word.swap(value, order)
    }
    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.word.fetch_add(value, order)
    }
    fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        self.word.fetch_sub(value, order)
    }
    fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
        self.word.fetch_and(value, order)
    }
    fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
        if WITHOUT == SETTLE && value == 0 { self.word.load(Acquire) } else { self.word.fetch_or(value, order) }
    }
    fn compare_exchange(&self, old: u32, new: u32, success: Ordering, failure: Ordering) -> Result<u32, u32> {
        self.word.compare_exchange(old, new, success, failure)
    }
}

struct Word64(loom::sync::atomic::AtomicU64);

impl Word<u64> for Word64 {
    fn new(value: u64) -> Self {
        Word64(loom::sync::atomic::AtomicU64::new(value))
    }
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order)
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, order)
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_sub(value, order)
    }
    fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_and(value, order)
    }
    fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_or(value, order)
    }
    fn compare_exchange(&self, old: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(old, new, success, failure)
    }
}

/// loom's memory, without one of its parts.
struct Loom<const WITHOUT: u8>;

impl<const WITHOUT: u8> Memory for Loom<WITHOUT> {
    type U32 = Word32<WITHOUT>;
    type U64 = Word64;

    fn light_barrier() {
        if WITHOUT != LIGHT {
            loom::sync::atomic::fence(SeqCst);
        }
    }

    fn heavy_barrier() {
        if WITHOUT != HEAVY {
            loom::sync::atomic::fence(SeqCst);
        }
    }

    fn barrier_after_rmw() {
        if WITHOUT != AFTER_RMW {
            loom::sync::atomic::fence(SeqCst);
        }
    }

    fn sleep(word: &Word32<WITHOUT>, expected: u32, _: Sleepers, _: u64) -> Woken {
        let bucket = word.bucket.lock().unwrap();
        if WITHOUT == COMPARE || word.load(Relaxed) == expected {
            drop(word.sleepers.wait(bucket).unwrap());
        }
        Woken::Look
    }

    fn wake(word: &Word32<WITHOUT>, _: Sleepers) {
        if WITHOUT != WAKE {
            let _bucket = word.bucket.lock().unwrap();
            word.sleepers.notify_all();
        }
    }
}

/// A group with one queue and one thread that launches.
struct World<const WITHOUT: u8> {
    gate: GateWord<Loom<WITHOUT>>,
    state: Word32<WITHOUT>,
    waiting: Word32<WITHOUT>,
    registration: Word32<WITHOUT>,
    gone: Word32<WITHOUT>,
    counted: Word64,
    issued: Word64,
    progress: Progress<Loom<WITHOUT>>,
    complete: Word64,
}

impl<const WITHOUT: u8> World<WITHOUT> {
    fn new() -> Arc<Self> {
        Arc::new(World {
            gate: GateWord::default(),
            state: Word32::new(state::READY),
            waiting: Word32::new(0),
            registration: Word32::new(Registration::Pending as u32),
            gone: Word32::new(0),
            counted: Word64::new(0),
            issued: Word64::new(0),
            progress: Progress::new(),
            complete: Word64::new(0),
        })
    }

    fn readiness(&self) -> Readiness<'_, Loom<WITHOUT>> {
        Readiness { gate: &self.gate, state: &self.state, waiting: &self.waiting }
    }

    fn holding(&self) -> Holding<'_, Loom<WITHOUT>> {
        Holding { readiness: self.readiness(), registration: &self.registration }
    }

    /// Launches so far, read as by `XQueue::launches`: the counts first.
    fn launches(&self) -> u64 {
        let counted = self.counted.load(Relaxed);
        counted + self.issued.load(Acquire)
    }

    /// A launch on the fast path.
    fn launch(&self) {
        if idle::count(&self.counted, &self.gate).must_announce() {
            self.readiness().announce(|| ());
        }
    }

    /// A launch on the slow path, once gate and budget let it pass.
    fn launch_numbered(&self) {
        idle::count(&self.counted, &self.gate);
        idle::uncount::<Loom<WITHOUT>>(&self.counted);
        idle::number::<Loom<WITHOUT>>(&self.issued);
        if self.readiness().numbered() {
            self.readiness().announce(|| ());
        }
    }

    /// Agent: calls the group idle if it has nothing to do. Returns the number of launches after which it is idle.
    fn call_idle(&self) -> Option<u64> {
        let before = self.launches();
        let idle = self.waiting.load(Acquire) == 0 && self.readiness().call_idle(|| self.launches() != before);
        idle.then_some(before)
    }

    /// True: the daemon takes the group for idle.
    fn counts_as_idle(&self) -> bool {
        self.state.load(SeqCst) == state::IDLE
    }

    /// The daemon is notified that a state has changed, and grants the device to a group that wants it.
    fn tell_daemon(&self) {
        if !self.counts_as_idle() {
            self.gate.grant();
        }
    }

    fn announce(&self) {
        if self.readiness().announce(|| ()) {
            self.tell_daemon();
        }
    }

    /// A thread with a launch that is counted nowhere waits at the gate.
    fn wait_at_gate(&self) {
        if self.readiness().begin_wait() {
            self.announce();
        }
        assert_eq!(park::at_gate(&self.gate, 0, || false, || true), Left::Open);
        self.readiness().end_wait();
    }

    /// Agent: the daemon has answered.
    fn attach(&self) -> Answered {
        let answered = self.holding().attach(|| self.launches() != 0, || self.gone.load(Acquire) != 0);
        if answered == Answered::Busy {
            self.announce();
        }
        answered
    }
}

/// Times that a thread may be stopped where it could go on.
const PREEMPTIONS: usize = 3;

/// Runs two threads, then checks the result.
fn check<const WITHOUT: u8, A: Send + 'static>(
    begin: fn(&World<WITHOUT>),
    agent: fn(&World<WITHOUT>) -> A,
    program: fn(&World<WITHOUT>),
    end: fn(&World<WITHOUT>, A),
) {
    let mut builder = loom::model::Builder::new();
    builder.log = false;
    // Unbounded, the longest of these models takes minutes.
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(move || {
        let world = World::<WITHOUT>::new();
        begin(&world);
        let other = world.clone();
        let other = loom::thread::spawn(move || agent(&other));
        program(&world);
        end(&world, other.join().unwrap());
    });
}

// Announce and idle: one thread launches, the agent calls the group idle. A group that counts as idle launched nothing since, and its
// next launch announces itself.

fn announce_and_idle<const WITHOUT: u8>(launch: fn(&World<WITHOUT>)) {
    check(
        |_| (),
        |world| world.call_idle(),
        launch,
        |world, idle_after| {
            if world.counts_as_idle() {
                assert!(world.gate.load().must_announce(), "slipped by: no later launch will be announced");
                assert_eq!(idle_after, Some(world.launches()), "slipped by");
            } else {
                assert!(!world.gate.load().must_announce());
            }
        },
    );
}

#[test]
fn a_launch_is_announced_or_keeps_its_group_from_being_called_idle() {
    announce_and_idle::<NOTHING>(World::launch);
}

#[test]
#[should_panic(expected = "slipped by")]
fn not_without_the_light_barrier_behind_its_count() {
    announce_and_idle::<LIGHT>(World::launch);
}

#[test]
#[should_panic(expected = "slipped by")]
fn not_without_the_heavy_barrier_behind_must_announce() {
    announce_and_idle::<HEAVY>(World::launch);
}

#[test]
#[should_panic(expected = "slipped by")]
fn not_without_the_change_that_changes_nothing_behind_idle() {
    announce_and_idle::<SETTLE>(World::launch);
}

#[test]
fn a_numbered_launch_is_announced_or_keeps_its_group_from_being_called_idle() {
    announce_and_idle::<NOTHING>(World::launch_numbered);
}

#[test]
#[should_panic(expected = "slipped by")]
fn not_without_the_light_barrier_behind_its_number() {
    announce_and_idle::<LIGHT>(World::launch_numbered);
}

/// A thread begins to wait, with a launch that is counted nowhere, while the agent calls the group idle.
fn wait_and_idle<const WITHOUT: u8>() {
    check(
        |_| (),
        |world| world.call_idle(),
        |world: &World<WITHOUT>| {
            if world.readiness().begin_wait() {
                world.readiness().announce(|| ());
            }
        },
        |world, _| assert!(!world.counts_as_idle(), "slipped by: a thread waits in a group that counts as idle"),
    );
}

#[test]
fn a_thread_that_waits_is_announced_or_keeps_its_group_from_being_called_idle() {
    wait_and_idle::<NOTHING>();
}

#[test]
#[should_panic(expected = "slipped by")]
fn not_without_the_barrier_behind_its_count_as_waiting() {
    wait_and_idle::<AFTER_RMW>();
}

#[test]
#[should_panic(expected = "slipped by")]
fn not_without_the_heavy_barrier_before_the_look_at_waiting_threads() {
    wait_and_idle::<HEAVY>();
}

// Park and wake.

fn park<const WITHOUT: u8>(open: fn(&World<WITHOUT>)) {
    check(
        |_| (),
        open,
        |world| assert_eq!(park::at_gate(&world.gate, 0, || false, || true), Left::Open),
        |world, ()| assert!(world.gate.load().is_open()),
    );
}

fn grant<const WITHOUT: u8>(world: &World<WITHOUT>) {
    // A change that opens nothing wakes no thread.
    world.gate.mark(Gate::CONTENDED, true);
    world.gate.grant();
}

#[test]
fn a_thread_at_a_closed_gate_is_woken_by_a_grant() {
    park::<NOTHING>(grant);
}

#[test]
fn a_thread_at_a_closed_gate_is_woken_when_the_daemon_is_gone() {
    park::<NOTHING>(|world| world.holding().detach());
}

#[test]
#[should_panic(expected = "deadlock")]
fn not_if_a_sleep_begins_whatever_the_word_is() {
    park::<COMPARE>(grant);
}

#[test]
#[should_panic(expected = "deadlock")]
fn not_without_the_wake_up() {
    park::<WAKE>(grant);
}

/// A thread waits until something is complete.
fn progress<const WITHOUT: u8>() {
    check(
        |_| (),
        |world| {
            world.complete.fetch_add(1, AcqRel);
            world.progress.advance();
        },
        |world: &World<WITHOUT>| {
            world.progress.begin_wait();
            loop {
                let seen = world.progress.seen();
                if world.complete.load(Acquire) != 0 {
                    break;
                }
                world.progress.sleep(seen, 0);
            }
            world.progress.end_wait();
        },
        |_, ()| (),
    );
}

#[test]
fn a_thread_that_waits_for_the_budget_is_woken_by_a_completion() {
    progress::<NOTHING>();
}

#[test]
#[should_panic(expected = "deadlock")]
fn not_without_the_barriers_between_completions_and_waiters() {
    progress::<AFTER_RMW>();
}

#[test]
#[should_panic(expected = "deadlock")]
fn not_if_its_sleep_begins_whatever_is_complete() {
    progress::<COMPARE>();
}

/// The gate is closed. A thread begins to wait there while the last command completes: one of the two reports that the group is
/// drained.
fn drain<const WITHOUT: u8>() {
    check(
        |_| (),
        |world| {
            world.complete.fetch_add(1, AcqRel);
            world.progress.advance();
            if world.waiting.load(Acquire) > 0 {
                world.readiness().drained();
            }
        },
        |world: &World<WITHOUT>| {
            world.readiness().begin_wait();
            if world.complete.load(Acquire) != 0 {
                world.readiness().drained();
            }
        },
        |world, ()| assert_eq!(world.state.load(SeqCst), state::DRAINED, "untold"),
    );
}

#[test]
fn the_last_completion_or_the_thread_that_waits_tells_that_the_group_is_drained() {
    drain::<NOTHING>();
}

#[test]
#[should_panic(expected = "untold")]
fn not_without_the_barriers_between_completions_and_waiting_threads() {
    drain::<AFTER_RMW>();
}

// Registration: a daemon takes the gate over, or is gone.

/// A launch that does not wait for the answer: it passes the open gate, or is announced.
fn attach_and_launch<const WITHOUT: u8>() {
    check(
        |world| world.gate.begin(false),
        |world| world.attach(),
        |world: &World<WITHOUT>| {
            let gate = idle::count(&world.counted, &world.gate);
            if !gate.is_detached() && gate.must_announce() {
                world.announce();
            }
        },
        |world, _| assert!(!world.counts_as_idle(), "lost: the launch is in flight in a group that counts as idle"),
    );
}

#[test]
fn a_launch_while_a_daemon_takes_over_is_announced_or_found() {
    attach_and_launch::<NOTHING>();
}

#[test]
#[should_panic(expected = "lost")]
fn not_without_the_heavy_barrier_behind_the_take_over() {
    attach_and_launch::<HEAVY>();
}

#[test]
#[should_panic(expected = "lost")]
fn not_without_the_light_barrier_behind_the_count() {
    attach_and_launch::<LIGHT>();
}

/// A launch that waits for the answer.
fn answer<const WITHOUT: u8>(agent: fn(&World<WITHOUT>)) {
    check(
        |world| world.gate.begin(false),
        agent,
        |world: &World<WITHOUT>| {
            let said = wait_registered::<Loom<WITHOUT>>(&world.registration, || 1);
            let gate = world.gate.load();
            assert_eq!(gate.is_detached(), said == Registration::Detached);
            if !gate.is_detached() {
                assert!(gate.must_announce());
                world.announce();
                assert!(!world.counts_as_idle());
            }
        },
        |_, ()| (),
    );
}

#[test]
fn a_launch_that_waits_for_the_daemon_is_answered_and_announced() {
    answer::<NOTHING>(|world| _ = world.attach());
}

#[test]
fn a_launch_that_waits_for_a_daemon_that_is_gone_is_answered() {
    answer::<NOTHING>(|world| world.holding().detach());
}

#[test]
#[should_panic(expected = "deadlock")]
fn no_answer_without_the_wake_up() {
    answer::<WAKE>(|world| _ = world.attach());
}

/// A thread waits at the gate of a daemon that goes, or begins to wait there when the next one takes over. It must not sleep on in a
/// group that the new daemon takes for idle.
fn attach_again<const WITHOUT: u8>() {
    check(
        |_| (),
        |world| {
            world.holding().detach();
            world.attach();
        },
        World::<WITHOUT>::wait_at_gate,
        |_, _| (),
    );
}

#[test]
fn a_thread_that_waits_goes_on_under_the_next_daemon() {
    attach_again::<NOTHING>();
}

#[test]
#[should_panic(expected = "deadlock")]
fn it_is_stuck_without_the_heavy_barrier_before_the_look_at_waiting_threads() {
    attach_again::<HEAVY>();
}

#[test]
#[should_panic(expected = "deadlock")]
fn it_is_stuck_without_the_barrier_behind_its_count_as_waiting() {
    attach_again::<AFTER_RMW>();
}

/// A thread gives the daemon up while the agent gets its answer that it holds the gate.
fn attach_and_give_up<const WITHOUT: u8>() {
    check(
        |world| world.gate.begin(false),
        |world| world.attach(),
        |world: &World<WITHOUT>| {
            world.gone.store(1, Release);
            world.holding().detach();
        },
        |world, _| {
            assert!(world.gate.load().is_detached(), "stuck: no daemon holds the closed gate");
            assert_eq!(world.registration.load(SeqCst), Registration::Detached as u32, "stuck");
        },
    );
}

#[test]
fn the_gate_of_a_daemon_that_is_given_up_stays_open() {
    attach_and_give_up::<NOTHING>();
}

#[test]
#[should_panic(expected = "stuck")]
fn not_if_the_registration_is_only_stored() {
    attach_and_give_up::<SWAP>();
}

// Backlog: threads of an urgent program store what they want of a queue before they give a command, and settle what is complete; those of
// others look before they give one.

type Queue = Backlog<Loom<NOTHING>>;

/// Runs two threads on a queue, with the number of the last command that the device was given.
fn check_backlog(one: fn(&Queue, &Word32<NOTHING>), other: fn(&Queue, &Word32<NOTHING>), end: fn(&Queue)) {
    let mut builder = loom::model::Builder::new();
    builder.log = false;
    builder.check(move || {
        let world = Arc::new((Queue::default(), Word32::<NOTHING>::new(0)));
        let second = world.clone();
        let second = loom::thread::spawn(move || other(&second.0, &second.1));
        one(&world.0, &world.1);
        second.join().unwrap();
        end(&world.0);
    });
}

/// Publishes, then gives the command.
fn give(queue: &Queue, given: &Word32<NOTHING>, number: u32) {
    queue.want(number);
    given.store(number, Release);
}

#[test]
fn what_the_device_was_given_is_seen_as_behind() {
    let look = |queue: &Queue, given: &Word32<NOTHING>| {
        if given.load(Acquire) == 2 {
            assert!(queue.is_behind(), "missed");
        }
    };
    check_backlog(|queue, given| give(queue, given, 2), look, |queue| assert!(queue.is_behind()));
}

#[test]
#[should_panic(expected = "missed")]
fn not_if_the_command_is_given_before_it_is_published() {
    let look = |queue: &Queue, given: &Word32<NOTHING>| {
        if given.load(Acquire) == 2 {
            assert!(queue.is_behind(), "missed");
        }
    };
    let give = |queue: &Queue, given: &Word32<NOTHING>| {
        given.store(2, Release);
        queue.want(2);
    };
    check_backlog(give, look, |_| ());
}

#[test]
fn two_threads_and_a_device_do_not_undo_what_the_others_stored() {
    // One thread waits for all commands of the queue and settles its backlog; the other one numbers a command and gives it
    // meanwhile.
    let settle = |queue: &Queue, numbered: &Word32<NOTHING>| {
        queue.want(2);
        let wanted = queue.wanted();
        if numbered.load(Acquire) == 0 {
            queue.settle(wanted);
        }
    };
    let number_and_give = |queue: &Queue, numbered: &Word32<NOTHING>| {
        numbered.store(4, Release);
        queue.want(4);
    };
    check_backlog(settle, number_and_give, |queue| {
        assert!(queue.is_behind(), "forgotten");
        queue.reach(4);
        assert!(!queue.is_behind());
    });
    // The device reaches an earlier command while a later one is given.
    check_backlog(
        |queue, given| give(queue, given, 4),
        |queue, _| queue.reach(2),
        |queue| {
            assert!(queue.is_behind());
        },
    );
}
