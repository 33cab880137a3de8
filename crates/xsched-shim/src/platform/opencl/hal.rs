//! Command queues as the C API uses them.

use std::ffi::CStr;
use std::sync::Arc;

use xsched_core::{Runtime, XQueue};
use xsched_vendor::functions;

use super::api::{self, Api};
use super::path::{self, Call};
use super::queue::{self, info};
use super::sig;
use super::types::*;
use crate::enabled::{OPENCL, platform_enabled};
use crate::interpose::resolve;
use crate::lock::Lock;
use crate::platform::shared::hal::{HardwareQueue, Mark, PassingHolds, call_is_ours};
use crate::platform::shared::search_beside;

/// Function that identifies the copy of the library, and belongs to it.
const FINISH: &CStr = c"clFinish";

functions! {
    /// Functions of a copy of the library that only the C API needs.
    #[derive(Clone, Copy)]
    struct Functions -> ();
    needed {
        finish: c"clFinish" [sig::clFinish];
        flush: c"clFlush" [sig::clFlush];
        wait: c"clWaitForEvents" [sig::clWaitForEvents];
        marker: c"clEnqueueMarkerWithWaitList" [sig::clEnqueueMarkerWithWaitList];
        event_info: c"clGetEventInfo" [sig::clGetEventInfo];
        release_event: c"clReleaseEvent" [sig::clReleaseEvent];
    }
}

/// A command queue.
struct Queue {
    real: usize,
    handle: usize,
    api: &'static Api,
    functions: Functions,
    /// Marker that was enqueued to find out whether the queue is idle, and the number of launches before it.
    asked: Lock<Option<(u64, Arc<Marker>)>>,
}

/// A command queue, with the functions of the first copy of the library in the process: objects carry their own
/// dispatch tables. `None` if there is no library, or no such queue.
pub(crate) fn hardware_queue(handle: *mut c_void) -> Option<Arc<dyn HardwareQueue>> {
    let real = resolve::in_process(FINISH);
    if handle.is_null() || real.is_null() {
        return None;
    }
    let api = Api::beside(real)?.for_object(handle);
    queue::describe(handle.cast(), api)?;
    // SAFETY: the library's functions have the OpenCL API's signatures.
    let functions = unsafe { Functions::load(search_beside(real.addr())) }.ok()?;
    Some(Arc::new(Queue { real: real.addr(), handle: handle.addr(), api, functions, asked: Lock::new() }))
}

impl Queue {
    fn handle(&self) -> cl_command_queue {
        self.handle as cl_command_queue
    }

    fn marker(&self) -> Option<Arc<Marker>> {
        let mut event: cl_event = std::ptr::null_mut();
        // SAFETY: the application's queue, no wait list, a local for the event; what is marked must begin.
        let taken = unsafe {
            (self.functions.marker)(self.handle(), 0, std::ptr::null(), &mut event) == CL_SUCCESS
                && (self.functions.flush)(self.handle()) == CL_SUCCESS
        };
        taken.then(|| Arc::new(Marker { functions: self.functions, event: event as usize }))
    }
}

impl HardwareQueue for Queue {
    fn key(&self) -> usize {
        self.handle
    }

    fn xqueue(&self, rt: &'static Runtime) -> Option<&'static XQueue> {
        if !platform_enabled(OPENCL) {
            return None;
        }
        if let Some(known) = rt.find(self.handle) {
            return Some(known);
        }
        let made = rt.make_queue(self.handle, || queue::describe(self.handle(), self.api))?;
        api::set(made, self.api);
        Some(made)
    }

    fn within(&self, part: &mut dyn FnMut()) {
        part();
    }

    fn launch(&self, kind: *const c_void, enter: &dyn Fn() -> cl_int) -> cl_int {
        let _passing = PassingHolds::begin();
        call_is_ours();
        let describe = || {
            let nothing = (0, std::ptr::null());
            Call::new(self.real as *mut c_void, path::key(kind.addr(), &[]), false, nothing).without_event()
        };
        path::enqueue(self.handle(), std::ptr::null_mut(), |_| enter(), describe)
    }

    fn mark(&self) -> Option<Arc<dyn Mark>> {
        self.marker().map(|marker| marker as Arc<dyn Mark>)
    }

    fn synchronize(&self) -> bool {
        // SAFETY: the application's queue.
        unsafe { (self.functions.finish)(self.handle()) == CL_SUCCESS }
    }

    /// Reports whether the queue is idle. Only a marker shows it, and a marker takes a moment even on an idle queue:
    /// the first call enqueues one and answers no, later calls report whether it was reached.
    fn is_idle(&self) -> bool {
        let launches = crate::process::running().map_or(0, |rt| rt.find(self.handle).map_or(0, |q| q.launches(rt)));
        let mut asked = self.asked.lock();
        if asked.as_ref().is_none_or(|(before, _)| *before != launches) {
            *asked = self.marker().map(|marker| (launches, marker));
        }
        asked.as_ref().is_some_and(|(_, marker)| marker.is_reached())
    }
}

struct Marker {
    functions: Functions,
    event: usize,
}

impl Mark for Marker {
    fn wait(&self) -> bool {
        let event = self.event as cl_event;
        // SAFETY: our own reference to the event.
        unsafe { (self.functions.wait)(1, &event) == CL_SUCCESS }
    }

    fn is_reached(&self) -> bool {
        let status: Option<cl_int> = info(|size, at, got| {
            // SAFETY: our own reference; pointers to a local.
            unsafe {
                (self.functions.event_info)(self.event as cl_event, CL_EVENT_COMMAND_EXECUTION_STATUS, size, at, got)
            }
        });
        // A command that ended with an error has a negative status, and has ended too.
        status.is_some_and(|status| status <= CL_COMPLETE)
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        // SAFETY: our own reference, released once.
        unsafe { (self.functions.release_event)(self.event as cl_event) };
    }
}
