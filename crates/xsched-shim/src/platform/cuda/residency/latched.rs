//! Functions before the driver's. Each has the signature of one of the driver's functions, passes the latch and calls it.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};

use super::super::enqueue::shared_of;
use super::super::memory::plain;
use super::super::types::*;
use super::super::{sig, signatures};
use super::calls::{self, Access};
use super::movable::{MOVABLE, POSSIBLE, movable, pass};
use super::stays::Why;
use super::touches::Launched;
use super::virtuals::NO_MEMORY;
use super::{answers, chunks, held, hosted, pins, pools, tickets, touches, virtuals};
use crate::interpose::Hook;
use crate::platform::shared::DefaultStreamMode;
use crate::platform::shared::StreamKind::{Legacy, PerThread};
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

macro_rules! own {
    ($($name:ident => $call:ident;)*) => {
        /// Functions that do more.
        static OWN: &[Latched] = &[
            $(Latched { name: stringify!($name), call: $call as sig::$name as *const (), real: &$name::REAL },)*
        ];
    };
}

own! {
    cuMemAlloc_v2 => allocate;
    cuMemAllocPitch_v2 => allocate_rows;
    cuMemFree_v2 => free;
    cuMemAllocAsync => allocate_async;
    cuMemAllocAsync_ptsz => allocate_async_ptsz;
    cuMemAllocFromPoolAsync => allocate_from_pool;
    cuMemAllocFromPoolAsync_ptsz => allocate_from_pool_ptsz;
    cuMemFreeAsync => free_async;
    cuMemFreeAsync_ptsz => free_async_ptsz;
    cuMemPoolCreate => make_pool;
    cuMemPoolImportFromShareableHandle => import_pool;
    cuMemPoolDestroy => destroy_pool;
    cuMemPoolTrimTo => trim_pool;
    cuMemPoolGetAttribute => pool_attribute;
    cuMemPoolSetAttribute => set_pool_attribute;
    cuMemPoolSetAccess => set_pool_access;
    cuMemCreate => create;
    cuMemRelease => release_memory;
    cuMemRetainAllocationHandle => retain_memory;
    cuMemMap => map;
    cuMemUnmap => unmap;
    cuMemSetAccess => set_access;
    cuMemExportToShareableHandle => export_memory;
    cuMemGetAllocationPropertiesFromHandle => properties;
    cuMulticastBindMem => bind_memory;
    cuMulticastBindMem_v2 => bind_memory_v2;
    cuMulticastBindAddr => bind_address;
    cuMulticastBindAddr_v2 => bind_address_v2;
    cuPointerGetAttribute => attribute;
    cuPointerGetAttributes => attributes;
    cuPointerSetAttribute => set_attribute;
    cuMemGetAddressRange_v2 => address_range;
    cuMemGetHandleForAddressRange => export_range;
    cuIpcGetMemHandle => export_old;
    cuMemGetInfo_v2 => info;
    cuModuleGetGlobal_v2 => variable;
    cuLibraryGetGlobal => library_variable;
    cuLibraryGetManaged => managed_variable;
    cuCtxEnablePeerAccess => enable_peer;
    cuLaunchKernel => launch;
    cuLaunchKernel_ptsz => launch_ptsz;
    cuLaunchCooperativeKernel => launch_cooperative;
    cuLaunchCooperativeKernel_ptsz => launch_cooperative_ptsz;
    cuLaunchKernelEx => launch_ex;
    cuLaunchKernelEx_ptsz => launch_ex_ptsz;
    cuModuleUnload => unload_module;
    cuLibraryUnload => unload_library;
    cuStreamSynchronize => synchronize_stream;
    cuStreamSynchronize_ptsz => synchronize_stream_ptsz;
    cuCtxSynchronize => synchronize;
    cuEventSynchronize => synchronize_event;
    cuStreamDestroy => destroy_stream;
    cuStreamDestroy_v2 => destroy_stream_v2;
    cuCtxCreate => make_context;
    cuCtxCreate_v2 => make_context_v2;
    cuCtxCreate_v3 => make_context_v3;
    cuCtxCreate_v4 => make_context_v4;
    cuCtxFromGreenCtx => make_green;
    cuGreenCtxStreamCreate => make_green_stream;
    cuDevicePrimaryCtxRetain => retain_primary;
    cuCtxDestroy => destroy;
    cuCtxDestroy_v2 => destroy_v2;
    cuDevicePrimaryCtxReset => reset;
    cuDevicePrimaryCtxReset_v2 => reset_v2;
    cuDevicePrimaryCtxRelease => release;
    cuDevicePrimaryCtxRelease_v2 => release_v2;
}

