//! Functions that wait, create, destroy and look up.

use std::collections::HashMap;
use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::sync::MutexGuard;

use xsched_core::{Runtime, XQueue};

use super::api::{self, Api};
use super::types::*;
use super::{path, queue, sig};
use crate::enabled::{OPENCL, platform_enabled};
use crate::interpose::{hooks, resolve};
use crate::lock::Lock;
use crate::platform;
use crate::platform::shared::waits;
use crate::platform::start::runtime;
use crate::process;

/// Queue that each command buffer was recorded for.
static COMMAND_BUFFERS: Lock<HashMap<usize, usize>> = Lock::new();

macro_rules! real {
    ($name:ident, $missing:expr) => {
        real!($name of std::ptr::null_mut(), $missing)
    };
    ($name:ident of $queue:expr, $missing:expr) => {{
        let mut real = $name::real();
        if real.is_null() {
            real = api::stray(&$name::HOOK, $queue);
            if real.is_null() {
                return $missing;
            }
        }
        // SAFETY: the address of the real function of this name.
        (real, unsafe { std::mem::transmute::<*mut c_void, sig::$name>(real) })
    }};
}

unsafe extern "C-unwind" fn clFinish(queue: cl_command_queue) -> cl_int {
    let (_, function) = real!(clFinish of queue, CL_INVALID_OPERATION);
    // Without clean-up while the driver runs, see `pipeline::enqueue`.
    let awaited = ManuallyDrop::new(waits::begin_for(|rt| rt.find(queue as usize)));
    // SAFETY: the caller's own argument.
    let rc = unsafe { function(queue) };
    waits::end(ManuallyDrop::into_inner(awaited), rc == CL_SUCCESS);
    rc
}

unsafe extern "C-unwind" fn clWaitForEvents(count: cl_uint, list: *const cl_event) -> cl_int {
    let (real, function) = real!(clWaitForEvents, CL_INVALID_OPERATION);
    let awaited = ManuallyDrop::new(waits::begin_for(|rt| queues_of(rt, real, count, list)));
    // SAFETY: the caller's own arguments.
    let rc = unsafe { function(count, list) };
    let awaited = ManuallyDrop::into_inner(awaited);
    let queues: Vec<&XQueue> = awaited.iter().map(|(xqueue, _)| *xqueue).collect();
    // Later commands of the queues may still be in flight.
    waits::end(awaited, false);
    if !queues.is_empty() {
        process::guarded("after clWaitForEvents", || {
            let Some(rt) = process::running() else { return };
            queues.into_iter().for_each(|xqueue| path::follow_tail(rt, xqueue));
        });
    }
    rc
}

hooks! { OPENCL, WAITS: Sync; clFinish clWaitForEvents }

/// Queues of the commands behind events, if it matters that a thread waits for them.
fn queues_of(rt: &'static Runtime, real: *mut c_void, count: cl_uint, list: *const cl_event) -> Vec<&'static XQueue> {
    if !rt.is_contended() || list.is_null() {
        return Vec::new();
    }
    let Some(api) = Api::beside(real) else { return Vec::new() };
    let mut found: Vec<&XQueue> = Vec::new();
    // SAFETY: the caller's list, which the driver reads too.
    for event in unsafe { std::slice::from_raw_parts(list, count as usize) } {
        if let Some(xqueue) = path::queue_of(rt, api, *event)
            && !found.iter().any(|q| std::ptr::eq(*q, xqueue))
        {
            found.push(xqueue);
        }
    }
    found
}

/// Registers a new queue at once, so that other programs learn of it before its first command.
fn made(real: *mut c_void, handle: cl_command_queue) -> cl_command_queue {
    if !handle.is_null() && platform_enabled(OPENCL) {
        process::guarded("after the creation of an OpenCL queue", || {
            let rt = runtime()?;
            let api = Api::beside(real)?.for_object(handle);
            // A handle that is known already belongs to a queue that was destroyed without a call here.
            rt.remove_queue(handle as usize);
            references().insert(handle as usize, 1);
            let xqueue = rt.queue(handle as usize, || queue::describe(handle, api))?;
            api::set(xqueue, api);
            Some(())
        });
    }
    handle
}

unsafe extern "C-unwind" fn clCreateCommandQueue(
    context: cl_context,
    device: cl_device_id,
    properties: cl_command_queue_properties,
    error: *mut cl_int,
) -> cl_command_queue {
    let (real, function) = real!(clCreateCommandQueue, missing(error));
    // SAFETY: the caller's own arguments.
    made(real, unsafe { function(context, device, properties, error) })
}

unsafe extern "C-unwind" fn clCreateCommandQueueWithProperties(
    context: cl_context,
    device: cl_device_id,
    properties: *const cl_queue_properties,
    error: *mut cl_int,
) -> cl_command_queue {
    let (real, function) = real!(clCreateCommandQueueWithProperties, missing(error));
    // SAFETY: the caller's own arguments.
    made(real, unsafe { function(context, device, properties, error) })
}

unsafe extern "C-unwind" fn clCreateCommandQueueWithPropertiesKHR(
    context: cl_context,
    device: cl_device_id,
    properties: *const cl_queue_properties_khr,
    error: *mut cl_int,
) -> cl_command_queue {
    let (real, function) = real!(clCreateCommandQueueWithPropertiesKHR, missing(error));
    // SAFETY: the caller's own arguments.
    made(real, unsafe { function(context, device, properties, error) })
}

fn missing<T>(error: *mut cl_int) -> *mut T {
    if !error.is_null() {
        // SAFETY: the caller's own place for an error.
        unsafe { *error = CL_INVALID_OPERATION };
    }
    std::ptr::null_mut()
}

unsafe extern "C-unwind" fn clRetainCommandQueue(queue: cl_command_queue) -> cl_int {
    let (_, function) = real!(clRetainCommandQueue of queue, CL_INVALID_OPERATION);
    // SAFETY: the caller's own argument.
    let rc = unsafe { function(queue) };
    if rc == CL_SUCCESS
        && let Some(count) = references().get_mut(&(queue as usize))
    {
        *count += 1;
    }
    rc
}

unsafe extern "C-unwind" fn clReleaseCommandQueue(queue: cl_command_queue) -> cl_int {
    let (_, function) = real!(clReleaseCommandQueue of queue, CL_INVALID_OPERATION);
    process::guarded("before clReleaseCommandQueue", || {
        let rt = process::running()?;
        let mut references = references();
        let last = match references.get_mut(&(queue as usize)) {
            Some(count) if *count > 1 => {
                *count -= 1;
                false
            }
            _ => true,
        };
        if last {
            // Also if its creation was not seen: should the queue live on, its next command registers it afresh.
            references.remove(&(queue as usize));
            drop(references);
            rt.remove_queue(queue as usize);
        }
        Some(())
    });
    // SAFETY: the caller's own argument.
    unsafe { function(queue) }
}

hooks! { OPENCL, DESTROYS: Destroy; clRetainCommandQueue clReleaseCommandQueue }

static REFERENCES: Lock<HashMap<usize, u32>> = Lock::new();

/// The application's own references to the queues that it created. The driver's count is of no use: it includes the
/// references of events not released yet (PoCL).
fn references() -> MutexGuard<'static, HashMap<usize, u32>> {
    REFERENCES.lock()
}

