//! The race between a launch and the decision that its group is idle.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use rustix::event::{EventfdFlags, eventfd};
use xsched_core::thread::{self, Entered};
use xsched_core::{Platform, QueueSpec, Registration, Runtime, Work, XQueue};
use xsched_proto::segment::{Segment, gate, state};
use xsched_proto::wire;

struct Nothing;

impl Platform for Nothing {
    fn kind(&self) -> wire::Platform {
        wire::Platform::Sim
    }
    fn levels(&self, _device: &str) -> u8 {
        1
    }
    fn flusher(&self, _: &XQueue) -> Option<Box<dyn FnOnce()>> {
        None
    }
    fn reports_completion(&self) -> bool {
        true
    }
}

static PLATFORMS: &[&dyn Platform] = &[&Nothing];

fn runtime() -> &'static Runtime {
    // SAFETY: zeroed memory is a valid segment (atomics only); leaked, so it lives as long as the runtime.
    let segment: &'static Segment = unsafe { &*std::alloc::alloc_zeroed(std::alloc::Layout::new::<Segment>()).cast() };
    let event = || eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
    Box::leak(Box::new(Runtime::new(segment, PLATFORMS, 0, None, None, event(), event())))
}

fn spec() -> Option<QueueSpec> {
    Some(QueueSpec { handle: 16, platform: 0, device: "sim:0".into(), priority_steps: 0, in_order: true })
}

/// One thread launches, another declares the group idle again and again. A launch that went by the open gate and left
/// the group both idle in the daemon's eyes and not QUIET slipped by: the daemon believes the device to be free, and
/// no later launch would tell it otherwise.
#[test]
fn no_launch_slips_by_a_group_that_was_declared_idle() {
    const DECISIONS: u64 = 200;
    let rt = runtime();
    rt.queue(16, spec).expect("a queue");
    let group = rt.groups().next().expect("its group");
    rt.attach(std::ptr::null_mut());
    let words = &rt.segment().groups[0];
    words.gate.fetch_or(gate::GRANTED, SeqCst);
    group.set_registration(rt, Registration::Attached);
    let (decisions, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let launches = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                if words.gate.load(Relaxed) & gate::QUIET == 0 && group.try_idle(rt, false).is_some() {
                    decisions.fetch_add(1, Relaxed);
                }
            }
        });
        rt.remember(16, spec).expect("a queue");
        let mut launches = 0u64;
        while decisions.load(Relaxed) < DECISIONS {
            launches += 1;
            match thread::enter(16) {
                Entered::Fast(counted) => counted.done(true),
                Entered::Careful(queue, counter) => {
                    let admission = queue.admit(rt, Work::default(), counter);
                    queue.commit(rt, &admission, true, counter);
                    continue;
                }
                Entered::Unknown => panic!("the queue was remembered"),
            }
            // The other thread puts right within a few instructions what it sees too late: a state that stays is wrong.
            let slipped = (0..10_000_000)
                .all(|_| words.state.load(SeqCst) == state::IDLE && words.gate.load(SeqCst) & gate::QUIET == 0);
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
