//! Creation and end of streams and contexts.

use std::ffi::{c_int, c_void};

use xsched_core::{Runtime, XQueue, thread};

use super::waits::on_device;
use super::{DefaultStreamMode, Driver, SUCCESS, Stream, late};
use crate::enabled::{NUMBERED, platform_enabled};
use crate::process;

/// Location of a context that is ending.
pub(crate) enum At {
    /// The device with this key.
    Device(String),
    /// An unknown device of the platform with this number. All queues of the platform count as on it: a queue
    /// forgotten too early is found again at its next command, but one whose stream is gone must not be kept.
    Somewhere(u8),
}

impl At {
    /// Location from the device key that the platform of this number returned, if it did.
    pub(crate) fn told(platform: u8, key: Option<String>) -> At {
        key.map_or(At::Somewhere(platform), At::Device)
    }

    fn queues(&self, rt: &'static Runtime) -> Vec<&'static XQueue> {
        match self {
            At::Device(key) => on_device(rt, key),
            At::Somewhere(platform) => {
                let kind = NUMBERED[usize::from(*platform)];
                rt.queues().filter(|q| q.kind(rt) == kind).collect()
            }
        }
    }
}

/// Removes the queues of streams that ended with their context, selected by `mine` from the keys of queues.
fn gone(at: &At, mine: impl Fn(usize) -> bool) {
    process::guarded("at the end of a context", || {
        let rt = process::running()?;
        for xqueue in at.queues(rt).into_iter().filter(|q| mine(q.key())) {
            rt.remove_queue(xqueue.key());
        }
        Some(())
    });
}

/// Runs a call that ends a context; `at` is its location, if this library has queues there. Queued work may have to run
/// first, so the call counts as a wait. If it succeeds, `ended` reports whether the context is gone, and `mine` selects
/// the queues that were in it.
pub(crate) fn ends(
    at: Option<At>,
    mine: impl Fn(usize) -> bool,
    call: impl FnOnce() -> c_int,
    ended: impl FnOnce() -> bool,
) -> c_int {
    let awaited = super::waits::begin(|rt| at.as_ref().map_or_else(Vec::new, |at| at.queues(rt)));
    late::without(|| {
        let rc = call();
        super::waits::end(awaited, false);
        if rc == SUCCESS
            && ended()
            && let Some(at) = at
        {
            gone(&at, mine);
        }
        rc
    })
}

/// Removes the queue of a stream that is about to be destroyed, or that was just created with the handle of an earlier
/// one.
pub(crate) fn forget_stream(key: usize) {
    if let Some(rt) = process::running().filter(|rt| rt.find(key).is_some()) {
        late::alone(|| rt.remove_queue(key));
    }
}

/// Handles the creation of a stream. Its handle may be that of a stream that ended with its context.
pub(crate) fn stream_made<D: Driver>(real: *mut c_void, rc: c_int, place: *mut c_void) -> c_int {
    if rc == SUCCESS && !place.is_null() && platform_enabled(D::PLATFORM) {
        process::guarded("after a stream was made", || {
            // SAFETY: the caller's own place for the handle, which the driver just wrote.
            let stream = unsafe { *place.cast::<Stream>() };
            let api = D::beside(real)?;
            let handle = api.handle(stream, DefaultStreamMode::Legacy)?;
            forget_stream(handle.key);
            if !D::is_below_another(thread::current().caller.get()) && api.is_blocking(handle) {
                late::note_blocking();
            }
            Some(())
        });
    }
    rc
}