/// Address for calls of a hook: of the function before the driver's, or `real` for a function that is not latched.
pub(super) fn before(hook: &Hook, real: *mut c_void) -> *mut c_void {
    let Ok(name) = hook.name.to_str() else { return real };
    let plain = TABLE.iter().filter(|_| !UNLATCHED.contains(&name));
    let Some(latched) = OWN.iter().chain(plain).find(|latched| latched.name == name) else { return real };
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

/// Result of this library for a call, or else the driver's.
fn ours_or<T>(
    ours: impl FnOnce() -> Option<T>,
    then: impl FnOnce(T) -> CUresult,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    match process::guarded("in a call of movable memory", ours).flatten() {
        Some(answer) => then(answer),
        // The device has no room: the driver is not asked for any.
        None if hosted::is_wanted_now() => NO_MEMORY,
        None => call(),
    }
}

/// Writes a result for the caller.
fn give<T>(place: *mut c_void, value: T) -> CUresult {
    // SAFETY: the caller's own place for such a value, not null.
    unsafe { place.cast::<T>().write_unaligned(value) };
    SUCCESS
}

/// Does something after a call that succeeded.
fn then(rc: CUresult, work: impl FnOnce()) -> CUresult {
    if rc == SUCCESS {
        process::guarded("after a call of movable memory", work);
    }
    rc
}

/// The address that a driver has written; 0 for none.
fn written(place: *mut c_void) -> usize {
    // SAFETY: null, or the caller's own place for a handle, which the driver just wrote.
    unsafe { place.cast::<usize>().as_ref() }.map_or(0, |handle| *handle)
}

unsafe extern "C" fn allocate(place: *mut c_void, bytes: usize) -> CUresult {
    let real = cuMemAlloc_v2::REAL.load(Acquire);
    let ours = || if place.is_null() { None } else { chunks::allocate(real, bytes) };
    // SAFETY: the caller's own arguments, here and below.
    ours_or(ours, |at| give(place, at), || unsafe { cuMemAlloc_v2::call(place, bytes) })
}

unsafe extern "C" fn allocate_rows(
    place: *mut c_void,
    pitch: *mut c_void,
    width: usize,
    height: usize,
    element: c_uint,
) -> CUresult {
    let real = cuMemAllocPitch_v2::REAL.load(Acquire);
    let none = place.is_null() || pitch.is_null();
    let ours = || if none { None } else { chunks::allocate_rows(real, width, height, element) };
    let both = |(at, distance)| {
        give(pitch, distance);
        give::<u64>(place, at)
    };
    // SAFETY: as above.
    ours_or(ours, both, || unsafe { cuMemAllocPitch_v2::call(place, pitch, width, height, element) })
}

unsafe extern "C" fn free(address: CUdeviceptr) -> CUresult {
    let ours = || chunks::free(address).or_else(|| pools::free(address));
    // SAFETY: as above.
    ours_or(ours, |rc| rc, || unsafe { cuMemFree_v2::call(address) })
}

macro_rules! of_streams {
    ($($mode:ident: $allocate:ident $alloc_name:ident, $from_pool:ident $pool_name:ident, $free:ident $free_name:ident;)*) => {
        $(
            unsafe extern "C" fn $allocate(place: *mut c_void, bytes: usize, stream: CUstream) -> CUresult {
                // SAFETY: as above.
                allocated($alloc_name::REAL.load(Acquire), place, bytes, None, stream, $mode, || unsafe {
                    $alloc_name::call(place, bytes, stream)
                })
            }

            unsafe extern "C" fn $from_pool(place: *mut c_void, bytes: usize, pool: *mut c_void, stream: CUstream) -> CUresult {
                // SAFETY: as above.
                allocated($pool_name::REAL.load(Acquire), place, bytes, Some(pool as usize), stream, $mode, || unsafe {
                    $pool_name::call(place, bytes, pool, stream)
                })
            }

            unsafe extern "C" fn $free(address: CUdeviceptr, stream: CUstream) -> CUresult {
                let real = $free_name::REAL.load(Acquire);
                let ours = || pools::free_async(real, address, stream, $mode);
                // SAFETY: as above.
                ours_or(ours, |rc| rc, || unsafe { $free_name::call(address, stream) })
            }
        )*
    };
}

of_streams! {
    Legacy: allocate_async cuMemAllocAsync, allocate_from_pool cuMemAllocFromPoolAsync, free_async cuMemFreeAsync;
    PerThread: allocate_async_ptsz cuMemAllocAsync_ptsz, allocate_from_pool_ptsz cuMemAllocFromPoolAsync_ptsz, free_async_ptsz cuMemFreeAsync_ptsz;
}

fn allocated(
    real: *mut c_void,
    place: *mut c_void,
    bytes: usize,
    pool: Option<usize>,
    stream: CUstream,
    mode: DefaultStreamMode,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let ours = || if place.is_null() { None } else { pools::allocate(real, bytes, pool, stream, mode) };
    ours_or(ours, |at| give(place, at), call)
}

unsafe extern "C" fn make_pool(place: *mut c_void, properties: *mut c_void) -> CUresult {
    // SAFETY: as above.
    then(unsafe { cuMemPoolCreate::call(place, properties) }, || pools::made(written(place), properties))
}

unsafe extern "C" fn import_pool(place: *mut c_void, handle: *mut c_void, kind: c_uint, flags: u64) -> CUresult {
    // SAFETY: as above.
    let rc = unsafe { cuMemPoolImportFromShareableHandle::call(place, handle, kind, flags) };
    then(rc, || pools::made(written(place), std::ptr::null()))
}

unsafe extern "C" fn destroy_pool(pool: *mut c_void) -> CUresult {
    // SAFETY: as above.
    then(unsafe { cuMemPoolDestroy::call(pool) }, || pools::destroyed(pool as usize))
}

unsafe extern "C" fn trim_pool(pool: *mut c_void, keep: usize) -> CUresult {
    // SAFETY: as above.
    then(unsafe { cuMemPoolTrimTo::call(pool, keep) }, || pools::trim(pool as usize, keep as u64))
}

unsafe extern "C" fn pool_attribute(pool: *mut c_void, which: c_uint, value: *mut c_void) -> CUresult {
    // SAFETY: as above.
    let rc = unsafe { cuMemPoolGetAttribute::call(pool, which, value) };
    then(rc, || pools::attribute(pool as usize, which, value))
}

unsafe extern "C" fn set_pool_attribute(pool: *mut c_void, which: c_uint, value: *mut c_void) -> CUresult {
    // SAFETY: as above.
    let rc = unsafe { cuMemPoolSetAttribute::call(pool, which, value) };
    then(rc, || pools::attribute_set(pool as usize, which, value))
}

/// Devices in a list of accesses.
fn devices_of(list: *const c_void, count: usize) -> Vec<CUdevice> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's own list, which the driver has read too.
    let list = unsafe { std::slice::from_raw_parts(list.cast::<Access>(), count) };
    list.iter().filter(|access| access.flags != 0).filter_map(|access| access.location.device()).collect()
}

