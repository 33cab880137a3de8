//! Memory that does not move, and the end of all that does.

use std::sync::atomic::Ordering::*;

use xsched_core::residency::Body;

use super::movable::{Movable, movable};
use super::{chunks, held, pools, tickets, touches, virtuals};

/// Memory that stays on the device whatever moves: reasons with their sizes in bytes. A size of 0 means that nothing moves at all.
pub(crate) fn pins() -> Vec<(&'static str, u64)> {
    let mut found: Vec<(&'static str, u64)> = held::hold().map(|why| (why, 0)).into_iter().collect();
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
    held::forget_all();
    super::counts::forget_all();
    super::calls::forget_all();
    chunks::forget_all();
    virtuals::forget_all();
    pools::forget_all();
    tickets::forget_all();
    touches::forget_all();
}
