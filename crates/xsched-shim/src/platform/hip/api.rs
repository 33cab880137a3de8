//! Functions of the runtime that this library calls itself, one set for each copy of the runtime in the process, and
//! what it has learned of devices through them.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering::*};

use xsched_agent::say_once;
use xsched_core::{Runtime, thread};
use xsched_proto::segment::device_part;
use xsched_proto::settings::Log;
use xsched_vendor::functions;

use super::types::*;
use crate::enabled::{HIP, platform_enabled};
use crate::interpose::{BINDINGS, resolve};
use crate::lock::Lock;
use crate::platform::shared::lacking::Lacking;
use crate::platform::shared::{Handle, StreamKind, search_beside};
use crate::process;

functions! {
    /// Functions of a copy of the runtime, with signatures as in the header.
    pub(super) struct Functions -> hipError_t;
    needed {
        get_device: c"hipGetDevice" (*mut c_int);
        device_count: c"hipGetDeviceCount" (*mut c_int);
        device_pci: c"hipDeviceGetPCIBusId" (*mut c_char, c_int, c_int);
        peek_error: c"hipPeekAtLastError" ();
        take_error: c"hipGetLastError" ();
    }
    optional {
        device_name: c"hipDeviceGetName" (*mut c_char, c_int, c_int);
        stream_priority: c"hipStreamGetPriority" (hipStream_t, *mut c_int);
        stream_device: c"hipStreamGetDevice" (hipStream_t, *mut c_int);
        stream_capturing: c"hipStreamIsCapturing" (hipStream_t, *mut c_int);
        stream_flags: c"hipStreamGetFlags" (hipStream_t, *mut c_uint);
        exchange_capture_mode: c"hipThreadExchangeStreamCaptureMode" (*mut c_int);
        host_register: c"hipHostRegister" (*mut c_void, usize, c_uint);
        host_device_pointer: c"hipHostGetDevicePointer" (*mut *mut c_void, *mut c_void, c_uint);
        wait_value: c"hipStreamWaitValue32" (hipStream_t, *mut c_void, u32, c_uint, u32);
        write_value: c"hipStreamWriteValue32" (hipStream_t, *mut c_void, u32, c_uint);
        memory_info: c"hipMemGetInfo" (*mut usize, *mut usize);
        total_memory: c"hipDeviceTotalMem" (*mut usize, c_int);
    }
}

/// One copy of the runtime.
pub(super) struct Api {
    /// Number of the copy: its index in [`COPIES`].
    pub(super) index: usize,
    /// First address of the copy, and its end.
    start: usize,
    end: usize,
    /// Number of devices that the copy sees; -1 = not known yet.
    devices: AtomicI32,
    /// Devices that this process has registered its use of with the scheduler: bit n = device n.
    announced: AtomicU64,
    /// Set if the device asked last cannot reach the segment.
    pub(super) has_no_fences: AtomicBool,
    known: Lock<Known>,
    pub(super) functions: Functions,
}

/// Copies of the runtime that were called, in the order of their first call; at most as many as are told apart.
pub(super) static COPIES: [AtomicPtr<Api>; BINDINGS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; BINDINGS];

/// State of devices, by the runtime's number.
#[derive(Default)]
struct Known {
    /// Device addresses of parts of the segment, by device and offset of the part; 0 = the device cannot reach it.
    segments: HashMap<(c_int, usize), usize>,
    /// Device key, and whether device gates are safe there.
    devices: HashMap<c_int, (String, bool)>,
}

pub(super) fn copies() -> impl Iterator<Item = &'static Api> {
    // SAFETY: leaked when published, never freed.
    COPIES.iter().map_while(|at| unsafe { at.load(Acquire).as_ref() })
}

/// Reports whether an address lies in some copy of the runtime.
fn holds(address: usize) -> bool {
    copies().any(|api| api.holds(address))
}

/// Reports whether an address lies in a HIP runtime that is scheduled, on whatever driver it is built.
#[cold]
pub(crate) fn is_runtime(address: usize) -> bool {
    let is_named_so = || {
        let file = resolve::object_of(address).map(|(_, file)| file.into_bytes());
        file.is_some_and(|file| file.rsplit(|b| *b == b'/').next().is_some_and(|name| name.starts_with(b"libamdhip64")))
    };
    platform_enabled(HIP) && (holds(address) || is_named_so())
}

