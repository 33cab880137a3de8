//! Vendor functions that this library calls itself, from the copy of the library that the application calls.

use std::ffi::CStr;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use xsched_core::XQueue;
use xsched_proto::segment::QUEUES;
use xsched_vendor::functions;

use super::dispatch::{Entry, Table};
use super::sig;
use super::types::*;
use crate::interpose::{Hook, resolve};
use crate::lock::Lock;
use crate::process;

functions! {
    /// Functions of one copy of the OpenCL library, or as many of them as one platform behind it implements.
    #[derive(Clone, Copy)]
    pub(super) struct Functions -> ();
    optional {
        flush: c"clFlush" [sig::clFlush];
        retain_queue: c"clRetainCommandQueue" [sig::clRetainCommandQueue];
        release_queue: c"clReleaseCommandQueue" [sig::clReleaseCommandQueue];
        queue_info: c"clGetCommandQueueInfo" [sig::clGetCommandQueueInfo];
        device_info: c"clGetDeviceInfo" [sig::clGetDeviceInfo];
        context_info: c"clGetContextInfo" [sig::clGetContextInfo];
        event_info: c"clGetEventInfo" [sig::clGetEventInfo];
        /// Since OpenCL 1.1.
        set_event_callback: c"clSetEventCallback" [sig::clSetEventCallback];
        /// Since OpenCL 1.1.
        set_destructor: c"clSetMemObjectDestructorCallback" [sig::clSetMemObjectDestructorCallback];
        release_event: c"clReleaseEvent" [sig::clReleaseEvent];
        /// Since OpenCL 1.2.
        marker: c"clEnqueueMarkerWithWaitList" [sig::clEnqueueMarkerWithWaitList];
    }
}

/// A copy of the OpenCL library, or of one platform behind it.
#[derive(Clone, Copy)]
pub(super) struct Api {
    /// Address of one of the copy's functions.
    address: usize,
    /// The platform's table; `None` for the copy itself.
    table: Option<Table>,
    pub(super) functions: Functions,
}

