//! The way of every enqueue into the driver.

use std::sync::atomic::Ordering::*;

use xsched_core::thread::{self, Entered, Inside, Place};
use xsched_core::{Runtime, Work, XQueue};
use xsched_proto::segment::Counter;

use super::api::{self, Api};
use super::capture;
use super::stream::{self, Flavour, Handle};
use super::types::*;
use crate::interpose::resolve;
use crate::platform::CUDA;
use crate::process;

/// Work of which nothing is known.
pub(super) const UNKNOWN: Work = Work { key: 0, blocking: false, unbounded: false };

fn mixed(parts: impl IntoIterator<Item = u64>) -> u64 {
    // FNV-1a over words. Only for telling commands apart, and 0 means unknown.
    let hash = |h: u64, part: u64| (h ^ part).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    parts.into_iter().fold(0xcbf2_9ce4_8422_2325, hash) | 1
}

/// A kernel or a graph, by its handle and shape.
pub(super) fn kernel(function: *mut c_void, shape: &[c_uint]) -> Work {
    let key = mixed(shape.iter().map(|n| u64::from(*n)).chain([function as u64]));
    Work { key, ..UNKNOWN }
}

/// A transfer of so many bytes (or elements): commands of about the same size are alike.
pub(super) fn transfer(size: usize) -> Work {
    Work { key: mixed([u64::MAX, u64::from(size.max(1).ilog2())]), ..UNKNOWN }
}

/// A transfer that is complete when the call returns.
pub(super) fn blocking_transfer(size: usize) -> Work {
    Work { blocking: true, ..transfer(size) }
}

/// Takes a command into the driver. `enter` calls the real function, whose address is `real`; `work` says more of the
/// command where that is needed.
#[inline(always)]
pub(super) fn enqueue(
    real: *mut c_void,
    stream: CUstream,
    flavour: Flavour,
    work: impl FnOnce() -> Work,
    enter: impl Fn() -> CUresult + Copy,
) -> CUresult {
    let place = Place::new();
    // Inside a driver call already: not the application's command.
    let Some(_inside) = Inside::enter(&place, resolve::same_object) else { return enter() };
    let Some(api) = Api::beside(real) else { return enter() };
    if capture::is_recording(api, stream) {
        return enter();
    }
    let Some(handle) = stream::handle(api, stream, flavour) else { return enter() };
    match thread::enter(handle.key) {
        Entered::Fast(counted) => {
            let rc = enter();
            counted.done(rc == SUCCESS);
            rc
        }
        entered => {
            #[allow(clippy::redundant_locals)] // A copy: only it has its address taken.
            let enter = enter;
            careful(entered, api, handle, work(), &enter)
        }
    }
}

#[cold]
#[inline(never)]
fn careful(entered: Entered, api: &Api, handle: Handle, work: Work, enter: &dyn Fn() -> CUresult) -> CUresult {
    let admitted = process::guarded("before a CUDA command", || {
        let rt = process::runtime()?;
        let (xqueue, counter) = match entered {
            Entered::Careful(xqueue, counter) => (xqueue, counter),
            _ => first_use(rt, api, handle)?,
        };
        // Where nothing tells of completions, nothing can be bounded by them.
        let unbounded = work.unbounded || api::no_marks();
        let admission = xqueue.admit(rt, Work { unbounded, ..work }, counter);
        if admission.device_gate {
            api.gate(rt, xqueue);
        }
        Some((rt, xqueue, counter, admission))
    });
    let Some(Some((rt, xqueue, counter, admission))) = admitted else { return enter() };
    let rc = enter();
    process::guarded("after a CUDA command", || {
        if let Some(mark) = xqueue.commit(rt, &admission, rc == SUCCESS, counter)
            && !api.mark(rt, xqueue, &mark)
        {
            xqueue.unmark(&mark);
        }
    });
    rc
}

/// The queue of a thread that has not used it lately, counted.
fn first_use(rt: &'static Runtime, api: &Api, handle: Handle) -> Option<(&'static XQueue, &'static Counter)> {
    if !process::platform_enabled(CUDA) {
        return None;
    }
    process::watch_thread();
    let xqueue = rt.remember(handle.key, || api.describe(handle))?;
    let counter = rt.counter(xqueue);
    counter.launches.store(counter.launches.load(Relaxed).wrapping_add(1), SeqCst);
    Some((xqueue, counter))
}

/// Takes something into the driver that orders commands: an event, a host function, a wait. It is not held: what must
/// stay behind it does. But somebody may wait for it to be reached, so what came before it gets a mark first.
#[inline(always)]
pub(super) fn order(
    real: *mut c_void,
    stream: CUstream,
    flavour: Flavour,
    enter: impl Fn() -> CUresult + Copy,
) -> CUresult {
    let place = Place::new();
    let Some(_inside) = Inside::enter(&place, resolve::same_object) else { return enter() };
    if let Some(rt) = process::running().filter(|rt| rt.is_watched()) {
        mark_tail(rt, real, stream, flavour);
    }
    enter()
}

/// Puts a mark after what a queue was given, before the calling thread blocks, if this thread can: a default stream is
/// only reached from its own context.
pub(super) fn mark_tail_of(key: usize) {
    process::guarded("before a thread blocks", || {
        let (rt, api) = (process::running()?, Api::known()?);
        let xqueue = rt.find(key)?;
        let stream = xqueue.handle() as CUstream;
        let reached = stream::handle(api, stream, Flavour::Legacy)?;
        (reached.key == key && !capture::is_recording(api, stream)).then(|| place_tail(rt, api, xqueue))
    });
}

fn place_tail(rt: &'static Runtime, api: &Api, xqueue: &'static XQueue) {
    if let Some(mark) = xqueue.tail_mark(rt)
        && !api.mark(rt, xqueue, &mark)
    {
        xqueue.unmark(&mark);
    }
}

#[cold]
#[inline(never)]
fn mark_tail(rt: &'static Runtime, real: *mut c_void, stream: CUstream, flavour: Flavour) {
    process::guarded("before an event", || {
        let api = Api::beside(real)?;
        if capture::is_recording(api, stream) {
            return None;
        }
        let xqueue = rt.find(stream::handle(api, stream, flavour)?.key)?;
        place_tail(rt, api, xqueue);
        Some(())
    });
}