unsafe extern "C" fn set_pool_access(pool: *mut c_void, list: *mut c_void, count: usize) -> CUresult {
    // SAFETY: as above.
    then(unsafe { cuMemPoolSetAccess::call(pool, list, count) }, || {
        devices_of(list, count).into_iter().for_each(let_in);
    })
}

/// Gives another device access to what moves.
fn let_in(device: CUdevice) {
    if let Some(movable) = movable().filter(|movable| movable.calls.device() != device) {
        pass(|| chunks::let_peer_in(movable, device));
    }
}

unsafe extern "C" fn enable_peer(peer: CUcontext, flags: c_uint) -> CUresult {
    // SAFETY: as above.
    then(unsafe { cuCtxEnablePeerAccess::call(peer, flags) }, || {
        let own = movable().filter(|movable| movable.calls.context == peer as usize);
        if let Some(device) = own.and_then(|movable| movable.calls.current_device()) {
            let_in(device);
        }
    })
}

unsafe extern "C" fn create(place: *mut c_void, bytes: usize, properties: *mut c_void, flags: u64) -> CUresult {
    let real = cuMemCreate::REAL.load(Acquire);
    let none = place.is_null() || flags != 0;
    let ours = || if none { None } else { virtuals::create(real, bytes, properties.cast()) };
    let made = |made: Result<u64, CUresult>| made.map_or_else(|refusal| refusal, |handle| give(place, handle));
    // SAFETY: as above.
    ours_or(ours, made, || unsafe { cuMemCreate::call(place, bytes, properties, flags) })
}

