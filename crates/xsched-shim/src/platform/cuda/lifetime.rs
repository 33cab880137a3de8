//! Creation and end of contexts and streams.

use xsched_core::{QueueSpec, thread};

use super::api::{self, Api};
use super::hot::{self, hot};
use super::stream;
use super::types::*;
use super::{memory, real, sig, timeslice};
use crate::enabled::{CUDA, platform_enabled};
use crate::interpose::hooks;
use crate::platform::shared::Driver;
use crate::platform::shared::lifetime::{self, At, stream_made};
use crate::platform::start::runtime;
use crate::process;

/// Runs a call that creates a context on a device, and registers the program with the scheduler at once. Other programs
/// must learn of it before its first command: commands that they queue until then could not be taken back.
fn makes(
    real: *mut c_void,
    device: CUdevice,
    is_primary: bool,
    place: *mut c_void,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    if !is_primary {
        hot::several();
    }
    if !platform_enabled(CUDA) || Api::is_below_another(thread::current().caller.get()) {
        return call();
    }
    let memory = process::guarded("before a context is made", || {
        let api = Api::beside(real);
        let key = api.and_then(|api| api.device_key(device));
        runtime().map(|rt| timeslice::prepare(rt, key.as_deref()))?;
        let is_new = !is_primary || api.is_some_and(|api| api.has_no_primary(device));
        (is_new && memory::measures_contexts(real, device)).then(|| memory::overhead::Before::of(&key?))?
    });
    let rc = call();
    if rc == SUCCESS && !place.is_null() {
        process::guarded("after a context was made", || {
            // SAFETY: the caller's own place for the handle, which the driver just wrote.
            let context = unsafe { *place.cast::<CUcontext>() } as usize;
            let api = Api::beside(real)?;
            let spec = QueueSpec {
                handle: STREAM_LEGACY as *mut c_void,
                platform: CUDA,
                device: api.device_key(device)?,
                priority_steps: 0,
                in_order: true,
            };
            let rt = runtime()?;
            if is_primary {
                api::note_primary(device, context);
            }
            let key = stream::legacy_key(context);
            api::note_queue(key, context);
            let queue = rt.queue(key, || Some(spec));
            // Registers the segment now rather than at the first contended command, which would be late by the time it
            // takes.
            api.reach_segment(rt, context as CUcontext);
            memory::context_made(real, device, context, memory.flatten());
            queue
        });
    }
    rc
}

/// Runs a call that ends a context, and drops everything known of it; the state of other contexts is looked up again.
/// `context` is its handle, if known.
fn ends(
    at: Option<At>,
    context: Option<usize>,
    call: impl FnOnce() -> CUresult,
    ended: impl FnOnce() -> bool,
) -> CUresult {
    hot::changes();
    lifetime::ends(
        at,
        |queue| api::lies_in(queue, context),
        call,
        || {
            let ended = ended();
            hot::changes();
            if ended {
                api::forget_contexts(context);
                memory::context_ended(context);
            }
            ended
        },
    )
}

macro_rules! contexts_made {
    (
        $list:ident: $class:ident;
        $(fn $name:ident($place:ident: *mut c_void, $($arg:ident: $ty:ty,)* [$device:ident, $primary:literal]);)*
    ) => {
        $(
            unsafe extern "C" fn $name($place: *mut c_void, $($arg: $ty,)* $device: CUdevice) -> CUresult {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                makes(real, $device, $primary, $place, || unsafe { function($place, $($arg,)* $device) })
            }
        )*
        hooks! { CUDA, $list: $class; $($name)* }
    };
}

contexts_made! {
    CONTEXTS_MADE: Create;
    fn cuCtxCreate(pctx: *mut c_void, flags: c_uint, [dev, false]);
    fn cuCtxCreate_v2(pctx: *mut c_void, flags: c_uint, [dev, false]);
    fn cuCtxCreate_v3(pctx: *mut c_void, params: *mut c_void, count: c_int, flags: c_uint, [dev, false]);
    fn cuCtxCreate_v4(pctx: *mut c_void, params: *mut c_void, flags: c_uint, [dev, false]);
    fn cuDevicePrimaryCtxRetain(pctx: *mut c_void, [dev, true]);
}

macro_rules! contexts_destroyed {
    ($list:ident: $class:ident; $($name:ident)*) => {
        $(
            unsafe extern "C" fn $name(context: CUcontext) -> CUresult {
                let (real, function) = real!($name);
                let at = process::guarded("before the end of a context", || {
                    process::running()?;
                    Some(At::told(CUDA, Api::beside(real)?.key_of_context(context)))
                });
                // SAFETY: the caller's own argument.
                ends(at.flatten(), Some(context as usize), || unsafe { function(context) }, || true)
            }
        )*
        hooks! { CUDA, $list: $class; $($name)* }
    };
}

