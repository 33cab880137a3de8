//! Allocations that are made of the host's memory at once, since the device has no room for them.

use std::cell::Cell;
use std::sync::atomic::Ordering::*;

use super::super::types::CUresult;
use super::movable::{MOVABLE, POSSIBLE, movable};
use super::wanted::is_wanted;

thread_local! {
    static ON_HOST: Cell<bool> = const { Cell::new(false) };
}

/// Reports whether memory of this process can be the host's.
pub(super) fn may() -> bool {
    is_wanted() && POSSIBLE.load(Relaxed) && MOVABLE.get().is_none_or(|movable| !movable.is_over())
}

/// Makes an allocation of the host's memory. What cannot be chunks is refused.
pub(super) fn on_host(call: &dyn Fn() -> CUresult) -> CUresult {
    ON_HOST.set(true);
    let rc = call();
    ON_HOST.set(false);
    if let Some(movable) = movable() {
        // The mover looks for room from now on.
        movable.latch.wake_mover();
    }
    rc
}

/// Reports whether the calling thread's allocation is to be the host's.
pub(super) fn is_wanted_now() -> bool {
    ON_HOST.get()
}
