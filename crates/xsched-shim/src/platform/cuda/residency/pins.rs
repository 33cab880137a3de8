//! Memory that does not move, and the end of all that does.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use std::time::Duration;

use xsched_core::residency::Body;

use super::{Movable, chunks, movable, pass, pools, tickets, virtuals};

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
fn hold() -> Option<&'static str> {
    PARTITIONED.load(Acquire).then_some("streams of green contexts")
}

/// Memory that stays on the device whatever moves: reasons with their sizes in bytes. A size of 0 means that nothing moves at all.
pub(crate) fn pins() -> Vec<(&'static str, u64)> {
    let mut found: Vec<(&'static str, u64)> = hold().map(|why| (why, 0)).into_iter().collect();
    let mut add = |why, bytes| match found.iter_mut().find(|(other, _)| *other == why) {
        Some((_, sum)) => *sum += bytes,
        None => found.push((why, bytes)),
    };
    chunks::pins(&mut add);
    virtuals::pins(&mut add);
    found
}

/// Bytes of memory that is on the host now, and that the program believes on the device.
pub(super) fn hosted_bytes() -> u64 {
    let of = |movable: &Movable| {
        let residents = movable.residents.lock();
        let hosted = residents.chunks.iter().filter(|chunk| matches!(chunk.body(), Some(Body::Store(_))));
        hosted.map(|chunk| chunk.bytes()).sum::<u64>()
    };
    movable().map_or(0, |movable| of(movable) + virtuals::hosted_bytes())
}

/// Ends movable memory with its context, within the latch: what is left of it is freed, but for memory that the program mapped itself,
/// which stays where it is. Nothing moves any more.
pub(super) fn end(movable: &Movable) {
    if movable.over.swap(true, AcqRel) {
        return;
    }
    virtuals::end_all(movable);
    pools::end_all();
    chunks::end_all(movable);
    movable.calls.empty_store();
}

/// Empties all tables, in a forked child.
pub(super) fn forget_all() {
    ENDING.store(0, Release);
    super::calls::forget_all();
    chunks::forget_all();
    virtuals::forget_all();
    pools::forget_all();
    tickets::forget_all();
}
