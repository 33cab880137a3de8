//! Functions of the simulated device that this library calls itself.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};

use xsched_core::{CompletionFence, QueueSpec, Runtime, XQueue};
use xsched_proto::gate::Gate;
use xsched_proto::segment::device_part;
use xsched_proto::wire::Platform;
use xsched_vendor::functions;

use crate::enabled::SIM;
use crate::lock::Lock;
use crate::platform::shared::{DefaultStreamMode, Driver, Handle, Stream, StreamKind, search_beside};

/// simWaitAnd of simdev.h.
const WAIT_AND: c_uint = 2;

functions! {
    /// Functions of the library, with signatures as in simdev.h.
    pub(super) struct Api -> c_int;
    needed {
        get_device: c"simGetDevice" (*mut c_int);
        stream_priority: c"simStreamGetPriority" (*mut c_void, *mut c_int);
        host_register: c"simHostRegister" (*mut c_void, usize);
        wait_value: c"simStreamWaitValue32" (*mut c_void, *mut c_void, u32, c_uint);
        write_value: c"simStreamWriteValue32" (*mut c_void, *mut c_void, u32);
        set_runnable: c"simContextSetRunnable" (c_int, c_int);
    }
}

static API: AtomicPtr<Api> = AtomicPtr::new(std::ptr::null_mut());
/// Devices whose context has registered a part of our segment, with the part's beginning. A reset of the device drops
/// it.
static REGISTERED: Lock<Vec<(c_int, usize)>> = Lock::new();

impl Api {
    #[cold]
    #[inline(never)]
    fn first(real: *mut c_void) -> Option<&'static Api> {
        // SAFETY: the library's functions have simdev.h's signatures.
        let api = unsafe { Api::load(search_beside(real as usize)) }.ok()?;
        let api = Box::into_raw(Box::new(api));
        API.store(api, Release);
        Api::known()
    }

    /// The functions of the simulated driver, if an earlier call has found them.
    #[inline(always)]
    pub(super) fn known() -> Option<&'static Api> {
        // SAFETY: leaked above, never freed.
        unsafe { API.load(Acquire).as_ref() }
    }

    /// The calling thread's device.
    pub(super) fn device(&self) -> Option<c_int> {
        let mut device = 0;
        // SAFETY: pointer to a local.
        (unsafe { (self.get_device)(&mut device) } == 0).then_some(device)
    }
}

/// Key of a device.
pub(super) fn key_of(device: c_int) -> String {
    format!("{}:{device}", Platform::Sim.name())
}

impl Api {
    /// Makes the part of the segment with this address reachable for the calling thread's device. Returns whether it
    /// is.
    fn reaches(&self, rt: &Runtime, address: usize) -> bool {
        let segment = std::ptr::from_ref(rt.segment()) as usize;
        let (Some(device), Some((begin, bytes))) = (self.device(), device_part(address - segment)) else {
            return false;
        };
        let mut registered = REGISTERED.lock();
        // SAFETY: a part of the segment, mapped until the process ends.
        let known = registered.contains(&(device, begin))
            || unsafe { (self.host_register)((segment + begin) as *mut c_void, bytes) } == 0;
        if known && !registered.contains(&(device, begin)) {
            registered.push((device, begin));
        }
        known
    }
}

impl Driver for Api {
    const PLATFORM: u8 = SIM;

    /// A process has one such library, so the first copy found serves.
    #[inline(always)]
    fn beside(real: *mut c_void) -> Option<&'static Api> {
        Api::known().or_else(|| Api::first(real))
    }

    #[inline(always)]
    fn which(_: Stream, mode: DefaultStreamMode) -> StreamKind {
        mode
    }

    fn is_blocking(&self, _: Handle) -> bool {
        false
    }

    fn some_capture(&self) -> bool {
        false
    }

    #[inline(always)]
    fn recording(&self, _: Stream, _: DefaultStreamMode) -> Option<bool> {
        Some(false)
    }

    /// The key is the stream's handle, or for the default stream a number made of the device's: no handle is so small.
    #[inline(always)]
    fn handle(&self, stream: Stream, which: DefaultStreamMode) -> Option<Handle> {
        let key = if stream.is_null() { 1 + self.device()? as usize } else { stream as usize };
        Some(Handle { stream, which, key })
    }

    /// Describes a stream, and makes the segment reachable for the device's context.
    fn describe(&self, rt: &Runtime, handle: Handle) -> Option<QueueSpec> {
        let device = self.device()?;
        if !self.reaches(rt, std::ptr::from_ref(rt.segment()) as usize) {
            return None;
        }
        let mut priority = 0;
        // SAFETY: the application's stream; pointer to a local.
        if unsafe { (self.stream_priority)(handle.stream, &mut priority) } != 0 {
            return None;
        }
        Some(QueueSpec {
            handle: handle.stream.cast(),
            platform: SIM,
            device: key_of(device),
            priority_steps: priority,
            in_order: true,
        })
    }

    fn place_fence(&self, rt: &Runtime, queue: &XQueue, fence: &CompletionFence) -> bool {
        let word = queue.slot(rt).completed_word.as_ptr();
        // SAFETY: a word of the registered part of the segment.
        self.reaches(rt, word as usize) && unsafe { (self.write_value)(queue.handle(), word.cast(), fence.number) == 0 }
    }

    fn gate(&self, rt: &Runtime, queue: &XQueue) -> bool {
        let group = usize::from(queue.group(rt).index());
        let word = rt.segment().groups[group].gate.as_ptr().cast();
        // SAFETY: a word of the registered segment. A refusal leaves the host gate.
        unsafe { (self.wait_value)(queue.handle(), word, Gate::DEVICE_OPEN.bits(), WAIT_AND) == 0 }
    }

    fn has_no_fences(&self) -> bool {
        false
    }

    fn current_device_key(&self) -> Option<String> {
        self.device().map(key_of)
    }
}

/// Sets whether the device runs this process's work (level 3). A store to the device's registers, without a lock of the
/// driver.
pub(super) fn set_runnable(device: c_int, on: bool) {
    // SAFETY: leaked when set.
    if let Some(api) = unsafe { API.load(Acquire).as_ref() } {
        // SAFETY: plain integers.
        unsafe { (api.set_runnable)(device, c_int::from(on)) };
    }
}

/// Drops the registrations of a device that was reset: its context is new.
pub(super) fn forget_registration(device: c_int) {
    REGISTERED.lock().retain(|(registered, _)| *registered != device);
}

/// Resets all state, in a forked child.
pub(crate) fn forget_all_registrations() {
    REGISTERED.forget();
}
