//! Fences placed later than the commands that they follow: a thread that is about to wait places one behind all
//! commands of its group's queues, including those of other threads. (If another thread enqueues a command at the same
//! time, unaware of this, the fence may as well land before it; either order is correct.)
//!
//! The program does not know of such a fence, and its other threads go on meanwhile. So none is placed
//! - on a stream that is being destroyed, or whose context is being ended;
//! - while something is captured, since the fence would become part of the capture or invalidate it;
//! - where it could make commands wait that would not wait without it: a command for the default stream waits for all
//!   earlier commands of blocking streams, and they for it ("Stream synchronization behavior" in NVIDIA's reference).
//!   Behind the fence a blocking stream would wait for an unrelated one, and the end of a blocking stream with a fence
//!   would be that of the default stream. Once a process has used both kinds, only streams that do not synchronise with
//!   the default stream get fences. For the others, the agent presumes the last commands complete after a while.
//!
//! Code that changes one of these conditions takes the lock that is held while a fence is placed.

use std::ffi::c_int;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use xsched_core::thread;

use super::tail::place_tail;
use super::{DefaultStreamMode, Driver, StreamKind};
use crate::interpose::resolve;
use crate::lock::Lock;
use crate::process;

/// Number of contexts that are being ended. Locked while a fence is placed.
static ENDING: Lock<usize> = Lock::new();
/// Thread that holds the lock; 0 = none. Needed because a library may call itself, or another hooked one.
static HOLDER: AtomicUsize = AtomicUsize::new(0);
/// Set once the process has used a legacy default stream.
static DEFAULT: AtomicBool = AtomicBool::new(false);
/// Set once the process has created or used a stream that synchronises with the legacy default stream.
static BLOCKING: AtomicBool = AtomicBool::new(false);

/// Resets all conditions, in a forked child.
pub(crate) fn forget_all() {
    ENDING.forget();
    HOLDER.store(0, Relaxed);
    DEFAULT.store(false, Relaxed);
    BLOCKING.store(false, Relaxed);
}

/// Records that a command is about to enter a stream of this kind. (Streams created by the application were recorded at
/// creation.)
#[inline(always)]
pub(crate) fn note(which: StreamKind) {
    if let Some(kind) = flag(which).filter(|kind| !kind.load(Acquire)) {
        note_first(kind);
    }
}

/// Reports whether [`note`] has nothing to record for this kind.
#[inline(always)]
pub(super) fn is_noted(which: StreamKind) -> bool {
    flag(which).is_none_or(|kind| kind.load(Acquire))
}

#[inline(always)]
fn flag(which: StreamKind) -> Option<&'static AtomicBool> {
    match which {
        StreamKind::Own => None,
        StreamKind::Legacy => Some(&DEFAULT),
        StreamKind::PerThread => Some(&BLOCKING),
    }
}

#[cold]
#[inline(never)]
fn note_first(kind: &AtomicBool) {
    // Another thread that finds it recorded may go on at once, so this waits until the fence in progress is placed.
    alone(|| kind.store(true, Release));
}

/// Records a new stream that synchronises with the default stream, before the application knows of it.
pub(super) fn note_blocking() {
    note_first(&BLOCKING);
}

struct Held(MutexGuard<'static, usize>);

impl Held {
    /// Takes the lock; `None` if the calling thread holds it already.
    fn new() -> Option<Held> {
        let me = std::ptr::from_ref(thread::current()) as usize;
        if HOLDER.load(Relaxed) == me {
            return None;
        }
        let held = resolve::keeping_errno(|| ENDING.lock());
        HOLDER.store(me, Relaxed);
        Some(Held(held))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HOLDER.store(0, Relaxed);
    }
}

/// Runs `call` while no fence is placed.
pub(crate) fn alone<T>(call: impl FnOnce() -> T) -> T {
    let held = Held::new();
    let result = call();
    resolve::keeping_errno(|| drop(held));
    result
}

/// Runs a call that ends a context. It may wait for the device, so no fences are placed meanwhile.
pub(super) fn without(call: impl FnOnce() -> c_int) -> c_int {
    let change = |by| resolve::keeping_errno(|| Held::new().map(|mut held| *held.0 = held.0.wrapping_add_signed(by)));
    change(1);
    let rc = call();
    change(-1);
    rc
}

/// Places a fence behind a queue's commands before the calling thread blocks, if that is harmless and possible: a
/// default stream can be reached only from its own context.
pub(crate) fn fence_suffix_of<D: Driver>(key: usize, api: impl FnOnce() -> Option<&'static D>) {
    process::guarded("before a thread blocks", || {
        let (rt, api) = (process::running()?, api()?);
        let held = Held::new()?;
        if *held.0 != 0 || api.some_capture() {
            return None;
        }
        let xqueue = rt.find(key)?;
        let reached =
            api.handle(xqueue.handle().cast(), DefaultStreamMode::Legacy).filter(|reached| reached.key == key)?;
        let mixed = DEFAULT.load(Relaxed) && BLOCKING.load(Relaxed);
        if !(mixed && api.is_blocking(reached)) {
            place_tail(rt, api, xqueue);
        }
        Some(())
    });
}
