//! Records of events, and waits for events in streams.

use crate::edge::Null;
use crate::event::find;
use crate::op::Op;
use crate::result::{Error, Result};
use crate::stream;
use std::ffi::c_uint;
use std::sync::Arc;
use xsched_sim::client::lock;

/// CU_EVENT_RECORD_EXTERNAL, CU_EVENT_WAIT_EXTERNAL: in a capture, creates a node instead of a dependency.
const EXTERNAL: c_uint = 1;

pub(crate) fn record(null: Null, handle: usize, stream: usize) -> Result<()> {
    record_with_flags(null, handle, stream, 0)
}

pub(crate) fn record_with_flags(null: Null, handle: usize, stream: usize, flags: c_uint) -> Result<()> {
    let (event, stream) = (find(handle)?, stream::find(null, stream)?);
    if !Arc::ptr_eq(&event.context()?, &stream.context()?) {
        return Err(Error::INVALID_HANDLE);
    }
    if flags & EXTERNAL == 0
        && let Some(capture) = stream.capture()
    {
        let nodes = capture.front(stream.id)?;
        *lock(&event.captured) = Some((capture, nodes));
        return Ok(());
    }
    if stream.capture().is_none() {
        *lock(&event.captured) = None;
    }
    stream.issue(Op::Record(event)).map(drop)
}

pub(crate) fn wait(null: Null, stream: usize, handle: usize, flags: c_uint) -> Result<()> {
    let (event, stream) = (find(handle)?, stream::find(null, stream)?);
    if flags & EXTERNAL != 0 {
        return stream.issue(Op::Wait(event)).map(drop);
    }
    let captured = lock(&event.captured).clone();
    match (stream.capture(), captured) {
        (None, None) => stream.issue(Op::Wait(event)).map(drop),
        (Some(capture), None) => {
            // An event that was never recorded is not waited for.
            if !event.is_recorded()? {
                return Ok(());
            }
            capture.invalidate();
            Err(Error::STREAM_CAPTURE_ISOLATION)
        }
        (own, Some((capture, nodes))) => stream.join(own, &capture, &nodes),
    }
}
