//! Streams as the C API uses them.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::OnceLock;

use xsched_core::{Runtime, XQueue};
use xsched_vendor::functions;

use super::api::Api;
use super::hot;
use super::types::*;
use crate::interpose::resolve;
use crate::platform::shared::hal::{HardwareQueue, StreamDriver, StreamQueue};
use crate::platform::shared::{Handle, Stream, StreamKind, search_beside};

/// CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING.
const EVENT_FLAGS: c_uint = 3;
/// CU_STREAM_WAIT_VALUE_EQ.
const WAIT_EQUAL: c_uint = 1;
/// Function that identifies the copy of the driver, and belongs to it.
const SYNCHRONIZE: &CStr = c"cuStreamSynchronize";

functions! {
    /// Functions of the driver that only the C API needs, signatures as in cuda.h.
    struct Functions -> CUresult;
    needed {
        synchronize: c"cuStreamSynchronize" (CUstream);
        query: c"cuStreamQuery" (CUstream);
        event_create: c"cuEventCreate" (*mut CUevent, c_uint);
        event_record: c"cuEventRecord" (CUevent, CUstream);
        event_synchronize: c"cuEventSynchronize" (CUevent);
        event_query: c"cuEventQuery" (CUevent);
        event_destroy: c"cuEventDestroy_v2" (CUevent);
    }
}

static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();

/// Functions of the driver, once [`queue`] has found them. A process has one driver, so there is one set.
fn functions() -> Option<&'static Functions> {
    FUNCTIONS.get().and_then(Option::as_ref)
}

/// A stream as seen by the calling thread; `None` if there is no driver in the process, no such stream, or no context.
pub(crate) fn queue(stream: *mut c_void) -> Option<Arc<dyn HardwareQueue>> {
    let real = resolve::in_process(SYNCHRONIZE);
    // SAFETY: the driver's functions have cuda.h's signatures.
    let found = || unsafe { Functions::load(search_beside(real.addr())) }.ok();
    if real.is_null() || FUNCTIONS.get_or_init(found).is_none() {
        return None;
    }
    if !resolve::is_preloaded() {
        // Calls that create contexts do not pass through this library.
        hot::several();
    }
    StreamQueue::<Api>::new(real, stream).map(|queue| Arc::new(queue) as Arc<dyn HardwareQueue>)
}

fn succeeds(call: impl FnOnce(&Functions) -> CUresult) -> bool {
    functions().is_some_and(|functions| call(functions) == SUCCESS)
}

impl StreamDriver for Api {
    /// Handle of a context.
    type Place = usize;

    fn place_of(&self, handle: Handle) -> Option<usize> {
        let mut context = self.context();
        if handle.which == StreamKind::Own {
            // SAFETY: the application's stream; pointer to a local. The driver checks whether the stream exists.
            if unsafe { (self.stream_context)(handle.stream, &mut context) } != SUCCESS {
                return None;
            }
        }
        (!context.is_null()).then(|| context.addr())
    }

    fn within(&self, place: usize, part: &mut dyn FnMut()) {
        if self.context().addr() == place {
            return part();
        }
        let mut popped = std::ptr::null_mut();
        // SAFETY: the context of the application's stream, which lives; pointer to a local.
        unsafe {
            let pushed = (self.ctx_push)(place as CUcontext) == SUCCESS;
            part();
            if pushed {
                (self.ctx_pop)(&mut popped);
            }
        }
    }

    fn new_event(&self) -> Option<usize> {
        let mut event = std::ptr::null_mut();
        // SAFETY: pointer to a local.
        succeeds(|f| unsafe { (f.event_create)(&mut event, EVENT_FLAGS) }).then(|| event.addr())
    }

    fn record(&self, event: usize, stream: Stream) -> bool {
        // SAFETY: our own event, the application's stream.
        succeeds(|f| unsafe { (f.event_record)(event as CUevent, stream) })
    }

    fn wait_for(&self, event: usize) -> bool {
        // SAFETY: our own event, alive until the last mark is dropped.
        succeeds(|f| unsafe { (f.event_synchronize)(event as CUevent) })
    }

    fn has_come(&self, event: usize) -> bool {
        // SAFETY: as above.
        succeeds(|f| unsafe { (f.event_query)(event as CUevent) })
    }

    fn destroy(&self, event: usize) {
        // SAFETY: our own event, destroyed once.
        succeeds(|f| unsafe { (f.event_destroy)(event as CUevent) });
    }

    fn synchronize(&self, stream: Stream) -> bool {
        // SAFETY: the application's stream.
        succeeds(|f| unsafe { (f.synchronize)(stream) })
    }

    fn is_idle(&self, stream: Stream) -> bool {
        // SAFETY: the application's stream.
        succeeds(|f| unsafe { (f.query)(stream) })
    }

    fn own_gate(&self, rt: &Runtime, queue: &XQueue, number: u32) -> bool {
        let slot = queue.slot(rt);
        let (go, reached) = (slot.go.as_ptr() as usize, slot.reached.as_ptr() as usize);
        let (Some(go), Some(reached)) = (self.seen(rt, go), self.seen(rt, reached)) else { return false };
        let stream: CUstream = queue.handle().cast();
        // SAFETY: words of the registered segment; the stream of a queue in use.
        unsafe {
            (self.wait_value)(stream, go, 1, WAIT_EQUAL) == SUCCESS
                && (self.write_value)(stream, reached, number, 0) == SUCCESS
        }
    }
}
