//! OpenCL's part in the path of every command: events report completion, and a command may wait for the events in its
//! list.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

use xsched_core::{CompletionFence, Inheritance, Runtime, Work, XQueue};
use xsched_proto::segment::QUEUES;

use super::api::{self, Api};
use super::queue::{self, info};
use super::types::*;
use crate::enabled::OPENCL;
use crate::lock::Lock;
use crate::platform::shared::pipeline::{self, Missing, Pipeline};
use crate::{process, stats};

/// User events that the application created and has not completed yet.
static USER_EVENTS: Lock<HashSet<usize>> = Lock::new();
static OPEN_USER_EVENTS: AtomicU32 = AtomicU32::new(0);
/// Queues with a command that may wait for a user event, by slot.
static HELD: [AtomicBool; QUEUES] = [const { AtomicBool::new(false) }; QUEUES];

/// Properties of an enqueuing call.
pub(super) struct Call {
    /// The real function, as any pointer.
    real: *mut c_void,
    /// Key for commands that are expected to take equally long; 0 = unknown.
    key: u64,
    /// Set if the call returns when the command is complete.
    blocking: bool,
    /// Events that the command waits for.
    waits: (cl_uint, *const cl_event),
    /// Set if the function can return an event.
    gives_event: bool,
    /// Our own event, if the application asked for none.
    own: Cell<cl_event>,
}

impl Call {
    /// Describes a call of a function that can return an event.
    pub(super) fn new(real: *mut c_void, key: u64, blocking: bool, waits: (cl_uint, *const cl_event)) -> Call {
        Call { real, key, blocking, waits, gives_event: true, own: Cell::new(std::ptr::null_mut()) }
    }

    /// Describes a call of a function that returns no event.
    pub(super) fn without_event(self) -> Call {
        Call { gives_event: false, ..self }
    }
}

/// OpenCL's part in the path of a command: a fence follows the command by its event.
struct Queues;

impl Pipeline for Queues {
    const PLATFORM: u8 = OPENCL;
    const MAY_THROW: bool = true;

    type Call = cl_command_queue;
    /// Nothing: the library is found by the queue, when that is first used.
    type Library = ();
    type Target = cl_command_queue;
    type Command = Call;
    /// Place for the command's event; may be null.
    type Receipt = *mut cl_event;

    #[inline(always)]
    fn library(_: cl_command_queue) -> Option<()> {
        Some(())
    }

    #[inline(always)]
    fn target((): (), queue: cl_command_queue) -> Result<cl_command_queue, Missing> {
        Ok(queue)
    }

    #[inline(always)]
    fn key(queue: cl_command_queue) -> usize {
        queue as usize
    }

    fn is_scheduled(queue: cl_command_queue) -> bool {
        !queue.is_null()
    }

