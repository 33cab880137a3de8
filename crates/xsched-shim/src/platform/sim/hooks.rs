//! The hooked functions of the simulated device.

use std::ffi::{c_int, c_uint, c_void};

use xsched_core::Work;

use super::api::{self, Api};
use crate::enabled::{SIM, platform_enabled};
use crate::interpose::{hooks, resolve};
use crate::platform;
use crate::platform::shared::path::{enqueue, join, order};
use crate::platform::shared::waits::{context_call, event_call, stream_call, stream_question};
use crate::platform::shared::{Driver, SUCCESS, Stream, StreamKind, lifetime, real};
use crate::platform::start::runtime;
use crate::process;

/// simErrorNoDevice: result of a call if there is no library behind us.
const NOT_INITIALIZED: c_int = 3;
/// Kind of the null stream: the default stream of the thread's device, with which other streams do not synchronise.
const NULL: StreamKind = StreamKind::Own;
const NO_STREAM: Stream = std::ptr::null_mut();

/// Start of simKernel in simdev.h: operation, number of elements, duration in ns.
#[repr(C)]
struct KernelHead {
    op: u32,
    count: u32,
    duration_ns: u64,
}

/// Function pointer types of the hooked functions, as in simdev.h.
#[allow(non_camel_case_types)]
mod sig {
    use super::*;
    macro_rules! pointers {
        ($(fn $name:ident($($ty:ty),*);)*) => { $(pub(super) type $name = unsafe extern "C" fn($($ty),*) -> c_int;)* };
    }
    pointers! {
        fn simDeviceReset();
        fn simDeviceSynchronize();
        fn simEventRecord(*mut c_void, Stream);
        fn simEventSynchronize(*mut c_void);
        fn simFree(*mut c_void);
        fn simGetProcAddress(*const std::ffi::c_char, *mut *mut c_void);
        fn simHostFree(*mut c_void);
        fn simLaunchHostFunc(Stream, Option<unsafe extern "C" fn(*mut c_void)>, *mut c_void);
        fn simLaunchKernel(*const KernelHead, Stream);
        fn simMemcpy(*mut c_void, *const c_void, usize);
        fn simMemcpyAsync(*mut c_void, *const c_void, usize, Stream);
        fn simMemset(*mut c_void, c_int, usize);
        fn simMemsetAsync(*mut c_void, c_int, usize, Stream);
        fn simStreamCreate(*mut Stream);
        fn simStreamCreateWithPriority(*mut Stream, c_int);
        fn simStreamDestroy(Stream);
        fn simStreamQuery(Stream);
        fn simStreamSynchronize(Stream);
        fn simStreamWaitEvent(Stream, *mut c_void);
        fn simStreamWaitValue32(Stream, *mut c_void, u32, c_uint);
        fn simStreamWriteValue32(Stream, *mut c_void, u32);
    }
}

/// Hooks functions that enqueue a command. In brackets: the stream, and the description of the work.
macro_rules! enqueues {
    ($list:ident: $class:ident; $(fn $name:ident($($arg:ident: $ty:ty),*) [$stream:expr, $work:expr];)*) => {
        $(
            unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                enqueue::<Api>(real, $stream, NULL, move || -> Work { $work }, move || unsafe { function($($arg),*) })
            }
        )*
        hooks! { SIM, $list: $class; $($name)* }
    };
}

fn kernel(kernel: *const KernelHead) -> Work {
    // SAFETY: null or the caller's own kernel, which the library reads too.
    let key = unsafe { kernel.as_ref() }.map_or(0, |k| 1 | (u64::from(k.op) << 1) ^ (k.duration_ns << 4));
    Work { key, ..Work::default() }
}

/// Work of a transfer, with its size rounded to a power of two as the key.
fn transfer(size: usize, blocking: bool) -> Work {
    Work { key: 0x8000_0000_0000_0001 | (u64::from(size.max(1).ilog2()) << 8), blocking, ..Work::default() }
}

enqueues! {
    LAUNCHES: Launch;
    fn simLaunchKernel(k: *const KernelHead, stream: Stream) [stream, kernel(k)];
}

enqueues! {
    COPIES: Copy;
    fn simMemcpy(to: *mut c_void, from: *const c_void, size: usize) [NO_STREAM, transfer(size, true)];
    fn simMemcpyAsync(to: *mut c_void, from: *const c_void, size: usize, stream: Stream) [stream, transfer(size, false)];
    fn simMemset(at: *mut c_void, value: c_int, size: usize) [NO_STREAM, transfer(size, true)];
    fn simMemsetAsync(at: *mut c_void, value: c_int, size: usize, stream: Stream) [stream, transfer(size, false)];
}

