//! The way of every enqueue into the driver.

use std::collections::HashSet;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

use xsched_core::thread::{self, Entered, Held, Inside, Place};
use xsched_core::{Admission, CompletionFence, Inheritance, Runtime, Work, XQueue};
use xsched_proto::segment::{Counter, QUEUES};

use super::api::{self, Api};
use super::queue::{self, info};
use super::types::*;
use crate::interpose::resolve;
use crate::lock::Lock;
use crate::platform::OPENCL;
use crate::{process, stats};

/// User events that the application made and has not completed yet.
static USER_EVENTS: Lock<HashSet<usize>> = Lock::new();
static OPEN_USER_EVENTS: AtomicU32 = AtomicU32::new(0);
/// Queues with a command that may wait for a user event.
static HELD: [AtomicBool; QUEUES] = [const { AtomicBool::new(false) }; QUEUES];

/// What an enqueue function says about its call.
#[derive(Clone, Copy)]
pub(super) struct Call {
    /// The real function, as any pointer.
    pub(super) real: *mut c_void,
    /// The queue.
    pub(super) queue: cl_command_queue,
    /// Tells commands of different length apart; 0 = unknown.
    pub(super) key: u64,
    /// Returns when the command is complete.
    pub(super) blocking: bool,
    /// Events the command waits for.
    pub(super) waits: (cl_uint, *const cl_event),
    /// Where the application wants its event; may be null.
    pub(super) event: *mut cl_event,
    /// Whether the function can give an event at all.
    pub(super) gives_event: bool,
}

/// Takes a call into the driver. `enter` calls the real function with the event pointer it is given; `describe` says
/// more of the call where that is needed.
#[inline(always)]
pub(super) fn enqueue<F>(
    queue: cl_command_queue,
    event: *mut cl_event,
    enter: F,
    describe: impl FnOnce() -> Call + Copy,
) -> cl_int
where
    // Copied on the slow path only, so that arguments stay in registers on the fast one. Nothing that is copied
    // needs clean-up either.
    F: Fn(*mut cl_event) -> cl_int + Copy,
{
    // Inside a vendor call already: not the application's command.
    //
    // Nothing waits to be dropped while the driver runs, for a callback of the application's may throw through this
    // frame: a frame without clean-up is passed by any unwinder, while ours, which is linked in, cannot be mixed with
    // the application's. A fence left behind is recognised, as after longjmp.
    let place = Place::new();
    let Some(inside) = Inside::enter(&place, resolve::same_object).map(ManuallyDrop::new) else { return enter(event) };
    let rc = match thread::pass(queue as usize) {
        Ok(counted) => {
            let rc = enter(event);
            counted.done(rc == CL_SUCCESS);
            rc
        }
        Err(held) => {
            // Copies: only they have their addresses taken.
            #[allow(clippy::redundant_locals)]
            let (enter, describe) = (enter, describe);
            rest(held, queue as usize, event, &describe, &enter)
        }
    };
    drop(ManuallyDrop::into_inner(inside));
    rc
}

/// Whatever needs a closer look.
#[cold]
#[inline(never)]
fn rest(
    held: Held,
    key: usize,
    event: *mut cl_event,
    describe: &(impl FnOnce() -> Call + Copy),
    enter: &dyn Fn(*mut cl_event) -> cl_int,
) -> cl_int {
    match held.look(key) {
        Entered::Fast(counted) => {
            let rc = enter(event);
            counted.done(rc == CL_SUCCESS);
            rc
        }
        entered => slow_path(entered, &describe(), enter),
    }
}

