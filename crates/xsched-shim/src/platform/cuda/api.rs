//! Driver functions that this library calls itself, and what it has learned of contexts and devices through them.

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::unix::fs::MetadataExt;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering::*};

use xsched_core::{Runtime, XQueue};
use xsched_proto::backlog::PAGE_BYTES;
use xsched_proto::segment::device_part;
use xsched_proto::wire::{Levels, Sharing};
use xsched_vendor::functions;

use super::hot::hot;
use super::types::*;
use super::{pool, timeslice};
use crate::enabled::CUDA;
use crate::lock::Lock;
use crate::platform::shared::lacking::Lacking;
use crate::platform::shared::search_beside;

functions! {
    /// Functions of the driver, with signatures as in cuda.h.
    pub(super) struct Api -> CUresult;
    needed {
        ctx_get_current: c"cuCtxGetCurrent" (*mut CUcontext);
        ctx_get_device: c"cuCtxGetDevice" (*mut CUdevice);
        ctx_push: c"cuCtxPushCurrent_v2" (CUcontext);
        ctx_pop: c"cuCtxPopCurrent_v2" (*mut CUcontext);
        primary_state: c"cuDevicePrimaryCtxGetState" (CUdevice, *mut c_uint, *mut c_int);
        device_count: c"cuDeviceGetCount" (*mut c_int);
        device_attribute: c"cuDeviceGetAttribute" (*mut c_int, c_int, CUdevice);
        device_name: c"cuDeviceGetName" (*mut c_char, c_int, CUdevice);
        device_pci: c"cuDeviceGetPCIBusId" (*mut c_char, c_int, CUdevice);
        device_uuid: c"cuDeviceGetUuid_v2" (*mut [u8; 16], CUdevice);
        stream_context: c"cuStreamGetCtx" (CUstream, *mut CUcontext);
        stream_priority: c"cuStreamGetPriority" (CUstream, *mut c_int);
        stream_capturing: c"cuStreamIsCapturing" (CUstream, *mut c_int);
        stream_flags: c"cuStreamGetFlags" (CUstream, *mut c_uint);
        exchange_capture_mode: c"cuThreadExchangeStreamCaptureMode" (*mut c_int);
        host_register: c"cuMemHostRegister_v2" (*mut c_void, usize, c_uint);
        host_device_pointer: c"cuMemHostGetDevicePointer_v2" (*mut CUdeviceptr, *mut c_void, c_uint);
        wait_value: c"cuStreamWaitValue32_v2" (CUstream, CUdeviceptr, u32, c_uint);
        write_value: c"cuStreamWriteValue32_v2" (CUstream, CUdeviceptr, u32, c_uint);
    }
}

/// State of contexts and devices, as learned from the driver.
#[derive(Default)]
struct Known {
    /// Device addresses of parts of shared memory, by context and by host address of the part; 0 = the context cannot
    /// reach it.
    parts: HashMap<(usize, usize), CUdeviceptr>,
    /// Devices by the driver's number.
    devices: HashMap<CUdevice, Device>,
    /// Context of each queue, by the queue's key.
    queues: HashMap<usize, usize>,
    /// Handles of primary contexts, by device.
    primaries: HashMap<CUdevice, usize>,
}

/// A device, as learned from the driver.
struct Device {
    key: String,
    levels: Levels,
    sharing: Sharing,
}

/// Set if the context asked last cannot reach the segment.
pub(super) static NO_FENCES: AtomicBool = AtomicBool::new(false);

static KNOWN: Lock<Option<Known>> = Lock::new();

fn known() -> MutexGuard<'static, Option<Known>> {
    KNOWN.lock()
}

/// Preemption levels of a device, by its key.
pub(super) fn levels(key: &str) -> Levels {
    let base = of_device(key, |device| device.levels).unwrap_or(Levels::ONE);
    if timeslice::available() { base } else { base.without(Levels::THREE) }
}

/// Way in which the contexts on a device share it, by the device's key.
pub(super) fn sharing(key: &str) -> Sharing {
    of_device(key, |device| device.sharing).unwrap_or_default()
}

/// Reports whether this process is a client of an MPS server, as far as its devices are known.
pub(crate) fn is_mps_client() -> bool {
    known().as_ref().is_some_and(|known| known.devices.values().any(|device| device.sharing != Sharing::Time))
}

/// Number common to all clients of one MPS server: that of its pipe directory, which is the same under any of its
/// names.
fn mps_server() -> u64 {
    let folder = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").unwrap_or_else(|| "/tmp/nvidia-mps".into());
    std::fs::metadata(folder).map_or(0, |folder| folder.dev().rotate_left(32) ^ folder.ino())
}

fn of_device<T>(key: &str, ask: impl FnOnce(&Device) -> T) -> Option<T> {
    known().as_ref()?.devices.values().find(|device| device.key == key).map(ask)
}

