//! Resolution of stream handles to XQueues.

use xsched_core::thread;

use super::api::Api;
use super::hot;
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

/// Key of a context's legacy default stream.
pub(super) fn legacy_key(context: usize) -> usize {
    context | 1
}
