//! Functions that begin and end captures.

use super::api::Api;
use super::stream::named;
use super::types::*;
use super::{real, sig};
use crate::interpose::{hooks, near};
use crate::platform::shared::capture::Captures;
use crate::platform::shared::{DefaultStreamMode, StreamKind, late};

pub(super) static CAPTURES: Captures = Captures::new();

/// Reports whether commands for this stream are only recorded now. `None`: the runtime does not say.
#[inline(always)]
pub(super) fn recording(api: &Api, stream: hipStream_t, mode: DefaultStreamMode) -> Option<bool> {
    if near!(CAPTURES).is_active() { asks(api, named(stream, mode)) } else { Some(false) }
}

#[cold]
#[inline(never)]
fn asks(api: &Api, stream: hipStream_t) -> Option<bool> {
    let Some(is_capturing) = api.functions.stream_capturing else { return Some(false) };
    let mut status = CAPTURE_NONE;
    // SAFETY: the caller's own stream; pointer to a local. On the null stream the question is an error while a stream
    // that synchronises with it captures; so would be any command there.
    let answered = api.quietly(|| unsafe { is_capturing(stream, &mut status) });
    if answered && status == CAPTURE_NONE {
        CAPTURES.found_none(stream);
    }
    answered.then_some(status != CAPTURE_NONE)
}

fn began(rc: hipError_t, stream: hipStream_t, mode: DefaultStreamMode) -> hipError_t {
    if rc == SUCCESS {
        CAPTURES.began(named(stream, mode));
    }
    rc
}

/// Handles an attempt to end a capture. The runtime may refuse it (from the wrong thread), and the capture goes on. The
/// runtime is asked about that only before the stream's next command: a call now would replace the error that
/// hipGetLastError is to return (before HIP 7: the result of the last call).
fn ended(rc: hipError_t, stream: hipStream_t, mode: DefaultStreamMode) -> hipError_t {
    if rc == SUCCESS {
        CAPTURES.forget(named(stream, mode));
    } else {
        CAPTURES.doubt();
    }
    rc
}

macro_rules! begins {
    (
        $list:ident: $class:ident;
        $(fn $name:ident($mode:ident; $stream:ident: hipStream_t $(, $arg:ident: $ty:ty)*);)*
    ) => {
        $(
            unsafe extern "C" fn $name($stream: hipStream_t $(, $arg: $ty)*) -> hipError_t {
                let (_, function) = real!($name);
                // SAFETY: the caller's own arguments.
                late::alone(|| began(unsafe { function($stream $(, $arg)*) }, $stream, StreamKind::$mode))
            }
        )*
        hooks! { HIP, $list: $class; $($name)* }
    };
}

macro_rules! ends {
    ($list:ident: $class:ident; $(fn $name:ident($mode:ident);)*) => {
        $(
            unsafe extern "C" fn $name(stream: hipStream_t, graph: *mut c_void) -> hipError_t {
                let (_, function) = real!($name);
                // SAFETY: the caller's own arguments.
                ended(unsafe { function(stream, graph) }, stream, StreamKind::$mode)
            }
        )*
        hooks! { HIP, $list: $class; $($name)* }
    };
}

begins! {
    BEGINS: Capture;
    fn hipStreamBeginCapture(Legacy; stream: hipStream_t, mode: c_uint);
    fn hipStreamBeginCapture_spt(PerThread; stream: hipStream_t, mode: c_uint);
    fn hipStreamBeginCaptureToGraph(Legacy; stream: hipStream_t, graph: *mut c_void, dependencies: *mut c_void, dependencyData: *mut c_void, numDependencies: usize, mode: c_uint);
}

ends! {
    ENDS: Capture;
    fn hipStreamEndCapture(Legacy);
    fn hipStreamEndCapture_spt(PerThread);
}
