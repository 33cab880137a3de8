//! Devices of calls, and the slots of their memory.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::*};

use xsched_core::thread;
use xsched_proto::account::MEMORY_SLOTS;

use super::super::api::Api;
use super::super::hot;
use super::super::types::*;
use super::driver;
use crate::enabled::{CUDA, platform_enabled};
use crate::platform::shared::Driver;
use crate::platform::shared::memory::Here;
use crate::platform::start::runtime;
use crate::process;

/// Lowest bits of [`LAST`] if the memory of the context's device is not counted.
const NOT_COUNTED: u64 = 0xff;

/// The context asked for last, and the slot of its device: an address of at most 56 bits above 8 bits of the slot; 0 =
/// none.
static LAST: AtomicU64 = AtomicU64::new(0);
/// Number of each slot's device, plus one; 0 = not known.
static DEVICES: [AtomicI32; MEMORY_SLOTS] = [const { AtomicI32::new(0) }; MEMORY_SLOTS];
/// Memory of each slot's device, in bytes.
static TOTALS: [AtomicU64; MEMORY_SLOTS] = [const { AtomicU64::new(0) }; MEMORY_SLOTS];
/// Bits of the slots with a device.
static KNOWN: AtomicU32 = AtomicU32::new(0);
/// Streams of the program whose slots were looked up, by a hash: a handle above 8 bits of the slot; 0 = none.
static STREAMS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
/// Bits of the slots whose devices have pools.
static WITH_POOLS: AtomicU32 = AtomicU32::new(0);

/// The calling thread's context and the slot of its device; `None` if its memory is not counted.
#[inline]
pub(super) fn current(real: *mut c_void) -> Option<Here> {
    let context = hot::context(Api::beside(real)?);
    let last = LAST.load(Relaxed);
    let found = if last >> 8 == context as u64 && last != 0 { last & 0xff } else { look_up(real, context) };
    (found != NOT_COUNTED).then_some(Here { context, slot: found as u16 })
}

/// Slot of a stream's device, if it is known without a question to the driver.
#[inline]
pub(super) fn slot_known(stream: CUstream) -> Option<u16> {
    let known = KNOWN.load(Relaxed);
    if known.is_power_of_two() {
        return Some(known.trailing_zeros() as u16);
    }
    let found = place_of(stream).load(Relaxed);
    (found >> 8 == stream as u64 && found != 0).then_some(found as u16 & 0xff)
}

fn place_of(stream: CUstream) -> &'static AtomicU64 {
    let handle = stream as usize;
    &STREAMS[(handle >> 4 ^ handle >> 10) % STREAMS.len()]
}

/// Slot of a stream's device; `None` if its memory is not counted.
pub(super) fn slot_of_stream(real: *mut c_void, stream: CUstream) -> Option<u16> {
    let api = Api::beside(real)?;
    let mut context = std::ptr::null_mut();
    let is_own = stream as usize > STREAM_PER_THREAD;
    // With one context for all threads, all streams are in it.
    // SAFETY: the caller's own stream; pointer to a local.
    if !is_own || hot::only() != 0 || unsafe { (api.stream_context)(stream, &mut context) } != SUCCESS {
        return current(real).map(|here| here.slot);
    }
    let last = LAST.load(Relaxed);
    let slot = if last >> 8 == context as u64 && last != 0 { last & 0xff } else { look_up(real, context as usize) };
    if slot == NOT_COUNTED {
        return None;
    }
    place_of(stream).store((stream as u64) << 8 | slot, Relaxed);
    Some(slot as u16)
}

/// Drops the slot of a stream: its handle may be used again.
pub(super) fn forget_stream(stream: CUstream) {
    place_of(stream).store(0, Relaxed);
}

#[cold]
#[inline(never)]
fn look_up(real: *mut c_void, context: usize) -> u64 {
    if context == 0 || !platform_enabled(CUDA) || Api::is_below_another(thread::current().caller.get()) {
        return NOT_COUNTED;
    }
    let device = Api::beside(real).and_then(|api| api.device_of_context(context as CUcontext));
    let slot = device.and_then(|device| by_number(real, device));
    let found = slot.map_or(NOT_COUNTED, u64::from);
    LAST.store((context as u64) << 8 | found, Relaxed);
    found
}

/// Slot of a device.
pub(super) fn by_number(real: *mut c_void, device: CUdevice) -> Option<u16> {
    driver::find_beside(real);
    let total = driver::total(device)?;
    let slot = by_key(&Api::beside(real)?.device_key(device)?, total)?;
    TOTALS.get(usize::from(slot))?.store(total, Relaxed);
    DEVICES.get(usize::from(slot))?.store(device + 1, Relaxed);
    KNOWN.fetch_or(1 << slot, Relaxed);
    Some(slot)
}

/// Slot of a device with this key and memory. Starts scheduling in this process if need be, since the daemon knows the
/// limits.
pub(super) fn by_key(key: &str, capacity: u64) -> Option<u16> {
    runtime()?.memory_device(key, capacity)
}

/// Number of a slot's device.
pub(super) fn number(slot: u16) -> Option<CUdevice> {
    let known = DEVICES.get(usize::from(slot))?.load(Relaxed);
    (known > 0).then(|| known - 1)
}

/// Memory of a slot's device, in bytes; 0 = it is not known.
pub(super) fn total(slot: u16) -> u64 {
    TOTALS.get(usize::from(slot)).map_or(0, |total| total.load(Relaxed))
}

/// Slot of the device of this number, if its memory is counted.
pub(super) fn slot_of(device: CUdevice) -> Option<u16> {
    process::running()?;
    DEVICES.iter().position(|known| known.load(Relaxed) == device + 1).map(|slot| slot as u16)
}

/// Notes that a device's memory is in pools.
pub(super) fn note_pools(slot: u16) {
    WITH_POOLS.fetch_or(1 << slot, Relaxed);
}

/// Reports whether memory of a slot's device was ever in pools.
pub(super) fn has_pools(slot: u16) -> bool {
    WITH_POOLS.load(Relaxed) & 1 << slot != 0
}

/// Drops the context asked for last and the streams that were looked up: their handles may be used again.
pub(super) fn forget_current() {
    LAST.store(0, Relaxed);
    STREAMS.iter().for_each(|stream| stream.store(0, Relaxed));
}

/// Resets the state, in a forked child.
pub(super) fn forget_all() {
    forget_current();
    DEVICES.iter().for_each(|known| known.store(0, Relaxed));
    KNOWN.store(0, Relaxed);
    WITH_POOLS.store(0, Relaxed);
}