#[cold]
#[inline(never)]
fn slow_path(entered: Entered, call: &Call, enter: &dyn Fn(*mut cl_event) -> cl_int) -> cl_int {
    let Some((rt, xqueue, counter)) = (match entered {
        Entered::Slow(xqueue, counter) => process::running().map(|rt| (rt, xqueue, counter)),
        _ => process::guarded("before a queue's first OpenCL command", || first_use(call)).flatten(),
    }) else {
        return enter(call.event);
    };
    let mut admission = Admission::default();
    let admitted = process::guarded("before an OpenCL command", || {
        let unbounded = waits_on_user_event(xqueue, call.waits);
        let work = Work { key: call.key, blocking: call.blocking, unbounded, ..Work::default() };
        xqueue.admit(rt, work, counter, &mut admission);
        admission.fenced &= api::of(xqueue).is_some_and(Api::reports_completion);
    });
    if admitted.is_none() {
        return enter(call.event);
    }
    let mut own: cl_event = std::ptr::null_mut();
    let event = if admission.fenced && call.gives_event && call.event.is_null() { &raw mut own } else { call.event };
    let rc = enter(event);
    process::guarded("after an OpenCL command", || {
        let fence = xqueue.commit(rt, &admission, rc == CL_SUCCESS, counter);
        if let Some(fence) = fence {
            if event.is_null() {
                place_marker(xqueue, fence);
            } else {
                // SAFETY: the driver stored an event there, since it accepted the command.
                follow(xqueue, fence, unsafe { *event }, !own.is_null());
            }
        }
        if rc == CL_SUCCESS && !rt.has_one_group() {
            lend_to_awaited(rt, xqueue, call.waits);
        }
    });
    rc
}

/// The queue of a thread that has not used it lately, counted.
fn first_use(call: &Call) -> Option<(&'static Runtime, &'static XQueue, &'static Counter)> {
    if call.queue.is_null() || !process::platform_enabled(OPENCL) {
        return None;
    }
    let rt = process::runtime()?;
    let key = call.queue as usize;
    // The call may have come through another library that wraps the function: the queue knows better.
    let known = rt.find(key).and_then(api::of);
    let api = known.or_else(|| Some(Api::beside(call.real)?.for_object(call.queue)))?;
    process::watch_thread();
    let xqueue = rt.remember(key, || queue::describe(call.queue, api))?;
    api::set(xqueue, api);
    let counter = rt.counter(xqueue);
    counter.launches.store(counter.launches.load(Relaxed).wrapping_add(1), SeqCst);
    Some((rt, xqueue, counter))
}

/// A completion to be reported, and what to clean up with it.
struct Note {
    rt: &'static Runtime,
    fence: CompletionFence,
    release: Option<(super::sig::clReleaseEvent, usize)>,
}

/// Follows a command by its event. `owned`: the event is ours to release.
fn follow(xqueue: &XQueue, fence: CompletionFence, event: cl_event, owned: bool) {
    let (Some(api), Some(rt)) = (api::of(xqueue), process::running()) else { return };
    // Marks are for queues with both functions only.
    let (Some(set_event_callback), Some(release_event)) = (api.set_event_callback, api.release_event) else { return };
    let release = owned.then_some((release_event, event as usize));
    let note = Box::into_raw(Box::new(Note { rt, fence, release }));
    // SAFETY: the event is alive: either ours, or just given to the application, which has not got it yet.
    let rc = unsafe { set_event_callback(event, CL_COMPLETE, Some(completed), note.cast()) };
    if rc != CL_SUCCESS {
        // SAFETY: not taken by the driver, so still ours.
        drop(unsafe { Box::from_raw(note) });
        xqueue.withdraw(&fence);
        if owned {
            // SAFETY: our own event, released once.
            unsafe { release_event(event) };
        }
    }
}

unsafe extern "C" fn completed(_event: cl_event, _status: cl_int, note: *mut c_void) {
    // SAFETY: the box made in `follow`, handed back once.
    let note = unsafe { Box::from_raw(note.cast::<Note>()) };
    process::guarded("at the completion of an OpenCL command", || XQueue::complete(note.rt, &note.fence));
    if let Some((release, event)) = note.release {
        // SAFETY: our own reference, released once.
        unsafe { release(event as cl_event) };
    }
}

/// Follows what was enqueued so far by a marker of our own.
fn place_marker(xqueue: &XQueue, fence: CompletionFence) {
    let Some(api) = api::of(xqueue) else { return };
    let mut event: cl_event = std::ptr::null_mut();
    let rc = match api.marker {
        // SAFETY: a living queue, no wait list, a local for the event.
        Some(marker) => unsafe { marker(xqueue.handle() as cl_command_queue, 0, std::ptr::null(), &mut event) },
        None => CL_INVALID_OPERATION,
    };
    if rc == CL_SUCCESS {
        stats::ADDED_MARKERS.fetch_add(1, Relaxed);
        follow(xqueue, fence, event, true);
    } else {
        xqueue.withdraw(&fence);
    }
}

