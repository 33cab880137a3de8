//! The stage of scheduling in this process, in memory that a child with a copy of it finds zeroed.
//!
//! A child of a bare `clone` or `_Fork` has a copy of this process's memory, but neither the agent's thread nor the segment, and no
//! handler of `fork` has run there. So it must not touch what they left: [`leave_unless_ours`] finds out and has the process left
//! unscheduled. That costs a launch nothing: what it reads first, its real function (`interpose::Cells`), is on wiped
//! pages, too, so that the first call in the child takes the slow way. Children that share the memory (`vfork`, `CLONE_VM`) are as threads.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};

use xsched_core::Runtime;

use crate::wiped::wipe;

/// A page of its own.
#[repr(C, align(4096))]
pub(crate) struct Own {
    /// The runtime, while it runs.
    pub(crate) runtime: AtomicPtr<Runtime>,
    /// One of the stages below.
    pub(crate) stage: AtomicU32,
}

/// Nothing was begun.
pub(crate) const UNTOUCHED: u32 = 0;
/// A thread begins.
pub(crate) const STARTING: u32 = 1;
/// The runtime runs.
pub(crate) const RUNNING: u32 = 2;
/// The process goes unscheduled.
pub(crate) const OFF: u32 = 3;

/// Of this process.
pub(crate) static OWN: Own = Own { runtime: AtomicPtr::new(std::ptr::null_mut()), stage: AtomicU32::new(UNTOUCHED) };

/// Something was begun, in this process or in the one whose memory this one has a copy of.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// A [`Leave`]; 0 = none.
static LEAVE: AtomicUsize = AtomicUsize::new(0);

/// Forgets the parent and leaves the process unscheduled.
pub(crate) type Leave = fn(Occasion);

/// Occasion on which a child with a copy of this process's memory is found out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// Call into a device's library.
    Use,
    /// End of the child, or of a thread of it.
    End,
}

/// Has `leave` called in a child that has a copy of this process's memory and no handler of `fork` has run in.
pub(crate) fn leave_by(leave: Leave) {
    LEAVE.store(leave as usize, Release);
}

/// At the beginning, once the stage says so.
pub(crate) fn begun() {
    BEGUN.store(true, Release);
    wipe(&OWN);
}

/// Reports whether nothing was begun in this process, nor before it was forked.
pub(crate) fn is_untouched() -> bool {
    OWN.stage.load(Acquire) == UNTOUCHED && !BEGUN.load(Acquire)
}

/// In a forked child, which starts anew at its own first device call.
pub(crate) fn forget() {
    OWN.runtime.store(std::ptr::null_mut(), Release);
    OWN.stage.store(UNTOUCHED, Release);
    BEGUN.store(false, Release);
}

/// Leaves this process unscheduled for good.
pub(crate) fn stay_off() {
    OWN.stage.store(OFF, Release);
}

/// Leaves this process unscheduled if its memory is a copy and no handler of `fork` has run in it.
#[inline]
pub(crate) fn leave_unless_ours(occasion: Occasion) {
    if OWN.stage.load(Acquire) == UNTOUCHED && BEGUN.load(Acquire) {
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
