//! The functions of the interface, as `include/xsched` describes them.
#![allow(non_snake_case)] // published names

use std::ffi::c_void;
use std::sync::Arc;

use xsched_capi::types::*;

use super::command::{Command, is_in_command};
use super::queue::Queue;
use super::tables::{Hardware, Kind, with};
use super::{hints, launch};
use crate::enabled::platform_enabled;
use crate::interpose::resolve;
use crate::platform::hal::{HardwareQueue, waiting};
use crate::platform::{cuda, hip, opencl, start};
use crate::process;

type Done<T = ()> = Result<T, XResult>;

fn answer(done: Done) -> XResult {
    done.err().unwrap_or(XResult::SUCCESS)
}

/// Stores a result at the caller's place.
///
/// # Safety
/// `place` is null or a place of the caller's.
unsafe fn give<T>(place: *mut T, value: impl FnOnce() -> Done<T>) -> XResult {
    if place.is_null() {
        return XResult::INVALID_VALUE;
    }
    match value() {
        Ok(value) => {
            // SAFETY: by the caller's promise, not null.
            unsafe { place.write(value) };
            XResult::SUCCESS
        }
        Err(why) => why,
    }
}

fn queue(handle: XQueueHandle) -> Done<Arc<Queue>> {
    with(|t| t.queue(handle))
}

/// Limits an XQueue to a preemption level, for the scheduler too if the hardware queue is scheduled. Returns the level.
fn set_level(hardware: &Hardware, level: i64) -> Done<u8> {
    let level = u8::try_from(level).map_err(|_| XResult::NOT_SUPPORTED)?;
    let enabled = platform_enabled(hardware.kind.platform());
    match enabled.then(start::runtime).flatten().and_then(|rt| Some((rt, hardware.queue.xqueue(rt)?))) {
        Some((rt, xqueue)) if hints::levels(rt, xqueue).has(level) => hints::limit(rt, xqueue, level).map(|()| level),
        // Unscheduled queue: the program can still hold back its own commands (level 1).
        None if level == 1 => Ok(level),
        _ => Err(XResult::NOT_SUPPORTED),
    }
}

/// Reports whether this library has seen the program's own launches on a queue. Such a queue is scheduled already and
/// lacks only a handle.
fn is_transparent(queue: &dyn HardwareQueue) -> bool {
    let known = || process::running().is_some_and(|rt| rt.find(queue.key()).is_some_and(|xq| xq.launches(rt) > 0));
    known() && resolve::is_preloaded()
}

pub(super) unsafe fn XQueueCreate(xq: *mut XQueueHandle, hwq: HwQueueHandle, level: i64, flags: i64) -> XResult {
    let make = || {
        if flags & !flag::BLOCKING_SUBMIT != 0 {
            return Err(XResult::INVALID_VALUE);
        }
        let hardware = with(|t| t.hardware(hwq))?;
        if with(|t| t.over(hwq)).is_some() {
            return Err(XResult::NOT_ALLOWED);
        }
        let level = set_level(&hardware, level)?;
        with(|t| t.add_queue(hwq, |handle, hardware| Arc::new(Queue::new(handle, hardware, level, flags))))
    };
    // SAFETY: the caller's own place.
    unsafe { give(xq, make) }
}

pub(super) unsafe fn XQueueDestroy(xq: XQueueHandle) -> XResult {
    let destroy = || {
        if is_in_command() {
            return Err(XResult::NOT_ALLOWED);
        }
        let queue = with(|t| t.remove_queue(xq))?;
        queue.end();
        Ok(())
    };
    answer(destroy())
}

pub(super) unsafe fn XQueueGet(xq: *mut XQueueHandle, hwq: HwQueueHandle) -> XResult {
    let find = || {
        let hardware = with(|t| t.hardware(hwq))?;
        if let Some(known) = with(|t| t.over(hwq)) {
            return Ok(known);
        }
        if !is_transparent(&*hardware.queue) {
            return Err(XResult::NOT_FOUND);
        }
        with(|t| t.add_queue(hwq, |handle, hardware| Arc::new(Queue::new(handle, hardware, 1, 0))))
    };
    // SAFETY: the caller's own place.
    unsafe { give(xq, find) }
}

