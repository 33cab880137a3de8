//! Where a launch comes from: asked of the preload library for each launch, once something needs to know it.
//!
//! Off by default, and then it costs nothing: what a launch looks at anyway, its gate word, says so
//! ([`xsched_proto::gate::Gate::INSPECT`]).

use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};

use xsched_proto::segment::{Counter, GroupSlot};

use crate::thread::{self, Thread};

/// Whose work a launch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// A vendor library's.
    System,
    /// The program's own.
    Application,
}

/// What is known of the launch under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// A rule lets it into the driver without asking anybody.
    pub passes: bool,
    /// What an explicit call said; it counts before what its stream says.
    pub explicit: Option<Domain>,
    /// What its call site tells.
    pub detected: Domain,
}

/// Answers for the calling thread.
pub struct Inspector {
    /// Where the launch under way comes from.
    pub launch: fn(&Thread) -> Origin,
    /// The explicit domain of what makes a stream just now.
    pub maker: fn(&Thread) -> Option<Domain>,
}

static INSPECTOR: AtomicPtr<Inspector> = AtomicPtr::new(core::ptr::null_mut());
static ON: AtomicBool = AtomicBool::new(false);

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

/// Whether launches are looked at.
pub fn is_on() -> bool {
    ON.load(SeqCst)
}

/// Whether what the calling thread makes just now belongs to the system domain by an explicit call.
pub(crate) fn makes_system_queues() -> bool {
    is_on() && inspector().and_then(|i| (i.maker)(thread::current())) == Some(Domain::System)
}

/// Looks at the launch under way, which was counted in `counter`, and says whether a rule lets it through.
pub(crate) fn launch(slot: &GroupSlot, counter: &Counter) -> bool {
    let Some(inspector) = inspector() else { return false };
    let origin = (inspector.launch)(thread::current());
    let of_stream = (slot.system.load(Relaxed) != 0).then_some(Domain::System);
    if origin.explicit.or(of_stream).unwrap_or(origin.detected) == Domain::System {
        counter.system.store(counter.system.load(Relaxed).wrapping_add(1), Relaxed);
    }
    if origin.passes {
        slot.unscheduled_passthrough.fetch_add(1, Relaxed);
    }
    origin.passes
}
