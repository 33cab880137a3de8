//! Memory that the driver takes for a context: code, stacks, buffers. The driver tells free memory only to a thread with a
//! context, so NVIDIA's management library is asked once, while a context is made.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::atomic::Ordering::Relaxed;

use xsched_vendor::functions;

use super::super::types::*;
use crate::interpose::resolve;
use crate::lock::Lock;
use crate::platform::shared::memory::{Part, account};

/// File name of the library.
const LIBRARY: &CStr = c"libnvidia-ml.so.1";
/// Largest amount that counts as a context's own. Other programs allocate meanwhile, too.
const MOST: u64 = 2 << 30;
/// Largest number of processes that are asked for.
const PROCESSES_MAX: usize = 256;

/// nvmlDevice_t.
type Handle = *mut c_void;

/// nvmlProcessInfo_t of nvml.h, in the second and third version of the function.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfo {
    pid: c_uint,
    bytes: u64,
    instances: [c_uint; 2],
}

functions! {
    /// Functions of the library, with the types of nvml.h.
    struct Api -> c_int;
    optional {
        init: c"nvmlInit_v2" ();
        shutdown: c"nvmlShutdown" ();
        by_address: c"nvmlDeviceGetHandleByPciBusId_v2" (*const c_char, *mut Handle);
        by_uuid: c"nvmlDeviceGetHandleByUUID" (*const c_char, *mut Handle);
        memory: c"nvmlDeviceGetMemoryInfo" (Handle, *mut [u64; 3]);
        processes_3: c"nvmlDeviceGetComputeRunningProcesses_v3" (Handle, *mut c_uint, *mut ProcessInfo);
        processes_2: c"nvmlDeviceGetComputeRunningProcesses_v2" (Handle, *mut c_uint, *mut ProcessInfo);
    }
}

/// A device of the library, while a context is made there.
pub(in super::super) struct Before {
    api: Api,
    handle: Handle,
    used: Option<u64>,
}

/// Overhead by context.
static CONTEXTS: Lock<HashMap<usize, (u16, u64)>> = Lock::new();

impl Before {
    /// Asks for the memory in use on the device with this key.
    pub(in super::super) fn of(key: &str) -> Option<Before> {
        // Never closed: the library may have threads of its own.
        // SAFETY: a C string; the library's constructors are trusted as the driver's are.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        if library.is_null() {
            resolve::forget_failures();
            return None;
        }
        // SAFETY: the types are those of nvml.h.
        let api = unsafe { Api::load(|name: &CStr| resolve::look_up(library, name)) }.ok()?;
        // With NVML_INIT_FLAG_NO_ATTACH it would be quicker, but then it tells nothing of a device.
        // SAFETY: needs nothing.
        if unsafe { (api.init?)() } != SUCCESS {
            return None;
        }
        let mut before = Before { api, handle: std::ptr::null_mut(), used: None };
        before.find(key)?;
        before.used = before.used_now();
        Some(before)
    }

    fn find(&mut self, key: &str) -> Option<()> {
        let (find, name) = match key.split_once(':')? {
            ("pci", address) => (self.api.by_address?, format!("{address}\0")),
            ("mig", uuid) => (self.api.by_uuid?, format!("MIG-{uuid}\0")),
            _ => return None,
        };
        // SAFETY: a C string; pointer to a member.
        (unsafe { find(name.as_ptr().cast(), &mut self.handle) } == SUCCESS).then_some(())
    }

    /// Memory in use on the device, by all processes.
    fn used_now(&self) -> Option<u64> {
        let mut memory = [0; 3];
        // SAFETY: a live handle; a local of the size of nvmlMemory_t: total, free, used.
        (unsafe { (self.api.memory?)(self.handle, &mut memory) } == SUCCESS).then_some(memory[2])
    }

    /// Memory of this process on the device, if the library tells it.
    fn own(&self) -> Option<u64> {
        let get = self.api.processes_3.or(self.api.processes_2)?;
        let mut found = vec![ProcessInfo::default(); PROCESSES_MAX];
        let mut count = PROCESSES_MAX as c_uint;
        // SAFETY: a live handle, and room for as many as is said.
        if unsafe { get(self.handle, &mut count, found.as_mut_ptr()) } != SUCCESS {
            return None;
        }
        found.truncate(count as usize);
        let own = found.iter().find(|process| process.pid == std::process::id())?.bytes;
        // A value with all bits set means: not available.
        (own != u64::MAX).then_some(own)
    }

    /// Counts the memory that a context has taken, which is current now.
    pub(in super::super) fn made(self, slot: u16, context: usize) {
        let held = account::words(slot).map_or(0, |words| words.used_bytes.load(Relaxed));
        let measured = match self.own() {
            Some(own) => own.saturating_sub(held),
            None => self.used.zip(self.used_now()).map_or(0, |(before, now)| now.saturating_sub(before)),
        };
        if measured > 0 && measured <= MOST {
            account::add(slot, Part::Overhead, measured);
            if let Some((slot, bytes)) = CONTEXTS.lock().insert(context, (slot, measured)) {
                account::subtract(slot, Part::Overhead, bytes);
            }
        }
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        if let Some(shutdown) = self.api.shutdown {
            // SAFETY: ends what `of` began; no handle is used after it.
            unsafe { shutdown() };
        }
    }
}

/// Counts a context's overhead out: it has ended.
pub(super) fn ended(context: usize) {
    if let Some((slot, bytes)) = CONTEXTS.lock().remove(&context) {
        account::subtract(slot, Part::Overhead, bytes);
    }
}

/// Empties the table, in a forked child.
pub(super) fn forget_all() {
    CONTEXTS.forget();
}
