//! First use of devices, and creation and end of streams and contexts.

use super::api::{self, Api};
use super::memory;
use super::stream::{self, CAPTURES};
use super::types::*;
use super::{real, sig};
use crate::enabled::{HIP, platform_enabled};
use crate::interpose::hooks;
use crate::platform::shared::lifetime::{self, At, stream_made};
use crate::platform::shared::{Driver, StreamKind};
use crate::platform::start::runtime;
use crate::process;

/// Registers the program with the scheduler after its first call that used the calling thread's device. Other programs
/// must learn of it before its first command: commands that they queue until then could not be taken back.
#[inline(always)]
pub(super) fn announce(real: *mut c_void, rc: hipError_t) -> hipError_t {
    if rc == SUCCESS && Api::beside(real).is_some_and(|api| !api.is_announced()) {
        tell(real);
    }
    rc
}

#[cold]
#[inline(never)]
fn tell(real: *mut c_void) {
    if !platform_enabled(HIP) {
        return;
    }
    process::guarded("when a device is first used", || {
        let api = Api::beside(real).filter(|api| !api.is_called_by_itself())?;
        let handle = stream::handle(api, std::ptr::null_mut(), StreamKind::Legacy)?;
        let rt = runtime()?;
        rt.queue(handle.key, || api.describe(rt, handle))?;
        // Registers the segment now rather than at the first contended command, which would be late by the time it
        // takes.
        api.reach_segment(rt);
        api.set_announced();
        Some(())
    });
}

/// Location of the calling thread's device; `None` if nothing runs in this process.
fn device(real: *mut c_void) -> Option<At> {
    process::guarded("before the end of a context", || {
        process::running()?;
        let api = Api::beside(real).filter(|api| !api.is_called_by_itself())?;
        Some(At::told(HIP, api.current_device_key()))
    })
    .flatten()
}

/// Hooks functions that end the process's state on the calling thread's device, or part of it, with the function that counts
/// out memory that ends then. The state is looked up
/// again at the next use.
macro_rules! ends {
    ($list:ident: $class:ident; $(fn $name:ident($($arg:ident: $ty:ty)?) [$($frees:ident)?];)*) => {
        $(
            unsafe extern "C" fn $name($($arg: $ty)?) -> hipError_t {
                let (real, function) = real!($name);
                // SAFETY: the caller's own argument.
                lifetime::ends(device(real), |_| true, || unsafe { function($($arg)?) }, || {
                    api::forget_registrations();
                    $(memory::$frees(real);)?
                    true
                })
            }
        )*
        hooks! { HIP, $list: $class; $($name)* }
    };
}

ends! {
    ENDS: Destroy;
    fn hipCtxDestroy(ctx: *mut c_void) [];
    fn hipDevicePrimaryCtxRelease(device: c_int) [];
    fn hipDevicePrimaryCtxReset(device: c_int) [device_reset];
    fn hipDeviceReset() [device_reset];
    fn hipExecutionCtxDestroy(ctx: *mut c_void) [];
}

macro_rules! streams_made {
    ($list:ident: $class:ident; $(fn $name:ident($place:ident: *mut c_void $(, $arg:ident: $ty:ty)*);)*) => {
        $(
            unsafe extern "C" fn $name($place: *mut c_void $(, $arg: $ty)*) -> hipError_t {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                announce(real, stream_made::<Api>(real, unsafe { function($place $(, $arg)*) }, $place))
            }
        )*
        hooks! { HIP, $list: $class; $($name)* }
    };
}

streams_made! {
    STREAMS_MADE: Create;
    fn hipExecutionCtxStreamCreate(place: *mut c_void, context: *mut c_void, flags: c_uint, priority: c_int);
    fn hipExtStreamCreateWithCUMask(place: *mut c_void, size: c_uint, mask: *mut c_void);
    fn hipStreamCreate(place: *mut c_void);
    fn hipStreamCreateWithFlags(place: *mut c_void, flags: c_uint);
    fn hipStreamCreateWithPriority(place: *mut c_void, flags: c_uint, priority: c_int);
}

unsafe extern "C" fn hipStreamDestroy(stream: hipStream_t) -> hipError_t {
    let (real, function) = real!(hipStreamDestroy);
    if stream as usize > STREAM_PER_THREAD {
        process::guarded("before the end of a stream", || {
            CAPTURES.forget(stream);
            let handle = Api::beside(real)?.handle(stream, StreamKind::Legacy)?;
            lifetime::forget_stream(handle.key);
            Some(())
        });
    }
    // SAFETY: the caller's own argument.
    unsafe { function(stream) }
}

hooks! { HIP, STREAMS_DESTROYED: Destroy; hipStreamDestroy }