unsafe extern "C" fn release_memory(handle: u64) -> CUresult {
    // SAFETY: as above.
    ours_or(|| virtuals::release(handle), |rc| rc, || unsafe { cuMemRelease::call(handle) })
}

unsafe extern "C" fn retain_memory(place: *mut c_void, address: *mut c_void) -> CUresult {
    // The driver has no handle of plain memory, which it does not know as such here.
    let plain = || chunks::region_of(address as u64, |_, _| Err(virtuals::INVALID));
    let ours = || if place.is_null() { None } else { virtuals::retain(address as u64).map(Ok).or_else(plain) };
    let given = |found: Result<u64, CUresult>| found.map_or_else(|refusal| refusal, |handle| give(place, handle));
    // SAFETY: as above.
    ours_or(ours, given, || unsafe { cuMemRetainAllocationHandle::call(place, address) })
}

unsafe extern "C" fn map(at: CUdeviceptr, bytes: usize, offset: usize, handle: u64, flags: u64) -> CUresult {
    let ours = || virtuals::map(at, bytes, offset, handle, flags);
    // SAFETY: as above.
    ours_or(ours, |rc| rc, || unsafe { cuMemMap::call(at, bytes, offset, handle, flags) })
}

unsafe extern "C" fn unmap(at: CUdeviceptr, bytes: usize) -> CUresult {
    // SAFETY: as above.
    ours_or(|| virtuals::unmap(at, bytes), |rc| rc, || unsafe { cuMemUnmap::call(at, bytes) })
}

unsafe extern "C" fn set_access(at: CUdeviceptr, bytes: usize, list: *mut c_void, count: usize) -> CUresult {
    let ours = || virtuals::set_access(at, bytes, list.cast(), count);
    // SAFETY: as above.
    ours_or(ours, |rc| rc, || unsafe { cuMemSetAccess::call(at, bytes, list, count) })
}

unsafe extern "C" fn export_memory(place: *mut c_void, handle: u64, kind: c_uint, flags: u64) -> CUresult {
    // SAFETY: as above, and the memory behind the caller's handle.
    let with = |handle| unsafe { cuMemExportToShareableHandle::real()(place, handle, kind, flags) };
    ours_or(|| virtuals::pinned(handle, Why::Shared, with), |rc| rc, || pass(|| with(handle)))
}

unsafe extern "C" fn properties(place: *mut c_void, handle: u64) -> CUresult {
    // SAFETY: as above.
    let call = || unsafe { cuMemGetAllocationPropertiesFromHandle::call(place, handle) };
    ours_or(|| virtuals::properties(handle, place), |rc| rc, call)
}

unsafe extern "C" fn bind_memory(
    cast: u64,
    at: usize,
    handle: u64,
    offset: usize,
    bytes: usize,
    flags: u64,
) -> CUresult {
    // SAFETY: as above, and the memory behind the caller's handle.
    let with = |handle| unsafe { cuMulticastBindMem::real()(cast, at, handle, offset, bytes, flags) };
    ours_or(|| virtuals::pinned(handle, Why::Multicast, with), |rc| rc, || pass(|| with(handle)))
}

