//! The vendor functions that we call ourselves, from the same copy of the library that the application calls.

use std::ffi::CStr;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use xsched_core::XQueue;
use xsched_proto::segment::QUEUES;

use super::sig;
use super::types::*;
use crate::interpose::{Hook, resolve};
use crate::lock::Lock;
use crate::process;

/// Functions of one copy of the OpenCL library.
pub(super) struct Api {
    /// One of the copy's functions.
    address: usize,
    flush: sig::clFlush,
    retain_queue: sig::clRetainCommandQueue,
    release_queue: sig::clReleaseCommandQueue,
    pub(super) queue_info: sig::clGetCommandQueueInfo,
    pub(super) device_info: sig::clGetDeviceInfo,
    pub(super) event_info: sig::clGetEventInfo,
    pub(super) set_event_callback: sig::clSetEventCallback,
    pub(super) release_event: sig::clReleaseEvent,
    /// Since OpenCL 1.2.
    pub(super) marker: Option<sig::clEnqueueMarkerWithWaitList>,
}

/// By the load address of the library; none for one that lacks what we need.
static KNOWN: Lock<Vec<(usize, Option<&'static Api>)>> = Lock::new();
/// By the slot of the XQueue.
static OF_QUEUE: [AtomicPtr<Api>; QUEUES] = [const { AtomicPtr::new(std::ptr::null_mut()) }; QUEUES];

impl Api {
    /// The functions beside `real`, a function of the copy in use.
    pub(super) fn beside(real: *mut c_void) -> Option<&'static Api> {
        let (base, _) = resolve::object_of(real as usize)?;
        if let Some((_, api)) = known().iter().find(|(b, _)| *b == base) {
            return *api;
        }
        // Asked without a lock of ours, see `resolve`. Should two threads come here, both get the same functions.
        let loaded = Api::load(real as usize);
        if loaded.is_some() {
            // Completions may arrive, and queues be flushed, when the application has closed it.
            resolve::keep(real as usize);
        }
        let mut known = known();
        // Extension functions lie in a vendor's driver that exports no others; handles carry their own dispatch
        // table, so that any loader's functions serve them.
        let api = match loaded {
            Some(api) => Some(&*Box::leak(Box::new(api))),
            None => known.iter().find_map(|(_, api)| *api),
        };
        known.push((base, api));
        api
    }

    fn load(address: usize) -> Option<Api> {
        // SAFETY: each symbol has the OpenCL API's signature of its name.
        unsafe {
            Some(Api {
                address,
                flush: find(address, c"clFlush").map(|p| std::mem::transmute::<*mut c_void, sig::clFlush>(p))?,
                retain_queue: find(address, c"clRetainCommandQueue")
                    .map(|p| std::mem::transmute::<*mut c_void, sig::clRetainCommandQueue>(p))?,
                release_queue: find(address, c"clReleaseCommandQueue")
                    .map(|p| std::mem::transmute::<*mut c_void, sig::clReleaseCommandQueue>(p))?,
                queue_info: find(address, c"clGetCommandQueueInfo")
                    .map(|p| std::mem::transmute::<*mut c_void, sig::clGetCommandQueueInfo>(p))?,
                device_info: find(address, c"clGetDeviceInfo")
                    .map(|p| std::mem::transmute::<*mut c_void, sig::clGetDeviceInfo>(p))?,
                event_info: find(address, c"clGetEventInfo")
                    .map(|p| std::mem::transmute::<*mut c_void, sig::clGetEventInfo>(p))?,
                set_event_callback: find(address, c"clSetEventCallback")
                    .map(|p| std::mem::transmute::<*mut c_void, sig::clSetEventCallback>(p))?,
                release_event: find(address, c"clReleaseEvent")
                    .map(|p| std::mem::transmute::<*mut c_void, sig::clReleaseEvent>(p))?,
                marker: find(address, c"clEnqueueMarkerWithWaitList")
                    .map(|p| std::mem::transmute::<*mut c_void, sig::clEnqueueMarkerWithWaitList>(p)),
            })
        }
    }
}

fn find(address: usize, name: &CStr) -> Option<*mut c_void> {
    let mut own = resolve::in_scope_of(address, name);
    if own.is_null() {
        // Another preloaded library wraps the function in use and need not be linked against what it wraps.
        own = resolve::next(name);
    }
    (!own.is_null()).then_some(own)
}

fn known() -> MutexGuard<'static, Vec<(usize, Option<&'static Api>)>> {
    KNOWN.lock()
}

/// In a forked child.
pub(super) fn forget_if_held() {
    KNOWN.forget_if_held();
}

/// The function for a call from where its name means nothing, through a pointer that was taken elsewhere: where there
/// are several, that of the copy that the queue came from, or else the first.
#[cold]
#[inline(never)]
pub(super) fn stray(hook: &'static Hook, queue: cl_command_queue) -> *mut c_void {
    resolve::keeping_errno(|| {
        resolve::anywhere(hook, |first| {
            let known = process::running().and_then(|rt| of(rt.find(queue as usize)?));
            let own = known.map_or(std::ptr::null_mut(), |api| resolve::in_scope_of(api.address, hook.name));
            if own.is_null() { first } else { own }
        })
    })
}

/// Remembers which copy a queue belongs to.
pub(super) fn set(queue: &XQueue, api: &'static Api) {
    OF_QUEUE[usize::from(queue.index())].store(std::ptr::from_ref(api).cast_mut(), Release);
}

/// The functions for a queue.
pub(super) fn of(queue: &XQueue) -> Option<&'static Api> {
    // SAFETY: only ever set to leaked boxes.
    unsafe { OF_QUEUE[usize::from(queue.index())].load(Acquire).as_ref() }
}

/// A reference of ours to a queue, released on drop.
pub(super) struct Pinned {
    api: &'static Api,
    queue: usize,
}

impl Api {
    /// Keeps a living queue alive.
    pub(super) fn pin(&'static self, queue: &XQueue) -> Option<Pinned> {
        let handle = queue.handle();
        // SAFETY: the caller knows that the queue is alive.
        let rc = unsafe { (self.retain_queue)(handle as cl_command_queue) };
        (rc == CL_SUCCESS).then_some(Pinned { api: self, queue: handle })
    }
}

impl Pinned {
    /// Makes what was enqueued begin.
    pub(super) fn flush(&self) {
        // SAFETY: kept alive by our reference.
        unsafe { (self.api.flush)(self.queue as cl_command_queue) };
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: our own reference, released once.
        unsafe { (self.api.release_queue)(self.queue as cl_command_queue) };
    }
}
