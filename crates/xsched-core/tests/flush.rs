//! Flush before a wait: a thread that is about to wait at a closed gate has its commands of other groups begin, and followed to
//! their end.

use std::sync::{Mutex, OnceLock};

use xsched_core::fast_path::{self, Entered};
use xsched_core::{Platform, QueueSpec, Registration, Runtime, Work, XQueue};
use xsched_proto::gate::{Gate, GateWord};

mod nothing;

static RUNTIME: OnceLock<&'static Runtime> = OnceLock::new();
/// Queues whose commands were made to begin.
static FLUSHED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

struct Flushes;

impl Platform for Flushes {
    fn kind(&self) -> xsched_proto::wire::Platform {
        xsched_proto::wire::Platform::Sim
    }
    fn levels(&self, _device: &str) -> xsched_proto::wire::Levels {
        xsched_proto::wire::Levels::ONE
    }
    /// The thread is about to wait: the daemon lets it go on.
    fn flusher(&self, queue: &XQueue) -> Option<Box<dyn FnOnce()>> {
        let handle = queue.handle().addr();
        Some(Box::new(move || {
            FLUSHED.lock().unwrap().push(handle);
            let rt = RUNTIME.get().unwrap();
            for group in rt.groups() {
                words(rt, group.index()).grant();
            }
        }))
    }
    fn reports_completion(&self) -> bool {
        true
    }
}

fn words(rt: &'static Runtime, group: u16) -> &'static GateWord {
    &rt.segment().groups[usize::from(group)].gate
}

fn launch(rt: &'static Runtime, key: usize) {
    rt.remember(key, || None).expect("a queue");
    let Entered::Slow(queue, counter) = fast_path::enter(key) else { panic!("it is watched") };
    let admission = nothing::admit(rt, queue, Work::default(), counter);
    queue.commit(rt, &admission, true, counter);
}

#[test]
fn a_thread_at_a_gate_flushes_only_what_it_used_itself_and_no_default_stream() {
    let rt = nothing::runtime_over(&[&Flushes]);
    assert!(RUNTIME.set(rt).is_ok());
    rt.attach(std::ptr::null_mut());
    // Of the same group as 16, a default stream, one that this thread does not use, and the one it is held at.
    for (key, handle, priority) in [(16, 16, 0), (32, 32, 0), (48, 1, 2), (64, 64, 3), (80, 80, 1)] {
        rt.queue(key, || nothing::spec(handle, priority).map(|s| QueueSpec { platform: 0, ..s })).expect("a queue");
    }
    for group in rt.groups() {
        group.set_registration(rt, Registration::Attached);
        words(rt, group.index()).mark(Gate::CONTENDED, true);
        words(rt, group.index()).grant();
    }
    for key in [16, 48] {
        launch(rt, key);
    }
    assert!(FLUSHED.lock().unwrap().is_empty(), "nobody waits yet");
    let held = rt.queue(80, || None).expect("a queue").group(rt).index();
    words(rt, held).close();
    launch(rt, 80);
    assert_eq!(*FLUSHED.lock().unwrap(), [80, 16]);
}