unsafe extern "C" fn bind_memory_v2(
    cast: u64,
    device: CUdevice,
    at: usize,
    handle: u64,
    offset: usize,
    bytes: usize,
    flags: u64,
) -> CUresult {
    // SAFETY: as above, and the memory behind the caller's handle.
    let with = |handle| unsafe { cuMulticastBindMem_v2::real()(cast, device, at, handle, offset, bytes, flags) };
    ours_or(|| virtuals::pinned(handle, Why::Multicast, with), |rc| rc, || pass(|| with(handle)))
}

unsafe extern "C" fn bind_address(cast: u64, at: usize, address: CUdeviceptr, bytes: usize, flags: u64) -> CUresult {
    // SAFETY: as above.
    let call = || unsafe { cuMulticastBindAddr::real()(cast, at, address, bytes, flags) };
    ours_or(|| answers::bind_range(address, bytes as u64, call), |rc| rc, || pass(call))
}

unsafe extern "C" fn bind_address_v2(
    cast: u64,
    device: CUdevice,
    at: usize,
    address: CUdeviceptr,
    bytes: usize,
    flags: u64,
) -> CUresult {
    // SAFETY: as above.
    let call = || unsafe { cuMulticastBindAddr_v2::real()(cast, device, at, address, bytes, flags) };
    ours_or(|| answers::bind_range(address, bytes as u64, call), |rc| rc, || pass(call))
}

unsafe extern "C" fn attribute(place: *mut c_void, which: c_uint, address: CUdeviceptr) -> CUresult {
    // SAFETY: as above. Addresses that do not move are answered at once.
    let call = || unsafe { cuPointerGetAttribute::real()(place, which, address) };
    ours_or(|| answers::attribute(place, which, address, call), |rc| rc, call)
}

unsafe extern "C" fn attributes(
    count: c_uint,
    which: *mut c_void,
    places: *mut c_void,
    address: CUdeviceptr,
) -> CUresult {
    // SAFETY: as above.
    let call = || unsafe { cuPointerGetAttributes::real()(count, which, places, address) };
    ours_or(|| answers::attributes(count, which.cast(), places.cast(), address, call), |rc| rc, call)
}

unsafe extern "C" fn set_attribute(value: *mut c_void, which: c_uint, address: CUdeviceptr) -> CUresult {
    // SAFETY: as above, for the address or a chunk behind it.
    let set = |address| unsafe { cuPointerSetAttribute::real()(value, which, address) };
    ours_or(|| answers::set_attribute(which, address, set), |rc| rc, || set(address))
}

unsafe extern "C" fn address_range(base: *mut c_void, size: *mut c_void, address: CUdeviceptr) -> CUresult {
    let found = |(at, bytes): (u64, u64)| {
        // SAFETY: null, or the caller's own places.
        unsafe {
            if !base.is_null() {
                base.cast::<u64>().write_unaligned(at);
            }
            if !size.is_null() {
                size.cast::<usize>().write_unaligned(bytes as usize);
            }
        }
        SUCCESS
    };
    // SAFETY: as above.
    ours_or(|| answers::range(address), found, || unsafe { cuMemGetAddressRange_v2::real()(base, size, address) })
}

unsafe extern "C" fn export_range(
    handle: *mut c_void,
    address: CUdeviceptr,
    bytes: usize,
    kind: c_uint,
    flags: u64,
) -> CUresult {
    // SAFETY: as above.
    let call = || unsafe { cuMemGetHandleForAddressRange::real()(handle, address, bytes, kind, flags) };
    ours_or(|| answers::export_range(address, bytes as u64, call), |rc| rc, || pass(call))
}

unsafe extern "C" fn export_old(handle: *mut c_void, address: CUdeviceptr) -> CUresult {
    // SAFETY: as above.
    ours_or(|| tickets::give_out(handle, address), |rc| rc, || unsafe { cuIpcGetMemHandle::call(handle, address) })
}

unsafe extern "C" fn info(free: *mut c_void, total: *mut c_void) -> CUresult {
    pass(|| {
        // SAFETY: as above.
        let rc = unsafe { cuMemGetInfo_v2::real()(free, total) };
        then(rc, || {
            // SAFETY: null, or the caller's own place, which the driver just wrote.
            if let Some(free) = unsafe { free.cast::<usize>().as_mut() } {
                *free = free.saturating_sub(pins::hosted_bytes() as usize);
            }
        })
    })
}