/// Copies by the load address of the library; `None` for one that lacks a needed function.
static KNOWN: Lock<Vec<(usize, Option<&'static Api>)>> = Lock::new();
/// Functions that a copy has for the objects of a platform, one entry for each pair seen so far.
static OF_PLATFORM: Lock<Vec<&'static Api>> = Lock::new();
/// Functions for each queue, by the slot of its XQueue.
static OF_QUEUE: [AtomicPtr<Api>; QUEUES] = [const { AtomicPtr::new(std::ptr::null_mut()) }; QUEUES];

impl Api {
    /// The functions beside `real`, a function of the copy in use.
    pub(super) fn beside(real: *mut c_void) -> Option<&'static Api> {
        let (base, _) = resolve::object_of(real as usize)?;
        if let Some((_, api)) = known().iter().find(|(b, _)| *b == base) {
            return *api;
        }
        // Without our lock, see `resolve`. Should two threads get here, both find the same functions.
        let loaded = Api::load(real as usize);
        if loaded.is_some() {
            // Keeps the library loaded: completions may arrive, and this library flush queues, after the application has
            // closed it.
            resolve::keep(real as usize);
        }
        let mut known = known();
        // Extension functions lie in a vendor's driver that exports no others. Handles carry their own dispatch table,
        // so the functions of any loader serve them.
        let api = match loaded {
            Some(api) => Some(&*Box::leak(Box::new(api))),
            None => known.iter().find_map(|(_, api)| *api),
        };
        known.push((base, api));
        api
    }

    fn load(address: usize) -> Option<Api> {
        // SAFETY: the library's functions have the OpenCL API's signatures.
        let functions = unsafe { Functions::load(|name| find(address, name)) }.ok()?;
        // A file without this function is no library to call, but perhaps a driver behind one.
        functions.queue_info?;
        Some(Api { address, table: None, functions })
    }

    /// The functions that exist for an object: a loader has all of them, the platform behind it perhaps not. To be
    /// called when an object is first seen, not for each call.
    pub(super) fn for_object(&'static self, handle: *mut c_void) -> &'static Api {
        let Some(table) = Table::of(handle).filter(|table| self.table != Some(*table)) else { return self };
        let met = || of_platform().iter().find(|api| api.address == self.address && api.table == Some(table)).copied();
        if let Some(api) = met() {
            return api;
        }
        // Without our lock, as above.
        let own = Box::new(self.implemented_by(table));
        let mut platforms = of_platform();
        let own = &*Box::leak(own);
        platforms.push(own);
        own
    }

    fn implemented_by(&self, table: Table) -> Api {
        let has = |entry| table.has(entry);
        let all = &self.functions;
        let functions = Functions {
            flush: all.flush.filter(|_| has(Entry::Flush)),
            retain_queue: all.retain_queue.filter(|_| has(Entry::RetainQueue)),
            release_queue: all.release_queue.filter(|_| has(Entry::ReleaseQueue)),
            queue_info: all.queue_info.filter(|_| has(Entry::QueueInfo)),
            device_info: all.device_info.filter(|_| has(Entry::DeviceInfo)),
            context_info: all.context_info.filter(|_| has(Entry::ContextInfo)),
            event_info: all.event_info.filter(|_| has(Entry::EventInfo)),
            set_event_callback: all.set_event_callback.filter(|_| has(Entry::SetEventCallback)),
            set_destructor: all.set_destructor.filter(|_| has(Entry::SetDestructor)),
            release_event: all.release_event.filter(|_| has(Entry::ReleaseEvent)),
            marker: all.marker.filter(|_| has(Entry::MarkerWithWaitList)),
        };
        Api { address: self.address, table: Some(table), functions }
    }

    /// Reports whether the completion of commands can be observed, by a callback for an event that is released
    /// afterwards. Without it a queue has host gates only: no budget limits it, and it counts as idle after a
    /// `clFinish` or a while without commands.
    pub(super) fn reports_completion(&self) -> bool {
        self.functions.set_event_callback.is_some() && self.functions.release_event.is_some()
    }
}

fn of_platform() -> MutexGuard<'static, Vec<&'static Api>> {
    OF_PLATFORM.lock()
}

fn find(address: usize, name: &CStr) -> *mut c_void {
    let mut own = resolve::in_scope_of(address, name);
    if own.is_null() {
        // Another preloaded library may wrap the function in use, and need not be linked against the library that it
        // wraps.
        own = resolve::next(name);
    }
    own
}

fn known() -> MutexGuard<'static, Vec<(usize, Option<&'static Api>)>> {
    KNOWN.lock()
}

/// Empties the tables in a forked child, if another thread of the parent held them.
pub(super) fn forget_if_held() {
    KNOWN.forget_if_held();
    OF_PLATFORM.forget_if_held();
}

/// Function for a call from an object that does not define the name, made through a pointer obtained elsewhere. Of
/// several copies, that of the copy that the queue came from, or else the first.
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

/// Records the functions for a queue.
pub(super) fn set(queue: &XQueue, api: &'static Api) {
    queue.set_reports_completion(api.reports_completion());
    OF_QUEUE[usize::from(queue.index())].store(std::ptr::from_ref(api).cast_mut(), Release);
}

/// The functions recorded for a queue.
pub(super) fn of(queue: &XQueue) -> Option<&'static Api> {
    // SAFETY: only ever set to leaked boxes.
    unsafe { OF_QUEUE[usize::from(queue.index())].load(Acquire).as_ref() }
}

/// A reference of ours to a queue, released on drop.
pub(super) struct Pinned {
    flush: Option<sig::clFlush>,
    release: sig::clReleaseCommandQueue,
    queue: cl_command_queue,
}

impl Api {
    /// Keeps a living queue alive by a reference of ours.
    pub(super) fn pin(&self, queue: &XQueue) -> Option<Pinned> {
        let handle: cl_command_queue = queue.handle().cast();
        let (retain, release) = (self.functions.retain_queue?, self.functions.release_queue?);
        // SAFETY: the caller knows that the queue is alive.
        let rc = unsafe { retain(handle) };
        // Built only if the reference was taken, since its end releases it.
        (rc == CL_SUCCESS).then(|| Pinned { flush: self.functions.flush, release, queue: handle })
    }
}

impl Pinned {
    /// Makes all enqueued commands begin.
    pub(super) fn flush(&self) {
        if let Some(flush) = self.flush {
            // SAFETY: kept alive by our reference.
            unsafe { flush(self.queue) };
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: our own reference, released once.
        unsafe { (self.release)(self.queue) };
    }
}
