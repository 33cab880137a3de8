//! Calls that wait for the device, or may. The queues waited for are not idle meanwhile, and inherit the waiting
//! thread's priority.

use std::ffi::{c_int, c_void};

use xsched_core::{Group, Runtime, Waiting, XQueue, thread};

use super::{DefaultStreamMode, Driver, SUCCESS, Stream, loads};
use crate::process;

/// XQueues that a synchronising call waits for.
pub(crate) type Awaited = Vec<(&'static XQueue, Waiting)>;

/// Begins a wait for these queues, and for those of other groups that are held on the device, since the former may
/// depend on them.
pub(crate) fn begin_for<Q: IntoIterator<Item = &'static XQueue>>(which: impl FnOnce(&'static Runtime) -> Q) -> Awaited {
    let begun = process::guarded("before a wait", || {
        let Some(rt) = process::running() else { return Vec::new() };
        let mut awaited: Awaited = which(rt).into_iter().map(|q| (q, q.sync_begin(rt))).collect();
        if !rt.has_one_group() {
            awaited.extend(held(rt));
        }
        awaited
    });
    begun.unwrap_or_default()
}

/// Queues whose commands the driver has, but which are held on the device.
fn held(rt: &'static Runtime) -> impl Iterator<Item = (&'static XQueue, Waiting)> {
    rt.queues().filter(move |q| q.is_held_on_device(rt)).map(move |q| (q, q.sync_all_begin(rt)))
}

/// Sleeps until the group is granted the device. Commands held on the device cannot complete before that, and the
/// driver would poll for them all the time.
fn sleep_until_turn(awaited: &Awaited) {
    process::guarded("before a wait", || {
        let Some(rt) = process::running().filter(|rt| rt.has_one_group()) else { return };
        if let Some((queue, _)) = awaited.iter().find(|(queue, _)| queue.waits_for_turn(rt)) {
            queue.wait_turn(rt);
        }
    });
}

