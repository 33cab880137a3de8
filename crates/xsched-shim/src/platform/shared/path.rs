//! Commands that enter streams, and commands that order others. The part of these platforms in the path of a command is
//! [`super::streams`].

use std::ffi::{c_int, c_uint, c_void};

use xsched_core::thread::{self, Inside, Place};
use xsched_core::{Runtime, Work};

use super::streams::Streams;
use super::tail::place_tail;
use super::{DefaultStreamMode, Driver, Stream, late, loads, pipeline};
use crate::interpose::resolve;
use crate::process;

/// Work of an unknown kind.
pub(crate) const UNKNOWN: Work =
    Work { key: 0, blocking: false, unbounded: false, may_prequeue: false, loads: false, copies: false, part: 0 };

fn mixed(parts: impl IntoIterator<Item = u64>) -> u64 {
    // FNV-1a over words. Serves only to tell commands apart; 0 is reserved for unknown work.
    let hash = |h: u64, part: u64| (h ^ part).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    parts.into_iter().fold(0xcbf2_9ce4_8422_2325, hash) | 1
}

/// Key of a kernel, made of its handle and shape.
pub(crate) fn kernel_key(function: *const c_void, shape: &[c_uint]) -> u64 {
    mixed(shape.iter().map(|n| u64::from(*n)).chain([function as u64]))
}

/// Work of a kernel launch, from the kernel's handle and shape.
pub(crate) fn kernel(function: *const c_void, shape: &[c_uint]) -> Work {
    prequeueable(Work {
        key: kernel_key(function, shape),
        loads: loads::is_first(loads::Use::Launch, function),
        ..UNKNOWN
    })
}

/// Marks work that the driver accepts at once, whatever the stream waits for, and that needs nothing more from the
/// host.
pub(crate) fn prequeueable(work: Work) -> Work {
    Work { may_prequeue: true, ..work }
}

/// Work of a graph launch. `part` is the longest part of the graph without a gate, if it has gates inside.
pub(crate) fn graph(exec: *const c_void, part: u16) -> Work {
    Work { may_prequeue: false, part, ..kernel(exec, &[]) }
}

/// Work of a transfer of this many bytes (or elements). Transfers of about equal size count as alike.
pub(crate) fn transfer(size: usize) -> Work {
    Work { key: mixed([u64::MAX, u64::from(size.max(1).ilog2())]), copies: true, ..UNKNOWN }
}

/// Work of a command that fills this many bytes (or elements) of memory.
pub(crate) fn memset(size: usize) -> Work {
    Work { copies: false, ..transfer(size) }
}

/// Work of a transfer that is complete when the call returns.
pub(crate) fn blocking_transfer(size: usize) -> Work {
    Work { blocking: true, ..transfer(size) }
}

/// Enqueues a command. `enter` calls the real function, whose address is `real`; `work` describes the command, and is
/// called only if that is needed.
#[inline(always)]
pub(crate) fn enqueue<D: Driver>(
    real: *mut c_void,
    stream: Stream,
    mode: DefaultStreamMode,
    work: impl Fn() -> Work + Copy,
    enter: impl Fn() -> c_int + Copy,
) -> c_int {
    pipeline::enqueue::<Streams<D>>((real, stream, mode), (), work, move |()| enter())
}

/// Enqueues a command that orders others: an event, a host function, a wait. It is not held, since it has to stay
/// behind earlier commands, and these are held. But a thread may wait for it to be reached, so the commands before it
/// get a fence first.
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

/// Enqueues a command that takes no time on the device and that nothing waits for: memory allocated or freed in a stream's
/// order. Such commands are frequent, and need no fence before them.
#[inline(always)]
pub(crate) fn minor<D: Driver>(stream: Stream, mode: DefaultStreamMode, enter: impl FnOnce() -> c_int) -> c_int {
    late::note(D::which(stream, mode));
    enter()
}

/// Reports whether [`minor`] only makes the call.
#[inline(always)]
pub(crate) fn is_call_only<D: Driver>(stream: Stream, mode: DefaultStreamMode) -> bool {
    late::is_noted(D::which(stream, mode))
}

/// Enqueues a command that makes a stream wait for another, as [`order`] does, and records the dependency.
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

#[cold]
#[inline(never)]
fn fence_suffix<D: Driver>(rt: &'static Runtime, real: *mut c_void, stream: Stream, mode: DefaultStreamMode) {
    process::guarded("before an event", || {
        let api = D::beside(real)?;
        if api.is_inner(thread::current().caller.get()) || api.recording(stream, mode) != Some(false) {
            return None;
        }
        let xqueue = rt.find(api.handle(stream, mode)?.key)?;
        place_tail(rt, api, xqueue);
        Some(())
    });
}
