//! Streams as the C API uses them.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use super::api::Api;
use super::{hot, stream_driver};
use crate::interpose::resolve;
use crate::platform::shared::hal::HardwareQueue;
use crate::platform::shared::stream_queue::StreamQueue;

/// Function that identifies the copy of the driver, and belongs to it.
const SYNCHRONIZE: &CStr = c"cuStreamSynchronize";

/// A stream as seen by the calling thread; `None` if there is no driver in the process, no such stream, or no context.
pub(crate) fn queue(stream: *mut c_void) -> Option<Arc<dyn HardwareQueue>> {
    let real = resolve::in_process(SYNCHRONIZE);
    if real.is_null() || !stream_driver::find(real) {
        return None;
    }
    if !resolve::is_preloaded() {
        // Calls that create contexts do not pass through this library.
        hot::several();
    }
    StreamQueue::<Api>::new(real, stream).map(|queue| Arc::new(queue) as Arc<dyn HardwareQueue>)
}