macro_rules! launching {
    ($(fn $call:ident $name:ident($($argument:ident: $kind:ty),*) [$function:ident, $shared:expr, $parameters:ident, $extra:expr];)*) => {
        $(
            #[allow(clippy::too_many_arguments)]
            unsafe extern "C" fn $call($($argument: $kind),*) -> CUresult {
                let launch = Launched { function: $function, shared: $shared, parameters: $parameters, extra: $extra };
                touches::note($name::REAL.load(Acquire), launch);
                // SAFETY: as above.
                unsafe { $name::call($($argument),*) }
            }
        )*
    };
}

macro_rules! launching_by_shape {
    ($($call:ident $name:ident, $cooperative:ident $cooperates:ident, $ex:ident $extended:ident;)*) => {
        launching! {
            $(
                fn $call $name(f: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, parameters: *mut c_void, extra: *mut c_void)
                    [f, shared, parameters, extra];
                fn $cooperative $cooperates(f: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, parameters: *mut c_void)
                    [f, shared, parameters, std::ptr::null_mut()];
                fn $ex $extended(config: *mut c_void, f: CUfunction, parameters: *mut c_void, extra: *mut c_void)
                    [f, shared_of(config), parameters, extra];
            )*
        }
    };
}

launching_by_shape! {
    launch cuLaunchKernel, launch_cooperative cuLaunchCooperativeKernel, launch_ex cuLaunchKernelEx;
    launch_ptsz cuLaunchKernel_ptsz, launch_cooperative_ptsz cuLaunchCooperativeKernel_ptsz, launch_ex_ptsz cuLaunchKernelEx_ptsz;
}

unsafe extern "C" fn unload_module(module: *mut c_void) -> CUresult {
    touches::functions_end();
    // SAFETY: as above.
    unsafe { cuModuleUnload::call(module) }
}

unsafe extern "C" fn unload_library(library: *mut c_void) -> CUresult {
    touches::functions_end();
    // SAFETY: as above.
    unsafe { cuLibraryUnload::call(library) }
}

macro_rules! variables {
    ($(fn $call:ident $name:ident;)*) => {
        $(
            unsafe extern "C" fn $call(place: *mut c_void, bytes: *mut c_void, of: *mut c_void, named: *mut c_void) -> CUresult {
                // SAFETY: as above.
                then(unsafe { $name::call(place, bytes, of, named) }, || {
                    plain::found_variable($name::REAL.load(Acquire), written(place) as u64)
                })
            }
        )*
    };
}

// Variables of modules, of which some are managed.
variables! {
    fn variable cuModuleGetGlobal_v2;
    fn library_variable cuLibraryGetGlobal;
    fn managed_variable cuLibraryGetManaged;
}

macro_rules! synchronizing {
    ($(fn $call:ident $name:ident($($arg:ident: $ty:ty),*);)*) => {
        $(
            unsafe extern "C" fn $call($($arg: $ty),*) -> CUresult {
                // SAFETY: as above. The mover does not wait for this call.
                then(unsafe { $name::real()($($arg),*) }, pools::synchronized)
            }
        )*
    };
}

synchronizing! {
    fn synchronize_stream cuStreamSynchronize(stream: CUstream);
    fn synchronize_stream_ptsz cuStreamSynchronize_ptsz(stream: CUstream);
    fn synchronize cuCtxSynchronize();
    fn synchronize_event cuEventSynchronize(event: CUevent);
}

unsafe extern "C" fn destroy_stream(stream: CUstream) -> CUresult {
    process::guarded("before the end of a stream", || pools::stream_ends(stream));
    // SAFETY: as above.
    unsafe { cuStreamDestroy::call(stream) }
}

unsafe extern "C" fn destroy_stream_v2(stream: CUstream) -> CUresult {
    process::guarded("before the end of a stream", || pools::stream_ends(stream));
    // SAFETY: as above.
    unsafe { cuStreamDestroy_v2::call(stream) }
}