/// Reports whether a device waits at a gate without harm to other streams, by its key; `None` = no copy has such a
/// device.
pub(super) fn gates_are_safe(key: &str) -> Option<bool> {
    copies().find_map(|api| api.known().devices.values().find(|(name, _)| name == key).map(|(_, safe)| *safe))
}

/// Lock under which a copy is added.
static LOADING: Lock<()> = Lock::new();

/// Resets all state, in a forked child.
pub(super) fn forget_all() {
    LOADING.forget();
    for api in copies() {
        api.known.forget();
        api.announced.store(0, Relaxed);
    }
}

/// Drops all registrations, since those on some device may be gone. They are looked up again.
pub(super) fn forget_registrations() {
    copies().for_each(|api| api.known().segments.clear());
}

/// Reports whether device gates are safe on a device of this name. On AMD's own devices they are not: streams share
/// hardware queues there, so a gate in one stream holds others too, and a waiting gate is a kernel that spins.
fn has_gates(name: &str) -> bool {
    ["NVIDIA ", "Simulated "].iter().any(|prefix| name.starts_with(prefix))
}

impl Api {
    fn load(index: usize, address: usize) -> Option<Api> {
        // SAFETY: the runtime's functions have the header's signatures.
        let functions = unsafe { Functions::load(search_beside(address)) }.ok()?;
        let (start, end) = resolve::range_of(address)?;
        Some(Api {
            index,
            start,
            end,
            devices: AtomicI32::new(-1),
            announced: AtomicU64::new(0),
            has_no_fences: AtomicBool::new(false),
            known: Lock::new(),
            functions,
        })
    }

