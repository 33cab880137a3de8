//! Memory pools: counted by the memory that each pool holds, in use or not. The driver tells it. An allocation that a pool
//! serves from what it holds should cost no question. So after a question the process has an *advance*: memory that it may
//! allocate from pools before the driver is asked again. Under a limit the advance counts as held, so that no allocation
//! within it exceeds the limit, and near the limit there is none: each allocation asks. Without a limit the count may be too
//! low by the advance meanwhile. What the program is told is exact, since the driver is asked then.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::*};

use xsched_core::thread;
use xsched_proto::account::{MEMORY_SLOTS, UNLIMITED};

use super::super::api::Api;
use super::super::hot::hot;
use super::super::types::*;
use super::super::{real, sig};
use super::calls::{OUT_OF_MEMORY, address_at, lend, memory_calls, quick_calls};
use super::device;
use super::driver::{self, Pool};
use super::graphs;
use super::keeper::Cuda;
use crate::interpose::hooks;
use crate::lock::Lock;
use crate::platform::shared::StreamKind::{Legacy, PerThread};
use crate::platform::shared::memory::{Claim, Part, account, claims, steps::frees, table};
use crate::platform::shared::path::{is_call_only, minor};
use crate::platform::shared::waits::stream_call;
use crate::platform::shared::{DefaultStreamMode, Driver};
use crate::process;

/// Unit in which a pool takes memory of the device.
const UNIT: u64 = 2 << 20;
/// First advance of a pool that has not grown since the question before. Each further one is twice as large.
const ADVANCE: u64 = 64 << 20;
/// Largest advance without a limit, as a part of the device's memory: the count may be too low by it.
const DEVICE_PART: u64 = 256;
/// Largest advance under a limit, as a part of the device's memory, and of what the limit leaves: it counts.
const LIMITED_DEVICE_PART: u64 = 64;
const LIMIT_PART: u64 = 16;
/// Part of what is left of the advance that a thread takes at a time: most allocations then touch no word that others write.
const THREAD_PART: i64 = 4;

/// A pool.
struct Known {
    slot: u16,
    /// Memory by which it is counted.
    counted: u64,
    /// Other processes may use it.
    exported: bool,
}

/// Pools by handle; `None` = memory of the host or of another process, which is not counted. Held while an advance begins
/// or ends.
static POOLS: Lock<HashMap<usize, Option<Known>>> = Lock::new();

/// Advance of a slot's device.
#[repr(align(64))]
struct Advance {
    /// Number of the present advance, different for each; 0 = there is none.
    number: AtomicU64,
    /// Rest that no thread has taken.
    left: AtomicI64,
    /// Memory that counts as held for it.
    counted: AtomicU64,
    /// Size of the next one.
    next: AtomicU64,
}

impl Advance {
    const fn new() -> Advance {
        let (number, counted) = (AtomicU64::new(0), AtomicU64::new(0));
        Advance { number, left: AtomicI64::new(0), counted, next: AtomicU64::new(ADVANCE) }
    }

    fn begin(&self, bytes: u64) {
        self.left.store(i64::try_from(bytes).unwrap_or(0), Relaxed);
        self.number.store(NUMBERS.fetch_add(1, Relaxed) + 1, Release);
    }

    fn end(&self) {
        self.number.store(0, Relaxed);
        self.left.store(0, Relaxed);
    }
}

static ADVANCES: [Advance; MEMORY_SLOTS] = [const { Advance::new() }; MEMORY_SLOTS];
/// Number of the last advance.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Takes an allocation off the calling thread's part of the advance; false = it does not suffice.
#[inline(always)]
fn is_in_own_part(slot: u16, bytes: usize) -> bool {
    let number = ADVANCES[usize::from(slot) % MEMORY_SLOTS].number.load(Relaxed);
    let own = &thread::current().advance;
    let (of, left) = own.get();
    let suffices = of == number && left >= bytes as u64;
    if suffices {
        own.set((of, left - bytes as u64));
    }
    suffices
}

/// Takes an allocation off the advance; false = it does not suffice.
fn is_advanced(slot: u16, bytes: usize) -> bool {
    is_in_own_part(slot, bytes) || ADVANCES.get(usize::from(slot)).is_some_and(|advance| take_part(advance, bytes))
}

