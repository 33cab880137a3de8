//! Where a launch comes from: asked of the preload library for each launch, once something needs to know it.
//!
//! Off by default, and then it costs nothing: what a launch looks at anyway, its gate word, says so
//! ([`xsched_proto::gate::Gate::INSPECT`]).

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering::*};

use xsched_proto::domains::DomainMode;
use xsched_proto::segment::{Counter, GroupSlot};

use crate::origin::Way;
pub use crate::origin::{Domain, Origin};
use crate::queue::XQueue;
use crate::thread::{self, Thread};

/// Answers for the calling thread.
pub struct Inspector {
    /// Where the launch under way comes from.
    pub launch: fn(&Thread) -> Origin,
    /// The explicit domain of what makes a stream just now.
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

/// The inspector to ask. It is not asked until [`start`].
pub fn install(inspector: &'static Inspector) {
    INSPECTOR.store(core::ptr::from_ref(inspector).cast_mut(), Release);
}

/// Begins to look at launches. Those of a runtime that is there already only after [`crate::Runtime::inspect_launches`].
pub fn start() {
    ON.store(true, SeqCst);
}

/// What becomes of launches of the system domain from now on.
pub fn set_mode(mode: DomainMode) {
    MODE.store(mode as u8, Release);
}

/// Whether launches are looked at.
pub fn is_on() -> bool {
    ON.load(SeqCst)
}

/// Whether what the calling thread makes just now belongs to the system domain by an explicit call.
pub(crate) fn makes_system_queues() -> bool {
    is_on() && inspector().and_then(|i| (i.maker)(thread::current())) == Some(Domain::System)
}

/// Looks at the launch under way, which was counted in `counter`.
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
