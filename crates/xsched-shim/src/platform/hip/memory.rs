//! Memory of HIP programs: counted, limited, and reported as if the device had the limit's size.
//!
//! Memory in the order of a stream counts by the sizes asked for, not by what pools keep; arrays by their measures. Memory
//! behind handles, of graphs, and of `hipArrayCreate` and mipmapped arrays is not counted here. `docs/internals/cuda.md` has
//! the table of ways.

use std::sync::atomic::{AtomicU32, Ordering::*};

use super::api::{self, Api};
use super::lifetime::announce;
use super::types::*;
use super::{real, sig};
use crate::enabled::{HIP, platform_enabled};
use crate::interpose::hooks;
use crate::platform::shared::memory::{Entry, Here, Keeper, Part, account, steps, table};
use crate::platform::shared::path::order;
use crate::platform::shared::waits::lending_call;
use crate::platform::shared::{Driver, StreamKind::Legacy};
use crate::platform::start::runtime;
use crate::process;

/// Unit in which memory of a device is allocated.
const UNIT: u64 = 4 << 10;
/// Alignment of rows, in bytes, as long as the runtime has not said what it is.
const PITCH: u64 = 256;
/// Devices whose slots are kept.
const DEVICES: usize = 64;
/// Place of `totalGlobalMem` in hipDeviceProp_tR0600, and in the structure of the versions before ROCm 6.
const TOTAL_R0600: usize = 288;
const TOTAL_R0000: usize = 256;

/// Slot of each device, plus one; 0 = not known.
static SLOTS: [AtomicU32; DEVICES] = [const { AtomicU32::new(0) }; DEVICES];

struct Hip;

impl Keeper for Hip {
    /// hipErrorOutOfMemory.
    const OUT_OF_MEMORY: hipError_t = 2;

    fn info() -> Option<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        let api = api::copies().next()?;
        let ask = api.functions.memory_info?;
        // SAFETY: pointers to locals.
        api.quietly(|| unsafe { ask(&mut free, &mut total) }).then_some((free as u64, total as u64))
    }

    /// The runtime's pools are its own.
    fn trim(_: u16) {}
}

/// Slot of a device.
fn slot_of(api: &Api, device: c_int) -> Option<u16> {
    let place = SLOTS.get(usize::try_from(device).ok()?)?;
    if let Some(slot) = place.load(Relaxed).checked_sub(1) {
        return Some(slot as u16);
    }
    let (ask, mut total) = (api.functions.total_memory?, 0);
    // SAFETY: pointer to a local.
    if !api.quietly(|| unsafe { ask(&mut total, device) }) {
        return None;
    }
    let slot = runtime()?.memory_device(&api.device_key(device)?, total as u64)?;
    place.store(u32::from(slot) + 1, Relaxed);
    Some(slot)
}

/// Copy of the runtime that a program calls; `None` if memory is not counted.
fn called(real: *mut c_void) -> Option<&'static Api> {
    Api::beside(real).filter(|api| platform_enabled(HIP) && !api.is_called_by_itself())
}

/// The calling thread's device.
fn here(real: *mut c_void) -> Option<Here> {
    let api = called(real)?;
    let device = api.device()?;
    Some(Here { context: device as usize + 1, slot: slot_of(api, device)? })
}

fn rounded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(UNIT).unwrap_or(bytes)
}

/// Word that the runtime has written at `place`, after `words` others.
fn word_at(place: *mut c_void, words: usize) -> u64 {
    // SAFETY: the caller's own place, which the runtime just wrote.
    unsafe { place.cast::<u64>().add(words).read_unaligned() }
}

/// Runs a call that allocates; `made` returns the address and the exact size.
fn allocates(
    real: *mut c_void,
    part: Part,
    bytes: u64,
    call: impl Fn() -> hipError_t,
    made: impl FnOnce() -> (u64, u64),
) -> hipError_t {
    let call = || lending_call::<Api, _>(real, &call);
    // Nothing is allocated for 0 bytes.
    let rc = if bytes == 0 { call() } else { steps::allocates::<Hip>(part, bytes, || here(real), call, made) };
    announce(real, rc)
}

