//! The way of every command into a stream.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering::*;

use xsched_core::thread::{self, Entered, Inside, Place};
use xsched_core::{Admission, Runtime, Work, XQueue};
use xsched_proto::segment::Counter;

use super::{DefaultStreamMode, Driver, Handle, SUCCESS, Stream, late, loads};
use crate::interpose::resolve;
use crate::process;

/// Work of which nothing is known.
pub(crate) const UNKNOWN: Work = Work { key: 0, blocking: false, unbounded: false, may_prequeue: false, loads: false };

fn mixed(parts: impl IntoIterator<Item = u64>) -> u64 {
    // FNV-1a over words. Only for telling commands apart, and 0 means unknown.
    let hash = |h: u64, part: u64| (h ^ part).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    parts.into_iter().fold(0xcbf2_9ce4_8422_2325, hash) | 1
}

/// What a kernel is known by: its handle and shape.
pub(crate) fn kernel_key(function: *const c_void, shape: &[c_uint]) -> u64 {
    mixed(shape.iter().map(|n| u64::from(*n)).chain([function as u64]))
}

/// A kernel that is about to be launched, by its handle and shape.
pub(crate) fn kernel(function: *const c_void, shape: &[c_uint]) -> Work {
    prequeueable(Work {
        key: kernel_key(function, shape),
        loads: loads::is_first(loads::Use::Launch, function),
        ..UNKNOWN
    })
}

/// What the driver takes at once, whatever the stream waits for: nothing of it is needed from the host any more.
pub(crate) fn prequeueable(work: Work) -> Work {
    Work { may_prequeue: true, ..work }
}

/// A graph.
pub(crate) fn graph(exec: *const c_void) -> Work {
    Work { may_prequeue: false, ..kernel(exec, &[]) }
}

/// A transfer of so many bytes (or elements): commands of about the same size are alike.
pub(crate) fn transfer(size: usize) -> Work {
    Work { key: mixed([u64::MAX, u64::from(size.max(1).ilog2())]), ..UNKNOWN }
}

/// A transfer that is complete when the call returns.
pub(crate) fn blocking_transfer(size: usize) -> Work {
    Work { blocking: true, ..transfer(size) }
}

/// Takes a command into the driver. `enter` calls the real function, whose address is `real`; `work` says more of the
/// command where that is needed.
#[inline(always)]
pub(crate) fn enqueue<D: Driver>(
    real: *mut c_void,
    stream: Stream,
    mode: DefaultStreamMode,
    work: impl Fn() -> Work + Copy,
    enter: impl Fn() -> c_int + Copy,
) -> c_int {
    let place = Place::new();
    let Some(api) = D::beside(real) else { return enter() };
    if api.is_inner(thread::current().caller.get()) {
        return enter();
    }
    // Inside a driver call already: not the application's command.
    let Some(_inside) = Inside::enter(&place, resolve::same_object) else { return enter() };
    if api.is_recording(stream, mode) {
        return enter();
    }
    let Some(handle) = api.handle(stream, mode) else { return enter() };
    match thread::pass(handle.key) {
        Ok(counted) => {
            let rc = enter();
            counted.done(rc == SUCCESS);
            rc
        }
        Err(held) => {
            // Copies: only they have their addresses taken, so that the way above keeps its arguments in registers.
            #[allow(clippy::redundant_locals)]
            let (work, enter) = (work, enter);
            rest(api, held, handle, &work, &enter)
        }
    }
}

/// Whatever needs a closer look, out of the way of what does not.
#[cold]
#[inline(never)]
fn rest<D: Driver>(
    api: &D,
    held: thread::Held,
    handle: Handle,
    work: &impl Fn() -> Work,
    enter: &impl Fn() -> c_int,
) -> c_int {
    match held.look(handle.key) {
        Entered::Fast(counted) => {
            let rc = enter();
            counted.done(rc == SUCCESS);
            rc
        }
        entered => slow_path(entered, api, handle, work(), enter),
    }
}

