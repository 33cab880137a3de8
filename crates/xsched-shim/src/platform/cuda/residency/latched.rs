//! Functions before the driver's. Each has the signature of one of the driver's functions, passes the latch and calls it.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};

use super::super::types::*;
use super::super::{sig, signatures};
use super::chunks;
use super::movable::{MOVABLE, POSSIBLE, movable, pass};
use crate::interpose::Hook;
use crate::process;

/// A function before one of the driver's.
struct Latched {
    name: &'static str,
    call: *const (),
    /// The driver's function.
    real: &'static AtomicPtr<c_void>,
}

// SAFETY: addresses of functions and statics.
unsafe impl Sync for Latched {}

/// Set once a hook calls one of these.
static USED: AtomicBool = AtomicBool::new(false);

/// Functions that touch no memory of chunks by themselves, and may wait for long, so that the mover must not wait for them; and those
/// that have structures by value.
const UNLATCHED: &[&str] = &[
    "cuCtxSynchronize",
    "cuCtxSynchronize_v2",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cuInit",
    "cuIpcOpenEventHandle",
    "cuIpcOpenMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuStreamQuery",
    "cuStreamQuery_ptsz",
    "cuStreamSynchronize",
    "cuStreamSynchronize_ptsz",
];

macro_rules! latched {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        $(
            #[allow(clippy::too_many_arguments)]
            mod $name {
                use super::*;

                pub(super) static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

                /// The driver's function.
                pub(super) fn real() -> sig::$name {
                    // SAFETY: the address of the driver's function of this name, stored before this one is handed out.
                    unsafe { std::mem::transmute::<*mut c_void, sig::$name>(REAL.load(Acquire)) }
                }

                // Functions with structures by value are never called here, see `UNLATCHED`.
                #[allow(improper_ctypes_definitions)]
                pub(super) unsafe extern "C" fn call($($arg: $ty),*) -> CUresult {
                    // SAFETY: the caller's own arguments.
                    pass(|| unsafe { real()($($arg),*) })
                }
            }
        )*

        static TABLE: &[Latched] = &[
            $(Latched { name: stringify!($name), call: $name::call as *const (), real: &$name::REAL },)*
        ];
    };
}
signatures::cuda_signatures!(latched);

/// Functions that do more.
static OWN: &[Latched] = &[
    Latched { name: "cuMemAlloc_v2", call: allocate as *const (), real: &cuMemAlloc_v2::REAL },
    Latched { name: "cuMemFree_v2", call: free as *const (), real: &cuMemFree_v2::REAL },
    Latched { name: "cuCtxDestroy", call: destroy as *const (), real: &cuCtxDestroy::REAL },
    Latched { name: "cuCtxDestroy_v2", call: destroy_v2 as *const (), real: &cuCtxDestroy_v2::REAL },
    Latched { name: "cuDevicePrimaryCtxReset", call: reset as *const (), real: &cuDevicePrimaryCtxReset::REAL },
    Latched {
        name: "cuDevicePrimaryCtxReset_v2",
        call: reset_v2 as *const (),
        real: &cuDevicePrimaryCtxReset_v2::REAL,
    },
    Latched { name: "cuDevicePrimaryCtxRelease", call: release as *const (), real: &cuDevicePrimaryCtxRelease::REAL },
    Latched {
        name: "cuDevicePrimaryCtxRelease_v2",
        call: release_v2 as *const (),
        real: &cuDevicePrimaryCtxRelease_v2::REAL,
    },
];

/// Address for calls of a hook: of the function before the driver's, or `real` for a function that is not latched.
pub(super) fn before(hook: &Hook, real: *mut c_void) -> *mut c_void {
    let Some(name) = hook.name.to_str().ok().filter(|name| !UNLATCHED.contains(name)) else { return real };
    let Some(latched) = OWN.iter().chain(TABLE).find(|latched| latched.name == name) else { return real };
    match latched.real.compare_exchange(std::ptr::null_mut(), real, AcqRel, Acquire) {
        Err(other) if other != real => {
            // A second copy of the driver, whose calls pass no latch. It reaches no chunk that the first one has made; none is made
            // if there was none so far.
            if MOVABLE.get().is_none() {
                POSSIBLE.store(false, Relaxed);
            }
            return real;
        }
        _ => USED.store(true, Release),
    }
    latched.call as *mut c_void
}

pub(super) fn is_used() -> bool {
    USED.load(Acquire)
}

/// The driver's function behind one of these; any other address as it is.
pub(super) fn behind(address: usize) -> usize {
    let found = OWN.iter().chain(TABLE).find(|latched| latched.call as usize == address);
    found.map_or(address, |latched| latched.real.load(Acquire) as usize)
}

unsafe extern "C" fn allocate(place: *mut c_void, bytes: usize) -> CUresult {
    let real = cuMemAlloc_v2::REAL.load(Acquire);
    let made = process::guarded("while memory was allocated", || {
        if place.is_null() { None } else { chunks::allocate(real, bytes) }
    });
    match made.flatten() {
        Some(at) => {
            // SAFETY: the caller's own place for the address, not null.
            unsafe { place.cast::<CUdeviceptr>().write_unaligned(at) };
            SUCCESS
        }
        // SAFETY: the caller's own arguments.
        None => unsafe { cuMemAlloc_v2::call(place, bytes) },
    }
}

unsafe extern "C" fn free(address: CUdeviceptr) -> CUresult {
    let freed = process::guarded("while memory was freed", || chunks::free(address));
    // SAFETY: the caller's own argument.
    freed.flatten().unwrap_or_else(|| unsafe { cuMemFree_v2::call(address) })
}

/// Ends movable memory before its context ends.
fn ending(is_ours: impl FnOnce(&super::calls::Calls) -> bool) {
    process::guarded("before a context ends", || {
        if movable().is_some_and(|movable| is_ours(&movable.calls)) {
            pass(chunks::end);
        }
    });
}

unsafe extern "C" fn destroy(context: CUcontext) -> CUresult {
    ending(|calls| calls.context == context as usize);
    // SAFETY: the caller's own argument.
    unsafe { cuCtxDestroy::call(context) }
}

unsafe extern "C" fn destroy_v2(context: CUcontext) -> CUresult {
    ending(|calls| calls.context == context as usize);
    // SAFETY: the caller's own argument.
    unsafe { cuCtxDestroy_v2::call(context) }
}

unsafe extern "C" fn reset(device: CUdevice) -> CUresult {
    ending(|calls| calls.is_of(device));
    // SAFETY: the caller's own argument.
    unsafe { cuDevicePrimaryCtxReset::call(device) }
}

unsafe extern "C" fn reset_v2(device: CUdevice) -> CUresult {
    ending(|calls| calls.is_of(device));
    // SAFETY: the caller's own argument.
    unsafe { cuDevicePrimaryCtxReset_v2::call(device) }
}

/// Releases a primary context: only the driver knows whether it ends.
fn released(device: CUdevice, call: impl FnOnce() -> CUresult) -> CUresult {
    let result = call();
    ending(|calls| calls.is_of(device) && calls.is_gone());
    result
}

unsafe extern "C" fn release(device: CUdevice) -> CUresult {
    // SAFETY: the caller's own argument.
    released(device, || unsafe { cuDevicePrimaryCtxRelease::call(device) })
}

unsafe extern "C" fn release_v2(device: CUdevice) -> CUresult {
    // SAFETY: the caller's own argument.
    released(device, || unsafe { cuDevicePrimaryCtxRelease_v2::call(device) })
}