    #[cold]
    #[inline(never)]
    pub(super) fn other(real: usize) -> Option<&'static Api> {
        if let Some(known) = copies().find(|api| api.holds(real)) {
            return Some(known);
        }
        static LACKING: Lacking = Lacking::new();
        if LACKING.holds(real) {
            return None;
        }
        let index = copies().count();
        let Some(api) = Api::load(index, real) else {
            LACKING.note(HIP, real);
            return None;
        };
        resolve::keep(real);
        // Not earlier: the loader has locks of its own.
        let loading = LOADING.lock();
        if let Some(known) = copies().find(|api| api.holds(real)) {
            return Some(known);
        }
        let index = copies().count();
        let free = COPIES.get(index)?;
        let api = Box::into_raw(Box::new(Api { index, ..api }));
        free.store(api, Release);
        drop(loading);
        // SAFETY: leaked above, never freed.
        unsafe { api.as_ref() }
    }

    /// Reports whether this process has called at most one copy.
    pub(super) fn is_only() -> bool {
        copies().count() <= 1
    }

    #[inline(always)]
    pub(super) fn holds(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Reports whether the calling thread's current call comes from within the runtime.
    #[inline(always)]
    pub(super) fn is_called_by_itself(&self) -> bool {
        self.holds(thread::current().caller.get())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    /// Makes a call of ours whose failure the application's hipGetLastError must not show. Returns whether it
    /// succeeded.
    pub(super) fn quietly(&self, call: impl FnOnce() -> hipError_t) -> bool {
        // SAFETY: no arguments.
        let pending = unsafe { (self.functions.peek_error)() };
        let rc = call();
        if rc != SUCCESS && pending == SUCCESS {
            // SAFETY: no arguments.
            unsafe { (self.functions.take_error)() };
        }
        rc == SUCCESS
    }

    /// The calling thread's device. If there is only one, no call is made.
    #[inline(always)]
    pub(super) fn device(&self) -> Option<c_int> {
        if self.devices.load(Relaxed) == 1 { Some(0) } else { self.asked_device() }
    }

    #[cold]
    #[inline(never)]
    fn asked_device(&self) -> Option<c_int> {
        if self.devices.load(Relaxed) < 0 {
            let mut count = 0;
            // SAFETY: pointer to a local.
            if self.quietly(|| unsafe { (self.functions.device_count)(&mut count) }) {
                self.devices.store(count, Relaxed);
            }
        }
        let mut device = 0;
        // SAFETY: pointer to a local.
        self.quietly(|| unsafe { (self.functions.get_device)(&mut device) }).then_some(device)
    }

    /// Reports whether the scheduler knows that this process uses the calling thread's device.
    #[inline(always)]
    pub(super) fn is_announced(&self) -> bool {
        self.bit().is_some_and(|bit| self.announced.load(Relaxed) & bit != 0)
    }

    /// Records that the scheduler knows that this process uses the calling thread's device.
    pub(super) fn set_announced(&self) {
        self.announced.fetch_or(self.bit().unwrap_or(0), Relaxed);
    }

    fn bit(&self) -> Option<u64> {
        Some(1 << (self.device()? & 63))
    }

    /// Key of a device: its PCI address.
    pub(super) fn device_key(&self, device: c_int) -> Option<String> {
        if let Some((key, _)) = self.known().devices.get(&device) {
            return Some(key.clone());
        }
        let key = format!("pci:{}", self.text(device, self.functions.device_pci)?.to_ascii_lowercase());
        let name = self.functions.device_name.and_then(|ask| self.text(device, ask)).unwrap_or_default();
        self.known().devices.insert(device, (key.clone(), has_gates(&name)));
        Some(key)
    }

    fn text(
        &self,
        device: c_int,
        ask: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> hipError_t,
    ) -> Option<String> {
        let mut text: [c_char; 256] = [0; 256];
        // SAFETY: the buffer has the length given and one more, so that a NUL ends it.
        let answered = self.quietly(|| unsafe { ask(text.as_mut_ptr(), text.len() as c_int - 1, device) });
        // SAFETY: as above.
        answered.then(|| unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// Device address of an address in the segment, for the calling thread's device.
    pub(super) fn seen(&self, rt: &Runtime, address: usize) -> Option<*mut c_void> {
        let device = self.device()?;
        let segment = std::ptr::from_ref(rt.segment()) as usize;
        let (begin, bytes) = device_part(address - segment)?;
        let known = self.known().segments.get(&(device, begin)).copied();
        let base = match known {
            Some(base) => base,
            None => {
                let base = self.register(segment + begin, bytes);
                self.has_no_fences.store(base == 0, Relaxed);
                self.known().segments.insert((device, begin), base);
                base
            }
        };
        (base != 0).then(|| (base + (address - segment - begin)) as *mut c_void)
    }

    /// Registers the segment for the calling thread's device.
    pub(super) fn reach_segment(&self, rt: &Runtime) {
        self.seen(rt, std::ptr::from_ref(rt.segment()) as usize);
    }

    /// Registers a part of the segment. Returns its address for the calling thread's device; 0 = the device cannot
    /// reach it.
    fn register(&self, address: usize, bytes: usize) -> usize {
        let (Some(register), Some(pointer), Some(_)) =
            (self.functions.host_register, self.functions.host_device_pointer, self.functions.write_value)
        else {
            return 0;
        };
        let at = address as *mut c_void;
        let mut base = std::ptr::null_mut();
        // Relaxed mode, since registering during a capture in global mode would invalidate the capture.
        let mut mode = CAPTURE_RELAXED;
        let mut exchange = || {
            let Some(exchange) = self.functions.exchange_capture_mode else { return false };
            // SAFETY: pointer to a local.
            self.quietly(|| unsafe { exchange(&mut mode) })
        };
        let exchanged = exchange();
        // If another device of the process has registered it (portable), this fails; the pointer shows whether it is
        // registered.
        // SAFETY: a part of the segment, mapped until the process ends; pointers to locals.
        self.quietly(|| unsafe { register(at, bytes, REGISTER_FOR_DEVICES) });
        // SAFETY: as above.
        let answered = self.quietly(|| unsafe { pointer(&mut base, at, 0) });
        if exchanged {
            exchange();
        }
        if answered { base as usize } else { 0 }
    }

    /// Device of a stream: the calling thread's, unless the runtime says otherwise.
    pub(super) fn device_of(&self, handle: Handle) -> Option<c_int> {
        if handle.which == StreamKind::Own
            && self.devices.load(Relaxed) != 1
            && let Some(ask) = self.functions.stream_device
        {
            let mut device = 0;
            // SAFETY: the application's stream; pointer to a local.
            return self.quietly(|| unsafe { ask(handle.stream, &mut device) }).then_some(device);
        }
        self.device()
    }
}

/// Reports whether device gates are forced in this process, and logs their cost once.
pub(super) fn gates_are_forced() -> bool {
    static SAID: AtomicBool = AtomicBool::new(false);
    let forced = process::running().is_some_and(|rt| rt.forced_level() == Some(2));
    if forced {
        say_once(
            &SAID,
            Log::Error,
            Log::Error,
            "level 2 on an AMD GPU: a gate that waits is a kernel that spins, and it holds every stream that shares its \
             hardware queue",
        );
    }
    forced
}
