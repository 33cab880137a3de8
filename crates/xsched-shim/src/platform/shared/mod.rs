//! Code common to several platforms; no platform imports another.
//!
//! - [`pipeline`]: the path of every command of every platform, with the platform's part as a [`pipeline::Pipeline`];
//!   [`waits`]: calls that wait.
//! - [`hal`]: hardware queues, as the C API uses them; [`stream_queue`]: those of platforms with streams.
//! - The rest is for platforms whose interface resembles CUDA's: commands enter streams, default streams come in two modes,
//!   captures record, and the device reports completion by writing a word of memory. [`Driver`] is the interface to one
//!   copy of such a library. [`path`]: its commands; [`streams`]: its part in their path; [`late`]:
//!   fences placed by threads that are about to wait; [`tail`]: fences behind all commands of a queue; [`loads`]: code
//!   used for the first time; [`capture`]: streams that only record; [`lifetime`]: creation and end of streams;
//!   [`lookup`]: functions that return functions.
//! - [`memory`]: memory of devices, counted and limited.
//! - [`amd`]: AMD's compute driver, below HIP and HSA.

pub(super) mod amd;
pub(super) mod capture;
pub(crate) mod hal;
pub(super) mod lacking;
pub(super) mod late;
pub(super) mod lifetime;
pub(super) mod loads;
pub(super) mod lookup;
pub(super) mod memory;
pub(super) mod path;
pub(super) mod pipeline;
pub(super) mod stream_queue;
mod streams;
pub(super) mod tail;
pub(super) mod waits;

use std::ffi::{CStr, c_int, c_void};

use xsched_core::{CompletionFence, QueueSpec, Runtime, XQueue};

use crate::interpose::{Hook, beneath, resolve};

/// A stream's handle.
pub(super) type Stream = *mut c_void;

/// Return value of a successful call, of all vendors.
pub(super) const SUCCESS: c_int = 0;

/// Kind of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamKind {
    /// A stream that the application created.
    Own,
    /// The default stream, which all threads share.
    Legacy,
    /// The default stream of this thread.
    PerThread,
}

/// Meaning of a null handle: entry points come in two modes.
pub(super) type DefaultStreamMode = StreamKind;

/// A stream as seen by the calling thread, and the key of its XQueue.
#[derive(Clone, Copy)]
pub(super) struct Handle {
    /// A handle that means this stream with either mode of entry points.
    pub(super) stream: Stream,
    pub(super) which: StreamKind,
    pub(super) key: usize,
}

/// The functions of one copy of a vendor's library that this library calls itself.
///
/// The device writes and polls words of the shared segment (`SEGMENT_BYTES` at `rt.segment()`), which is registered with each context before
/// that, again after a reset, and in a forked child.
pub(super) trait Driver: Sized + 'static {
    /// Index in [`super::PLATFORMS`].
    const PLATFORM: u8;

    /// The copy that holds the function at `real`.
    fn beside(real: *mut c_void) -> Option<&'static Self>;

    /// Reports whether a call comes from within the library, and so is not the application's.
    #[inline(always)]
    fn is_inner(&self, _caller: usize) -> bool {
        false
    }

    /// Reports whether a call comes from a runtime on top of this library that is scheduled itself.
    #[cold]
    fn is_below_another(_caller: usize) -> bool {
        false
    }

    /// Kind of stream that a handle means.
    fn which(stream: Stream, mode: DefaultStreamMode) -> StreamKind;

    /// Reports whether this stream synchronises with the legacy default stream: commands of either wait for earlier
    /// ones of the other.
    fn is_blocking(&self, handle: Handle) -> bool;

    /// Reports whether any capture is active.
    fn some_capture(&self) -> bool;

    /// Reports whether commands for this stream are only recorded now. `None`: the library does not say.
    fn recording(&self, stream: Stream, mode: DefaultStreamMode) -> Option<bool>;

    /// Resolves a handle to a queue's key, unique in the process: the stream's handle; for a default stream a number that no handle has.
    /// `None`: there is no such stream, and the library will refuse the call.
    fn handle(&self, stream: Stream, mode: DefaultStreamMode) -> Option<Handle>;

    /// Describes a stream to the core. `None`: its commands go unscheduled and uncounted.
    fn describe(&self, rt: &Runtime, handle: Handle) -> Option<QueueSpec>;

    /// Makes the stream write `fence.number` into `queue.slot(rt).completed_word` when the device gets there. Returns false if the driver
    /// refused.
    fn place_fence(&self, rt: &Runtime, queue: &XQueue, fence: &CompletionFence) -> bool;

    /// Makes the stream wait until the gate word of `queue.group(rt)` has a bit of `Gate::DEVICE_OPEN`. Returns false if the driver refused,
    /// and on a platform of level 1.
    fn gate(&self, rt: &Runtime, queue: &XQueue) -> bool;

    /// Reports whether completions cannot be observed, since the device cannot reach the segment.
    fn has_no_fences(&self) -> bool;

    /// Key of the calling thread's device.
    fn current_device_key(&self) -> Option<String>;
}

/// Address of the library's function behind a hook; `real` is the answer of the hook's own `real`. Null if there is
/// none.
#[inline(always)]
pub(super) fn behind(real: *mut c_void, hook: impl FnOnce() -> &'static Hook) -> *mut c_void {
    if real.is_null() { elsewhere(hook) } else { real }
}

/// Resolves a call from an object that does not define the name, made through a pointer obtained elsewhere. Picks the
/// first of several copies. Compiled beside each caller, like the slow path of [`crate::interpose::real`].
#[cold]
#[inline(never)]
fn elsewhere(hook: impl FnOnce() -> &'static Hook) -> *mut c_void {
    let hook = hook();
    resolve::keeping_errno(|| beneath::before(hook, resolve::anywhere(hook, |first| first)))
}

/// Search for a table of [`functions`](xsched_vendor::functions): names as the object that holds `address` sees them.
pub(super) fn search_beside(address: usize) -> impl Fn(&CStr) -> *mut c_void {
    move |name| resolve::in_scope_of(address, name)
}

/// The address of the library's function behind a hook, and the function itself: `let (address, function) =
/// real!(name);`. Needs the function's hook, and the platform's `sig` and `NOT_INITIALIZED`, in scope.
macro_rules! real {
    ($name:ident) => {{
        let real = $crate::platform::shared::behind($name::real(), || &$name::HOOK);
        if real.is_null() {
            return NOT_INITIALIZED;
        }
        // SAFETY: the address of the real function of this name, whose signature is its header's.
        (real, unsafe { std::mem::transmute::<*mut c_void, sig::$name>(real) })
    }};
}
pub(super) use real;
