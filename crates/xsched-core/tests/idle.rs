//! Idle groups: when a group is idle, the report to the daemon, and the race between a launch and that decision.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{OnceLock, mpsc};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use xsched_core::fast_path::{self, Entered};
use xsched_core::{Platform, QueueSpec, Registration, Runtime, Work, XQueue};
use xsched_proto::gate::Gate;
use xsched_proto::segment::state;

mod nothing;

use nothing::runtime;

/// Makes a runtime whose daemon grants its only group the device, with these further bits of the gate.
fn granted(bits: Gate) -> (&'static Runtime, &'static XQueue) {
    let rt = runtime();
    let queue = rt.queue(16, spec).expect("a queue");
    rt.attach(std::ptr::null_mut());
    rt.segment().groups[0].gate.mark(bits, true);
    rt.segment().groups[0].gate.grant();
    rt.groups().next().expect("its group").set_registration(rt, Registration::Attached);
    rt.remember(16, spec).expect("a queue");
    (rt, queue)
}

/// Launches once. True: by the slow path.
fn is_slow(rt: &'static Runtime) -> bool {
    match fast_path::enter(16) {
        Entered::Fast(counted) => {
            counted.done(true);
            false
        }
        Entered::Slow(queue, counter) => {
            let admission = nothing::admit(rt, queue, Work::default(), counter);
            queue.commit(rt, &admission, true, counter);
            true
        }
        Entered::Unknown => panic!("the queue was remembered"),
    }
}

