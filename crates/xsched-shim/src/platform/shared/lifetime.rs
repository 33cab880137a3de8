//! Streams and contexts that come and go.

use std::ffi::{c_int, c_void};

use xsched_core::{Runtime, XQueue, thread};

use super::waits::on_device;
use super::{DefaultStreamMode, Driver, SUCCESS, Stream, late};
use crate::enabled::{NUMBERED, platform_enabled};
use crate::process;

/// Where a context is that ends.
pub(crate) enum At {
    /// On the device with this key.
    Device(String),
    /// On one that the platform of this number does not tell. Rather too many queues are forgotten then than one kept whose
    /// stream is gone: the others are met again at their next command.
    Somewhere(u8),
}

impl At {
    /// From what the platform of this number told.
    pub(crate) fn told(platform: u8, key: Option<String>) -> At {
        key.map_or(At::Somewhere(platform), At::Device)
    }

    fn queues(&self, rt: &'static Runtime) -> Vec<&'static XQueue> {
        match self {
            At::Device(key) => on_device(rt, key),
            At::Somewhere(platform) => {
                let kind = NUMBERED[usize::from(*platform)];
                rt.queues().filter(|q| q.platform(rt).kind() == kind).collect()
            }
        }
    }
}

/// A context is gone: so are the streams that were in it, `mine` by the keys of their queues.
fn gone(at: &At, mine: impl Fn(usize) -> bool) {
    process::guarded("at the end of a context", || {
        let rt = process::running()?;
        for xqueue in at.queues(rt).into_iter().filter(|q| mine(q.key())) {
            rt.remove_queue(xqueue.key());
        }
        Some(())
    });
}

/// Runs a call that ends a context; `at` where something runs here. What is still queued may have to run first. `ended`
/// tells afterwards whether the context is gone, and is asked if the call succeeded; `mine` which queues were in it.
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

/// A stream with this key is about to be destroyed, or was made.
pub(crate) fn forget_stream(key: usize) {
    if let Some(rt) = process::running().filter(|rt| rt.find(key).is_some()) {
        late::alone(|| rt.remove_queue(key));
    }
}

/// A new stream may have the handle of one that went with its context.
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