    fn first_use(rt: &'static Runtime, queue: cl_command_queue, call: &Call) -> Option<&'static XQueue> {
        let key = queue as usize;
        // The call may have come through another library that wraps the function, so the queue's own functions take
        // precedence.
        let known = rt.find(key).and_then(api::of);
        let api = known.or_else(|| Some(Api::beside(call.real)?.for_object(queue)))?;
        let xqueue = rt.remember(key, || queue::describe(queue, api))?;
        api::set(xqueue, api);
        Some(xqueue)
    }

    #[inline(always)]
    fn work(_: cl_command_queue, xqueue: &XQueue, call: &Call) -> Work {
        let unbounded = waits_on_user_event(xqueue, call.waits);
        Work { key: call.key, blocking: call.blocking, unbounded, ..Work::default() }
    }

    #[inline(always)]
    fn can_follow(xqueue: &XQueue) -> bool {
        api::of(xqueue).is_some_and(Api::reports_completion)
    }

    #[inline(always)]
    fn receipt(call: &Call, asked: *mut cl_event) -> *mut cl_event {
        if asked.is_null() && call.gives_event { call.own.as_ptr() } else { asked }
    }

    fn place_fence(
        _: cl_command_queue,
        rt: &'static Runtime,
        xqueue: &XQueue,
        fence: &CompletionFence,
        call: &Call,
        event: *mut cl_event,
    ) -> bool {
        if event.is_null() {
            return place_marker(rt, xqueue, fence);
        }
        // SAFETY: the driver stored an event there, since it accepted the command.
        follow(rt, xqueue, fence, unsafe { *event }, !call.own.get().is_null())
    }

    #[inline(always)]
    fn tells(call: impl Fn() -> Call) -> bool {
        call().blocking
    }

    #[inline(always)]
    fn accepted(rt: &'static Runtime, xqueue: &XQueue, call: &Call) {
        if call.waits.0 != 0 && !rt.has_one_group() {
            lend_to_awaited(rt, xqueue, call.waits);
        }
    }
}

/// Enqueues a command. `enter` calls the real function with the event pointer that it is given; `describe` describes
/// the call, and is called only if that is needed.
#[inline(always)]
pub(super) fn enqueue(
    queue: cl_command_queue,
    event: *mut cl_event,
    enter: impl Fn(*mut cl_event) -> cl_int + Copy,
    describe: impl Fn() -> Call + Copy,
) -> cl_int {
    pipeline::enqueue::<Queues>(queue, event, describe, enter)
}

/// A completion to report, and the event to release with it.
struct Note {
    rt: &'static Runtime,
    fence: CompletionFence,
    release: Option<(super::sig::clReleaseEvent, usize)>,
}

/// Follows a command by its event, so that its completion completes the fence. `owned`: the event is ours to release.
/// Returns false if the driver refused.
fn follow(rt: &'static Runtime, xqueue: &XQueue, fence: &CompletionFence, event: cl_event, owned: bool) -> bool {
    // Only queues whose library has both functions get fences.
    let functions = api::of(xqueue).and_then(|api| api.functions.set_event_callback.zip(api.functions.release_event));
    let Some((set_event_callback, release_event)) = functions else { return false };
    let release = owned.then_some((release_event, event as usize));
    let note = Box::into_raw(Box::new(Note { rt, fence: *fence, release }));
    // SAFETY: the event is alive: either ours, or just given to the application, which has not got it yet.
    let rc = unsafe { set_event_callback(event, CL_COMPLETE, Some(completed), note.cast()) };
    if rc != CL_SUCCESS {
        // SAFETY: not taken by the driver, so still ours.
        drop(unsafe { Box::from_raw(note) });
        if owned {
            // SAFETY: our own event, released once.
            unsafe { release_event(event) };
        }
    }
    rc == CL_SUCCESS
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

/// Follows all commands so far by a marker of our own. Returns false if the driver refused.
fn place_marker(rt: &'static Runtime, xqueue: &XQueue, fence: &CompletionFence) -> bool {
    let Some(marker) = api::of(xqueue).and_then(|api| api.functions.marker) else { return false };
    let mut event: cl_event = std::ptr::null_mut();
    // SAFETY: a living queue, no wait list, a local for the event.
    if unsafe { marker(xqueue.handle().cast(), 0, std::ptr::null(), &mut event) } != CL_SUCCESS {
        return false;
    }
    stats::ADDED_MARKERS.fetch_add(1, Relaxed);
    follow(rt, xqueue, fence, event, true)
}

/// Follows the last commands of a queue, after a wait for single events, if nothing else would report their completion.
pub(super) fn follow_tail(rt: &'static Runtime, xqueue: &XQueue) {
    let Some(api) = api::of(xqueue).filter(|api| api.reports_completion()) else { return };
    pipeline::fence_suffix(rt, xqueue, |fence| {
        // Another thread may release the queue meanwhile; its fences then go with it.
        let Some(pinned) = rt.while_alive(xqueue, || api.pin(xqueue)) else { return true };
        pinned.is_some() && place_marker(rt, xqueue, fence)
    });
}

/// XQueue of the command behind an event, if it is known.
pub(super) fn queue_of(rt: &'static Runtime, api: &'static Api, event: cl_event) -> Option<&'static XQueue> {
    if event.is_null() {
        return None;
    }
    let event_info = api.for_object(event).functions.event_info?;
    let handle: cl_command_queue = info(|size, at, got| {
        // SAFETY: an event the application passes to the driver itself; pointers to a local.
        unsafe { event_info(event, CL_EVENT_COMMAND_QUEUE, size, at, got) }
    })?;
    rt.find(handle as usize)
}

/// Lends a queue's priority to the less urgent groups whose commands its next command waits for, until these are
/// complete.
fn lend_to_awaited(rt: &'static Runtime, waiter: &XQueue, (n, list): (cl_uint, *const cl_event)) {
    let Some(api) = api::of(waiter) else { return };
    let Some(set_event_callback) = api.functions.set_event_callback else { return };
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

/// Reports whether a command may wait for a user event, which only the application completes.
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

/// Records a user event that the application created.
pub(super) fn user_event_made(event: cl_event) {
    let mut events = USER_EVENTS.lock();
    if events.insert(event as usize) {
        OPEN_USER_EVENTS.fetch_add(1, Release);
    }
}

/// Records that the application completed a user event.
pub(super) fn user_event_set(event: cl_event) {
    let mut events = USER_EVENTS.lock();
    if events.remove(&(event as usize)) {
        OPEN_USER_EVENTS.fetch_sub(1, Release);
    }
}

/// Resets the state in a forked child, if another thread of the parent held it.
pub(super) fn forget_if_held() {
    if USER_EVENTS.forget_if_held() {
        OPEN_USER_EVENTS.store(0, Release);
    }
}

/// Key for commands that are expected to take equally long: same function or object, same extent. Cheap to compute; a
/// collision only blurs an estimate.
#[inline(always)]
pub(super) fn key(what: usize, extent: &[usize]) -> u64 {
    let mut hash = what as u64 ^ 0x9e37_79b9_7f4a_7c15;
    for n in extent {
        hash = (hash.rotate_left(5) ^ *n as u64).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    hash | 1
}