/// Launches a few commands and waits for them, `times` times. Returns how often the agent was woken.
fn work(rt: &'static Runtime, queue: &'static XQueue, times: u32) -> u64 {
    let woken = || {
        let mut count = [0; 8];
        let event = rt.agent_event().get().expect("an eventfd");
        rustix::io::read(event, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    };
    is_slow(rt);
    woken();
    for _ in 0..times {
        (0..10).for_each(|_| _ = is_slow(rt));
        let waiting = queue.sync_begin(rt);
        queue.sync_end(rt, waiting, true);
    }
    woken()
}

/// Waiting must cost a program that has the device to itself nothing: its agent once woke at each wait and then ran on.
#[test]
fn waits_of_a_program_that_is_alone_wake_nobody() {
    let (rt, queue) = granted(Gate::default());
    assert_eq!(work(rt, queue, 100), 0);
    assert_eq!(rt.groups().next().expect("its group").idle_due_ns(rt, xsched_core::now_ns()), None);
}

/// With a rival it must be known soon that the device is free.
#[test]
fn waits_beside_a_rival_lead_to_a_decision() {
    let (rt, queue) = granted(Gate::CONTENDED);
    assert!(work(rt, queue, 1) > 0);
    assert!(rt.groups().next().expect("its group").idle_due_ns(rt, xsched_core::now_ns()).is_some());
}

/// Nothing else reports the end of a command that blocks: a rival would have to wait for the next rare poll.
#[test]
fn a_command_that_blocks_leads_to_a_decision_beside_a_rival() {
    let (rt, queue) = granted(Gate::CONTENDED);
    let group = rt.groups().next().expect("its group");
    let Entered::Slow(_, counter) = fast_path::enter(16) else { panic!("the first command takes the slow path") };
    let admission = nothing::admit(rt, queue, Work { blocking: true, ..Work::default() }, counter);
    assert_eq!(group.idle_due_ns(rt, xsched_core::now_ns()), None, "it has not returned");
    assert!(queue.commit(rt, &admission, true, counter).is_none());
    assert!(group.idle_due_ns(rt, xsched_core::now_ns()).is_some());
}

/// The end of a command that blocks covers all before it: a command that passes without a number would leave the group busy.
#[test]
fn a_command_that_blocks_is_numbered_beside_a_rival() {
    let (rt, _) = granted(Gate::CONTENDED);
    (0..300).for_each(|_| _ = is_slow(rt));
    for _ in 0..100 {
        let Err(held) = fast_path::pass(16) else { panic!("a rival wants a closer look") };
        let Entered::Slow(queue, counter) = held.look(16, true) else { panic!("it goes by without a number") };
        let admission = nothing::admit(rt, queue, Work { blocking: true, ..Work::default() }, counter);
        queue.commit(rt, &admission, true, counter);
        assert!(rt.groups().all(|group| group.idle_due_ns(rt, xsched_core::now_ns()).is_some()));
        (0..3).for_each(|_| _ = is_slow(rt));
    }
}

/// The agent once ran without pause, waiting for a decision though no program was left.
#[test]
fn nothing_is_to_be_decided_once_the_daemon_is_gone_or_knows() {
    let (rt, queue) = granted(Gate::CONTENDED);
    let group = rt.groups().next().expect("its group");
    let due = || group.idle_due_ns(rt, xsched_core::now_ns());
    assert!(work(rt, queue, 1) > 0);
    assert!(due().is_some());
    // Stands for another thread's wait that ends just when the agent has decided.
    rt.segment().groups[0].gate.call_idle();
    assert_eq!(due(), None);
    rt.segment().groups[0].gate.announce();
    assert!(due().is_some());
    rt.detach();
    assert_eq!(due(), None);
    assert!(!rt.is_contended(), "what a daemon said that is gone does not count");
    assert_eq!(work(rt, queue, 100), 0, "waits wake nobody");
    rt.attach(std::ptr::null_mut());
    group.set_registration(rt, Registration::Attached);
    assert!(rt.is_contended());
    assert!(work(rt, queue, 1) > 0);
    assert!(due().is_some());
}

/// Gaps at whose end the group was idle already once counted for nothing, and the grace time of a slow program stayed as it was.
#[test]
fn the_grace_time_follows_gaps_that_outlast_it() {
    let (rt, queue) = granted(Gate::CONTENDED);
    let group = rt.groups().next().expect("its group");
    for _ in 0..40 {
        work(rt, queue, 1);
        assert!(group.try_idle(rt, true).is_some());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    work(rt, queue, 1);
    let left_ns = group.idle_due_ns(rt, 0).expect("the grace time runs");
    assert!(left_ns < xsched_core::now_ns() + 50_000, "it is 200 us at first");
}

/// Ends the present gap once it has lasted for so long.
fn rest(ns: u64) {
    let began_ns = xsched_core::now_ns();
    while xsched_core::now_ns() - began_ns < ns {
        std::hint::spin_loop();
    }
}

/// Gaps longer than the grace time once always let others in, at each token of a server.
#[test]
fn a_gap_that_the_daemon_lets_a_group_keep_ends_its_request_and_not_its_hold() {
    let (rt, queue) = granted(Gate::CONTENDED);
    let group = rt.groups().next().expect("its group");
    let words = &rt.segment().groups[0];
    words.slowdown_percent.store(105, Relaxed);
    words.hold_us.store(3_500, Release);
    let (mut kept, mut given) = (0, 0);
    let mut before_ns = xsched_core::now_ns();
    for request in 0..60 {
        work(rt, queue, 1);
        let work_ns = xsched_core::now_ns() - before_ns;
        let gap = words.gaps_kept.load(Relaxed) + words.gaps_given.load(Relaxed);
        assert_eq!(gap, request, "each gap is known when the next one begins");
        // Longer than the grace time, and shorter than is worth it.
        rest(1_100_000);
        match group.idle_due_ns(rt, xsched_core::now_ns()) {
            Some(0) => {
                given += 1;
                assert!(group.try_idle(rt, true).is_some());
            }
            Some(_) => {
                kept += 1;
                assert!(!words.gate.load().must_announce());
                let bursts = words.bursts.load(Relaxed);
                before_ns = xsched_core::now_ns();
                assert!(is_slow(rt));
                assert_eq!(words.bursts.load(Relaxed), bursts + 1, "the request has ended");
                assert!(words.burst_us.load(Relaxed) <= work_ns / 1_000, "with its last completion");
                continue;
            }
            None => panic!("the grace time runs"),
        }
        before_ns = xsched_core::now_ns();
    }
    // A gap of 1.1 ms after next to no work: the budget is 5 % of 1.1 ms, and a return costs 0.25 ms.
    assert!(given >= 8 && kept >= 30, "{kept} kept, {given} given away");
    words.hold_us.store(0, Release);
    work(rt, queue, 1);
    rest(1_100_000);
    assert_eq!(group.idle_due_ns(rt, xsched_core::now_ns()), Some(0), "it may keep none any more");
}

/// The agent asks for announcements before it checks once more that nothing came. A launch just then once moved the begin of a burst, and
/// its length told of the rest alone.
#[test]
fn a_burst_that_the_agent_nearly_ended_keeps_its_begin() {
    let (rt, queue) = granted(Gate::CONTENDED);
    let group = rt.groups().next().expect("its group");
    let words = &rt.segment().groups[0];
    let began_ns = || words.ready_at_ns.load(Relaxed);
    let finish = || {
        let waiting = queue.sync_begin(rt);
        queue.sync_end(rt, waiting, true);
        assert!(group.try_idle(rt, true).is_some());
    };
    is_slow(rt);
    let first_ns = began_ns();
    assert!(!words.gate.call_idle());
    is_slow(rt);
    assert_eq!((began_ns(), words.gate.load().must_announce()), (first_ns, false));
    finish();
    assert_eq!(began_ns(), first_ns);
    is_slow(rt);
    assert!(began_ns() > first_ns);
    finish();
    assert_eq!(words.bursts.load(Relaxed), 2);
}

/// A busy machine runs the agent late: requests at a distance once became one long burst, and the pause between them time of the host.
#[test]
fn a_launch_ends_the_burst_that_the_agent_was_late_to_end() {
    let (rt, queue) = granted(Gate::CONTENDED);
    let group = rt.groups().next().expect("its group");
    let words = &rt.segment().groups[0];
    let told = || (words.bursts.load(Relaxed), words.burst_launches.load(Relaxed));
    for burst in 1..4 {
        work(rt, queue, 1);
        let (began_ns, drained_ns) = (words.ready_at_ns.load(Relaxed), xsched_core::now_ns());
        assert_eq!(told().0, burst - 1);
        while group.idle_due_ns(rt, xsched_core::now_ns()) != Some(0) {}
        let paused_ns = xsched_core::now_ns();
        assert!(is_slow(rt));
        assert_eq!(
            told(),
            (burst, 12 * burst as u32 - 1),
            "11 launches at first, then the one that ends the pause besides"
        );
        assert!(words.burst_us.load(Relaxed) <= (drained_ns - began_ns) / 1_000);
        assert!(words.ready_at_ns.load(Relaxed) >= paused_ns && !words.gate.load().must_announce());
        assert_eq!(group.try_idle(rt, true), None, "it goes on");
    }
}

/// After its beginning, a program without budget gets a fence for one command in 32 and one more in 128.
#[test]
fn who_is_not_held_is_followed_now_and_then() {
    let (rt, _) = granted(Gate::CONTENDED);
    assert!((0..256).all(|_| is_slow(rt)));
    assert_eq!((0..1280).filter(|_| is_slow(rt)).count(), 40 + 10);
    assert_eq!(rt.groups().next().expect("its group").launches(rt), 256 + 1280);
}

/// Every launch under a budget is counted.
#[test]
fn who_is_held_is_followed_command_by_command() {
    let (rt, _) = granted(Gate::CONTENDED);
    rt.segment().groups[0].budget_commands.store(1 << 20, SeqCst);
    assert!((0..1000).all(|_| is_slow(rt)));
}

/// A group that the daemon presumed idle because it made no progress once never reported that it is idle, so that its next launch
/// would not announce itself, and a rival keep the device until the daemon polls again.
#[test]
fn a_launch_after_a_stall_tells_the_daemon_once() {
    let (rt, _) = granted(Gate::CONTENDED);
    (0..300).for_each(|_| _ = is_slow(rt));
    let told = || {
        let mut count = [0; 8];
        let event = rt.daemon_event().get().expect("an eventfd");
        rustix::io::read(event, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    };
    told();
    let word = &rt.segment().groups[0].gate;
    word.mark(Gate::STALLED, true);
    assert!(!word.load().must_announce(), "it never said that it is idle");
    assert!(is_slow(rt));
    assert_eq!((told(), word.load().is_stalled()), (1, false));
    (0..300).for_each(|_| _ = is_slow(rt));
    assert_eq!(told(), 0);
}

fn spec() -> Option<QueueSpec> {
    nothing::spec(16, 0)
}

/// One thread launches, another declares the group idle again and again. A launch that went by the open gate and left
/// the group both idle in the daemon's eyes and not MUST_ANNOUNCE slipped by: the daemon believes the device to be free, and
/// no later launch would tell it otherwise.
#[test]
fn no_launch_slips_by_a_group_that_was_declared_idle() {
    const DECISIONS: u64 = 200;
    let rt = runtime();
    rt.queue(16, spec).expect("a queue");
    let group = rt.groups().next().expect("its group");
    rt.attach(std::ptr::null_mut());
    let words = &rt.segment().groups[0];
    words.gate.grant();
    group.set_registration(rt, Registration::Attached);
    let (decisions, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let launches = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                if !words.gate.load().must_announce() && group.try_idle(rt, false).is_some() {
                    decisions.fetch_add(1, Relaxed);
                }
            }
        });
        rt.remember(16, spec).expect("a queue");
        let mut launches = 0u64;
        while decisions.load(Relaxed) < DECISIONS {
            launches += 1;
            match fast_path::enter(16) {
                Entered::Fast(counted) => counted.done(true),
                Entered::Slow(queue, counter) => {
                    let admission = nothing::admit(rt, queue, Work::default(), counter);
                    queue.commit(rt, &admission, true, counter);
                    continue;
                }
                Entered::Unknown => panic!("the queue was remembered"),
            }
            // The other thread corrects a state within a few instructions if it sees the change too late: only a state that stays is
            // wrong.
            let slipped =
                (0..10_000_000).all(|_| words.state.load(SeqCst) == state::IDLE && !words.gate.load().must_announce());
            if slipped {
                over.store(true, Relaxed);
                panic!("launch {launches} slipped by after {} decisions", decisions.load(Relaxed));
            }
        }
        over.store(true, Relaxed);
        launches
    });
    assert_eq!(group.launches(rt), launches);
}

