//! What every launch looks at, in one line of the cache: a program that does much between its launches finds each further
//! line cold.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering::*};

use super::api::Api;
use crate::interpose::near;
use crate::platform::shared::SUCCESS;
use crate::platform::shared::capture::Captures;

/// See [`hot`].
#[repr(C, align(64))]
pub(super) struct Hot {
    /// The driver's functions, once known.
    pub(super) api: AtomicPtr<Api>,
    /// The only context that a thread can have; 0 = unknown, or there may be several.
    only: AtomicUsize,
    /// Captures under way.
    pub(super) captures: Captures,
}

static HOT: Hot =
    Hot { api: AtomicPtr::new(std::ptr::null_mut()), only: AtomicUsize::new(0), captures: Captures::new() };

/// Contexts besides a device's primary one were made some time.
static SEVERAL: AtomicBool = AtomicBool::new(false);
/// Counts what may make another context the current one.
static CHANGES: AtomicUsize = AtomicUsize::new(0);
/// Devices of this machine that the process sees; 0 = not asked yet.
static DEVICES: AtomicI32 = AtomicI32::new(0);

/// The line.
#[inline(always)]
pub(super) fn hot() -> &'static Hot {
    near!(HOT)
}

/// The calling thread's context, for whatever its default streams mean; 0 = none. The driver is asked unless all threads
/// that have one have the same: who has none then is told so by the driver a little later.
#[inline(always)]
pub(super) fn context(api: &Api) -> usize {
    match hot().only.load(Relaxed) {
        0 => ask(api),
        only => only,
    }
}

/// With one device there is one context, its primary one, unless others are made by name.
#[inline(never)]
fn ask(api: &Api) -> usize {
    let changes = CHANGES.load(SeqCst);
    let context = api.context() as usize;
    if context != 0 && !SEVERAL.load(SeqCst) && devices(api) == 1 {
        HOT.only.store(context, SeqCst);
        if CHANGES.load(SeqCst) != changes {
            HOT.only.store(0, SeqCst);
        }
    }
    context
}

fn devices(api: &Api) -> c_int {
    let mut count = DEVICES.load(Relaxed);
    // SAFETY: pointer to a local.
    if count == 0 && unsafe { (api.device_count)(&mut count) } == SUCCESS {
        DEVICES.store(count, Relaxed);
    }
    count
}

/// Before a context is made that is not a device's primary one: from now on each thread is asked for its own.
pub(super) fn several() {
    SEVERAL.store(true, SeqCst);
    changes();
}

/// Before and after the end of a context.
pub(super) fn changes() {
    CHANGES.fetch_add(1, SeqCst);
    HOT.only.store(0, SeqCst);
}

/// In a forked child nothing was made.
pub(super) fn forget_all() {
    HOT.captures.forget_all();
    changes();
}
