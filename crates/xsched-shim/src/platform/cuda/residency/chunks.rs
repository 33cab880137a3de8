//! Memory of `cuMemAlloc` as chunks behind addresses of this library's.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::*;

use xsched_core::residency::{Chunk, Driver as _, Residents};

use super::super::types::*;
use super::calls::Calls;
use super::movable::{MOVABLE, Movable, POSSIBLE, movable, pass};
use super::mover;
use crate::lock::Lock;
use crate::platform::shared::Driver as _;

/// Smallest allocation that becomes chunks, and the unit of its size, in bytes.
const UNIT: u64 = 2 << 20;
/// Largest chunk, in bytes: large ones move at the link's speed, and small ones leave room for others sooner.
const LARGEST: u64 = 32 << 20;

/// Sizes of the allocations, in bytes, by address.
static ALLOCATIONS: Lock<BTreeMap<u64, u64>> = Lock::new();

/// Allocates. `None`: the driver is to allocate, and to tell what is wrong if it cannot. `real` is one of its functions.
pub(super) fn allocate(real: *mut c_void, bytes: usize) -> Option<u64> {
    let bytes = (bytes as u64).checked_next_multiple_of(UNIT).filter(|_| bytes as u64 >= UNIT)?;
    if MOVABLE.get().is_none() {
        begin(real)?;
    }
    let movable = movable().filter(|movable| !movable.over.load(Acquire) && movable.calls.is_current())?;
    // A capture must not see calls that are not the program's.
    if super::super::api::Api::known().is_some_and(|api| api.some_capture()) {
        return None;
    }
    pass(|| {
        let at = movable.calls.reserve(bytes).ok()?;
        let chunks = fill(&movable.calls, at, bytes);
        if chunks.is_none() {
            let _ = movable.calls.unreserve(at, bytes);
        }
        movable.residents.lock().chunks.extend(chunks?);
        movable.recount();
        ALLOCATIONS.lock().insert(at, bytes);
        Some(at)
    })
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
        let _ = calls.unmap(at, size);
        let _ = chunk.handle().map(|handle| calls.release(handle));
    }
    None
}

fn one(mut calls: &Calls, at: u64, size: u64) -> Option<Chunk<u64>> {
    let handle = calls.create(size).ok()?;
    let mapped = calls.map(at, size, handle);
    if mapped.is_ok() && calls.allow(at, size).is_ok() {
        return Some(Chunk::new(at, size, handle));
    }
    if mapped.is_ok() {
        let _ = calls.unmap(at, size);
    }
    let _ = calls.release(handle);
    None
}

/// Makes what movable memory needs, for the first allocation.
fn begin(real: *mut c_void) -> Option<()> {
    let calls = Calls::beside(real)?;
    let fresh: &'static Movable = Box::leak(Box::new(Movable::new(calls)));
    if MOVABLE.set(fresh).is_ok() && !mover::start(fresh) {
        POSSIBLE.store(false, Relaxed);
    }
    Some(())
}

/// Frees. `None`: no chunks begin there, the driver is to free it. Like the driver's, it waits for all commands.
pub(super) fn free(address: u64) -> Option<CUresult> {
    let movable = movable()?;
    let bytes = *ALLOCATIONS.lock().get(&address)?;
    pass(|| {
        if let Err(refusal) = movable.calls.synchronize() {
            return Some(refusal);
        }
        ALLOCATIONS.lock().remove(&address)?;
        drop_range(movable, address, bytes);
        Some(SUCCESS)
    })
}

fn drop_range(movable: &Movable, at: u64, bytes: u64) {
    let chunks = movable.residents.lock().take_range(at, bytes);
    movable.recount();
    let unreleased = Residents::discard(&mut &movable.calls, chunks);
    movable.residents.lock().keep_unreleased(unreleased);
    let _ = movable.calls.unreserve(at, bytes);
}

/// Ends movable memory with its context: what is left of it is freed, and nothing moves any more.
pub(super) fn end() {
    let Some(movable) = movable() else { return };
    if movable.over.swap(true, AcqRel) {
        return;
    }
    for (at, bytes) in std::mem::take(&mut *ALLOCATIONS.lock()) {
        drop_range(movable, at, bytes);
    }
}
