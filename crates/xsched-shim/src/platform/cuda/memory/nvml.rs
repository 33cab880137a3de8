//! NVIDIA's management library, as a program asks it for a device's memory: the answers agree with the driver's.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use xsched_vendor::functions;
use xsched_vendor::nvml::Pci;

use super::super::real;
use super::super::types::*;
use super::{device, figures};
use crate::enabled::{CUDA, platform_enabled};
use crate::interpose::hooks;
use crate::platform::shared::search_beside;
use crate::process;

/// NVML_ERROR_UNINITIALIZED.
const NOT_INITIALIZED: c_int = 1;

/// nvmlMemory_t of nvml.h.
#[repr(C)]
pub(super) struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// nvmlMemory_v2_t of nvml.h.
#[repr(C)]
pub(super) struct Memory2 {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// nvmlMemory_v2.
const VERSION_2: c_uint = size_of::<Memory2>() as c_uint | 2 << 24;

#[allow(non_camel_case_types)]
mod sig {
    use super::{Memory, Memory2, c_int, c_void};
    pub(super) type nvmlDeviceGetMemoryInfo = unsafe extern "C" fn(*mut c_void, *mut Memory) -> c_int;
    pub(super) type nvmlDeviceGetMemoryInfo_v2 = unsafe extern "C" fn(*mut c_void, *mut Memory2) -> c_int;
}

functions! {
    /// Functions of the library that are called here, with the types of nvml.h.
    struct Api -> c_int;
    optional {
        pci: c"nvmlDeviceGetPciInfo_v3" (*mut c_void, *mut Pci);
        uuid: c"nvmlDeviceGetUUID" (*mut c_void, *mut c_char, c_uint);
        memory_2: c"nvmlDeviceGetMemoryInfo_v2" (*mut c_void, *mut Memory2);
    }
}

static API: AtomicPtr<Api> = AtomicPtr::new(std::ptr::null_mut());

/// The functions beside the one at `real`. A process has one such library.
fn beside(real: *mut c_void) -> Option<&'static Api> {
    if API.load(Acquire).is_null() {
        // SAFETY: the library's functions have nvml.h's signatures.
        let api = unsafe { Api::load(search_beside(real as usize)) }.ok()?;
        API.store(Box::into_raw(Box::new(api)), Release);
    }
    // SAFETY: leaked when published, never freed.
    unsafe { API.load(Acquire).as_ref() }
}

/// Key of a device, as the driver's device has it; see `device_key` in `api.rs`.
fn key(api: &Api, handle: *mut c_void) -> Option<String> {
    let mut uuid: [c_char; 96] = [0; 96];
    // SAFETY: the program's handle; a local with as much room as is said, which the library ends with a NUL.
    let uuid = unsafe {
        let told = (api.uuid?)(handle, uuid.as_mut_ptr(), uuid.len() as c_uint - 1) == SUCCESS;
        told.then(|| CStr::from_ptr(uuid.as_ptr()).to_string_lossy().to_ascii_lowercase())?
    };
    if let Some(instance) = uuid.strip_prefix("mig-") {
        return Some(format!("mig:{instance}"));
    }
    let mut pci = Pci::default();
    // SAFETY: as above; a local of the type.
    let told = unsafe { (api.pci?)(handle, &mut pci) } == SUCCESS;
    told.then(|| format!("pci:{}", pci.address()))
}

/// Memory of a device that programs can have: the first version of the call counts what the driver keeps for itself.
fn capacity(api: &Api, handle: *mut c_void) -> Option<u64> {
    let mut memory = Memory2 { version: VERSION_2, total: 0, reserved: 0, free: 0, used: 0 };
    // SAFETY: the program's handle; a local of the type.
    let told = unsafe { (api.memory_2?)(handle, &mut memory) } == SUCCESS;
    told.then(|| memory.total.saturating_sub(memory.reserved))
}

/// Free and total memory of a device as the program is to see them; `None` = as the library says.
fn seen(real: *mut c_void, handle: *mut c_void, free: u64, total: u64) -> Option<(u64, u64)> {
    process::guarded("after memory was told", || {
        if !platform_enabled(CUDA) {
            return None;
        }
        let api = beside(real)?;
        let slot = device::by_key(&key(api, handle)?, capacity(api, handle).unwrap_or(total))?;
        let seen = figures::seen(slot, free, total);
        (seen != (free, total)).then_some(seen)
    })
    .flatten()
}

unsafe extern "C" fn nvmlDeviceGetMemoryInfo(handle: *mut c_void, memory: *mut Memory) -> c_int {
    let (real, function) = real!(nvmlDeviceGetMemoryInfo);
    // SAFETY: the caller's own arguments.
    let rc = unsafe { function(handle, memory) };
    if rc == SUCCESS
        // SAFETY: the caller's own structure, which the library just filled.
        && let Some(memory) = unsafe { memory.as_mut() }
        && let Some((free, total)) = seen(real, handle, memory.free, memory.total)
    {
        *memory = Memory { total, free, used: total - free };
    }
    rc
}

unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(handle: *mut c_void, memory: *mut Memory2) -> c_int {
    let (real, function) = real!(nvmlDeviceGetMemoryInfo_v2);
    // SAFETY: the caller's own arguments.
    let rc = unsafe { function(handle, memory) };
    if rc == SUCCESS
        // SAFETY: the caller's own structure, which the library just filled.
        && let Some(memory) = unsafe { memory.as_mut() }
        && let Some((free, total)) = seen(real, handle, memory.free, memory.total)
    {
        let reserved = if total < memory.total { 0 } else { memory.reserved };
        let used = total.saturating_sub(free).saturating_sub(reserved);
        *memory = Memory2 { version: memory.version, total, reserved, free, used };
    }
    rc
}

hooks! { CUDA, MEMORY: Memory; nvmlDeviceGetMemoryInfo nvmlDeviceGetMemoryInfo_v2 }