/// Takes a part of the advance for the calling thread, and an allocation off it.
fn take_part(advance: &Advance, bytes: usize) -> bool {
    let number = advance.number.load(Acquire);
    let (left, Ok(wanted)) = (advance.left.load(Relaxed), i64::try_from(bytes)) else { return false };
    let part = wanted.max(left / THREAD_PART);
    if number == 0 || left < part || advance.left.fetch_sub(part, Relaxed) < part {
        return false;
    }
    thread::current().advance.set((number, (part - wanted) as u64));
    true
}

/// Ends the advance of a slot's device.
fn end_advance(slot: u16) {
    let Some(advance) = ADVANCES.get(usize::from(slot)) else { return };
    advance.end();
    let counted = advance.counted.swap(0, Relaxed);
    if counted > 0 {
        account::unclaim(slot, counted);
        account::advance(slot, 0);
    }
}

/// Begins an advance. `grown` = a pool has grown since the last question, and this much of it is not in use.
fn begin_advance(slot: u16, grown: Option<u64>) -> Option<()> {
    end_advance(slot);
    let advance = ADVANCES.get(usize::from(slot))?;
    let words = account::words(slot)?;
    let allowance = words.allowance_bytes.load(Relaxed);
    let part = if allowance == UNLIMITED { DEVICE_PART } else { LIMITED_DEVICE_PART };
    let most = device::total(slot) / part;
    let next = advance.next.load(Relaxed);
    let bytes = grown.map_or(next, |unused| unused.min(ADVANCE)).min(most);
    advance.next.store(if grown.is_some() { ADVANCE } else { next.saturating_mul(2).min(most) }, Relaxed);
    if words.keep_free_bytes.load(Relaxed) != 0 {
        return Some(());
    }
    if allowance == UNLIMITED {
        advance.begin(bytes);
        return Some(());
    }
    let bytes = bytes.min(allowance.saturating_sub(words.used_bytes.load(Relaxed)) / LIMIT_PART) / UNIT * UNIT;
    if bytes > 0 && words.take(bytes) {
        account::advance(slot, bytes);
        advance.counted.store(bytes, Relaxed);
        advance.begin(bytes);
    }
    Some(())
}

/// Counts what a pool holds now. Returns that, and the part of it that is in use.
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

/// Memory by which a pool has to grow for an allocation. Ends the advance.
fn growth(pool: usize, slot: u16, bytes: u64) -> Option<u64> {
    let mut pools = POOLS.lock();
    end_advance(slot);
    let known = pools.entry(pool).or_insert(Some(Known::new(slot)));
    let (reserved, used) = recount(pool, known.as_mut()?)?;
    let needed = used.saturating_add(bytes).saturating_sub(reserved);
    Some(needed.checked_next_multiple_of(UNIT).unwrap_or(needed))
}

/// Reports whether an allocation needs the driver only: the calling thread has memory in advance, off which it is taken.
#[inline(always)]
fn is_counted(bytes: usize, stream: CUstream, mode: DefaultStreamMode) -> bool {
    is_call_only::<Api>(stream, mode)
        && !hot().captures.is_active()
        && device::slot_known(stream).is_some_and(|slot| is_in_own_part(slot, bytes))
}

/// Reports whether memory is not in the table, so that nothing is counted when it is freed.
#[inline(always)]
fn is_uncounted(address: CUdeviceptr, stream: CUstream, mode: DefaultStreamMode) -> bool {
    is_call_only::<Api>(stream, mode) && !table::may_have(address)
}

/// Runs a call that allocates from a pool (`None` = the one in use on the stream's device).
fn allocated(
    real: *mut c_void,
    bytes: usize,
    pool: Option<Pool>,
    stream: CUstream,
    mode: DefaultStreamMode,
    call: impl Fn() -> CUresult,
) -> CUresult {
    let served = |slot| !hot().captures.is_active() && is_advanced(slot, bytes);
    if device::slot_known(stream).is_some_and(served) {
        return minor::<Api>(stream, mode, call);
    }
    let slot = process::guarded("before an allocation", || device::slot_of_stream(real, stream)).flatten();
    match slot {
        Some(slot) if !served(slot) => with_question(real, slot, bytes as u64, pool, stream, mode, call),
        Some(_) | None => minor::<Api>(stream, mode, call),
    }
}

