//! Regions: ranges of addresses of this library's with chunks behind them, for plain memory and for segments of pools.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::*};

use xsched_core::residency::{Body, Chunk, Driver as _, Residents};

use super::super::api::Api;
use super::super::types::*;
use super::calls::{Calls, Handle};
use super::movable::{MOVABLE, Movable, POSSIBLE, at_exit, movable, pass};
use super::stays::{Stay, Why};
use super::{hosted, mover, touches};
use crate::lock::Lock;
use crate::platform::shared::Driver as _;

/// Smallest allocation that becomes chunks, and the unit of its size, in bytes.
pub(super) const UNIT: u64 = 2 << 20;
/// Largest chunk, in bytes: large ones move at the link's speed, and small ones leave room for others sooner.
pub(super) const LARGEST: u64 = 32 << 20;
/// First number of memory that this library gives out as a buffer's ID, far above a driver's own.
const FIRST_ID: u64 = 1 << 40;

/// Memory behind a range of addresses.
pub(super) struct Region {
    /// Size that was asked for, and that is mapped, in bytes.
    pub(super) bytes: u64,
    pub(super) mapped_bytes: u64,
    /// Number of the buffer, which stays while its memory moves.
    pub(super) id: u64,
    /// Segment of a pool: its blocks are the program's, not the region.
    pub(super) is_segment: bool,
    /// Reason why it stays on the device, and its chunks then.
    pub(super) pinned: Option<Stay>,
    held: Vec<Chunk<Handle>>,
}

/// Regions by address.
static REGIONS: Lock<BTreeMap<u64, Region>> = Lock::new();

/// Number of a new buffer.
pub(super) fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(FIRST_ID);
    NEXT.fetch_add(1, Relaxed)
}

/// Looks at the region that contains an address, with its beginning.
pub(super) fn region_of<T>(address: u64, look: impl FnOnce(u64, &mut Region) -> T) -> Option<T> {
    if REGIONS.is_untouched() {
        return None;
    }
    let mut regions = REGIONS.lock();
    let (&at, region) = regions.range_mut(..=address).next_back()?;
    (address - at < region.mapped_bytes).then(|| look(at, region))
}

/// The movable memory, made if need be, if the calling thread's context is that of the chunks and may have new ones now. `real` is one of
/// the driver's functions.
pub(super) fn ready(real: *mut c_void) -> Option<&'static Movable> {
    if MOVABLE.get().is_none() {
        begin(real)?;
    }
    let movable = movable().filter(|movable| !movable.is_over() && movable.calls.is_current())?;
    // A capture must not see calls that are not the program's, unless it allows all.
    let captures = Api::known().is_some_and(|api| api.some_capture());
    (!captures || movable.calls.is_relaxed()).then_some(movable)
}

/// Allocates. `None`: the driver is to allocate, and to tell what is wrong if it cannot. `real` is one of its functions.
pub(super) fn allocate(real: *mut c_void, bytes: usize) -> Option<u64> {
    if (bytes as u64) < UNIT {
        return None;
    }
    let movable = ready(real)?;
    pass(|| add_region(movable, bytes as u64, false))
}

/// Allocates rows, whose distance is returned, too.
pub(super) fn allocate_rows(real: *mut c_void, width: usize, height: usize, element: c_uint) -> Option<(u64, usize)> {
    if ![4, 8, 16].contains(&element) || width == 0 {
        return None;
    }
    // The unit is the device's: a guess of it decides whether to make anything at all.
    (width as u64).checked_mul(height as u64).filter(|bytes| *bytes >= UNIT)?;
    let movable = ready(real)?;
    let pitch = (width as u64).checked_next_multiple_of(movable.calls.row_unit)?;
    let at = pass(|| add_region(movable, pitch.checked_mul(height as u64)?, false))?;
    Some((at, pitch as usize))
}

/// Adds a region, within the latch.
pub(super) fn add_region(movable: &Movable, asked: u64, is_segment: bool) -> Option<u64> {
    let bytes = asked.checked_next_multiple_of(UNIT)?;
    // Without room for all chunks, the first ones would take it from other programs for a while.
    let is_large = bytes > LARGEST && !hosted::is_wanted_now();
    if is_large && movable.calls.unused().is_some_and(|unused| unused < bytes) {
        return None;
    }
    let at = movable.calls.reserve(bytes).ok()?;
    let chunks = fill(&movable.calls, at, bytes);
    if chunks.is_none() {
        let _ = movable.calls.unreserve(at, bytes);
    }
    movable.residents.lock().chunks.extend(chunks?);
    movable.recount();
    let region = Region { bytes: asked, mapped_bytes: bytes, id: new_id(), is_segment, pinned: None, held: Vec::new() };
    REGIONS.lock().insert(at, region);
    touches::memory_begins(at);
    Some(at)
}

/// Maps new memory to a whole range, or nothing.
fn fill(mut calls: &Calls, at: u64, bytes: u64) -> Option<Vec<Chunk<u64>>> {
    let (mut made, mut done) = (Vec::new(), 0);
    while done < bytes {
        let size = LARGEST.min(bytes - done);
        let Some(chunk) = one(calls, at + done, size) else { break };
        made.push((chunk, at + done, size));
        done += size;
    }
    if done == bytes {
        return Some(made.into_iter().map(|(chunk, ..)| chunk).collect());
    }
    for (chunk, at, size) in made {
        calls.unmap_surely(at, size);
        match chunk.body() {
            Some(Body::Device(handle)) => _ = calls.release(handle),
            Some(Body::Store(stored)) => calls.give(stored, size),
            None => {}
        }
    }
    None
}

