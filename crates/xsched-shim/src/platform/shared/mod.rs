//! What platforms share; no platform imports another.
//!
//! - [`pipeline`]: the way of every command of every platform, whose part in it is a [`pipeline::Pipeline`];
//!   [`waits`]: calls that wait.
//! - [`hal`]: what the C API asks of a queue.
//! - The rest is for platforms whose interface is like CUDA's: commands enter streams, default streams come in two modes,
//!   captures record, and a word of memory that the device writes tells of completion. [`Driver`] is what is asked of one
//!   copy of such a library. [`path`]: its commands; [`late`]: fences put by threads that wait for their turn; [`loads`]:
//!   code that is used for the first time; [`capture`]: streams that only record; [`lifetime`]: streams that come and go;
//!   [`lookup`]: functions that hand out functions.
//! - [`amd`]: AMD's compute driver, below HIP and HSA.

pub(super) mod amd;
pub(super) mod capture;
pub(crate) mod hal;
pub(super) mod lacking;
pub(super) mod late;
pub(super) mod lifetime;
pub(super) mod loads;
pub(super) mod lookup;
pub(super) mod path;
pub(super) mod pipeline;
pub(super) mod waits;

use std::ffi::{c_int, c_void};

use xsched_core::{CompletionFence, QueueSpec, Runtime, XQueue};

use crate::interpose::{Hook, resolve};

/// A stream's handle.
pub(super) type Stream = *mut c_void;

/// What a call answers when all went well, here and there.
pub(super) const SUCCESS: c_int = 0;

/// The kinds of stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamKind {
    /// Made by the application.
    Own,
    /// The default stream, which all threads share.
    Legacy,
    /// The default stream of this thread.
    PerThread,
}

/// What a null handle means: entry points come in two modes.
pub(super) type DefaultStreamMode = StreamKind;

/// A stream as the calling thread means it, and the key of its XQueue.
#[derive(Clone, Copy)]
pub(super) struct Handle {
    /// A handle that means the same stream in either mode of entry points.
    pub(super) stream: Stream,
    pub(super) which: StreamKind,
    pub(super) key: usize,
}

/// One copy of a vendor's library, as far as we call it ourselves.
pub(super) trait Driver: Sized + 'static {
    /// Index in [`super::PLATFORMS`].
    const PLATFORM: u8;

    /// The copy that holds the function at `real`.
    fn beside(real: *mut c_void) -> Option<&'static Self>;

    /// Whether a call comes from within the library, which is its own business.
    #[inline(always)]
    fn is_inner(&self, _caller: usize) -> bool {
        false
    }

    /// Whether a call comes from a runtime that is scheduled itself and stands on this one.
    #[cold]
    fn is_below_another(_caller: usize) -> bool {
        false
    }

    /// The kind of stream that a handle means.
    fn which(stream: Stream, mode: DefaultStreamMode) -> StreamKind;

    /// Whether what enters this stream waits for what the default stream was given before, and the other way round.
    fn is_blocking(&self, handle: Handle) -> bool;

    /// Whether something is being captured.
    fn some_capture(&self) -> bool;

    /// Whether what enters this stream now is only recorded. `None`: the library does not tell.
    fn recording(&self, stream: Stream, mode: DefaultStreamMode) -> Option<bool>;

    /// Resolves a handle. `None`: there is no such stream; the library will say so.
    fn handle(&self, stream: Stream, mode: DefaultStreamMode) -> Option<Handle>;

    /// Describes a stream to the core.
    fn describe(&self, rt: &Runtime, handle: Handle) -> Option<QueueSpec>;

    /// Lets the device write a fence's number when it gets there. False: refused.
    fn place_fence(&self, rt: &Runtime, queue: &XQueue, fence: &CompletionFence) -> bool;

    /// Lets the device wait at the group's gate. False: refused.
    fn gate(&self, rt: &Runtime, queue: &XQueue) -> bool;

    /// Whether nothing tells of completions.
    fn has_no_fences(&self) -> bool;

    /// Key of the calling thread's device.
    fn current_device_key(&self) -> Option<String>;
}

/// The address of the library's function behind a hook, of which `real` is what the hook's own `real` answered; null if there is none.
#[inline(always)]
pub(super) fn behind(real: *mut c_void, hook: impl FnOnce() -> &'static Hook) -> *mut c_void {
    if real.is_null() { elsewhere(hook) } else { real }
}

/// A call from where the name means nothing, through a pointer that was taken elsewhere. Of several copies, the first. Compiled beside
/// each caller, as [`crate::interpose::real`]'s slow way.
#[cold]
#[inline(never)]
fn elsewhere(hook: impl FnOnce() -> &'static Hook) -> *mut c_void {
    resolve::keeping_errno(|| resolve::anywhere(hook(), |first| first))
}

/// A table of functions that are found by name in the object of a known one: `struct Name -> RESULT; field: c"symbol" (TYPES);`.
/// `Name::load(address)` is none where one of them is missing.
macro_rules! functions {
    ($(#[$about:meta])* struct $name:ident -> $result:ty; $($field:ident: $symbol:literal ($($ty:ty),*);)*) => {
        $(#[$about])*
        struct $name {
            $($field: unsafe extern "C" fn($($ty),*) -> $result,)*
        }

        impl $name {
            fn load(address: usize) -> Option<$name> {
                Some($name {
                    $($field: {
                        let found = $crate::interpose::resolve::in_scope_of(address, $symbol);
                        if found.is_null() {
                            return None;
                        }
                        // SAFETY: a vendor's function of this name has the signature of the vendor's header.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> $result>(found)
                        }
                    },)*
                })
            }
        }
    };
}

pub(crate) use functions;

/// The address of the library's function behind a hook, and the function: `let (address, function) = real!(name);`.
/// Needs the function's hook, and the platform's `sig` and `NOT_INITIALIZED`, in scope.
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