#[cold]
#[inline(never)]
fn with_question(
    real: *mut c_void,
    slot: u16,
    bytes: u64,
    pool: Option<Pool>,
    stream: CUstream,
    mode: DefaultStreamMode,
    call: impl Fn() -> CUresult,
) -> CUresult {
    let is_unlimited = account::is_unlimited(slot);
    let asked = process::guarded("before an allocation", || {
        if Api::beside(real)?.recording(stream, mode) == Some(true) {
            return Some((None, graphs::claim(slot, bytes), 0));
        }
        device::note_pools(slot);
        let pool = pool.or_else(|| driver::pool_in_use(device::number(slot)?))? as usize;
        if is_unlimited {
            return Some((Some(pool), Claim::Uncounted, 0));
        }
        let growth = growth(pool, slot, bytes)?;
        // Without the lock on pools: a claim may trim them.
        if claims::try_claim::<Cuda>(slot, growth) == Claim::Counted {
            return Some((Some(pool), Claim::Counted, growth));
        }
        // Memory that was freed in the order of the stream may not be free yet.
        stream_call::<Api>(real, stream, mode, || driver::synchronize(stream, mode));
        let growth = self::growth(pool, slot, bytes)?;
        Some((Some(pool), claims::claim::<Cuda>(slot, growth), growth))
    });
    let Some((pool, claim, growth)) = asked.flatten() else { return minor::<Api>(stream, mode, call) };
    if claim == Claim::Refused {
        return OUT_OF_MEMORY;
    }
    let rc = claims::with_room::<Cuda>(slot, bytes, claim, || minor::<Api>(stream, mode, &call));
    let Some(pool) = pool else { return rc };
    process::guarded("after an allocation", || {
        if matches!(claim, Claim::Counted | Claim::OnHost) {
            account::unclaim(slot, growth);
        }
        let mut pools = POOLS.lock();
        if !is_unlimited && growth == 0 {
            return begin_advance(slot, None);
        }
        let known = pools.entry(pool).or_insert(Some(Known::new(slot))).as_mut()?;
        let before = known.counted;
        let (reserved, used) = recount(pool, known)?;
        begin_advance(slot, (reserved != before).then(|| reserved.saturating_sub(used)))
    });
    rc
}

fn freed(
    _: *mut c_void,
    address: CUdeviceptr,
    stream: CUstream,
    mode: DefaultStreamMode,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    // Of the addresses that the table has, some may be freed so; those of pools are not there.
    frees(address, || minor::<Api>(stream, mode, call))
}

quick_calls! {
    ALLOCATIONS: Order;
    fn cuMemAllocAsync(dptr: *mut c_void, bytesize: usize, hStream: CUstream) [allocated(bytesize, None, hStream, Legacy)] if is_counted(bytesize, hStream, Legacy);
    fn cuMemAllocAsync_ptsz(dptr: *mut c_void, bytesize: usize, hStream: CUstream) [allocated(bytesize, None, hStream, PerThread)] if is_counted(bytesize, hStream, PerThread);
    fn cuMemAllocFromPoolAsync(dptr: *mut c_void, bytesize: usize, pool: *mut c_void, hStream: CUstream) [allocated(bytesize, Some(pool), hStream, Legacy)] if is_counted(bytesize, hStream, Legacy);
    fn cuMemAllocFromPoolAsync_ptsz(dptr: *mut c_void, bytesize: usize, pool: *mut c_void, hStream: CUstream) [allocated(bytesize, Some(pool), hStream, PerThread)] if is_counted(bytesize, hStream, PerThread);
    fn cuMemFreeAsync(dptr: CUdeviceptr, hStream: CUstream) [freed(dptr, hStream, Legacy)] if is_uncounted(dptr, hStream, Legacy);
    fn cuMemFreeAsync_ptsz(dptr: CUdeviceptr, hStream: CUstream) [freed(dptr, hStream, PerThread)] if is_uncounted(dptr, hStream, PerThread);
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
    let mut pools = POOLS.lock();
    (0..MEMORY_SLOTS as u16).filter(|slot| which(*slot)).for_each(end_advance);
    for (&pool, known) in pools.iter_mut() {
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
    let mut pools = POOLS.lock();
    end_advance(slot);
    for (&pool, known) in pools.iter_mut() {
        if let Some(known) = known.as_mut().filter(|known| known.slot == slot) {
            driver::trim_pool(pool as Pool);
            recount(pool, known);
        }
    }
}

/// Empties the table, in a forked child.
pub(super) fn forget_all() {
    POOLS.forget();
    for advance in &ADVANCES {
        advance.end();
        advance.counted.store(0, Relaxed);
    }
}
