//! Runtime over a vendor interface that does nothing.

use std::sync::atomic::Ordering::SeqCst;

use rustix::event::{EventfdFlags, eventfd};
use xsched_core::{Admission, Platform, QueueSpec, Registration, Runtime, Work, XQueue};
use xsched_proto::account::Amount;
use xsched_proto::gate::Gate;
use xsched_proto::segment::{Counter, GroupSlot, Segment};

/// Vendor interface that does nothing; true: it reports completions by calls.
struct Nothing(bool);

impl Platform for Nothing {
    fn kind(&self) -> xsched_proto::wire::Platform {
        xsched_proto::wire::Platform::Sim
    }
    fn levels(&self, _device: &str) -> xsched_proto::wire::Levels {
        xsched_proto::wire::Levels::ONE
    }
    fn flusher(&self, _queue: &XQueue) -> Option<Box<dyn FnOnce()>> {
        None
    }
    fn reports_completion(&self) -> bool {
        self.0
    }
}

/// Two interfaces: the second one reports completions by calls.
static PLATFORMS: &[&dyn Platform] = &[&Nothing(false), &Nothing(true)];

#[allow(dead_code)] // Not every test that includes this uses it.
pub(crate) fn runtime() -> &'static Runtime {
    runtime_over(PLATFORMS)
}

/// Makes a runtime over other interfaces.
#[allow(dead_code)] // Not every test that includes this uses it.
pub(crate) fn runtime_over(platforms: &'static [&'static dyn Platform]) -> &'static Runtime {
    Box::leak(Box::new(made_over(platforms)))
}

/// Makes a runtime whose streams get no queues unless asked for.
#[allow(dead_code)] // Not every test that includes this uses it.
pub(crate) fn runtime_without_queues() -> &'static Runtime {
    Box::leak(Box::new(made_over(PLATFORMS).without_queues()))
}

/// Makes a runtime with a limit of memory.
#[allow(dead_code)] // Not every test that includes this uses it.
pub(crate) fn runtime_with_limit(limit: Option<Amount>) -> &'static Runtime {
    Box::leak(Box::new(made_over(PLATFORMS).with_memory_limit(limit)))
}

fn made_over(platforms: &'static [&'static dyn Platform]) -> Runtime {
    // SAFETY: zeroed memory is a valid segment (atomics only); leaked, so it lives as long as the runtime.
    let segment: &'static Segment = unsafe { &*std::alloc::alloc_zeroed(std::alloc::Layout::new::<Segment>()).cast() };
    let event = || eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
    Runtime::new(segment, platforms, 0, None, None, event(), event())
}

/// Describes a queue of this handle and priority.
pub(crate) fn spec(handle: usize, priority_steps: i32) -> Option<QueueSpec> {
    Some(QueueSpec {
        handle: core::ptr::without_provenance_mut(handle),
        platform: 0,
        device: "sim:0".into(),
        priority_steps,
        in_order: true,
    })
}

/// Admits a queue's next command, by [`XQueue::admit`].
#[allow(dead_code)] // Not every test that includes this uses it.
pub(crate) fn admit(rt: &'static Runtime, queue: &XQueue, work: Work, counter: &Counter) -> Admission {
    let mut admission = Admission::default();
    queue.admit(rt, work, counter, &mut admission);
    admission
}

/// Attaches to a daemon that grants the only group, beside a rival, a budget for ten commands of unknown length: 100 µs each.
/// Returns the group's words.
#[allow(dead_code)] // Not every test that includes this uses it.
pub(crate) fn attach_with_room_for_ten(rt: &'static Runtime) -> &'static GroupSlot {
    rt.attach(std::ptr::null_mut());
    let words = &rt.segment().groups[0];
    words.budget_us.store(1000, SeqCst);
    words.gate.mark(Gate::CONTENDED, true);
    words.gate.grant();
    rt.groups().next().expect("its group").set_registration(rt, Registration::Attached);
    words
}
