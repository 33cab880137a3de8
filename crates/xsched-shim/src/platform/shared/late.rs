//! Fences that come later than the commands they follow: a thread that is about to wait puts one after whatever the
//! queues of its group were given, also by other threads. (A fence under the same call as its command is harmless: what
//! another thread gives meanwhile, without knowing of the command, might as well have come before it.)
//!
//! The program knows nothing of such a fence, and other threads go on meanwhile. So there is none
//! - on a stream that is being destroyed, or whose context is being ended;
//! - while something is captured, which it would become part of, or invalidate;
//! - where it could make commands wait that would not without it: what enters the default stream waits for all that
//!   blocking streams were given before, and they for it ("Stream synchronization behavior" in NVIDIA's reference).
//!   Behind the fence a blocking stream would wait for another one that it has nothing to do with; and the end of a
//!   blocking stream with a fence would be that of the default stream. Once a process has used both, only streams that
//!   stay out of this get fences. The agent gives up on the last commands of the others instead.
//!
//! Whatever changes one of these takes the lock that is held while a fence is placed.

use std::ffi::c_int;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use xsched_core::thread;

use super::path::place_tail;
use super::{DefaultStreamMode, Driver, StreamKind};
use crate::interpose::resolve;
use crate::lock::Lock;
use crate::process;

/// Contexts that are being ended. Held while a fence is placed.
static ENDING: Lock<usize> = Lock::new();
/// The thread that holds it; 0 = none. A library may call itself, or one that is hooked too.
static HOLDER: AtomicUsize = AtomicUsize::new(0);
/// The process has given something to a default stream.
static DEFAULT: AtomicBool = AtomicBool::new(false);
/// It has made a stream that the default stream waits for, or used one.
static BLOCKING: AtomicBool = AtomicBool::new(false);

/// In a forked child no thread places fences, and nothing was given to any stream.
pub(crate) fn forget_all() {
    ENDING.forget();
    HOLDER.store(0, Relaxed);
    DEFAULT.store(false, Relaxed);
    BLOCKING.store(false, Relaxed);
}

/// Something is about to enter a stream of this kind. (Those made by the application were noted then.)
#[inline(always)]
pub(crate) fn note(which: StreamKind) {
    let kind = match which {
        StreamKind::Own => return,
        StreamKind::Legacy => &DEFAULT,
        StreamKind::PerThread => &BLOCKING,
    };
    if !kind.load(Acquire) {
        note_first(kind);
    }
}

#[cold]
#[inline(never)]
fn note_first(kind: &AtomicBool) {
    // A thread that finds it noted may go on at once, so not before the fence under way is placed.
    alone(|| kind.store(true, Release));
}

/// A stream was made that the default stream waits for; before the application knows of it.
pub(super) fn note_blocking() {
    note_first(&BLOCKING);
}

struct Held(MutexGuard<'static, usize>);

impl Held {
    /// `None`: the calling thread holds it already.
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

/// Runs a call that ends a context. It may wait for the device, so fences are left out meanwhile.
pub(super) fn without(call: impl FnOnce() -> c_int) -> c_int {
    let change = |by| resolve::keeping_errno(|| Held::new().map(|mut held| *held.0 = held.0.wrapping_add_signed(by)));
    change(1);
    let rc = call();
    change(-1);
    rc
}

/// Puts a fence after what a queue was given, before the calling thread blocks, if that is harmless and this thread can:
/// a default stream is only reached from its own context.
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
