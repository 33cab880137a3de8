//! Streams as the C API uses them.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use super::api::Api;
use crate::interpose::resolve;
use crate::platform::shared::Driver;
use crate::platform::shared::hal::HardwareQueue;
use crate::platform::shared::stream_queue::StreamQueue;

/// Function that identifies the copy of the runtime, and belongs to it.
const SYNCHRONIZE: &CStr = c"hipStreamSynchronize";

/// A stream as seen by the calling thread, of the first copy of the runtime in the process; `None` if there is no
/// runtime, no such stream, or no device.
pub(crate) fn queue(stream: *mut c_void) -> Option<Arc<dyn HardwareQueue>> {
    let real = resolve::in_process(SYNCHRONIZE);
    if real.is_null() {
        return None;
    }
    let api = Api::beside(real)?;
    if !api.has_events(real) {
        return None;
    }
    StreamQueue::<Api>::new(real, stream).map(|queue| Arc::new(queue) as Arc<dyn HardwareQueue>)
}