/// Resets all state, in a forked child.
pub(super) fn forget_all() {
    KNOWN.forget();
}

/// Drops what is known of a context that is gone (`None` = one without queues of its own). The state of other contexts
/// is looked up again.
pub(super) fn forget_contexts(gone: Option<usize>) {
    if let Some(known) = known().as_mut() {
        known.parts.clear();
        known.queues.retain(|_, context| gone.is_none_or(|gone| *context != gone));
    }
}

/// Records the context of a queue that is used for the first time.
pub(super) fn note_queue(key: usize, context: usize) {
    known().get_or_insert_default().queues.insert(key, context);
}

/// Reports whether a queue may lie in a context. It may if either is unknown.
pub(super) fn lies_in(key: usize, context: Option<usize>) -> bool {
    let lies = known().as_ref().and_then(|k| k.queues.get(&key)).copied();
    context.is_none_or(|context| lies.is_none_or(|lies| lies == context))
}

/// Drops a queue that is gone.
pub(super) fn forget_queue(key: usize) {
    if let Some(known) = known().as_mut() {
        known.queues.remove(&key);
    }
}

/// Handle of a device's primary context, if the application was ever given it.
pub(super) fn primary(device: CUdevice) -> Option<usize> {
    known().as_ref()?.primaries.get(&device).copied()
}

/// Records the handle of a primary context that the application was given.
pub(super) fn note_primary(device: CUdevice, context: usize) {
    known().get_or_insert_default().primaries.insert(device, context);
}

