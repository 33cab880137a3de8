//! The hooked functions.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering::*;

use xsched_core::thread::{self, Entered, Inside, Place};
use xsched_core::{Admission, Runtime, Waiting, Work, XQueue};
use xsched_proto::segment::Counter;

use super::api::{self, Api};
use crate::interpose::{hooks, resolve};
use crate::platform::{self, SIM};
use crate::process;

type Stream = *mut c_void;

/// simErrorNoDevice: what a call answers when there is no library behind us.
const MISSING: c_int = 3;
/// simSuccess.
const OK: c_int = 0;

/// Start of simKernel in simdev.h: what kind it is, over how many elements, for how long.
#[repr(C)]
struct KernelHead {
    op: u32,
    count: u32,
    duration_ns: u64,
}

/// Typed pointers to the hooked functions, as simdev.h has them.
#[allow(non_camel_case_types)]
mod sig {
    use super::*;
    pub(super) type simDeviceReset = unsafe extern "C" fn() -> c_int;
    pub(super) type simDeviceSynchronize = unsafe extern "C" fn() -> c_int;
    pub(super) type simEventSynchronize = unsafe extern "C" fn(*mut c_void) -> c_int;
    pub(super) type simFree = unsafe extern "C" fn(*mut c_void) -> c_int;
    pub(super) type simGetProcAddress = unsafe extern "C" fn(*const std::ffi::c_char, *mut *mut c_void) -> c_int;
    pub(super) type simHostFree = unsafe extern "C" fn(*mut c_void) -> c_int;
    pub(super) type simLaunchKernel = unsafe extern "C" fn(*const KernelHead, Stream) -> c_int;
    pub(super) type simMemcpy = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> c_int;
    pub(super) type simMemcpyAsync = unsafe extern "C" fn(*mut c_void, *const c_void, usize, Stream) -> c_int;
    pub(super) type simMemset = unsafe extern "C" fn(*mut c_void, c_int, usize) -> c_int;
    pub(super) type simMemsetAsync = unsafe extern "C" fn(*mut c_void, c_int, usize, Stream) -> c_int;
    pub(super) type simStreamCreate = unsafe extern "C" fn(*mut Stream) -> c_int;
    pub(super) type simStreamCreateWithPriority = unsafe extern "C" fn(*mut Stream, c_int) -> c_int;
    pub(super) type simStreamDestroy = unsafe extern "C" fn(Stream) -> c_int;
    pub(super) type simStreamSynchronize = unsafe extern "C" fn(Stream) -> c_int;
}

macro_rules! real {
    ($name:ident) => {{
        let real = $name::HOOK.real();
        if real.is_null() {
            return MISSING;
        }
        // SAFETY: the address of the real function of this name, whose signature is simdev.h's.
        (real, unsafe { std::mem::transmute::<*mut c_void, sig::$name>(real) })
    }};
}

/// Key of a stream: its handle, or the device for the default stream.
fn key_of(real: *mut c_void, stream: Stream) -> Option<usize> {
    if !stream.is_null() {
        return Some(stream as usize);
    }
    Some(default_key(Api::beside(real)?.device()?))
}

/// Key of a device's default stream. No handle is so small.
fn default_key(device: c_int) -> usize {
    1 + device as usize
}

/// Takes a command into the driver.
#[inline(always)]
fn enqueue(real: *mut c_void, stream: Stream, work: impl FnOnce() -> Work, enter: impl Fn() -> c_int + Copy) -> c_int {
    let place = Place::new();
    let Some(_inside) = Inside::enter(&place, resolve::same_object) else { return enter() };
    let Some(key) = key_of(real, stream) else { return enter() };
    match thread::enter(key) {
        Entered::Fast(counted) => {
            let rc = enter();
            counted.done(rc == OK);
            rc
        }
        entered => {
            #[allow(clippy::redundant_locals)] // A copy: only it has its address taken.
            let enter = enter;
            slow_path(entered, real, stream, key, work(), &enter)
        }
    }
}

