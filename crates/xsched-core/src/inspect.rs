//! Origin of launches: the preload library finds it for each launch, once something needs to know it.
//!
//! Off by default, and then it costs nothing: the gate word, which a launch reads anyway, says so
//! ([`xsched_proto::gate::Gate::INSPECT`]).

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering::*};

use xsched_proto::domains::DomainMode;
use xsched_proto::segment::{Counter, GroupSlot};

use crate::origin::Way;
pub use crate::origin::{Domain, Origin};
use crate::queue::XQueue;
use crate::thread::{self, Thread};

/// Functions of the preload library, which answer for the calling thread.
pub struct Inspector {
    /// Origin of the launch under way.
    pub launch: fn(&Thread) -> Origin,
    /// Explicit domain of the stream that the thread makes just now.
    pub maker: fn(&Thread) -> Option<Domain>,
}

static INSPECTOR: AtomicPtr<Inspector> = AtomicPtr::new(core::ptr::null_mut());
static ON: AtomicBool = AtomicBool::new(false);
/// The [`DomainMode`] in force.
static MODE: AtomicU8 = AtomicU8::new(DomainMode::Off as u8);

fn inspector() -> Option<&'static Inspector> {
    // SAFETY: null, or the address of a static that `install` was given.
    unsafe { INSPECTOR.load(Acquire).as_ref() }
}

/// Installs the inspector, which is not asked until [`start`].
pub fn install(inspector: &'static Inspector) {
    INSPECTOR.store(core::ptr::from_ref(inspector).cast_mut(), Release);
}

/// Begins to inspect launches. Those of a runtime that is there already are inspected only after
/// [`crate::Registry::inspect_launches`].
pub fn start() {
    ON.store(true, SeqCst);
}

/// Sets the treatment of launches of the system domain from now on.
pub fn set_mode(mode: DomainMode) {
    MODE.store(mode as u8, Release);
}

/// True: launches are inspected.
pub fn is_on() -> bool {
    ON.load(SeqCst)
}

/// True: a queue that the calling thread makes just now belongs to the system domain by an explicit call.
pub(crate) fn makes_system_queues() -> bool {
    is_on() && inspector().and_then(|i| (i.maker)(thread::current())) == Some(Domain::System)
}

/// Inspects the launch under way, which was counted in `counter`.
pub(crate) fn launch(queue: &XQueue, slot: &GroupSlot, counter: &Counter) -> Way {
    let Some(inspector) = inspector() else { return Way::Gate };
    let origin = (inspector.launch)(thread::current());
    let of_stream = queue.vendor.made_system.load(Relaxed).then_some(Domain::System);
    let domain = origin.explicit.or(of_stream).unwrap_or(origin.detected);
    if domain == Domain::System {
        counter.system.store(counter.system.load(Relaxed).wrapping_add(1), Relaxed);
    }
    if origin.passes {
        slot.unscheduled_passthrough.fetch_add(1, Relaxed);
        return Way::Passes;
    }
    let mode = MODE.load(Relaxed);
    if mode == DomainMode::Exempt as u8 && domain == Domain::System {
        Way::Exempt
    } else if mode == DomainMode::Ahead as u8 && queue.leans_to(domain, slot.system.load(Relaxed) != 0) {
        Way::Regroup
    } else {
        Way::Gate
    }
}