impl Api {
    #[cold]
    #[inline(never)]
    pub(super) fn first(real: *mut c_void) -> Option<&'static Api> {
        static LACKING: Lacking = Lacking::new();
        if LACKING.holds(real as usize) {
            return None;
        }
        // SAFETY: the driver's functions have cuda.h's signatures.
        let Ok(api) = (unsafe { Api::load(search_beside(real as usize)) }) else {
            LACKING.note(CUDA, real as usize);
            return None;
        };
        let api = Box::into_raw(Box::new(api));
        hot().api.store(api, Release);
        // SAFETY: leaked above, never freed.
        unsafe { api.as_ref() }
    }

    /// The functions, if a call found them already.
    pub(super) fn known() -> Option<&'static Api> {
        // SAFETY: leaked when published, never freed.
        unsafe { hot().api.load(Acquire).as_ref() }
    }

    /// The calling thread's context; null if it has none.
    #[inline(always)]
    pub(super) fn context(&self) -> CUcontext {
        let mut context = std::ptr::null_mut();
        // SAFETY: pointer to a local; a failure leaves null.
        unsafe { (self.ctx_get_current)(&mut context) };
        context
    }

    /// The calling thread's device.
    pub(super) fn device(&self) -> Option<CUdevice> {
        let mut device = 0;
        // SAFETY: pointer to a local.
        (unsafe { (self.ctx_get_device)(&mut device) } == SUCCESS).then_some(device)
    }

    /// Device of a context.
    pub(super) fn device_of_context(&self, context: CUcontext) -> Option<CUdevice> {
        let mut popped = std::ptr::null_mut();
        // SAFETY: the caller's context, made current for a moment; pointer to a local.
        unsafe {
            if (self.ctx_push)(context) != SUCCESS {
                return None;
            }
            let device = self.device();
            (self.ctx_pop)(&mut popped);
            device
        }
    }

    /// Key of a context's device.
    pub(super) fn key_of_context(&self, context: CUcontext) -> Option<String> {
        self.device_key(self.device_of_context(context)?)
    }

    /// Reports whether a device's primary context is not in use. If the driver does not say, it counts as gone, since
    /// the streams of a context that is gone must not be used.
    pub(super) fn has_no_primary(&self, device: CUdevice) -> bool {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: pointers to locals.
        unsafe { (self.primary_state)(device, &mut flags, &mut active) != SUCCESS || active == 0 }
    }

    /// Reports whether this process has used at most one context.
    pub(super) fn has_one_context(&self) -> bool {
        known().as_ref().is_none_or(|known| {
            let mut contexts = known.parts.keys().map(|(context, _)| context);
            let first = contexts.next();
            contexts.all(|context| Some(context) == first)
        })
    }

    /// Key of a device: its PCI address, or the UUID of an instance of a divided (MIG) device.
    pub(super) fn device_key(&self, device: CUdevice) -> Option<String> {
        if let Some(Device { key, .. }) = known().get_or_insert_default().devices.get(&device) {
            return Some(key.clone());
        }
        let mut name: [c_char; 128] = [0; 128];
        // SAFETY: the buffer has the length given; the driver ends the text with a NUL.
        let name = unsafe {
            if (self.device_name)(name.as_mut_ptr(), name.len() as c_int - 1, device) != SUCCESS {
                return None;
            }
            CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
        };
        let key = if name.contains(" MIG ") { self.instance(device)? } else { self.address(device)? };
        let attribute = |which| {
            let mut value = 0;
            // SAFETY: pointer to a local.
            if unsafe { (self.device_attribute)(&mut value, which, device) } == SUCCESS { value } else { 0 }
        };
        // Device gates need stream memory operations. Time slices separate contexts only where each has its own
        // channels.
        let sharing = match attribute(ATTRIBUTE_MPS) != 0 {
            true if pool::is_member() => Sharing::Pool,
            true => Sharing::Spatial(mps_server()),
            false => Sharing::Time,
        };
        let levels = Levels::ONE
            .with_if(attribute(ATTRIBUTE_WAIT_VALUE) != 0, Levels::TWO)
            .with_if(sharing == Sharing::Time, Levels::THREE);
        let found = Device { key: key.clone(), levels, sharing };
        known().get_or_insert_default().devices.insert(device, found);
        Some(key)
    }

    fn address(&self, device: CUdevice) -> Option<String> {
        let mut text: [c_char; 32] = [0; 32];
        // SAFETY: the buffer has the length given; the driver ends the text with a NUL.
        unsafe {
            if (self.device_pci)(text.as_mut_ptr(), text.len() as c_int, device) != SUCCESS {
                return None;
            }
            Some(format!("pci:{}", CStr::from_ptr(text.as_ptr()).to_string_lossy().to_ascii_lowercase()))
        }
    }

    fn instance(&self, device: CUdevice) -> Option<String> {
        let mut uuid = [0u8; 16];
        // SAFETY: pointer to a local of 16 bytes.
        if unsafe { (self.device_uuid)(&mut uuid, device) } != SUCCESS {
            return None;
        }
        let hex: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        Some(format!("mig:{}", parts.join("-")))
    }

    /// Device address of an address in the segment, in the calling thread's context.
    pub(super) fn seen(&self, rt: &Runtime, address: usize) -> Option<CUdeviceptr> {
        let segment = std::ptr::from_ref(rt.segment()) as usize;
        let (begin, bytes) = device_part(address - segment)?;
        let base = self.seen_part(segment + begin, bytes)?;
        Some(base + (address - segment - begin) as u64)
    }

    /// Device address of a part of shared memory in the calling thread's context; registers it if need be. The part
    /// begins at `begin` and has this many bytes.
    fn seen_part(&self, begin: usize, bytes: usize) -> Option<CUdeviceptr> {
        let context = self.context();
        if context.is_null() {
            // Without a context, the driver is about to refuse this thread's command.
            return None;
        }
        let mut known = known();
        let parts = &mut known.get_or_insert_default().parts;
        let base = *parts.entry((context as usize, begin)).or_insert_with(|| {
            let base = self.register(begin, bytes).unwrap_or(0);
            NO_FENCES.store(base == 0, Relaxed);
            base
        });
        (base != 0).then_some(base)
    }

    /// Registers the segment with a context.
    pub(super) fn reach_segment(&self, rt: &Runtime, context: CUcontext) {
        let mut popped = std::ptr::null_mut();
        // SAFETY: the application's new context, made current for a moment; pointer to a local.
        unsafe {
            if (self.ctx_push)(context) == SUCCESS {
                self.seen(rt, std::ptr::from_ref(rt.segment()) as usize);
                (self.ctx_pop)(&mut popped);
            }
        }
    }

    /// Makes the device write a fence's number to the word that other processes read.
    pub(super) fn publish(&self, rt: &Runtime, queue: &XQueue, place: usize, number: u32) {
        let page = rt.own_page().unwrap_or(place);
        let at = self.seen_part(page, PAGE_BYTES).map(|base| base + (place - page) as u64);
        // SAFETY: a word of the registered page; the stream is the one whose command was just taken.
        let can = at.is_some_and(|at| unsafe { (self.write_value)(queue.handle().cast(), at, number, 0) == SUCCESS });
        queue.publishes(rt, can);
    }

    fn register(&self, address: usize, bytes: usize) -> Option<CUdeviceptr> {
        let at = address as *mut c_void;
        // Relaxed mode, since registering during a capture in global mode would invalidate the capture.
        let mut mode = CAPTURE_RELAXED;
        let mut base = 0;
        // SAFETY: a part of the segment, mapped until the process ends; pointers to locals.
        unsafe {
            let exchanged = (self.exchange_capture_mode)(&mut mode) == SUCCESS;
            // If another context of the process has registered it (portable), this fails; the pointer shows whether it
            // is registered.
            (self.host_register)(at, bytes, REGISTER_FOR_DEVICES);
            let rc = (self.host_device_pointer)(&mut base, at, 0);
            if exchanged {
                (self.exchange_capture_mode)(&mut mode);
            }
            (rc == SUCCESS && base != 0).then_some(base)
        }
    }
}