pub(super) unsafe fn XQueueSetPreemptLevel(xq: XQueueHandle, level: i64) -> XResult {
    let set = || {
        let queue = queue(xq)?;
        let level = set_level(queue.hardware(), level)?;
        queue.state().level = level;
        Ok(())
    };
    answer(set())
}

pub(super) unsafe fn XQueueSetLaunchConfig(xq: XQueueHandle, threshold: i64, batch_size: i64) -> XResult {
    let set = || {
        let queue = queue(xq)?;
        if batch_size < 1 || threshold < batch_size {
            return Err(XResult::INVALID_VALUE);
        }
        let mut state = queue.state();
        (state.threshold, state.batch) = (threshold as u64, batch_size as u64);
        Ok(())
    };
    answer(set())
}

pub(super) unsafe fn XQueueSubmit(xq: XQueueHandle, command: HwCommandHandle) -> XResult {
    let submit = || {
        let queue = queue(xq)?;
        let command = with(|t| t.command(command))?;
        launch::submit(&queue, command)
    };
    answer(submit())
}

pub(super) unsafe fn XQueueWait(xq: XQueueHandle, command: HwCommandHandle) -> XResult {
    let wait = || {
        let queue = queue(xq)?;
        let command = with(|t| t.command(command))?;
        queue.wait(&command)?;
        match command.result() {
            XResult::SUCCESS => Ok(()),
            other => Err(other),
        }
    };
    answer(wait())
}

pub(super) unsafe fn XQueueWaitAll(xq: XQueueHandle) -> XResult {
    answer(queue(xq).and_then(|queue| queue.wait_all()))
}

pub(super) unsafe fn XQueueQuery(xq: XQueueHandle, state: *mut XQueueState) -> XResult {
    // SAFETY: the caller's own place.
    unsafe { give(state, || Ok(queue(xq)?.query())) }
}

pub(super) unsafe fn XQueueSuspend(xq: XQueueHandle, flags: i64) -> XResult {
    let known = flag::SYNC_HW_QUEUE | flag::WAIT_ALL | flag::WAIT_IDLE;
    if flags & !known != 0 {
        return XResult::INVALID_VALUE;
    }
    answer(queue(xq).and_then(|queue| queue.suspend(flags)))
}

pub(super) unsafe fn XQueueResume(xq: XQueueHandle, flags: i64) -> XResult {
    if flags & !flag::DROP_COMMANDS != 0 {
        return XResult::INVALID_VALUE;
    }
    answer(queue(xq).map(|queue| queue.resume(flags)))
}

pub(super) unsafe fn XQueueProfileHwCommandCount(xq: XQueueHandle, count: *mut i64) -> XResult {
    // SAFETY: the caller's own place.
    unsafe { give(count, || Ok(queue(xq)?.count() as i64)) }
}

pub(super) unsafe fn HwQueueDestroy(hwq: HwQueueHandle) -> XResult {
    answer(with(|t| t.remove_hardware(hwq)))
}

pub(super) unsafe fn HwQueueLaunch(hwq: HwQueueHandle, command: HwCommandHandle) -> XResult {
    let run = || {
        let (hardware, command) = (with(|t| t.hardware(hwq))?, with(|t| t.command(command))?);
        hardware.queue.within(&mut || _ = launch::launch(&hardware, &command));
        match command.result() {
            XResult::SUCCESS => Ok(()),
            other => Err(other),
        }
    };
    answer(run())
}

pub(super) unsafe fn HwQueueSynchronize(hwq: HwQueueHandle) -> XResult {
    let wait = || {
        let queue = with(|t| t.hardware(hwq))?.queue.clone();
        let mut done = false;
        queue.within(&mut || done = waiting(queue.key(), true, || queue.synchronize()));
        if done { Ok(()) } else { Err(XResult::HARDWARE) }
    };
    answer(wait())
}

