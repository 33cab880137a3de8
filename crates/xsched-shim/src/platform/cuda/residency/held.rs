//! Times and states in which nothing moves, or not yet.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

use xsched_proto::account::Residency;

use super::hardware;
use super::movable::pass;

/// Streams of partitions (green contexts) were made, whose commands no wait for a context covers.
static PARTITIONED: AtomicBool = AtomicBool::new(false);

pub(super) fn hold_for_partitions() {
    PARTITIONED.store(true, Release);
}

/// Pause between two tries of something for which memory must be on the device.
const PAUSE: Duration = Duration::from_millis(5);
/// Tries where the program can do without, and where it cannot: 200 ms, 2 s. Memory that was fetched for want of a daemon stays on the host.
pub(super) const FEW: usize = 40;
pub(super) const MANY: usize = 400;

/// Does something within the latch, again and again until it finds memory on the device. It is told the last time. `None`: it did not.
pub(super) fn tried<T>(times: usize, mut work: impl FnMut(bool) -> Option<T>) -> Option<T> {
    (1..=times).find_map(|n| {
        if n > 1 {
            std::thread::sleep(PAUSE);
        }
        pass(|| work(n == times))
    })
}

/// Calls that may end the context, under way.
static ENDING: AtomicUsize = AtomicUsize::new(0);

/// Makes a call that may end the context. Nothing moves meanwhile.
pub(super) fn while_ending(call: impl FnOnce()) {
    ENDING.fetch_add(1, AcqRel);
    call();
    ENDING.fetch_sub(1, AcqRel);
}

/// Reports whether nothing can move now.
pub(super) fn is_held() -> bool {
    ENDING.load(Acquire) > 0 || hold().is_some()
}

/// Reason why nothing can move.
pub(super) fn hold() -> Option<&'static str> {
    PARTITIONED.load(Acquire).then_some("streams of green contexts")
}

/// A device was open, by which other hardware accesses memory, when memory was last to leave.
static OPEN_TO_HARDWARE: AtomicBool = AtomicBool::new(false);

/// Checks whether memory of the process may leave the device. Memory on the host may come back in any case: no other hardware has it.
pub(super) fn may_leave() -> bool {
    let is_open = hardware::is_open();
    OPEN_TO_HARDWARE.store(is_open, Release);
    !is_open && hold().is_none()
}

/// Reasons for which none of the memory leaves, as the daemon knows them.
pub(super) fn state() -> Residency {
    Residency::default()
        .with(Residency::PARTITIONED, PARTITIONED.load(Acquire))
        .with(Residency::OPEN_TO_HARDWARE, OPEN_TO_HARDWARE.load(Acquire))
}

/// Forgets the calls under way, in a forked child.
pub(super) fn forget_all() {
    ENDING.store(0, Release);
}
