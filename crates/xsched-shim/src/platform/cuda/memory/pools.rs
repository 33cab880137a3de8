//! Memory pools: counted by the memory that each pool holds, in use or not. The driver tells it. An allocation that a pool
//! serves from what it holds should cost no question. So a program without a limit is asked again only once as much was
//! allocated as was free in the pool, or 64 MiB if the pool has not grown meanwhile: between two questions the count may
//! be too low by that, or too high, since a pool releases memory at synchronisations. Under a limit each allocation asks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering::*};

use xsched_proto::account::MEMORY_SLOTS;

use super::super::api::Api;
use super::super::hot::hot;
use super::super::types::*;
use super::super::{real, sig};
use super::account::{self, Claim, Part};
use super::device::{self, Here};
use super::driver::{self, Pool};
use super::plain::address_at;
use super::{OUT_OF_MEMORY, frees, graphs, lend, memory_calls};
use crate::interpose::hooks;
use crate::lock::Lock;
use crate::platform::shared::StreamKind::{Legacy, PerThread};
use crate::platform::shared::path::order;
use crate::platform::shared::waits::stream_call;
use crate::platform::shared::{DefaultStreamMode, Driver};
use crate::process;

/// Unit in which a pool takes memory of the device.
const UNIT: u64 = 2 << 20;
/// Upper limit of the memory that is allocated from pools between two questions.
const SLACK_MAX: i64 = 64 << 20;

/// A pool.
struct Known {
    slot: u16,
    /// Memory by which it is counted.
    counted: u64,
    /// Other processes may use it.
    exported: bool,
}

/// Pools by handle; `None` = memory of the host or of another process, which is not counted.
static POOLS: Lock<HashMap<usize, Option<Known>>> = Lock::new();

/// Memory that may be allocated from pools before the driver is asked again, by slot.
static SLACK: [AtomicI64; MEMORY_SLOTS] = [const { AtomicI64::new(0) }; MEMORY_SLOTS];

/// Counts what a pool holds now.
fn recount(pool: usize, known: &mut Known) -> Option<(u64, u64)> {
    let (reserved, used) = driver::pool(pool as Pool)?;
    account::measured(known.slot, Part::Pooled, known.counted, reserved);
    if known.exported {
        account::unexport(known.slot, known.counted);
        account::export(known.slot, reserved);
    }
    known.counted = reserved;
    Some((reserved, used))
}

/// Memory by which a pool has to grow for an allocation.
fn growth(pool: usize, slot: u16, bytes: u64) -> Option<u64> {
    let mut pools = POOLS.lock();
    let known = pools.entry(pool).or_insert(Some(Known::new(slot)));
    let (reserved, used) = recount(pool, known.as_mut()?)?;
    let needed = used.saturating_add(bytes).saturating_sub(reserved);
    Some(needed.checked_next_multiple_of(UNIT).unwrap_or(needed))
}

/// Runs a call that allocates from a pool (`None` = the one in use on the stream's device).
fn allocated(
    real: *mut c_void,
    bytes: usize,
    pool: Option<Pool>,
    stream: CUstream,
    mode: DefaultStreamMode,
    call: impl Fn() -> CUresult + Copy,
) -> CUresult {
    let Some(here) = process::guarded("before an allocation", || device::of_stream(real, stream)).flatten() else {
        return order::<Api>(real, stream, mode, call);
    };
    let wanted = i64::try_from(bytes).unwrap_or(i64::MAX);
    let left = SLACK.get(usize::from(here.slot)).map_or(0, |slack| slack.fetch_sub(wanted, Relaxed));
    if left >= wanted && account::is_unlimited(here.slot) && !hot().captures.is_active() {
        return order::<Api>(real, stream, mode, call);
    }
    with_question(real, here, bytes as u64, pool, stream, mode, call)
}