fn plain(real: *mut c_void, place: *mut c_void, bytes: usize, part: Part, call: impl Fn() -> hipError_t) -> hipError_t {
    let bytes = rounded(bytes as u64);
    allocates(real, part, bytes, call, || (word_at(place, 0), bytes))
}

/// Allocates rows, whose distance the runtime writes at `pitch`, after `words` others.
fn pitched(
    real: *mut c_void,
    place: *mut c_void,
    (pitch, words): (*mut c_void, usize),
    [width, rows]: [u64; 2],
    call: impl Fn() -> hipError_t,
) -> hipError_t {
    let size = |pitch: u64| rounded(pitch.saturating_mul(rows));
    let estimate = size(width.checked_next_multiple_of(PITCH).unwrap_or(width));
    allocates(real, Part::Plain, estimate, call, || (word_at(place, 0), size(word_at(pitch, words))))
}

/// hipMalloc3D: address and distance of rows are in one structure.
fn cuboid(real: *mut c_void, place: *mut c_void, extent: Words<3>, call: impl Fn() -> hipError_t) -> hipError_t {
    let Words([width, height, depth]) = extent;
    pitched(real, place, (place, 1), [width, height.saturating_mul(depth)], call)
}

/// An array of texels that a hipChannelFormatDesc describes: the bits of four channels, and their kind.
fn texels(
    real: *mut c_void,
    place: *mut c_void,
    format: *mut c_void,
    measures: [u64; 3],
    call: impl Fn() -> hipError_t,
) -> hipError_t {
    // SAFETY: null, or the caller's own description, which the runtime reads too.
    let channels = unsafe { format.cast::<[c_int; 4]>().as_ref() }.copied().unwrap_or_default();
    let bits: u64 = channels.iter().map(|bits| u64::try_from(*bits).unwrap_or(0)).sum();
    let count = measures.into_iter().map(|measure| measure.max(1)).fold(1, u64::saturating_mul);
    let bytes = rounded(count.saturating_mul(bits / 8));
    allocates(real, Part::Array, bytes, call, || (word_at(place, 0), bytes))
}

/// Runs a call that pins memory of the host, at an address that `at` returns afterwards.
fn pins(real: *mut c_void, bytes: usize, call: impl FnOnce() -> hipError_t, at: impl FnOnce() -> u64) -> hipError_t {
    let rc = lending_call::<Api, _>(real, call);
    if rc == SUCCESS && bytes > 0 {
        process::guarded("after memory was pinned", || {
            let (Here { context, slot }, bytes) = (here(real)?, bytes as u64);
            account::add(slot, Part::Host, bytes);
            table::insert(at(), Entry { bytes, context, slot, part: Part::Host, exported: false });
            Some(())
        });
    }
    announce(real, rc)
}

fn host(real: *mut c_void, place: *mut c_void, bytes: usize, call: impl FnOnce() -> hipError_t) -> hipError_t {
    pins(real, bytes, call, || word_at(place, 0))
}

fn registered(real: *mut c_void, at: *mut c_void, bytes: usize, call: impl FnOnce() -> hipError_t) -> hipError_t {
    pins(real, bytes, call, || at as u64)
}

fn freed(real: *mut c_void, at: *mut c_void, call: impl FnOnce() -> hipError_t) -> hipError_t {
    steps::frees(at as u64, || lending_call::<Api, _>(real, call))
}

/// Allocates in the order of a stream; while that only records, memory is the graph's.
fn ordered(
    real: *mut c_void,
    place: *mut c_void,
    bytes: usize,
    stream: hipStream_t,
    call: impl Fn() -> hipError_t + Copy,
) -> hipError_t {
    let bytes = rounded(bytes as u64);
    let at = || {
        let records = called(real)?.recording(stream, Legacy) != Some(false);
        if records || bytes == 0 { None } else { here(real) }
    };
    let call = || order::<Api>(real, stream, Legacy, call);
    steps::allocates::<Hip>(Part::Pooled, bytes, at, call, || (word_at(place, 0), bytes))
}

