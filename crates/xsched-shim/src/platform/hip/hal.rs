//! Streams as the C API uses them.

use std::ffi::CStr;
use std::sync::Arc;

use xsched_core::{Runtime, XQueue};
use xsched_vendor::functions;

use super::api::Api;
use super::types::*;
use crate::interpose::resolve;
use crate::lock::Lock;
use crate::platform::shared::hal::{HardwareQueue, StreamDriver, StreamQueue};
use crate::platform::shared::{Handle, Stream, search_beside};

/// hipEventBlockingSync | hipEventDisableTiming.
const EVENT_FLAGS: c_uint = 3;
/// hipStreamWaitValueEq.
const WAIT_EQUAL: c_uint = 1;
/// Function that identifies the copy of the runtime, and belongs to it.
const SYNCHRONIZE: &CStr = c"hipStreamSynchronize";

functions! {
    /// Functions of a copy of the runtime that only the C API needs, with signatures as in the header.
    #[derive(Clone, Copy)]
    struct Functions -> hipError_t;
    needed {
        synchronize: c"hipStreamSynchronize" (hipStream_t);
        query: c"hipStreamQuery" (hipStream_t);
        set_device: c"hipSetDevice" (c_int);
        event_create: c"hipEventCreateWithFlags" (*mut hipEvent_t, c_uint);
        event_record: c"hipEventRecord" (hipEvent_t, hipStream_t);
        event_synchronize: c"hipEventSynchronize" (hipEvent_t);
        event_query: c"hipEventQuery" (hipEvent_t);
        event_destroy: c"hipEventDestroy" (hipEvent_t);
    }
}

/// Functions of each copy, by the copy's number.
static FUNCTIONS: Lock<Vec<(usize, Functions)>> = Lock::new();

/// A stream as seen by the calling thread, of the first copy of the runtime in the process; `None` if there is no
/// runtime, no such stream, or no device.
pub(crate) fn queue(stream: *mut c_void) -> Option<Arc<dyn HardwareQueue>> {
    let real = resolve::in_process(SYNCHRONIZE);
    if real.is_null() {
        return None;
    }
    let api = <Api as crate::platform::shared::Driver>::beside(real)?;
    if !FUNCTIONS.lock().iter().any(|(index, _)| *index == api.index) {
        // SAFETY: the runtime's functions have the header's signatures.
        let functions = unsafe { Functions::load(search_beside(real.addr())) }.ok()?;
        FUNCTIONS.lock().push((api.index, functions));
    }
    StreamQueue::<Api>::new(real, stream).map(|queue| Arc::new(queue) as Arc<dyn HardwareQueue>)
}

impl Api {
    /// Reports whether a call of one of [`Functions`] succeeds. The application's hipGetLastError does not show a
    /// failure.
    fn succeeds(&self, call: impl FnOnce(&Functions) -> hipError_t) -> bool {
        let functions = FUNCTIONS.lock().iter().find(|(index, _)| *index == self.index).map(|(_, f)| *f);
        functions.is_some_and(|functions| self.quietly(|| call(&functions)))
    }
}

impl StreamDriver for Api {
    /// Number of a device.
    type Place = c_int;

    fn place_of(&self, handle: Handle) -> Option<c_int> {
        self.device_of(handle)
    }

    fn within(&self, place: c_int, part: &mut dyn FnMut()) {
        let before = self.device();
        if before == Some(place) {
            return part();
        }
        // SAFETY: plain numbers of devices that there are.
        let changed = self.succeeds(|f| unsafe { (f.set_device)(place) });
        part();
        if let Some(before) = before.filter(|_| changed) {
            // SAFETY: as above.
            self.succeeds(|f| unsafe { (f.set_device)(before) });
        }
    }

    fn new_event(&self) -> Option<usize> {
        let mut event = std::ptr::null_mut();
        // SAFETY: pointer to a local.
        self.succeeds(|f| unsafe { (f.event_create)(&mut event, EVENT_FLAGS) }).then(|| event.addr())
    }

    fn record(&self, event: usize, stream: Stream) -> bool {
        // SAFETY: our own event, the application's stream.
        self.succeeds(|f| unsafe { (f.event_record)(event as hipEvent_t, stream) })
    }

    fn wait_for(&self, event: usize) -> bool {
        // SAFETY: our own event, alive until the last mark is dropped.
        self.succeeds(|f| unsafe { (f.event_synchronize)(event as hipEvent_t) })
    }

    fn has_come(&self, event: usize) -> bool {
        // SAFETY: as above.
        self.succeeds(|f| unsafe { (f.event_query)(event as hipEvent_t) })
    }

    fn destroy(&self, event: usize) {
        // SAFETY: our own event, destroyed once.
        self.succeeds(|f| unsafe { (f.event_destroy)(event as hipEvent_t) });
    }

    fn synchronize(&self, stream: Stream) -> bool {
        // SAFETY: the application's stream.
        self.succeeds(|f| unsafe { (f.synchronize)(stream) })
    }

    fn is_idle(&self, stream: Stream) -> bool {
        // SAFETY: the application's stream.
        self.succeeds(|f| unsafe { (f.query)(stream) })
    }

    fn own_gate(&self, rt: &Runtime, queue: &XQueue, number: u32) -> bool {
        let slot = queue.slot(rt);
        let (go, reached) = (slot.go.as_ptr() as usize, slot.reached.as_ptr() as usize);
        let (Some(go), Some(reached)) = (self.seen(rt, go), self.seen(rt, reached)) else { return false };
        let (Some(wait), Some(write)) = (self.functions.wait_value, self.functions.write_value) else { return false };
        let stream: hipStream_t = queue.handle().cast();
        // SAFETY: words of the registered segment; the stream of a queue in use.
        self.quietly(|| unsafe { wait(stream, go, 1, WAIT_EQUAL, u32::MAX) })
            // SAFETY: as above.
            && self.quietly(|| unsafe { write(stream, reached, number, 0) })
    }
}
