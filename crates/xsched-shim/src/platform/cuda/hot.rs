//! State that every launch reads, in one cache line: a program that does much between its launches finds each further
//! line cold.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering::*};

use super::api::Api;
use crate::interpose::near;
use crate::platform::shared::SUCCESS;
use crate::platform::shared::capture::Captures;

/// Contents of the line, see [`hot`].
#[repr(C, align(64))]
pub(super) struct Hot {
    /// The driver's functions, once known.
    pub(super) api: AtomicPtr<Api>,
    /// The only context that a thread can have; 0 = unknown, or there may be several.
    only: AtomicUsize,
    /// Active captures.
    pub(super) captures: Captures,
}

static HOT: Hot =
    Hot { api: AtomicPtr::new(std::ptr::null_mut()), only: AtomicUsize::new(0), captures: Captures::new() };

/// Set once a context other than a device's primary one was created.
static SEVERAL: AtomicBool = AtomicBool::new(false);
/// Number of events so far that may have changed a current context.
static CHANGES: AtomicUsize = AtomicUsize::new(0);
/// Number of devices that the process sees; 0 = not known yet.
static DEVICES: AtomicI32 = AtomicI32::new(0);

/// The cache line.
#[inline(always)]
pub(super) fn hot() -> &'static Hot {
    near!(HOT)
}

/// The calling thread's context, which its default streams belong to; 0 = none. The driver is asked unless all threads
/// that have a context have the same. A thread without one gets that context here, too, but the driver refuses its
/// command a little later.
#[inline(always)]
pub(super) fn context(api: &Api) -> usize {
    match hot().only.load(Relaxed) {
        0 => ask(api),
        only => only,
    }
}

/// The only context that a thread can have; 0 = unknown, or there may be several.
#[inline(always)]
pub(super) fn only() -> usize {
    hot().only.load(Relaxed)
}

/// Asks the driver. With one device there is one context, its primary one, unless others are created explicitly.
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

/// Records that a context other than a device's primary one is about to be created. From now on each thread's own
/// context is looked up.
pub(super) fn several() {
    SEVERAL.store(true, SeqCst);
    changes();
}

/// Drops the cached context. Called before and after the end of a context.
pub(super) fn changes() {
    CHANGES.fetch_add(1, SeqCst);
    HOT.only.store(0, SeqCst);
}

/// Resets the state, in a forked child.
pub(super) fn forget_all() {
    HOT.captures.forget_all();
    changes();
}