contexts_destroyed! { CONTEXTS_DESTROYED: Destroy; cuCtxDestroy cuCtxDestroy_v2 cuCtxDetach }

/// Location of a device; `None` if nothing runs in this process.
fn on(real: *mut c_void, device: CUdevice) -> Option<At> {
    process::guarded("before the end of a context", || {
        process::running()?;
        Some(At::told(CUDA, Api::beside(real)?.device_key(device)))
    })
    .flatten()
}

macro_rules! primary_reset {
    ($list:ident: $class:ident; $($name:ident)*) => {
        $(
            unsafe extern "C" fn $name(device: CUdevice) -> CUresult {
                let (real, function) = real!($name);
                // SAFETY: the caller's own argument.
                ends(on(real, device), api::primary(device), || unsafe { function(device) }, || true)
            }
        )*
        hooks! { CUDA, $list: $class; $($name)* }
    };
}

primary_reset! { PRIMARY_RESET: Destroy; cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2 }

macro_rules! primary_released {
    ($list:ident: $class:ident; $($name:ident)*) => {
        $(
            unsafe extern "C" fn $name(device: CUdevice) -> CUresult {
                let (real, function) = real!($name);
                let ended = || Api::beside(real).is_some_and(|api| api.has_no_primary(device));
                // SAFETY: the caller's own argument.
                ends(on(real, device), api::primary(device), || unsafe { function(device) }, ended)
            }
        )*
        hooks! { CUDA, $list: $class; $($name)* }
    };
}

primary_released! { PRIMARY_RELEASED: Destroy; cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2 }

/// Creates a context over a partition of a device.
unsafe extern "C" fn cuCtxFromGreenCtx(place: *mut c_void, context: *mut c_void) -> CUresult {
    let (_, function) = real!(cuCtxFromGreenCtx);
    hot::several();
    // SAFETY: the caller's own arguments.
    unsafe { function(place, context) }
}

hooks! { CUDA, PARTITIONS_MADE: Create; cuCtxFromGreenCtx }

/// Destroys a partition of a device. It has no queue of its own to forget except its streams, which are destroyed like
/// others.
unsafe extern "C" fn cuGreenCtxDestroy(context: *mut c_void) -> CUresult {
    let (_, function) = real!(cuGreenCtxDestroy);
    // SAFETY: the caller's own argument.
    let rc = unsafe { function(context) };
    if rc == SUCCESS {
        api::forget_contexts(None);
    }
    rc
}

hooks! { CUDA, PARTITIONS_DESTROYED: Destroy; cuGreenCtxDestroy }

macro_rules! streams_made {
    ($list:ident: $class:ident; $(fn $name:ident($place:ident: *mut c_void, $($arg:ident: $ty:ty),*);)*) => {
        $(
            unsafe extern "C" fn $name($place: *mut c_void, $($arg: $ty),*) -> CUresult {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                stream_made::<Api>(real, unsafe { function($place, $($arg),*) }, $place)
            }
        )*
        hooks! { CUDA, $list: $class; $($name)* }
    };
}

streams_made! {
    STREAMS_MADE: Create;
    fn cuGreenCtxStreamCreate(stream: *mut c_void, context: *mut c_void, flags: c_uint, priority: c_int);
    fn cuStreamCreate(stream: *mut c_void, flags: c_uint);
    fn cuStreamCreateWithPriority(stream: *mut c_void, flags: c_uint, priority: c_int);
}

macro_rules! streams_destroyed {
    ($list:ident: $class:ident; $($name:ident)*) => {
        $(
            unsafe extern "C" fn $name(stream: CUstream) -> CUresult {
                let (_, function) = real!($name);
                if stream as usize > STREAM_PER_THREAD {
                    process::guarded("before the end of a stream", || {
                        hot().captures.forget(stream);
                        lifetime::forget_stream(stream as usize);
                        api::forget_queue(stream as usize);
                        memory::stream_ended(stream);
                    });
                }
                // SAFETY: the caller's own argument.
                unsafe { function(stream) }
            }
        )*
        hooks! { CUDA, $list: $class; $($name)* }
    };
}

streams_destroyed! { STREAMS_DESTROYED: Destroy; cuStreamDestroy cuStreamDestroy_v2 }