/// Hooks functions that order commands of a stream and take no time on the device, listed by the function that handles
/// them.
macro_rules! orders {
    ($list:ident: $class:ident; $([$way:ident] $(fn $name:ident($($arg:ident: $ty:ty),*) [$stream:expr];)*)*) => {
        $($(
            unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                $way::<Api>(real, $stream, NULL, move || unsafe { function($($arg),*) })
            }
        )*)*
        hooks! { SIM, $list: $class; $($($name)*)* }
    };
}

orders! {
    ORDERS: Order;
    [order]
    fn simEventRecord(event: *mut c_void, stream: Stream) [stream];
    fn simLaunchHostFunc(stream: Stream, call: Option<unsafe extern "C" fn(*mut c_void)>, data: *mut c_void) [stream];
    fn simStreamWriteValue32(stream: Stream, at: *mut c_void, value: u32) [stream];
    [join]
    fn simStreamWaitEvent(stream: Stream, event: *mut c_void) [stream];
    fn simStreamWaitValue32(stream: Stream, at: *mut c_void, value: u32, flags: c_uint) [stream];
}

/// Hooks functions that wait, listed by the function that handles such a wait.
macro_rules! waits {
    ($list:ident: $class:ident; $([$call:expr] $(fn $name:ident($($arg:ident: $ty:ty),*);)*)*) => {
        $($(
            unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                $call(real, $($arg,)* || unsafe { function($($arg),*) })
            }
        )*)*
        hooks! { SIM, $list: $class; $($($name)*)* }
    };
}

/// Waits for the thread's device, on which this process has its only context.
fn device(real: *mut c_void, call: impl FnOnce() -> c_int) -> c_int {
    context_call::<Api>(real, true, call)
}

/// Handles a free, which waits for the whole context.
fn free(real: *mut c_void, _memory: *mut c_void, call: impl FnOnce() -> c_int) -> c_int {
    device(real, call)
}

fn stream_wait(real: *mut c_void, stream: Stream, call: impl FnOnce() -> c_int) -> c_int {
    stream_call::<Api>(real, stream, NULL, call)
}

fn question(real: *mut c_void, stream: Stream, call: impl FnOnce() -> c_int) -> c_int {
    stream_question::<Api>(real, stream, NULL, call)
}

fn event_wait(real: *mut c_void, _event: *mut c_void, call: impl FnOnce() -> c_int) -> c_int {
    event_call::<Api>(real, call)
}

waits! {
    WAITS: Sync;
    [device] fn simDeviceSynchronize();
    [free] fn simFree(memory: *mut c_void); fn simHostFree(memory: *mut c_void);
    [stream_wait] fn simStreamSynchronize(stream: Stream);
    [question] fn simStreamQuery(stream: Stream);
    [event_wait] fn simEventSynchronize(event: *mut c_void);
}

/// Registers a new stream at once, so that other programs learn of it before its first command.
fn made(real: *mut c_void, rc: c_int, stream: *mut Stream) -> c_int {
    if rc == SUCCESS && !stream.is_null() && platform_enabled(SIM) {
        process::guarded("after the creation of a stream", || {
            let rt = runtime()?;
            let api = Api::beside(real)?;
            // SAFETY: the library stored a handle there.
            let handle = api.handle(unsafe { *stream }, NULL)?;
            lifetime::forget_stream(handle.key);
            rt.queue(handle.key, || api.describe(rt, handle))
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
        process::guarded("before the end of a stream", || lifetime::forget_stream(stream as usize));
    }
    // SAFETY: the caller's own argument.
    unsafe { function(stream) }
}

unsafe extern "C" fn simDeviceReset() -> c_int {
    let (real, function) = real!(simDeviceReset);
    let device = process::running().and_then(|_| Api::beside(real)?.device());
    let key = device.map(api::key_of);
    // SAFETY: no arguments.
    lifetime::ends(
        key.map(lifetime::At::Device),
        |_| true,
        || unsafe { function() },
        || {
            device.iter().copied().for_each(api::forget_registration);
            true
        },
    )
}

hooks! { SIM, DESTROYS: Destroy; simStreamDestroy simDeviceReset }

unsafe extern "C" fn simGetProcAddress(name: *const std::ffi::c_char, found: *mut *mut c_void) -> c_int {
    let (_, function) = real!(simGetProcAddress);
    // SAFETY: the caller's own arguments.
    let rc = unsafe { function(name, found) };
    if rc == SUCCESS && !name.is_null() && !found.is_null() {
        // SAFETY: a C string the library just read, and a pointer it just stored.
        unsafe {
            let hook = platform::hook(std::ffi::CStr::from_ptr(name));
            if let Some(hook) = hook.filter(|_| platform_enabled(SIM)) {
                *found = resolve::stub_for(hook, *found);
            }
        }
    }
    rc
}

hooks! { SIM, LOOKUPS: Lookup; simGetProcAddress }
