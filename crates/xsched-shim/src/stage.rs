//! Stage of scheduling in this process, kept in memory that a child with a copy of it finds zeroed.
//!
//! A child of a bare `clone` or `_Fork` has a copy of this process's memory, but neither the agent's thread nor the
//! segment, and no fork handler has run in it. It must not use the copied state: [`leave_unless_ours`] detects the
//! child and leaves it unscheduled. The detection costs a launch nothing: the word that a launch reads first, its real
//! function (`interpose::Cells`), is on wiped pages too, so the first call in the child takes the slow path. Children
//! that share the memory (`vfork`, `CLONE_VM`) are like threads.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering::*};

use xsched_core::Runtime;

use crate::wiped::wipe;

/// State of scheduling, on a page of its own.
#[repr(C, align(4096))]
pub(crate) struct Own {
    /// The runtime, while it runs.
    pub(crate) runtime: AtomicPtr<Runtime>,
    /// Stage: one of the constants below.
    pub(crate) stage: AtomicU32,
}

/// Nothing was started.
pub(crate) const UNTOUCHED: u32 = 0;
/// A thread is starting the runtime.
pub(crate) const STARTING: u32 = 1;
/// The runtime is running.
pub(crate) const RUNNING: u32 = 2;
/// The process is unscheduled for good.
pub(crate) const OFF: u32 = 3;

/// State of this process.
pub(crate) static OWN: Own = Own { runtime: AtomicPtr::new(std::ptr::null_mut()), stage: AtomicU32::new(UNTOUCHED) };

/// Settings of this process that a child without fork handlers follows, as bits.
static TOLD: AtomicU8 = AtomicU8::new(0);
const REQUIRED: u8 = 1;
const SAYS: u8 = 2;

/// Settings of this process that a child follows in which no fork handler has run.
pub(crate) struct Told {
    /// The process must be scheduled.
    pub(crate) required: bool,
    /// The process says that it is not.
    pub(crate) says: bool,
}

/// Keeps such settings: the child must not read its environment, since that allocates.
pub(crate) fn tell_children(told: &Told) {
    TOLD.store(if told.required { REQUIRED } else { 0 } | if told.says { SAYS } else { 0 }, Release);
}

/// Settings that were kept.
pub(crate) fn told() -> Told {
    let told = TOLD.load(Acquire);
    Told { required: told & REQUIRED != 0, says: told & SAYS != 0 }
}

/// Set once scheduling was started in this process, or in the one whose memory this is a copy of.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Address of a [`Leave`] function; 0 = none.
static LEAVE: AtomicUsize = AtomicUsize::new(0);

/// Function that abandons the parent's state and leaves the process unscheduled.
pub(crate) type Leave = fn(Occasion);

/// Occasion on which a child with a copy of this process's memory is detected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// Call into a device's library.
    Use,
    /// End of the child, or of a thread of it.
    End,
}

/// Sets the function for a child with a copy of this process's memory in which no fork handler has run.
pub(crate) fn leave_by(leave: Leave) {
    LEAVE.store(leave as usize, Release);
}

/// Records that scheduling was started, after the stage was set.
pub(crate) fn begun() {
    BEGUN.store(true, Release);
    wipe(&OWN);
}

/// Reports whether nothing was started in this process, nor in its parent before the fork.
pub(crate) fn is_untouched() -> bool {
    OWN.stage.load(Acquire) == UNTOUCHED && !BEGUN.load(Acquire)
}

/// Resets the state in a forked child, which starts afresh at its own first device call.
pub(crate) fn forget() {
    OWN.runtime.store(std::ptr::null_mut(), Release);
    OWN.stage.store(UNTOUCHED, Release);
    BEGUN.store(false, Release);
}

/// Leaves this process unscheduled for good.
pub(crate) fn stay_off() {
    OWN.stage.store(OFF, Release);
}

/// Reports whether this process's memory is a copy, and no handler of `fork` has run in it.
#[inline]
pub(crate) fn is_untold_copy() -> bool {
    OWN.stage.load(Acquire) == UNTOUCHED && BEGUN.load(Acquire)
}

/// Leaves this process unscheduled if its memory is a copy and no handler of `fork` has run in it.
#[inline]
pub(crate) fn leave_unless_ours(occasion: Occasion) {
    if is_untold_copy() {
        leave(occasion);
    }
}

#[cold]
#[inline(never)]
fn leave(occasion: Occasion) {
    let leave = LEAVE.load(Acquire);
    if leave != 0 {
        // SAFETY: what `leave_by` was given.
        let leave = unsafe { std::mem::transmute::<usize, Leave>(leave) };
        leave(occasion);
    }
}