/// Empties the tables in a forked child, if another thread of the parent held them.
pub(super) fn forget_if_held() {
    COMMAND_BUFFERS.forget_if_held();
    REFERENCES.forget_if_held();
}

unsafe extern "C-unwind" fn clCreateUserEvent(context: cl_context, error: *mut cl_int) -> cl_event {
    let (_, function) = real!(clCreateUserEvent, missing(error));
    // SAFETY: the caller's own arguments.
    let event = unsafe { function(context, error) };
    if !event.is_null() {
        process::guarded("after clCreateUserEvent", || path::user_event_made(event));
    }
    event
}

unsafe extern "C-unwind" fn clSetUserEventStatus(event: cl_event, status: cl_int) -> cl_int {
    let (_, function) = real!(clSetUserEventStatus, CL_INVALID_OPERATION);
    // SAFETY: the caller's own arguments.
    let rc = unsafe { function(event, status) };
    if rc == CL_SUCCESS {
        process::guarded("after clSetUserEventStatus", || path::user_event_set(event));
    }
    rc
}

hooks! { OPENCL, HOST_EVENTS: HostEvent; clCreateUserEvent clSetUserEventStatus }

unsafe extern "C-unwind" fn clCreateCommandBufferKHR(
    count: cl_uint,
    queues: *const cl_command_queue,
    properties: *const cl_command_buffer_properties_khr,
    error: *mut cl_int,
) -> cl_command_buffer_khr {
    let (_, function) = real!(clCreateCommandBufferKHR, missing(error));
    // SAFETY: the caller's own arguments.
    let buffer = unsafe { function(count, queues, properties, error) };
    if !buffer.is_null() && count > 0 && !queues.is_null() {
        // SAFETY: the driver accepted at least one queue.
        let queue = unsafe { *queues };
        COMMAND_BUFFERS.lock().insert(buffer as usize, queue as usize);
    }
    buffer
}

hooks! { OPENCL, CREATES: Create;
    clCreateCommandQueue
    clCreateCommandQueueWithProperties
    clCreateCommandQueueWithPropertiesKHR
    clCreateCommandBufferKHR
}

/// Queue that a command buffer was recorded for, or null.
pub(super) fn queue_of_command_buffer(buffer: cl_command_buffer_khr) -> cl_command_queue {
    COMMAND_BUFFERS.lock().get(&(buffer as usize)).map_or(std::ptr::null_mut(), |q| *q as cl_command_queue)
}

/// Function to return instead of `found`, an extension function that the driver's function `giver` returned.
fn scheduled(name: *const c_char, found: *mut c_void, giver: *mut c_void) -> *mut c_void {
    if name.is_null() || found.is_null() {
        return found;
    }
    // SAFETY: the driver just read this C string.
    let name = unsafe { CStr::from_ptr(name) };
    match platform::hook(name).filter(|hook| platform_enabled(hook.platform)) {
        Some(hook) => resolve::stub_for_given(hook, found, giver),
        None => found,
    }
}

unsafe extern "C-unwind" fn clGetExtensionFunctionAddress(name: *const c_char) -> *mut c_void {
    let (real, function) = real!(clGetExtensionFunctionAddress, std::ptr::null_mut());
    // SAFETY: the caller's own argument.
    scheduled(name, unsafe { function(name) }, real)
}

unsafe extern "C-unwind" fn clGetExtensionFunctionAddressForPlatform(
    platform: cl_platform_id,
    name: *const c_char,
) -> *mut c_void {
    let (real, function) = real!(clGetExtensionFunctionAddressForPlatform, std::ptr::null_mut());
    // SAFETY: the caller's own arguments.
    scheduled(name, unsafe { function(platform, name) }, real)
}

hooks! { OPENCL, LOOKUPS: Lookup; clGetExtensionFunctionAddress clGetExtensionFunctionAddressForPlatform }