fn freed_in_order(
    real: *mut c_void,
    at: *mut c_void,
    stream: hipStream_t,
    call: impl Fn() -> hipError_t + Copy,
) -> hipError_t {
    steps::frees(at as u64, || order::<Api>(real, stream, Legacy, call))
}

/// Runs a call that tells figures of a device's memory, and then `change` with the device's slot.
fn told(
    real: *mut c_void,
    device: Option<c_int>,
    call: impl FnOnce() -> hipError_t,
    change: impl FnOnce(u16) -> Option<()>,
) -> hipError_t {
    let rc = call();
    if rc == SUCCESS {
        process::guarded("after memory was told", || {
            let api = called(real)?;
            change(slot_of(api, device.or_else(|| api.device())?)?)
        });
    }
    rc
}

/// Bytes that the runtime has written.
///
/// # Safety
/// Null, or a place of the caller's that the runtime just wrote.
unsafe fn figure<'a>(place: *mut c_void) -> Option<&'a mut usize> {
    // SAFETY: the caller's promise.
    unsafe { place.cast::<usize>().as_mut() }
}

fn info(real: *mut c_void, free: *mut c_void, total: *mut c_void, call: impl FnOnce() -> hipError_t) -> hipError_t {
    told(real, None, call, |slot| {
        // SAFETY: the caller's own places.
        let (free, total) = unsafe { (figure(free)?, figure(total)?) };
        let (left, all) = account::words(slot)?.seen(*free as u64, *total as u64);
        (*free, *total) = (left as usize, all as usize);
        Some(())
    })
}

fn total(real: *mut c_void, place: *mut c_void, device: c_int, call: impl FnOnce() -> hipError_t) -> hipError_t {
    told(real, Some(device), call, |slot| {
        // SAFETY: the caller's own place.
        let total = unsafe { figure(place) }?;
        let (_, all) = account::words(slot)?.seen(*total as u64, *total as u64);
        *total = all as usize;
        Some(())
    })
}

/// Properties of a device, with its memory at an offset. Left as they are where that is not what the runtime tells elsewhere:
/// the structure is another then.
fn properties(
    real: *mut c_void,
    place: *mut c_void,
    offset: usize,
    device: c_int,
    call: impl FnOnce() -> hipError_t,
) -> hipError_t {
    told(real, Some(device), call, |slot| {
        let (api, mut known) = (called(real)?, 0);
        let ask = api.functions.total_memory?;
        // SAFETY: pointer to a local; the caller's own structure, which is longer than the offset in all versions.
        let total = unsafe {
            api.quietly(|| ask(&mut known, device)).then_some(())?;
            figure(place.byte_add(offset))?
        };
        if *total == known {
            let (_, all) = account::words(slot)?.seen(known as u64, known as u64);
            *total = all as usize;
        }
        Some(())
    })
}

/// Hooks functions that have to do with memory, each with the function that handles it and what that needs besides the
/// address of the real function and the call.
macro_rules! memory_calls {
    (
        $list:ident: $class:ident;
        $(fn $name:ident($($arg:ident: $ty:ty),*) [$way:ident($($given:expr),*)];)*
    ) => {
        $(
            unsafe extern "C" fn $name($($arg: $ty),*) -> hipError_t {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                $way(real, $($given,)* || unsafe { function($($arg),*) })
            }
        )*
        hooks! { HIP, $list: $class; $($name)* }
    };
}