#[cold]
#[inline(never)]
fn slow_path(
    entered: Entered,
    real: *mut c_void,
    stream: Stream,
    key: usize,
    work: Work,
    enter: &dyn Fn() -> c_int,
) -> c_int {
    let Some((rt, api, xqueue, counter)) = (match entered {
        Entered::Slow(xqueue, counter) => {
            process::running().zip(Api::beside(real)).map(|(rt, api)| (rt, api, xqueue, counter))
        }
        _ => process::guarded("before a queue's first command", || first_use(real, stream, key)).flatten(),
    }) else {
        return enter();
    };
    let mut admission = Admission::default();
    let admitted = process::guarded("before a command", || {
        xqueue.admit(rt, work, counter, &mut admission);
        if admission.device_gate {
            api.gate(rt, xqueue);
        }
    });
    if admitted.is_none() {
        return enter();
    }
    let rc = if work.blocking { rt.wait_for_some(enter) } else { enter() };
    process::guarded("after a command", || {
        if let Some(fence) = xqueue.commit(rt, &admission, rc == OK, counter)
            && !api.place_fence(rt, xqueue, &fence)
        {
            xqueue.withdraw(&fence);
        }
    });
    rc
}

type Used = (&'static Runtime, &'static Api, &'static XQueue, &'static Counter);

fn first_use(real: *mut c_void, stream: Stream, key: usize) -> Option<Used> {
    if !process::platform_enabled(SIM) {
        return None;
    }
    let (rt, api) = (process::runtime()?, Api::beside(real)?);
    process::watch_thread();
    let xqueue = rt.remember(key, || api.describe(rt, stream))?;
    let counter = rt.counter(xqueue);
    counter.launches.store(counter.launches.load(Relaxed).wrapping_add(1), SeqCst);
    Some((rt, api, xqueue, counter))
}

unsafe extern "C" fn simLaunchKernel(kernel: *const KernelHead, stream: Stream) -> c_int {
    let (real, function) = real!(simLaunchKernel);
    let work = || {
        // SAFETY: null or the caller's own kernel, which the library reads too.
        let key = unsafe { kernel.as_ref() }.map_or(0, |k| 1 | (u64::from(k.op) << 1) ^ (k.duration_ns << 4));
        Work { key, ..Work::default() }
    };
    // SAFETY: the caller's own arguments.
    enqueue(real, stream, work, move || unsafe { function(kernel, stream) })
}

hooks! { SIM, LAUNCHES: Launch; simLaunchKernel }

/// Transfers: key by size, as a power of two.
fn transfer(size: usize, blocking: bool) -> Work {
    Work { key: 0x8000_0000_0000_0001 | (u64::from(size.max(1).ilog2()) << 8), blocking, ..Work::default() }
}

unsafe extern "C" fn simMemcpyAsync(to: *mut c_void, from: *const c_void, size: usize, stream: Stream) -> c_int {
    let (real, function) = real!(simMemcpyAsync);
    // SAFETY: the caller's own arguments.
    enqueue(real, stream, || transfer(size, false), move || unsafe { function(to, from, size, stream) })
}

unsafe extern "C" fn simMemcpy(to: *mut c_void, from: *const c_void, size: usize) -> c_int {
    let (real, function) = real!(simMemcpy);
    // SAFETY: the caller's own arguments.
    enqueue(real, std::ptr::null_mut(), || transfer(size, true), move || unsafe { function(to, from, size) })
}

unsafe extern "C" fn simMemsetAsync(at: *mut c_void, value: c_int, size: usize, stream: Stream) -> c_int {
    let (real, function) = real!(simMemsetAsync);
    // SAFETY: the caller's own arguments.
    enqueue(real, stream, || transfer(size, false), move || unsafe { function(at, value, size, stream) })
}

