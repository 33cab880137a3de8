//! Resolution of stream handles to XQueues, and streams that only record.

use xsched_core::thread;

use super::api::Api;
use super::hot::{self, hot};
use super::types::*;
use crate::platform::shared::{DefaultStreamMode, Handle, StreamKind};

/// Kind of the stream that a handle means.
#[inline(always)]
pub(super) fn which(stream: CUstream, mode: DefaultStreamMode) -> StreamKind {
    match stream as usize {
        0 => mode,
        STREAM_LEGACY => StreamKind::Legacy,
        STREAM_PER_THREAD => StreamKind::PerThread,
        _ => StreamKind::Own,
    }
}

/// Resolves a handle. `None`: the handle means a default stream and the thread has no context, so the driver will
/// refuse the call.
#[inline(always)]
pub(super) fn handle(api: &Api, stream: CUstream, mode: DefaultStreamMode) -> Option<Handle> {
    let which = which(stream, mode);
    if which == StreamKind::Own {
        return Some(Handle { stream, which, key: stream as usize });
    }
    let context = hot::context(api);
    if context == 0 {
        return None;
    }
    Some(match which {
        // Contexts and streams are heap objects of the driver, so the lowest bits of their addresses are free.
        StreamKind::Legacy | StreamKind::Own => {
            Handle { stream: STREAM_LEGACY as CUstream, which: StreamKind::Legacy, key: legacy_key(context) }
        }
        StreamKind::PerThread => {
            let me = std::ptr::from_ref(thread::current()) as usize;
            // Two user-space addresses of 47 bits each; the thread's is a multiple of 64.
            let key = (context ^ (me << 11)) | 3;
            Handle { stream: STREAM_PER_THREAD as CUstream, which, key }
        }
    })
}

/// Reports whether commands for this stream are only recorded now. `None`: the driver does not say.
#[inline(always)]
pub(super) fn recording(api: &Api, stream: CUstream) -> Option<bool> {
    if hot().captures.is_active() { asked_recording(api, stream) } else { Some(false) }
}

#[cold]
#[inline(never)]
pub(super) fn asked_recording(api: &Api, stream: CUstream) -> Option<bool> {
    let mut status = CAPTURE_NONE;
    // SAFETY: the caller's own stream; pointer to a local. On the legacy stream the question is an error while a stream
    // that synchronises with it captures; so would be any command there.
    let rc = unsafe { (api.stream_capturing)(stream, &mut status) };
    (rc == SUCCESS).then_some(status != CAPTURE_NONE)
}

/// Key of a context's legacy default stream.
pub(super) fn legacy_key(context: usize) -> usize {
    context | 1
}
