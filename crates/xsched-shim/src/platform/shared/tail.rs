//! Fences behind all commands of a queue.

use xsched_core::{CompletionFence, Runtime, XQueue};

use super::Driver;

/// Places a fence behind all commands of a queue, unless one is there. `place` returns false if the driver refuses it.
pub(crate) fn fence_suffix(rt: &Runtime, queue: &XQueue, place: impl FnOnce(&CompletionFence) -> bool) {
    if let Some(fence) = queue.fence_suffix(rt)
        && !place(&fence)
    {
        queue.withdraw(rt, &fence);
    }
}

/// Places a fence behind all commands of a stream, unless one is there.
pub(super) fn place_tail<D: Driver>(rt: &'static Runtime, api: &D, xqueue: &'static XQueue) {
    fence_suffix(rt, xqueue, |fence| api.place_fence(rt, xqueue, fence));
}
