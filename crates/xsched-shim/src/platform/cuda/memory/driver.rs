//! Functions of the driver that only the account of memory calls. An old driver may lack some of them.

use std::sync::atomic::{AtomicPtr, Ordering::*};

use xsched_vendor::functions;

use super::super::types::*;
use super::instead;
use crate::platform::shared::{DefaultStreamMode, search_beside};

/// CUmemoryPool.
pub(super) type Pool = *mut c_void;

/// CU_POINTER_ATTRIBUTE_IS_MANAGED.
const IS_MANAGED: c_uint = 8;
/// CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT.
const RESERVED: c_uint = 5;
/// CU_MEMPOOL_ATTR_USED_MEM_CURRENT.
const USED: c_uint = 7;
/// CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT.
const GRAPHS_RESERVED: c_uint = 2;

functions! {
    /// The functions, with signatures as in cuda.h.
    struct Api -> CUresult;
    optional {
        info: c"cuMemGetInfo_v2" (*mut usize, *mut usize);
        total: c"cuDeviceTotalMem_v2" (*mut usize, CUdevice);
        address_range: c"cuMemGetAddressRange_v2" (*mut CUdeviceptr, *mut usize, CUdeviceptr);
        attribute: c"cuPointerGetAttribute" (*mut c_void, c_uint, CUdeviceptr);
        pool_in_use: c"cuDeviceGetMemPool" (*mut Pool, CUdevice);
        pool_attribute: c"cuMemPoolGetAttribute" (Pool, c_uint, *mut u64);
        pool_trim: c"cuMemPoolTrimTo" (Pool, usize);
        synchronize: c"cuStreamSynchronize" (CUstream);
        synchronize_per_thread: c"cuStreamSynchronize_ptsz" (CUstream);
        graphs_attribute: c"cuDeviceGetGraphMemAttribute" (CUdevice, c_uint, *mut u64);
        graphs_trim: c"cuDeviceGraphMemTrim" (CUdevice);
    }
}

static API: AtomicPtr<Api> = AtomicPtr::new(std::ptr::null_mut());

/// Finds the functions beside the one at `real`. A process has one driver.
pub(super) fn find_beside(real: *mut c_void) {
    if !API.load(Acquire).is_null() {
        return;
    }
    // SAFETY: the driver's functions have cuda.h's signatures.
    if let Ok(api) = unsafe { Api::load(search_beside(real as usize)) } {
        API.store(Box::into_raw(Box::new(api)), Release);
    }
}

fn api() -> Option<&'static Api> {
    // SAFETY: leaked when published, never freed.
    unsafe { API.load(Acquire).as_ref() }
}

/// Free and total memory of the current context's device.
pub(super) fn info() -> Option<(u64, u64)> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: pointers to locals.
    let rc = unsafe { (api()?.info?)(&mut free, &mut total) };
    (rc == SUCCESS).then_some((free as u64, total as u64))
}

/// Memory of a device.
pub(super) fn total(device: CUdevice) -> Option<u64> {
    let mut total = 0;
    // SAFETY: pointer to a local.
    (unsafe { (api()?.total?)(&mut total, device) } == SUCCESS).then_some(total as u64)
}

/// Beginning of the allocation that contains an address.
pub(super) fn beginning(address: CUdeviceptr) -> Option<CUdeviceptr> {
    let (mut base, mut bytes) = (0, 0);
    // SAFETY: pointers to locals.
    (unsafe { (api()?.address_range?)(&mut base, &mut bytes, address) } == SUCCESS).then_some(base)
}

/// Size of the allocation that begins at an address, if it is managed.
pub(super) fn managed(address: CUdeviceptr) -> Option<u64> {
    let (mut base, mut bytes, mut is_managed) = (0, 0, 0u32);
    // SAFETY: pointers to locals, of the attribute's size.
    let answered = unsafe {
        (api()?.attribute?)((&raw mut is_managed).cast(), IS_MANAGED, address) == SUCCESS
            && (api()?.address_range?)(&mut base, &mut bytes, address) == SUCCESS
    };
    (answered && is_managed != 0).then_some(bytes as u64)
}

/// Pool that a device uses unless another is named.
pub(super) fn pool_in_use(device: CUdevice) -> Option<Pool> {
    let mut pool = std::ptr::null_mut();
    // SAFETY: pointer to a local.
    (unsafe { (api()?.pool_in_use?)(&mut pool, device) } == SUCCESS).then_some(pool)
}

/// Memory that a pool holds, and that is in use of it.
pub(super) fn pool(pool: Pool) -> Option<(u64, u64)> {
    let attribute = |which| {
        let mut value = 0;
        // SAFETY: a pool that the program has not destroyed; pointer to a local of the attribute's size.
        (unsafe { (api()?.pool_attribute?)(pool, which, &mut value) } == SUCCESS).then_some(value)
    };
    let (reserved, used) = instead::served().map_or((0, 0), |served| (served.pool_figures)(pool as usize));
    Some((attribute(RESERVED)? + reserved, attribute(USED)? + used))
}

/// Makes a pool release what is not in use.
pub(super) fn trim_pool(pool: Pool) {
    if let Some(trim) = api().and_then(|api| api.pool_trim) {
        // SAFETY: a pool that the program has not destroyed.
        unsafe { trim(pool, 0) };
    }
    if let Some(served) = instead::served() {
        (served.trim_pool)(pool as usize, 0);
    }
}

/// Waits for a stream, whose null handle means the default stream of this mode.
pub(super) fn synchronize(stream: CUstream, mode: DefaultStreamMode) -> CUresult {
    let function = api().and_then(|api| match mode {
        DefaultStreamMode::PerThread => api.synchronize_per_thread,
        DefaultStreamMode::Legacy | DefaultStreamMode::Own => api.synchronize,
    });
    // SAFETY: the caller's own stream.
    function.map_or(NOT_INITIALIZED, |function| unsafe { function(stream) })
}

/// Memory that the graphs of a device hold.
pub(super) fn graphs(device: CUdevice) -> Option<u64> {
    let mut value = 0;
    // SAFETY: pointer to a local of the attribute's size.
    (unsafe { (api()?.graphs_attribute?)(device, GRAPHS_RESERVED, &mut value) } == SUCCESS).then_some(value)
}

/// Makes the graphs of a device release what is not in use.
pub(super) fn trim_graphs(device: CUdevice) {
    if let Some(trim) = api().and_then(|api| api.graphs_trim) {
        // SAFETY: no pointers.
        unsafe { trim(device) };
    }
}