static HELD: OnceLock<(&'static Runtime, mpsc::Sender<bool>)> = OnceLock::new();

/// A thread that is about to wait at a closed gate makes its commands begin. Just then the group is declared idle.
struct IdleBeforeTheWait;

impl Platform for IdleBeforeTheWait {
    fn kind(&self) -> xsched_proto::wire::Platform {
        xsched_proto::wire::Platform::Sim
    }
    fn levels(&self, _device: &str) -> xsched_proto::wire::Levels {
        xsched_proto::wire::Levels::ONE
    }
    fn flusher(&self, _queue: &XQueue) -> Option<Box<dyn FnOnce()>> {
        let (rt, decided) = HELD.get()?;
        Some(Box::new(move || {
            let group = rt.groups().next().expect("its group");
            decided.send(group.try_idle(rt, true).is_some()).expect("the test waits");
        }))
    }
    fn reports_completion(&self) -> bool {
        true
    }
}

/// The launch of a thread that waits at the gate is counted nowhere: if the group was declared idle a moment before, the
/// thread must say that it is not, or it never goes on.
#[test]
fn who_begins_to_wait_is_not_overlooked() {
    let rt = nothing::runtime_over(&[&IdleBeforeTheWait]);
    rt.queue(16, spec).expect("a queue");
    rt.attach(std::ptr::null_mut());
    rt.groups().next().expect("its group").set_registration(rt, Registration::Attached);
    let (decided, decision) = mpsc::channel();
    assert!(HELD.set((rt, decided)).is_ok());
    let words = &rt.segment().groups[0];
    let launching = std::thread::spawn(move || {
        rt.remember(16, spec).expect("a queue");
        assert!(is_slow(rt));
    });
    assert!(decision.recv().expect("it waits"), "the launch is not counted yet: the group is idle");
    let event = rt.daemon_event().get().expect("an eventfd");
    let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
    while words.state.load(SeqCst) == state::IDLE {
        if poll(&mut [PollFd::from_borrowed_fd(event, PollFlags::IN)], Some(&patience)).expect("a poll") == 0 {
            break;
        }
        let _ = rustix::io::read(event, &mut [0; 8]);
    }
    let (known, word) = (words.state.load(SeqCst), words.gate.load());
    words.gate.grant();
    launching.join().expect("it goes on");
    assert_ne!(known, state::IDLE);
    assert!(!word.must_announce());
}