fn one(mut calls: &Calls, at: u64, size: u64) -> Option<Chunk<u64>> {
    let body = if hosted::is_wanted_now() {
        Body::Store(calls.take(size).ok()?)
    } else {
        Body::Device(calls.create(at, size).ok()?)
    };
    let mapped = calls.map(at, size, body.handle());
    if mapped.is_ok() && calls.allow(at, size).is_ok() {
        return Some(Chunk::of(at, size, body));
    }
    if mapped.is_ok() {
        calls.unmap_surely(at, size);
    }
    match body {
        Body::Device(handle) => _ = calls.release(handle),
        Body::Store(stored) => calls.give(stored, size),
    }
    None
}

/// Makes what movable memory needs, for the first allocation.
fn begin(real: *mut c_void) -> Option<()> {
    let calls = Calls::beside(real)?;
    let fresh: &'static Movable = Box::leak(Box::new(Movable::new(calls)));
    if MOVABLE.set(fresh).is_err() {
        return Some(());
    }
    if !mover::start(fresh) {
        POSSIBLE.store(false, Relaxed);
    }
    // Now, since the driver has registered its own handlers, which run after those that are registered later.
    // SAFETY: a handler that does not unwind.
    unsafe { libc::atexit(at_exit) };
    Some(())
}

/// Reports whether plain memory of this library begins there.
pub(super) fn begins_at(address: u64) -> bool {
    region_of(address, |at, region| at == address && !region.is_segment) == Some(true)
}

/// Frees. `None`: no chunks begin there, the driver is to free it. Like the driver's, it waits for all commands.
pub(super) fn free(address: u64) -> Option<CUresult> {
    let movable = movable()?;
    begins_at(address).then_some(())?;
    pass(|| {
        if let Err(refusal) = movable.calls.synchronize_own() {
            return Some(refusal);
        }
        drop_region(movable, address).then_some(SUCCESS)
    })
}

/// Frees a region that no command uses.
pub(super) fn drop_region(movable: &Movable, at: u64) -> bool {
    let region = REGIONS.lock().remove(&at);
    region.map(|region| discard(movable, at, region)).is_some()
}

fn discard(movable: &Movable, at: u64, region: Region) {
    let mut chunks = movable.residents.lock().take_range(at, region.mapped_bytes);
    movable.recount();
    touches::memory_ends(at, region.mapped_bytes);
    chunks.extend(region.held);
    let unreleased = Residents::discard(&mut &movable.calls, chunks);
    movable.residents.lock().keep_unreleased(unreleased);
    let _ = movable.calls.unreserve(at, region.mapped_bytes);
}

/// Has the region that contains an address stay on the device from now on. `None`: there is none. False: it is not there now.
pub(super) fn pin(movable: &Movable, address: u64, why: Why) -> Option<bool> {
    let is_pinned = region_of(address, |at, region| {
        if region.pinned.is_some() {
            return true;
        }
        let mut residents = movable.residents.lock();
        let chunks = residents.take_range(at, region.mapped_bytes);
        if chunks.iter().any(|chunk| !matches!(chunk.body(), Some(Body::Device(_)))) {
            residents.chunks.extend(chunks);
            return false;
        }
        region.held = chunks;
        region.pinned = Some(Stay::new(movable, why, region.mapped_bytes));
        true
    });
    movable.recount();
    is_pinned
}

/// Memory of a region that stays on the device, in the order of addresses.
pub(super) fn held_handles(at: u64) -> Option<Vec<Handle>> {
    let held = REGIONS.lock().get(&at)?.held.clone();
    let mut held: Vec<_> = held.into_iter().map(|chunk| (chunk.at(), chunk.handle())).collect();
    held.sort_unstable_by_key(|(at, _)| *at);
    held.into_iter().map(|(_, handle)| handle).collect()
}

/// Beginnings of the chunks of the region that contains an address.
pub(super) fn parts_of(address: u64) -> Vec<u64> {
    let part = |(at, bytes): (u64, u64)| (at..at + bytes).step_by(LARGEST as usize).collect();
    region_of(address, |at, region| (at, region.mapped_bytes)).map_or_else(Vec::new, part)
}

/// Gives another device access to all regions.
pub(super) fn let_peer_in(movable: &Movable, device: CUdevice) {
    movable.calls.add_peer(device);
    let mut calls = &movable.calls;
    let all: Vec<(u64, u64)> = REGIONS.lock().iter().map(|(at, region)| (*at, region.mapped_bytes)).collect();
    for (at, bytes) in all {
        let _ = calls.allow(at, bytes);
    }
}

/// Memory that stays on the device, by reason.
pub(super) fn pins(each: &mut dyn FnMut(&'static str, u64)) {
    for region in REGIONS.lock().values() {
        if let Some(stay) = &region.pinned {
            each(stay.why.text(), region.mapped_bytes);
        }
    }
}

/// Frees all regions, before or after their context ends.
pub(super) fn end_all(movable: &Movable) {
    let all = std::mem::take(&mut *REGIONS.lock());
    for (at, region) in all {
        discard(movable, at, region);
    }
}

/// Empties the table, in a forked child.
pub(super) fn forget_all() {
    REGIONS.forget();
}