pub(super) unsafe fn HwCommandCreateCallback(
    command: *mut HwCommandHandle,
    callback: LaunchCallback,
    data: *mut c_void,
) -> XResult {
    let make = || {
        let callback = callback.ok_or(XResult::INVALID_VALUE)?;
        Ok(with(|t| t.add_command(Command::new(callback, data))))
    };
    // SAFETY: the caller's own place.
    unsafe { give(command, make) }
}

pub(super) unsafe fn HwCommandDestroy(command: HwCommandHandle) -> XResult {
    answer(with(|t| t.remove_command(command)))
}

pub(super) unsafe fn XHintSetScheduler(scheduler: XSchedulerType, policy: XPolicyType) -> XResult {
    answer(hints::choose(scheduler, policy))
}

pub(super) unsafe fn XHintPriority(xq: XQueueHandle, priority: Priority) -> XResult {
    answer(queue(xq).and_then(|queue| hints::priority(&queue, priority)))
}

pub(super) unsafe fn XHintUtilization(xq: XQueueHandle, utilization: Utilization) -> XResult {
    answer(queue(xq).and_then(|queue| hints::utilization(&queue, utilization)))
}

pub(super) unsafe fn XHintTimeslice(timeslice: Timeslice) -> XResult {
    answer(hints::timeslice(timeslice))
}

pub(super) unsafe fn XHintLaxity(xq: XQueueHandle, laxity: Laxity, lax: Priority, critical: Priority) -> XResult {
    answer(queue(xq).and_then(|queue| hints::laxity(&queue, laxity, lax, critical)))
}

pub(super) unsafe fn XHintDeadline(xq: XQueueHandle, deadline: Deadline) -> XResult {
    answer(queue(xq).and_then(|queue| hints::deadline(&queue, deadline)))
}

pub(super) unsafe fn XHintKDeadline(k: usize) -> XResult {
    answer(hints::k(k))
}

/// Handle of a hardware queue; always the same for the same queue.
fn hardware(kind: Kind, queue: Option<Arc<dyn HardwareQueue>>) -> Done<HwQueueHandle> {
    let queue = queue.ok_or(XResult::HARDWARE)?;
    with(|t| {
        let known = t.handle_of(kind, queue.key());
        Ok(known.unwrap_or_else(|| t.add_hardware(kind, queue)))
    })
}

pub(super) unsafe fn CudaQueueCreate(hwq: *mut HwQueueHandle, stream: *mut c_void) -> XResult {
    // SAFETY: the caller's own place.
    unsafe { give(hwq, || hardware(Kind::Cuda, cuda::hal::queue(stream))) }
}

pub(super) unsafe fn CudaQueueGet(hwq: *mut HwQueueHandle, stream: *mut c_void) -> XResult {
    let find = || {
        let queue = cuda::hal::queue(stream).ok_or(XResult::HARDWARE)?;
        match with(|t| t.handle_of(Kind::Cuda, queue.key())) {
            Some(known) => Ok(known),
            None if is_transparent(&*queue) => hardware(Kind::Cuda, Some(queue)),
            None => Err(XResult::NOT_FOUND),
        }
    };
    // SAFETY: the caller's own place.
    unsafe { give(hwq, find) }
}

pub(super) unsafe fn HipQueueCreate(hwq: *mut HwQueueHandle, stream: *mut c_void) -> XResult {
    // SAFETY: the caller's own place.
    unsafe { give(hwq, || hardware(Kind::Hip, hip::hal::queue(stream))) }
}

pub(super) unsafe fn OclQueueCreate(hwq: *mut HwQueueHandle, queue: *mut c_void) -> XResult {
    // SAFETY: the caller's own place.
    unsafe { give(hwq, || hardware(Kind::OpenCl, opencl::hal::hardware_queue(queue))) }
}
