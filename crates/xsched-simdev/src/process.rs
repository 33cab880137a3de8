//! State of the process: its contexts, and their fate in a fork.

use crate::context::Context;
use crate::error::{Error, Result};
use crate::handle::{Handle, Kind};
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32};
use xsched_sim::client::{self, EventSlot, Slot, lock};

/// Upper limit of devices.
const DEVICES: usize = 16;

struct Process {
    /// Number of devices found; 0 = not known yet.
    count: AtomicU32,
    contexts: [AtomicPtr<Context>; DEVICES],
    making: Mutex<()>,
}

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());
static FORK_SEEN: AtomicBool = AtomicBool::new(false);
/// Epoch of the next context.
static EPOCH: AtomicU8 = AtomicU8::new(0);

thread_local! {
    static CURRENT: Cell<u8> = const { Cell::new(0) };
}

/// Handler in a forked child: abandons the parent's contexts, whose locks may be held by threads that do not exist
/// here, and closes their sockets, which would keep them alive on the device after the parent's end.
extern "C" fn after_fork() {
    let process = PROCESS.swap(std::ptr::null_mut(), AcqRel);
    // SAFETY: a process structure is never freed.
    let Some(process) = (unsafe { process.as_ref() }) else { return };
    for context in &process.contexts {
        // SAFETY: neither is a context.
        let Some(context) = (unsafe { context.load(Acquire).as_ref() }) else { continue };
        for fd in context.fds() {
            // SAFETY: this child's copy of a descriptor not used here.
            unsafe { libc::close(fd) };
        }
    }
}

fn process() -> &'static Process {
    // SAFETY: a process structure is never freed.
    if let Some(process) = unsafe { PROCESS.load(Acquire).as_ref() } {
        return process;
    }
    if !FORK_SEEN.swap(true, AcqRel) {
        // SAFETY: the handler makes only async-signal-safe calls, and this library is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
    }
    let new = Box::into_raw(Box::new(Process {
        count: AtomicU32::new(0),
        contexts: [const { AtomicPtr::new(std::ptr::null_mut()) }; DEVICES],
        making: Mutex::new(()),
    }));
    match PROCESS.compare_exchange(std::ptr::null_mut(), new, AcqRel, Acquire) {
        // SAFETY: just made, and shared from here on.
        Ok(_) => unsafe { &*new },
        Err(first) => {
            // SAFETY: `new` was not published; `first` is never freed.
            unsafe {
                drop(Box::from_raw(new));
                &*first
            }
        }
    }
}

/// Number of devices; finds out at the first call.
pub(crate) fn device_count() -> Result<u8> {
    let process = process();
    let known = process.count.load(Relaxed);
    if known != 0 {
        return Ok(known as u8);
    }
    let count = client::device_count()?.min(DEVICES as u64) as u8;
    process.count.store(count.into(), Relaxed);
    if count == 0 { Err(Error::NoDevice) } else { Ok(count) }
}

/// Checks the index of a device.
pub(crate) fn device(index: i32) -> Result<u8> {
    u8::try_from(index)
        .ok()
        .filter(|&i| device_count().is_ok_and(|count| i < count))
        .ok_or_else(|| device_count().err().unwrap_or(Error::InvalidValue))
}

/// The calling thread's device.
pub(crate) fn current_device() -> u8 {
    CURRENT.get()
}

pub(crate) fn set_current_device(index: u8) {
    CURRENT.set(index);
}

/// The context on a device, if there is one.
pub(crate) fn existing(device: u8) -> Option<&'static Context> {
    let slot = process().contexts.get(usize::from(device))?;
    // SAFETY: contexts are never freed.
    unsafe { slot.load(Acquire).as_ref() }
}

/// The context on a device, created if there is none.
pub(crate) fn context(device: u8) -> Result<&'static Context> {
    if let Some(context) = existing(device) {
        return Ok(context);
    }
    let process = process();
    let _turn = lock(&process.making);
    if let Some(context) = existing(device) {
        return Ok(context);
    }
    let context = Context::new(device, EPOCH.fetch_add(1, Relaxed))?;
    process.contexts[usize::from(device)].store(std::ptr::from_ref(context).cast_mut(), Release);
    Ok(context)
}

/// The calling thread's context.
pub(crate) fn current() -> Result<&'static Context> {
    context(current_device())
}

/// Ends the calling thread's context, if there is one.
pub(crate) fn reset() {
    let process = process();
    let _turn = lock(&process.making);
    let slot = &process.contexts[usize::from(current_device())];
    // SAFETY: contexts are never freed.
    if let Some(context) = unsafe { slot.swap(std::ptr::null_mut(), AcqRel).as_ref() } {
        context.close();
    }
}

/// All contexts of the process.
pub(crate) fn contexts() -> impl Iterator<Item = &'static Context> {
    (0..DEVICES as u8).filter_map(existing)
}

/// Context and slot of a stream handle.
pub(crate) fn stream(handle: *mut c_void) -> Result<(&'static Context, Slot)> {
    if handle.is_null() {
        return Ok((current()?, Slot::DEFAULT));
    }
    let handle = Handle::decode(handle).filter(|h| h.kind == Kind::Stream).ok_or(Error::InvalidHandle)?;
    let context = existing(handle.device).ok_or(Error::InvalidHandle)?;
    Ok((context, context.slot(handle)?))
}

/// Context and slot of an event handle.
pub(crate) fn event(handle: *mut c_void) -> Result<(&'static Context, EventSlot)> {
    let handle = Handle::decode(handle).filter(|h| h.kind == Kind::Event).ok_or(Error::InvalidHandle)?;
    let context = existing(handle.device).ok_or(Error::InvalidHandle)?;
    Ok((context, context.event(handle)?))
}