#[cold]
#[inline(never)]
fn slow_path<D: Driver>(entered: Entered, api: &D, handle: Handle, work: Work, enter: &dyn Fn() -> c_int) -> c_int {
    let Some((rt, xqueue, counter)) = (match entered {
        Entered::Slow(xqueue, counter) => process::running().map(|rt| (rt, xqueue, counter)),
        _ => process::guarded("before a queue's first command", || first_use(api, handle)).flatten(),
    }) else {
        return enter();
    };
    let mut admission = Admission::default();
    let admitted = process::guarded("before a command", || {
        // Where nothing tells of completions, nothing can be bounded by them.
        let unbounded = work.unbounded || api.has_no_fences();
        xqueue.admit(rt, Work { unbounded, ..work }, counter, &mut admission);
        if admission.device_gate && !api.gate(rt, xqueue) && admission.prequeued {
            xqueue.wait_turn(rt);
        }
        if admission.loads {
            rt.begin_load();
        }
    });
    if admitted.is_none() {
        return enter();
    }
    let rc = if work.blocking { rt.wait_for_some(enter) } else { enter() };
    process::guarded("after a command", || {
        if admission.loads {
            rt.end_load();
        }
        if let Some(fence) = xqueue.commit(rt, &admission, rc == SUCCESS, counter)
            && !api.place_fence(rt, xqueue, &fence)
        {
            xqueue.withdraw(&fence);
        }
    });
    rc
}

/// The queue of a thread that has not used it lately, counted.
fn first_use<D: Driver>(api: &D, handle: Handle) -> Option<(&'static Runtime, &'static XQueue, &'static Counter)> {
    if !process::platform_enabled(D::PLATFORM) || D::is_below_another(thread::current().caller.get()) {
        return None;
    }
    let rt = process::runtime()?;
    process::watch_thread();
    late::note(handle.which);
    let xqueue = rt.remember(handle.key, || api.describe(handle))?;
    let counter = rt.counter(xqueue);
    counter.launches.store(counter.launches.load(Relaxed).wrapping_add(1), SeqCst);
    Some((rt, xqueue, counter))
}

/// Takes something into the driver that orders commands: an event, a host function, a wait. It is not held: what must
/// stay behind it does. But somebody may wait for it to be reached, so what came before it gets a fence first.
#[inline(always)]
pub(crate) fn order<D: Driver>(
    real: *mut c_void,
    stream: Stream,
    mode: DefaultStreamMode,
    enter: impl Fn() -> c_int + Copy,
) -> c_int {
    let place = Place::new();
    let Some(_inside) = Inside::enter(&place, resolve::same_object) else { return enter() };
    late::note(D::which(stream, mode));
    if let Some(rt) = process::running().filter(|rt| rt.is_contended()) {
        fence_suffix::<D>(rt, real, stream, mode);
    }
    enter()
}

/// The same for what makes a stream wait for another one.
#[inline(always)]
pub(crate) fn join<D: Driver>(
    real: *mut c_void,
    stream: Stream,
    mode: DefaultStreamMode,
    enter: impl Fn() -> c_int + Copy,
) -> c_int {
    if let Some(rt) = process::running().filter(|rt| rt.is_contended()) {
        process::guarded("before a wait of a stream", || rt.note_cross_stream());
    }
    order::<D>(real, stream, mode, enter)
}

pub(super) fn place_tail<D: Driver>(rt: &'static Runtime, api: &D, xqueue: &'static XQueue) {
    if let Some(fence) = xqueue.fence_suffix(rt)
        && !api.place_fence(rt, xqueue, &fence)
    {
        xqueue.withdraw(&fence);
    }
}

#[cold]
#[inline(never)]
fn fence_suffix<D: Driver>(rt: &'static Runtime, real: *mut c_void, stream: Stream, mode: DefaultStreamMode) {
    process::guarded("before an event", || {
        let api = D::beside(real)?;
        if api.is_inner(thread::current().caller.get()) || api.is_recording(stream, mode) {
            return None;
        }
        let xqueue = rt.find(api.handle(stream, mode)?.key)?;
        place_tail(rt, api, xqueue);
        Some(())
    });
}