macro_rules! making_contexts {
    ($(fn $call:ident $name:ident($place:ident: *mut c_void, $($arg:ident: $ty:ty),*) [$primary:expr];)*) => {
        $(
            unsafe extern "C" fn $call($place: *mut c_void, $($arg: $ty),*) -> CUresult {
                // SAFETY: as above.
                then(unsafe { $name::call($place, $($arg),*) }, || calls::context_made(written($place), $primary))
            }
        )*
    };
}

making_contexts! {
    fn make_context cuCtxCreate(place: *mut c_void, flags: c_uint, device: CUdevice) [None];
    fn make_context_v2 cuCtxCreate_v2(place: *mut c_void, flags: c_uint, device: CUdevice) [None];
    fn make_context_v3 cuCtxCreate_v3(place: *mut c_void, parameters: *mut c_void, count: c_int, flags: c_uint, device: CUdevice) [None];
    fn make_context_v4 cuCtxCreate_v4(place: *mut c_void, parameters: *mut c_void, flags: c_uint, device: CUdevice) [None];
    fn make_green cuCtxFromGreenCtx(place: *mut c_void, of: *mut c_void) [None];
    fn retain_primary cuDevicePrimaryCtxRetain(place: *mut c_void, device: CUdevice) [Some(device)];
}

unsafe extern "C" fn make_green_stream(
    place: *mut c_void,
    context: *mut c_void,
    flags: c_uint,
    priority: c_int,
) -> CUresult {
    // SAFETY: as above.
    then(unsafe { cuGreenCtxStreamCreate::call(place, context, flags, priority) }, held::hold_for_partitions)
}

/// Runs a call that ends a context, after the end of movable memory if that is in it. Commands that use the memory come to their end before.
fn ends(
    is_ours: impl FnOnce(&calls::Calls) -> bool,
    noted: impl FnOnce(),
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    process::guarded("before a context ends", || {
        if let Some(movable) = movable().filter(|movable| is_ours(&movable.calls)) {
            pass(|| {
                let _ = movable.calls.synchronize_own();
                pins::end(movable);
            });
        }
        noted();
        touches::functions_end();
    });
    call()
}

/// Ends a context.
fn destroyed(context: CUcontext, call: impl FnOnce() -> CUresult) -> CUresult {
    let context = context as usize;
    ends(|calls| calls.context == context, || calls::context_ends(context), call)
}

unsafe extern "C" fn destroy(context: CUcontext) -> CUresult {
    // SAFETY: as above.
    destroyed(context, || unsafe { cuCtxDestroy::call(context) })
}

unsafe extern "C" fn destroy_v2(context: CUcontext) -> CUresult {
    // SAFETY: as above.
    destroyed(context, || unsafe { cuCtxDestroy_v2::call(context) })
}

/// Ends a device's primary context.
fn resets(device: CUdevice, call: impl FnOnce() -> CUresult) -> CUresult {
    ends(|calls| calls.is_of(device), || calls::primary_ends(device), call)
}

unsafe extern "C" fn reset(device: CUdevice) -> CUresult {
    // SAFETY: as above.
    resets(device, || unsafe { cuDevicePrimaryCtxReset::call(device) })
}

unsafe extern "C" fn reset_v2(device: CUdevice) -> CUresult {
    // SAFETY: as above.
    resets(device, || unsafe { cuDevicePrimaryCtxReset_v2::call(device) })
}

/// Releases a primary context: only the driver knows whether it ends.
fn released(device: CUdevice, call: impl FnOnce() -> CUresult) -> CUresult {
    let mut result = SUCCESS;
    held::while_ending(|| {
        result = call();
        process::guarded("after a context has ended", || {
            let Some(movable) = movable().filter(|movable| movable.calls.is_gone(device)) else { return };
            calls::primary_ends(device);
            touches::functions_end();
            if movable.calls.is_of(device) {
                pass(|| pins::end(movable));
            }
        });
    });
    result
}

unsafe extern "C" fn release(device: CUdevice) -> CUresult {
    // SAFETY: as above.
    released(device, || unsafe { cuDevicePrimaryCtxRelease::call(device) })
}

unsafe extern "C" fn release_v2(device: CUdevice) -> CUresult {
    // SAFETY: as above.
    released(device, || unsafe { cuDevicePrimaryCtxRelease_v2::call(device) })
}