unsafe extern "C" fn simMemset(at: *mut c_void, value: c_int, size: usize) -> c_int {
    let (real, function) = real!(simMemset);
    // SAFETY: the caller's own arguments.
    enqueue(real, std::ptr::null_mut(), || transfer(size, true), move || unsafe { function(at, value, size) })
}

hooks! { SIM, COPIES: Copy; simMemcpy simMemcpyAsync simMemset simMemsetAsync }

/// The XQueues that a synchronising call waits for.
type Awaited = Vec<(&'static XQueue, Waiting)>;

/// Runs a synchronising call over the queues that `which` selects; all of them are drained if it succeeds.
fn synchronise(which: impl FnOnce(&'static Runtime) -> Vec<&'static XQueue>, call: impl FnOnce() -> c_int) -> c_int {
    let awaited: Option<Awaited> = process::guarded("before a wait", || {
        let Some(rt) = process::running() else { return Vec::new() };
        which(rt).into_iter().map(|q| (q, q.sync_begin(rt))).collect()
    });
    let rc = call();
    if let Some(awaited) = awaited.filter(|a| !a.is_empty()) {
        process::guarded("after a wait", || {
            let Some(rt) = process::running() else { return };
            for (xqueue, waiting) in awaited {
                xqueue.sync_end(rt, waiting, rc == OK);
            }
        });
    }
    rc
}

/// Every queue of the calling thread's device.
fn of_device(rt: &'static Runtime, real: *mut c_void) -> Vec<&'static XQueue> {
    let Some(device) = Api::beside(real).and_then(Api::device) else { return Vec::new() };
    let name = format!("sim:{device}");
    rt.queues().filter(|q| rt.device_of(q.group(rt).index()).is_some_and(|(d, _)| d == name)).collect()
}

unsafe extern "C" fn simStreamSynchronize(stream: Stream) -> c_int {
    let (real, function) = real!(simStreamSynchronize);
    let which = |rt: &'static Runtime| key_of(real, stream).and_then(|key| rt.find(key)).into_iter().collect();
    // SAFETY: the caller's own argument.
    synchronise(which, || unsafe { function(stream) })
}

unsafe extern "C" fn simDeviceSynchronize() -> c_int {
    let (real, function) = real!(simDeviceSynchronize);
    // SAFETY: no arguments.
    synchronise(|rt| of_device(rt, real), || unsafe { function() })
}

/// Frees wait for the whole context.
macro_rules! frees {
    ($list:ident: $class:ident; $($name:ident)*) => {
        $(
            unsafe extern "C" fn $name(at: *mut c_void) -> c_int {
                let (real, function) = real!($name);
                // SAFETY: the caller's own argument.
                synchronise(|rt| of_device(rt, real), || unsafe { function(at) })
            }
        )*
        hooks! { SIM, $list: $class; $($name)* }
    };
}
frees! { FREES: Sync; simFree simHostFree }

/// Puts a fence after what a queue was given, if there is none.
fn place_tail(rt: &'static Runtime, api: &Api, xqueue: &'static XQueue) {
    if let Some(fence) = xqueue.fence_suffix(rt)
        && !api.place_fence(rt, xqueue, &fence)
    {
        xqueue.withdraw(&fence);
    }
}

/// The same before the calling thread blocks. A default stream is that of the thread's own device.
pub(super) fn fence_suffix_of(key: usize) {
    process::guarded("before a thread blocks", || {
        let (rt, api) = (process::running()?, Api::known()?);
        let xqueue = rt.find(key)?;
        let reached = xqueue.handle() != 0 || api.device().is_some_and(|device| key == default_key(device));
        reached.then(|| place_tail(rt, api, xqueue))
    });
}

/// An event may lie anywhere in its stream: its wait only matters for inheritance and says nothing about the rest.
unsafe extern "C" fn simEventSynchronize(event: *mut c_void) -> c_int {
    let (real, function) = real!(simEventSynchronize);
    // SAFETY: the caller's own argument.
    let wait = || unsafe { function(event) };
    if let Some(rt) = process::running().filter(|rt| !rt.is_contended()) {
        return rt.wait_for_some(wait);
    }
    let awaited: Option<Awaited> = process::guarded("before a wait", || {
        let Some(rt) = process::running() else { return Vec::new() };
        of_device(rt, real).into_iter().map(|q| (q, q.sync_begin(rt))).collect()
    });
    let rc = wait();
    process::guarded("after a wait", || {
        let (Some(rt), Some(api)) = (process::running(), Api::beside(real)) else { return };
        for (xqueue, waiting) in awaited.unwrap_or_default() {
            xqueue.sync_end(rt, waiting, false);
            place_tail(rt, api, xqueue);
        }
    });
    rc
}

hooks! { SIM, WAITS: Sync; simStreamSynchronize simDeviceSynchronize simEventSynchronize }

/// A stream was made: register it now, so that rivals know of it before its first command.
fn made(real: *mut c_void, rc: c_int, stream: *mut Stream) -> c_int {
    if rc == OK && !stream.is_null() && process::platform_enabled(SIM) {
        process::guarded("after the creation of a stream", || {
            let rt = process::runtime()?;
            let api = Api::beside(real)?;
            // SAFETY: the library stored a handle there.
            let stream = unsafe { *stream };
            rt.remove_queue(stream as usize);
            rt.queue(stream as usize, || api.describe(rt, stream))
        });
    }
    rc
}

unsafe extern "C" fn simStreamCreate(stream: *mut Stream) -> c_int {
    let (real, function) = real!(simStreamCreate);
    // SAFETY: the caller's own argument.
    made(real, unsafe { function(stream) }, stream)
}

unsafe extern "C" fn simStreamCreateWithPriority(stream: *mut Stream, priority: c_int) -> c_int {
    let (real, function) = real!(simStreamCreateWithPriority);
    // SAFETY: the caller's own arguments.
    made(real, unsafe { function(stream, priority) }, stream)
}

hooks! { SIM, CREATES: Create; simStreamCreate simStreamCreateWithPriority }

unsafe extern "C" fn simStreamDestroy(stream: Stream) -> c_int {
    let (_, function) = real!(simStreamDestroy);
    if !stream.is_null() {
        process::guarded("before the end of a stream", || {
            process::running().map(|rt| rt.remove_queue(stream as usize))
        });
    }
    // SAFETY: the caller's own argument.
    unsafe { function(stream) }
}

unsafe extern "C" fn simDeviceReset() -> c_int {
    let (real, function) = real!(simDeviceReset);
    process::guarded("before a reset", || {
        let rt = process::running()?;
        let device = Api::beside(real)?.device()?;
        for xqueue in of_device(rt, real) {
            rt.remove_queue(xqueue.key());
        }
        api::forget_registration(device);
        Some(())
    });
    // SAFETY: no arguments.
    unsafe { function() }
}

hooks! { SIM, DESTROYS: Destroy; simStreamDestroy simDeviceReset }

unsafe extern "C" fn simGetProcAddress(name: *const std::ffi::c_char, found: *mut *mut c_void) -> c_int {
    let (_, function) = real!(simGetProcAddress);
    // SAFETY: the caller's own arguments.
    let rc = unsafe { function(name, found) };
    if rc == OK && !name.is_null() && !found.is_null() {
        // SAFETY: a C string the library just read, and a pointer it just stored.
        unsafe {
            let hook = platform::hook(std::ffi::CStr::from_ptr(name));
            if let Some(hook) = hook.filter(|_| process::platform_enabled(SIM)) {
                *found = resolve::stub_for(hook, *found);
            }
        }
    }
    rc
}

hooks! { SIM, LOOKUPS: Lookup; simGetProcAddress }