#[cold]
#[inline(never)]
fn with_question(
    real: *mut c_void,
    here: Here,
    bytes: u64,
    pool: Option<Pool>,
    stream: CUstream,
    mode: DefaultStreamMode,
    call: impl Fn() -> CUresult + Copy,
) -> CUresult {
    let is_unlimited = account::is_unlimited(here.slot);
    let asked = process::guarded("before an allocation", || {
        if Api::beside(real)?.recording(stream, mode) == Some(true) {
            return Some((None, graphs::claim(here.slot, bytes), 0));
        }
        device::note_pools(here.slot);
        let pool = pool.or_else(|| driver::pool_in_use(device::number(here.slot)?))? as usize;
        if is_unlimited {
            return Some((Some(pool), account::claim(here.slot, 0), 0));
        }
        let growth = growth(pool, here.slot, bytes)?;
        // Without the lock on pools: a claim may trim them.
        if account::try_claim(here.slot, growth) == Claim::Counted {
            return Some((Some(pool), Claim::Counted, growth));
        }
        // Memory that was freed in the order of the stream may not be free yet.
        stream_call::<Api>(real, stream, mode, || driver::synchronize(stream, mode));
        let growth = self::growth(pool, here.slot, bytes)?;
        Some((Some(pool), account::claim(here.slot, growth), growth))
    });
    let Some((pool, claim, growth)) = asked.flatten() else { return order::<Api>(real, stream, mode, call) };
    if claim == Claim::Refused {
        return OUT_OF_MEMORY;
    }
    let rc = account::with_room(here.slot, bytes, || order::<Api>(real, stream, mode, call));
    let Some(pool) = pool else { return rc };
    process::guarded("after an allocation", || {
        if claim == Claim::Counted {
            account::unclaim(here.slot, growth);
        }
        if !is_unlimited && growth == 0 {
            return None;
        }
        let mut pools = POOLS.lock();
        let known = pools.entry(pool).or_insert(Some(Known::new(here.slot))).as_mut()?;
        let before = known.counted;
        let (reserved, used) = recount(pool, known)?;
        let left = i64::try_from(reserved.saturating_sub(used)).unwrap_or(SLACK_MAX).min(SLACK_MAX);
        SLACK.get(usize::from(here.slot))?.store(if reserved == before { SLACK_MAX } else { left }, Relaxed);
        Some(())
    });
    rc
}

fn freed(
    real: *mut c_void,
    address: CUdeviceptr,
    stream: CUstream,
    mode: DefaultStreamMode,
    call: impl Fn() -> CUresult + Copy,
) -> CUresult {
    // Of the addresses that the table has, some may be freed so; those of pools are not there.
    frees(address, || order::<Api>(real, stream, mode, call))
}

memory_calls! {
    ALLOCATIONS: Order;
    fn cuMemAllocAsync(dptr: *mut c_void, bytesize: usize, hStream: CUstream) [allocated(bytesize, None, hStream, Legacy)];
    fn cuMemAllocAsync_ptsz(dptr: *mut c_void, bytesize: usize, hStream: CUstream) [allocated(bytesize, None, hStream, PerThread)];
    fn cuMemAllocFromPoolAsync(dptr: *mut c_void, bytesize: usize, pool: *mut c_void, hStream: CUstream) [allocated(bytesize, Some(pool), hStream, Legacy)];
    fn cuMemAllocFromPoolAsync_ptsz(dptr: *mut c_void, bytesize: usize, pool: *mut c_void, hStream: CUstream) [allocated(bytesize, Some(pool), hStream, PerThread)];
    fn cuMemFreeAsync(dptr: CUdeviceptr, hStream: CUstream) [freed(dptr, hStream, Legacy)];
    fn cuMemFreeAsync_ptsz(dptr: CUdeviceptr, hStream: CUstream) [freed(dptr, hStream, PerThread)];
}

/// Location of a pool's memory: CUmemPoolProps of cuda.h begins with the type of the allocation and that of handles.
#[repr(C)]
struct Properties {
    kinds: [c_int; 2],
    location: super::virtuals::Location,
}

fn made(_: *mut c_void, place: *mut c_void, properties: *mut c_void, call: impl FnOnce() -> CUresult) -> CUresult {
    let rc = call();
    if rc == SUCCESS {
        process::guarded("after a pool was made", || {
            // SAFETY: the caller's own properties, which the driver has read too.
            let location = unsafe { properties.cast::<Properties>().as_ref() }?.location;
            let known = location.device().map(|device| {
                let slot = device::slot_of(device)?;
                device::note_pools(slot);
                Some(Known::new(slot))
            });
            // A pool of the device that is not known yet is entered at its first use.
            if let Some(known) = known.map_or(Some(None), |of_device| of_device.map(Some)) {
                enter(address_at::<u64>(place) as usize, known);
            }
            Some(())
        });
    }
    rc
}

