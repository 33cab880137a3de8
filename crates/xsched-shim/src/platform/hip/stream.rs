//! Resolution of stream handles to XQueues, and streams that only record.

use xsched_core::thread;

use super::api::{Api, copies};
use super::types::*;
use crate::interpose::near;
use crate::platform::shared::capture::Captures;
use crate::platform::shared::{DefaultStreamMode, Handle, StreamKind};

/// Active captures.
pub(super) static CAPTURES: Captures = Captures::new();

/// Number of low bits of a key that hold an address: of a stream, or of the thread of a per-thread stream. Both are in
/// user space.
const ADDRESS_BITS: u32 = 47;
/// Addresses of threads are multiples of this. The bits below hold the device of a default stream.
const DEVICES: usize = 64;
const _: () = assert!(align_of::<thread::Thread>() <= DEVICES);
/// Bit of a key that marks a default stream.
const DEFAULT: usize = 1 << 56;
/// Bit of a key that marks a per-thread default stream.
const PER_THREAD: usize = 1 << 55;
/// Position of the bits above these, which hold the number of the copy of the runtime.
const COPY_SHIFT: u32 = 57;

/// Kind of the stream that a handle means.
#[inline(always)]
pub(super) fn which(stream: hipStream_t, mode: DefaultStreamMode) -> StreamKind {
    match stream as usize {
        0 => mode,
        STREAM_LEGACY => StreamKind::Legacy,
        STREAM_PER_THREAD => StreamKind::PerThread,
        _ => StreamKind::Own,
    }
}

/// A handle that means the stream in either mode. (Null rather than hipStreamLegacy, which older releases do not know.)
#[inline(always)]
pub(super) fn named(stream: hipStream_t, mode: DefaultStreamMode) -> hipStream_t {
    match which(stream, mode) {
        StreamKind::Own => stream,
        StreamKind::Legacy => std::ptr::null_mut(),
        StreamKind::PerThread => STREAM_PER_THREAD as hipStream_t,
    }
}

/// Resolves a handle. `None`: the handle means a default stream and the thread has no device, so the runtime will
/// refuse the call.
#[inline(always)]
pub(super) fn handle(api: &Api, stream: hipStream_t, mode: DefaultStreamMode) -> Option<Handle> {
    let copy = api.index << COPY_SHIFT;
    let which = which(stream, mode);
    let thread = match which {
        StreamKind::Own => return Some(Handle { stream, which, key: stream as usize | copy }),
        StreamKind::Legacy => 0,
        StreamKind::PerThread => std::ptr::from_ref(thread::current()) as usize | PER_THREAD,
    };
    let device = usize::try_from(api.device()?).ok()?;
    let device = (device % DEVICES) | ((device / DEVICES % 256) << ADDRESS_BITS);
    Some(Handle { stream: named(stream, which), which, key: thread | device | copy | DEFAULT })
}

/// Reports whether commands for this stream are only recorded now. `None`: the runtime does not say.
#[inline(always)]
pub(super) fn recording(api: &Api, stream: hipStream_t, mode: DefaultStreamMode) -> Option<bool> {
    if near!(CAPTURES).is_active() { asked_recording(api, named(stream, mode)) } else { Some(false) }
}

#[cold]
#[inline(never)]
fn asked_recording(api: &Api, stream: hipStream_t) -> Option<bool> {
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

/// The copy of the runtime that a queue's key names.
pub(super) fn copy_of(key: usize) -> Option<&'static Api> {
    copies().nth(key >> COPY_SHIFT)
}