/// After a wait for single events: follows commands whose completion nothing else would report.
pub(super) fn follow_tail(rt: &Runtime, xqueue: &XQueue) {
    if !api::of(xqueue).is_some_and(Api::reports_completion) {
        return;
    }
    let Some(fence) = xqueue.fence_suffix(rt) else { return };
    // The queue may be released by another thread meanwhile.
    let pinned = api::of(xqueue).and_then(|api| rt.while_alive(xqueue, || api.pin(xqueue)).flatten());
    if pinned.is_some() {
        place_marker(xqueue, fence);
    }
}

/// The XQueue of the command behind an event, if it has one that is known.
pub(super) fn queue_of(rt: &'static Runtime, api: &'static Api, event: cl_event) -> Option<&'static XQueue> {
    if event.is_null() {
        return None;
    }
    let event_info = api.for_object(event).event_info?;
    let handle: cl_command_queue = info(|size, at, got| {
        // SAFETY: an event the application passes to the driver itself; pointers to a local.
        unsafe { event_info(event, CL_EVENT_COMMAND_QUEUE, size, at, got) }
    })?;
    rt.find(handle as usize)
}

/// A queue whose next command waits for one of a less urgent group lends that group its priority until then.
fn lend_to_awaited(rt: &'static Runtime, waiter: &XQueue, (n, list): (cl_uint, *const cl_event)) {
    let Some(api) = api::of(waiter) else { return };
    let Some(set_event_callback) = api.set_event_callback else { return };
    if n == 0 || list.is_null() {
        return;
    }
    // SAFETY: the driver accepted the list.
    for event in unsafe { std::slice::from_raw_parts(list, n as usize) } {
        let Some(awaited) = queue_of(rt, api, *event) else { continue };
        let Some(lend) = Inheritance::for_queue(rt, awaited.group(rt), waiter.group(rt)) else { continue };
        let lend = Box::into_raw(Box::new(lend));
        // SAFETY: a living event; the box is handed over.
        if unsafe { set_event_callback(*event, CL_COMPLETE, Some(awaited_completed), lend.cast()) } != CL_SUCCESS {
            // SAFETY: not taken by the driver.
            drop(unsafe { Box::from_raw(lend) });
        }
    }
}

unsafe extern "C" fn awaited_completed(_event: cl_event, _status: cl_int, lend: *mut c_void) {
    process::guarded("at the end of a wait between OpenCL queues", || {
        // SAFETY: the box made in `lend_to_awaited`, handed back once.
        drop(unsafe { Box::from_raw(lend.cast::<Inheritance<'static>>()) });
    });
}

/// Whether a command may wait for something that only the application provides.
fn waits_on_user_event(xqueue: &XQueue, waits: (cl_uint, *const cl_event)) -> bool {
    let held = &HELD[usize::from(xqueue.index())];
    if OPEN_USER_EVENTS.load(Acquire) == 0 {
        held.store(false, Relaxed);
        return false;
    }
    if waits.0 != 0 {
        held.store(true, Relaxed);
    }
    held.load(Relaxed)
}

/// The application made a user event.
pub(super) fn user_event_made(event: cl_event) {
    let mut events = USER_EVENTS.lock();
    if events.insert(event as usize) {
        OPEN_USER_EVENTS.fetch_add(1, Release);
    }
}

/// The application completed a user event.
pub(super) fn user_event_set(event: cl_event) {
    let mut events = USER_EVENTS.lock();
    if events.remove(&(event as usize)) {
        OPEN_USER_EVENTS.fetch_sub(1, Release);
    }
}

/// In a forked child.
pub(super) fn forget_if_held() {
    if USER_EVENTS.forget_if_held() {
        OPEN_USER_EVENTS.store(0, Release);
    }
}

/// A key for commands that take equally long: same function or object, same extent. Cheap, and collisions only blur
/// an estimate.
#[inline(always)]
pub(super) fn key(what: usize, extent: &[usize]) -> u64 {
    let mut hash = what as u64 ^ 0x9e37_79b9_7f4a_7c15;
    for n in extent {
        hash = (hash.rotate_left(5) ^ *n as u64).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    hash | 1
}
