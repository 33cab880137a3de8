//! Which XQueue a stream handle means.

use xsched_core::thread;

use super::api::Api;
use super::types::*;
use crate::platform::shared::{DefaultStreamMode, Handle, StreamKind};

/// Low bits of a key: a stream, or the thread of a per-thread stream; both are addresses of the user's half.
const ADDRESS_BITS: u32 = 47;
/// Thread addresses are multiples of this, below which a default stream's device is told.
const DEVICES: usize = 64;
const _: () = assert!(align_of::<thread::Thread>() <= DEVICES);
/// Marks a default stream.
const DEFAULT: usize = 1 << 56;
/// Marks one of a thread.
const PER_THREAD: usize = 1 << 55;
/// Above these: the copy of the runtime.
const COPY_SHIFT: u32 = 57;

/// The kind of a handle.
#[inline(always)]
pub(super) fn which(stream: hipStream_t, mode: DefaultStreamMode) -> StreamKind {
    match stream as usize {
        0 => mode,
        STREAM_LEGACY => StreamKind::Legacy,
        STREAM_PER_THREAD => StreamKind::PerThread,
        _ => StreamKind::Own,
    }
}

/// The handle that means the same stream in either mode. (Null rather than hipStreamLegacy, which older releases do
/// not know.)
#[inline(always)]
pub(super) fn named(stream: hipStream_t, mode: DefaultStreamMode) -> hipStream_t {
    match which(stream, mode) {
        StreamKind::Own => stream,
        StreamKind::Legacy => std::ptr::null_mut(),
        StreamKind::PerThread => STREAM_PER_THREAD as hipStream_t,
    }
}

/// Resolves a handle. `None`: a default stream, but of no device; the runtime will say so.
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

/// The copy of the runtime that a key's stream belongs to.
pub(super) fn copy_of(key: usize) -> usize {
    key >> COPY_SHIFT
}