/// Enters a pool. One of this handle that was there before is gone.
fn enter(pool: usize, known: Option<Known>) {
    if let Some(before) = POOLS.lock().insert(pool, known).flatten() {
        before.count_out();
    }
}

impl Known {
    fn new(slot: u16) -> Known {
        Known { slot, counted: 0, exported: false }
    }

    fn count_out(&self) {
        account::subtract(self.slot, Part::Pooled, self.counted);
        if self.exported {
            account::unexport(self.slot, self.counted);
        }
    }
}

/// A pool of another process: its memory counts there.
fn imported(_: *mut c_void, place: *mut c_void, call: impl FnOnce() -> CUresult) -> CUresult {
    let rc = call();
    if rc == SUCCESS {
        process::guarded("after a pool was opened", || enter(address_at::<u64>(place) as usize, None));
    }
    rc
}

fn exported(_: *mut c_void, pool: Pool, call: impl FnOnce() -> CUresult) -> CUresult {
    let rc = call();
    if rc == SUCCESS {
        process::guarded("after a pool was exported", || {
            let mut pools = POOLS.lock();
            let known = pools.get_mut(&(pool as usize))?.as_mut().filter(|known| !known.exported)?;
            known.exported = true;
            account::export(known.slot, known.counted);
            Some(())
        });
    }
    rc
}

/// Memory that is in use when a pool is destroyed stays until it is freed, but the driver no longer tells how much.
fn destroyed(real: *mut c_void, pool: Pool, call: impl FnOnce() -> CUresult) -> CUresult {
    let known = process::guarded("before a pool is destroyed", || POOLS.lock().remove(&(pool as usize))).flatten();
    let rc = lend(real, call);
    process::guarded("after a pool was destroyed", || match known {
        Some(known) if rc != SUCCESS => enter(pool as usize, known),
        Some(Some(known)) => known.count_out(),
        Some(None) | None => {}
    });
    rc
}

fn trimmed(real: *mut c_void, pool: Pool, call: impl FnOnce() -> CUresult) -> CUresult {
    let rc = lend(real, call);
    process::guarded("after a pool was trimmed", || {
        recount(pool as usize, POOLS.lock().get_mut(&(pool as usize))?.as_mut()?)
    });
    rc
}

memory_calls! {
    POOLS_CHANGED: Sync;
    fn cuMemPoolDestroy(pool: *mut c_void) [destroyed(pool)];
    fn cuMemPoolTrimTo(pool: *mut c_void, minBytesToKeep: usize) [trimmed(pool)];
}

memory_calls! {
    POOLS_MADE: Memory;
    fn cuMemPoolCreate(pool: *mut c_void, poolProps: *mut c_void) [made(pool, poolProps)];
    fn cuMemPoolExportToShareableHandle(handle_out: *mut c_void, pool: *mut c_void, handleType: c_uint, flags: u64) [exported(pool)];
    fn cuMemPoolImportFromShareableHandle(pool_out: *mut c_void, handle: *mut c_void, handleType: c_uint, flags: u64) [imported(pool_out)];
}

/// Counts what the pools of these devices hold.
fn refresh_where(which: impl Fn(u16) -> bool) {
    if POOLS.is_untouched() {
        return;
    }
    for (&pool, known) in POOLS.lock().iter_mut() {
        if let Some(known) = known.as_mut().filter(|known| which(known.slot)) {
            recount(pool, known);
        }
    }
}

/// Counts what the pools of a device hold.
pub(super) fn refresh(slot: u16) {
    refresh_where(|of| of == slot);
}

/// Counts what all pools hold.
pub(super) fn refresh_all() {
    refresh_where(|_| true);
}

/// Makes the pools of a device release what is not in use, and counts the rest.
pub(super) fn trim(slot: u16) {
    if !device::has_pools(slot) {
        return;
    }
    for (&pool, known) in POOLS.lock().iter_mut() {
        if let Some(known) = known.as_mut().filter(|known| known.slot == slot) {
            driver::trim_pool(pool as Pool);
            recount(pool, known);
        }
    }
}

/// Empties the table, in a forked child.
pub(super) fn forget_all() {
    POOLS.forget();
    SLACK.iter().for_each(|slack| slack.store(0, Relaxed));
}