memory_calls! {
    ALLOCATIONS: Sync;
    fn hipExtHostAlloc(ptr: *mut c_void, size: usize, flags: c_uint) [host(ptr, size)];
    fn hipExtMallocWithFlags(ptr: *mut c_void, sizeBytes: usize, flags: c_uint) [plain(ptr, sizeBytes, Part::Plain)];
    fn hipHostAlloc(ptr: *mut c_void, size: usize, flags: c_uint) [host(ptr, size)];
    fn hipHostMalloc(ptr: *mut c_void, size: usize, flags: c_uint) [host(ptr, size)];
    fn hipHostRegister(hostPtr: *mut c_void, sizeBytes: usize, flags: c_uint) [registered(hostPtr, sizeBytes)];
    fn hipMalloc(ptr: *mut c_void, size: usize) [plain(ptr, size, Part::Plain)];
    fn hipMalloc3D(pitchedDevPtr: *mut c_void, extent: Words<3>) [cuboid(pitchedDevPtr, extent)];
    fn hipMalloc3DArray(array: *mut c_void, desc: *mut c_void, extent: Words<3>, flags: c_uint) [texels(array, desc, extent.0)];
    fn hipMallocArray(array: *mut c_void, desc: *mut c_void, width: usize, height: usize, flags: c_uint) [texels(array, desc, [width as u64, height as u64, 1])];
    fn hipMallocHost(ptr: *mut c_void, size: usize) [host(ptr, size)];
    fn hipMallocManaged(dev_ptr: *mut c_void, size: usize, flags: c_uint) [plain(dev_ptr, size, Part::Managed)];
    fn hipMallocPitch(ptr: *mut c_void, pitch: *mut c_void, width: usize, height: usize) [pitched(ptr, (pitch, 0), [width as u64, height as u64])];
    fn hipMemAllocHost(ptr: *mut c_void, size: usize) [host(ptr, size)];
    fn hipMemAllocPitch(dptr: *mut c_void, pitch: *mut c_void, widthInBytes: usize, height: usize, elementSizeBytes: c_uint) [pitched(dptr, (pitch, 0), [widthInBytes as u64, height as u64])];
}

memory_calls! {
    FREES: Sync;
    fn hipFree(ptr: *mut c_void) [freed(ptr)];
    fn hipFreeArray(array: *mut c_void) [freed(array)];
    fn hipFreeHost(ptr: *mut c_void) [freed(ptr)];
    fn hipHostFree(ptr: *mut c_void) [freed(ptr)];
    fn hipHostUnregister(hostPtr: *mut c_void) [freed(hostPtr)];
}

memory_calls! {
    ORDERED: Order;
    fn hipFreeAsync(dev_ptr: *mut c_void, stream: hipStream_t) [freed_in_order(dev_ptr, stream)];
    fn hipMallocAsync(dev_ptr: *mut c_void, size: usize, stream: hipStream_t) [ordered(dev_ptr, size, stream)];
    fn hipMallocFromPoolAsync(dev_ptr: *mut c_void, size: usize, mem_pool: *mut c_void, stream: hipStream_t) [ordered(dev_ptr, size, stream)];
}

memory_calls! {
    FIGURES: Memory;
    fn hipDeviceTotalMem(bytes: *mut c_void, device: c_int) [total(bytes, device)];
    fn hipGetDeviceProperties(prop: *mut c_void, deviceId: c_int) [properties(prop, TOTAL_R0000, deviceId)];
    fn hipGetDevicePropertiesR0000(prop: *mut c_void, deviceId: c_int) [properties(prop, TOTAL_R0000, deviceId)];
    fn hipGetDevicePropertiesR0600(prop: *mut c_void, deviceId: c_int) [properties(prop, TOTAL_R0600, deviceId)];
    fn hipMemGetInfo(free: *mut c_void, total: *mut c_void) [info(free, total)];
}

/// Counts out what ended with a device's state: that of the calling thread's device.
pub(super) fn device_reset(real: *mut c_void) {
    process::guarded("after a device was reset", || {
        let gone = here(real)?.context;
        table::remove_all(gone).iter().for_each(Entry::count_out);
        Some(())
    });
}

/// Resets the state, in a forked child.
pub(super) fn forget_all() {
    SLOTS.iter().for_each(|slot| slot.store(0, Relaxed));
}