/// Begins a wait for all of these queues at once.
pub(crate) fn begin(which: impl FnOnce(&'static Runtime) -> Vec<&'static XQueue>) -> Awaited {
    let begun = process::guarded("before a wait", || {
        let Some(rt) = process::running() else { return Vec::new() };
        which(rt).into_iter().map(|q| (q, q.sync_all_begin(rt))).collect()
    });
    begun.unwrap_or_default()
}

/// Ends a wait. `complete` is set if all commands that were given to the queues before the wait are complete.
pub(crate) fn end(awaited: Awaited, complete: bool) {
    if awaited.is_empty() {
        return;
    }
    process::guarded("after a wait", || {
        let Some(rt) = process::running() else { return };
        for (xqueue, waiting) in awaited {
            xqueue.sync_end(rt, waiting, complete);
        }
    });
}

/// All XQueues on a device.
pub(crate) fn on_device(rt: &'static Runtime, key: &str) -> Vec<&'static XQueue> {
    // Compares the device of each group instead of each queue, since groups are few and queues may be many.
    let lies_there = |group: &u16| rt.device_of(*group).is_some_and(|(device, _)| device == key);
    let groups: Vec<u16> = rt.groups().map(Group::index).filter(lies_there).collect();
    rt.queues().filter(|q| groups.contains(&q.group(rt).index())).collect()
}

/// Queues in the calling thread's context, as nearly as it can be known: those on its device.
pub(crate) fn of_context<D: Driver>(rt: &'static Runtime, real: *mut c_void) -> Vec<&'static XQueue> {
    let device = outside::<D>(real).and_then(D::current_device_key);
    device.map_or_else(Vec::new, |key| on_device(rt, &key))
}

/// The library of a call, unless the call comes from within the library.
fn outside<D: Driver>(real: *mut c_void) -> Option<&'static D> {
    D::beside(real).filter(|api| !api.is_inner(thread::current().caller.get()))
}

/// Waits for one stream. The legacy default stream implies a wait for others too, which are left as they are.
pub(crate) fn stream_call<D: Driver>(
    real: *mut c_void,
    stream: Stream,
    mode: DefaultStreamMode,
    call: impl FnOnce() -> c_int,
) -> c_int {
    with_stream::<D>(real, stream, mode, true, call)
}

/// Runs a call whose success means that a stream is complete. `waits` is set if the call waits for that.
fn with_stream<D: Driver>(
    real: *mut c_void,
    stream: Stream,
    mode: DefaultStreamMode,
    waits: bool,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let queue = |rt: &'static Runtime| {
        let handle = outside::<D>(real).and_then(|api| api.handle(stream, mode));
        handle.and_then(|h| rt.find(h.key))
    };
    let awaited = begin_for(queue);
    if waits {
        sleep_until_turn(&awaited);
    }
    let rc = call();
    end(awaited, rc == SUCCESS);
    rc
}

/// Runs a query of a stream. A program may poll instead of waiting; the answer "complete" is as good as a finished
/// wait.
pub(crate) fn stream_question<D: Driver>(
    real: *mut c_void,
    stream: Stream,
    mode: DefaultStreamMode,
    ask: impl FnOnce() -> c_int,
) -> c_int {
    if process::running().is_some_and(Runtime::is_contended) {
        with_stream::<D>(real, stream, mode, false, ask)
    } else {
        ask()
    }
}

/// Waits for a whole context. `alone` is set if it is the only one on its device, which is then idle afterwards.
pub(crate) fn context_call<D: Driver>(real: *mut c_void, alone: bool, call: impl FnOnce() -> c_int) -> c_int {
    let awaited = begin(|rt| of_context::<D>(rt, real));
    sleep_until_turn(&awaited);
    let rc = call();
    end(awaited, rc == SUCCESS && alone);
    rc
}

/// Waits for an event. It may be anywhere in its stream, so its completion does not mean that the stream is complete. (A
/// fence was placed before it, see [`super::path::order`].) If there are several groups, the one waited for is unknown.
pub(crate) fn event_call<D: Driver>(real: *mut c_void, call: impl FnOnce() -> c_int) -> c_int {
    let Some(rt) = process::running() else { return call() };
    if !rt.is_contended() {
        return rt.wait_for_some(call);
    }
    let awaited = if rt.has_one_group() { begin(|rt| of_context::<D>(rt, real)) } else { begin_for(|_| None) };
    let rc = call();
    end(awaited, false);
    process::guarded("after a wait for an event", || rt.update_idle_states());
    rc
}

/// Runs a call that may wait for the device, or for a lock that a waiting call holds. It matters for priority
/// inheritance only.
pub(crate) fn lending_call<D: Driver, T>(real: *mut c_void, call: impl FnOnce() -> T) -> T {
    let several = process::running().is_some_and(|rt| !rt.has_one_group() && rt.is_contended());
    if !several || outside::<D>(real).is_none() {
        return call();
    }
    let awaited = begin_for(|_| None);
    let rc = call();
    end(awaited, false);
    rc
}

/// Runs a call that may load code, unless it was called with `what` before. To load code, a driver may wait until the
/// context has finished its commands, in a way that occupies the device while some of them are held. So the call waits
/// for the group's grant first, and nothing is held meanwhile.
pub(crate) fn loading_call<D: Driver, T>(
    real: *mut c_void,
    what: Option<*const c_void>,
    call: impl FnOnce() -> T,
) -> T {
    let may_be_held = process::running().is_some_and(|rt| rt.has_one_group() && rt.is_contended());
    if !may_be_held || outside::<D>(real).is_none() {
        return lending_call::<D, T>(real, call);
    }
    if what.is_some_and(|handle| !loads::is_first(loads::Use::Call(real), handle)) {
        return call();
    }
    let begun = process::guarded("before code is loaded", || {
        let rt = process::running()?;
        if let Some(queue) = rt.queues().find(|queue| queue.waits_for_turn(rt)) {
            queue.wait_turn(rt);
        }
        rt.begin_load();
        Some(rt)
    });
    let rc = call();
    if let Some(Some(rt)) = begun {
        process::guarded("after code was loaded", || rt.end_load());
    }
    rc
}

/// Runs a call that unloads code.
pub(crate) fn unloading_call<D: Driver, T>(real: *mut c_void, call: impl FnOnce() -> T) -> T {
    let rc = lending_call::<D, T>(real, call);
    loads::forget_all();
    rc
}
