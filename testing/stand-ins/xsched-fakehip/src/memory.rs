//! Memory: the ranges allocated and their kinds, so that functions can answer for an address, and misuse is detected.

use crate::edge::Null;
use crate::registry::Registry;
use crate::result::{Error, Result};
use crate::runtime::{current_number, driver, given, lock, on_device};
use crate::stats;
use crate::stream::Target;
use fakecuda::{In, Out};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{LazyLock, Mutex};

/// Kind of memory of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Device,
    /// Pinned host memory that the runtime allocated.
    Host,
    /// The program's own host memory, registered.
    Registered,
    /// Memory for both sides. `pinned` is set where the driver has no managed memory and pinned host memory takes its
    /// place.
    Managed {
        pinned: bool,
    },
}

/// A range of memory that the program holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) kind: Kind,
    pub(crate) device: usize,
    flags: c_uint,
}

/// Ranges by first address.
static RANGES: Mutex<BTreeMap<u64, Range>> = Mutex::new(BTreeMap::new());
/// Number of times that memory of another process is open, by address and device.
pub(crate) static OPENED: Mutex<BTreeMap<(u64, usize), u64>> = Mutex::new(BTreeMap::new());
/// Lengths of device memory that was freed and not allocated again, by first address.
static FREED: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

fn note(start: u64, bytes: usize, kind: Kind, flags: c_uint) {
    let range = Range { start, bytes: bytes as u64, kind, device: current_number(), flags };
    lock(&RANGES).insert(start, range);
    let end = start + bytes as u64;
    lock(&FREED).retain(|&other, &mut length| other + length <= start || end <= other);
}

fn take(start: u64, kinds: &[Kind]) -> Option<Range> {
    let mut ranges = lock(&RANGES);
    let range = ranges.get(&start).copied().filter(|range| kinds.contains(&range.kind))?;
    ranges.remove(&start);
    if kinds != [Kind::Registered] {
        lock(&FREED).insert(start, range.bytes);
    }
    Some(range)
}

/// Adds memory of another process, which counts as device memory here.
pub(crate) fn note_opened(start: u64, bytes: usize) {
    note(start, bytes, Kind::Device, 0);
}

/// Removes memory of another process once it is closed.
pub(crate) fn closed(start: u64) {
    take(start, &[Kind::Device]);
}

/// The range that contains an address.
pub(crate) fn range_of(address: u64) -> Option<Range> {
    let ranges = lock(&RANGES);
    let (_, range) = ranges.range(..=address).next_back()?;
    (address < range.start + range.bytes).then_some(*range)
}

/// Reports whether an address lies in memory that was allocated here and freed since.
pub(crate) fn was_freed(address: u64) -> bool {
    let freed = lock(&FREED);
    freed.range(..=address).next_back().is_some_and(|(start, bytes)| address < start + bytes)
}

/// Reports whether memory of another process begins at `address`.
pub(crate) fn is_opened(address: u64) -> bool {
    lock(&OPENED).keys().any(|&(start, _)| start == address)
}

/// Removes the ranges of a device that was reset.
pub(crate) fn forget(device: usize) {
    lock(&RANGES).retain(|_, range| range.device != device || range.kind == Kind::Registered);
    lock(&OPENED).retain(|&(_, of), _| of != device);
}

pub(crate) fn alloc(out: Out<u64>, bytes: usize) -> Result<()> {
    let out = out.required()?;
    if bytes == 0 {
        return Ok(out.put(0)?);
    }
    let mut address = 0;
    driver()?.alloc(&raw mut address, bytes)?;
    note(address, bytes, Kind::Device, 0);
    Ok(out.put(address)?)
}

/// hipExtMallocWithFlags: default, fine-grained, signal memory (8 bytes) or uncached.
pub(crate) fn ext_alloc(out: Out<u64>, bytes: usize, flags: c_uint) -> Result<()> {
    const SIGNAL: c_uint = 2;
    match flags {
        SIGNAL if bytes != 8 => Err(Error::INVALID_VALUE),
        // Signal memory must be a word that the host can write, too.
        SIGNAL => host_alloc(out, bytes, 0),
        0 | 1 | 3 => alloc(out, bytes),
        _ => Err(Error::INVALID_VALUE),
    }
}

pub(crate) fn alloc_pitch(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize) -> Result<()> {
    let (out, pitch) = (out.required()?, pitch.required()?);
    if width == 0 || height == 0 {
        pitch.put(0)?;
        return Ok(out.put(0)?);
    }
    if let Some(call) = crate::lookup::reenter(crate::lookup::Plt::Malloc) {
        let wide = width.next_multiple_of(512);
        // SAFETY: hipMalloc's own signature; `out` was passed by the program for this.
        let result = unsafe {
            std::mem::transmute::<usize, unsafe extern "C" fn(Out<u64>, usize) -> c_int>(call)(out, wide * height)
        };
        if result != 0 {
            return Err(Error(result));
        }
        return Ok(pitch.put(wide)?);
    }
    let (mut address, mut wide) = (0, 0);
    driver()?.alloc_pitch(&raw mut address, &raw mut wide, width, height, 16)?;
    note(address, wide * height, Kind::Device, 0);
    pitch.put(wide)?;
    Ok(out.put(address)?)
}

pub(crate) fn mem_alloc_pitch(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize, _: c_uint) -> Result<()> {
    alloc_pitch(out, pitch, width, height)
}

/// Frees memory. The driver waits for the device, as real runtimes do.
pub(crate) fn free(address: u64) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    if is_opened(address) {
        return stats::wrong(&format!("hipFree of {address:#x}, another process's"), Error::INVALID_VALUE);
    }
    match take(address, &[Kind::Device, Kind::Managed { pinned: false }, Kind::Managed { pinned: true }]) {
        Some(range) => on_device(range.device, || match range.kind {
            Kind::Managed { pinned: true } => driver()?.host_free(address),
            _ => driver()?.free(address),
        }),
        // hipFree accepts pinned host memory, too.
        None if range_of(address).is_some_and(|range| range.kind == Kind::Host && range.start == address) => {
            host_free(address)
        }
        None => stats::wrong(&format!("hipFree of {address:#x}, which was not allocated"), Error::INVALID_VALUE),
    }
}

pub(crate) fn host_alloc(out: Out<u64>, bytes: usize, flags: c_uint) -> Result<()> {
    let out = out.required()?;
    if bytes == 0 {
        return Ok(out.put(0)?);
    }
    let mut address = 0;
    // Portable, mapped and write-combined have the driver's own numbers. Flags of coherence have no effect here.
    driver()?.host_alloc(&raw mut address, bytes, flags & 7 | 3)?;
    note(address, bytes, Kind::Host, flags);
    Ok(out.put(address)?)
}

pub(crate) fn host_alloc_plain(out: Out<u64>, bytes: usize) -> Result<()> {
    host_alloc(out, bytes, 0)
}

pub(crate) fn host_free(address: u64) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    if take(address, &[Kind::Host]).is_none() {
        return stats::wrong(&format!("hipHostFree of {address:#x}, which was not allocated"), Error::INVALID_VALUE);
    }
    driver()?.host_free(address)
}

/// Allocates managed memory. Without it in the driver, pinned host memory takes its place: both sides reach it by the
/// same address.
pub(crate) fn alloc_managed(out: Out<u64>, bytes: usize, flags: c_uint) -> Result<()> {
    let out = out.required()?;
    // hipMemAttachGlobal, hipMemAttachHost.
    if bytes == 0 || !(1..=2).contains(&flags) {
        return Err(Error::INVALID_VALUE);
    }
    let mut address = 0;
    let pinned = match driver()?.alloc_managed(&raw mut address, bytes, 1) {
        Err(Error::NOT_SUPPORTED) => true,
        made => made.map(|()| false)?,
    };
    if pinned {
        driver()?.host_alloc(&raw mut address, bytes, 3)?;
    }
    note(address, bytes, Kind::Managed { pinned }, flags);
    Ok(out.put(address)?)
}

pub(crate) fn host_register(address: u64, bytes: usize, flags: c_uint) -> Result<()> {
    if address == 0 || bytes == 0 {
        return Err(Error::INVALID_VALUE);
    }
    driver()?.host_register(address, bytes, flags & 3 | 3)?;
    note(address, bytes, Kind::Registered, flags);
    Ok(())
}

pub(crate) fn host_unregister(address: u64) -> Result<()> {
    if take(address, &[Kind::Registered]).is_none() {
        return Err(Error::HOST_MEMORY_NOT_REGISTERED);
    }
    driver()?.host_unregister(address)
}

pub(crate) fn host_device_pointer(out: Out<u64>, address: u64, flags: c_uint) -> Result<()> {
    let out = out.required()?;
    if flags != 0 || range_of(address).is_none_or(|range| range.kind == Kind::Device) {
        return Err(Error::INVALID_VALUE);
    }
    let mut pointer = 0;
    driver()?.host_pointer(&raw mut pointer, address, 0)?;
    Ok(out.put(pointer)?)
}

pub(crate) fn host_flags(out: Out<c_uint>, address: u64) -> Result<()> {
    let range = range_of(address).filter(|range| range.kind == Kind::Host).ok_or(Error::INVALID_VALUE)?;
    Ok(out.put(range.flags)?)
}

pub(crate) fn info(free: Out<usize>, total: Out<usize>) -> Result<()> {
    let (mut unused, mut all) = (0, 0);
    driver()?.memory_info(&raw mut unused, &raw mut all)?;
    free.put(unused)?;
    Ok(total.put(all)?)
}

pub(crate) fn address_range(base: Out<u64>, size: Out<usize>, address: u64) -> Result<()> {
    let range = range_of(address).filter(|range| range.kind != Kind::Registered).ok_or(Error::NOT_FOUND)?;
    base.maybe(range.start);
    size.maybe(range.bytes as usize);
    Ok(())
}

pub(crate) fn pointer_size(address: u64, size: Out<usize>) -> Result<()> {
    let range = range_of(address).filter(|range| range.start == address).ok_or(Error::INVALID_VALUE)?;
    Ok(size.put(range.bytes as usize)?)
}

/// `hipPointerAttribute_t` of all majors, which differ only in the numbers of `kind`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PointerAttributes {
    kind: c_uint,
    device: c_int,
    device_pointer: u64,
    host_pointer: u64,
    is_managed: c_int,
    flags: c_uint,
}

fn is_managed(kind: Kind) -> bool {
    matches!(kind, Kind::Managed { .. })
}

/// Number of a kind in hipMemoryType: host and device were 0 and 1 before 6.0; they are 1 and 2 since, and managed is
/// 3.
fn type_number(kind: Kind) -> c_uint {
    let first = c_uint::from(crate::lookup::major() >= 6);
    match kind {
        Kind::Host | Kind::Registered => first,
        Kind::Device => first + 1,
        Kind::Managed { .. } if first == 0 => 1,
        Kind::Managed { .. } => 3,
    }
}

pub(crate) fn pointer_attributes(out: Out<PointerAttributes>, address: u64) -> Result<()> {
    let out = out.required()?;
    let Some(range) = range_of(address) else { return Err(Error::INVALID_VALUE) };
    let host = if range.kind == Kind::Device { 0 } else { address };
    Ok(out.put(PointerAttributes {
        kind: type_number(range.kind),
        device: range.device as c_int,
        device_pointer: address,
        host_pointer: host,
        is_managed: is_managed(range.kind).into(),
        flags: range.flags,
    })?)
}

pub(crate) fn pointer_attribute(out: Out<c_void>, which: c_int, address: u64) -> Result<()> {
    let range = range_of(address).ok_or(Error::INVALID_VALUE)?;
    // SAFETY: the casts read and write nothing; the attribute determines the type of the value, and the caller must pass a place of that type.
    let (word, double) = unsafe {
        (std::mem::transmute::<Out<c_void>, Out<u32>>(out), std::mem::transmute::<Out<c_void>, Out<u64>>(out))
    };
    Ok(match which {
        2 => word.put(type_number(range.kind)),
        3 => double.put(address),
        4 if range.kind == Kind::Device => return Err(Error::INVALID_VALUE),
        4 => double.put(address),
        8 => word.put(is_managed(range.kind).into()),
        9 => word.put(range.device as u32),
        11 => double.put(range.start),
        12 => double.put(range.bytes),
        _ => return Err(Error::NOT_SUPPORTED),
    }?)
}

fn note_async(address: u64, bytes: usize, out: Out<u64>) -> Result<()> {
    note(address, bytes, Kind::Device, 0);
    Ok(out.put(address)?)
}

pub(crate) fn alloc_async(out: Out<u64>, bytes: usize, stream: usize) -> Result<()> {
    let (out, target) = (out.required()?, Target::find(Null::Legacy, stream)?);
    let mut address = 0;
    target.with(|real| driver()?.alloc_async(&raw mut address, bytes, real))?;
    note_async(address, bytes, out)
}

pub(crate) fn alloc_from_pool(out: Out<u64>, bytes: usize, pool: usize, stream: usize) -> Result<()> {
    let (out, target) = (out.required()?, Target::find(Null::Legacy, stream)?);
    let mut address = 0;
    target.with(|real| driver()?.alloc_from_pool(&raw mut address, bytes, driver_pool(pool)?, real))?;
    note_async(address, bytes, out)
}

pub(crate) fn free_async(address: u64, stream: usize) -> Result<()> {
    let target = Target::find(Null::Legacy, stream)?;
    if is_opened(address) || take(address, &[Kind::Device]).is_none() {
        return stats::wrong(&format!("hipFreeAsync of {address:#x}, not allocated"), Error::INVALID_VALUE);
    }
    target.with(|real| driver()?.free_async(address, real))
}

/// Pools that programs created, with the device of each. A pool is another handle for the device's own pool, attributes
/// included.
static POOLS: LazyLock<Registry<u32>> = LazyLock::new(Registry::new);

/// `hipMemPoolProps`, as far as it is used: kind of allocation, kinds of handles, kind of location, device.
pub(crate) type PoolProps = [c_int; 4];

pub(crate) fn pool_create(out: Out<usize>, props: In<PoolProps>) -> Result<()> {
    let (out, [_, _, _, number]) = (out.required()?, props.get()?);
    let device = given(number)?.number;
    let mut handle = 0;
    POOLS.add(|made| {
        handle = made;
        device as u32
    });
    Ok(out.put(handle)?)
}

pub(crate) fn pool_destroy(pool: usize) -> Result<()> {
    POOLS.remove(pool).map(drop).ok_or(Error::INVALID_VALUE)
}

/// The driver's pool behind a handle.
fn driver_pool(pool: usize) -> Result<usize> {
    let Some(device) = POOLS.get(pool) else { return Ok(pool) };
    let mut own = 0;
    driver()?.default_pool(&raw mut own, *device as c_int)?;
    Ok(own)
}

pub(crate) fn device_pool(out: Out<usize>, number: c_int) -> Result<()> {
    let (out, device) = (out.required()?, given(number)?);
    let mut pool = 0;
    driver()?.default_pool(&raw mut pool, device.number as c_int)?;
    Ok(out.put(pool)?)
}

pub(crate) fn pool_trim(pool: usize, keep: usize) -> Result<()> {
    driver()?.pool_trim(driver_pool(pool)?, keep)
}

pub(crate) fn pool_get(pool: usize, which: c_uint, value: *mut c_void) -> Result<()> {
    driver()?.pool_get(driver_pool(pool)?, which, value)
}

pub(crate) fn pool_set(pool: usize, which: c_uint, value: *mut c_void) -> Result<()> {
    driver()?.pool_set(driver_pool(pool)?, which, value)
}

/// Accepts a hint for known memory and ignores it, as no memory moves.
pub(crate) fn advise(address: u64, _bytes: usize, _advice: c_int, _device: c_int) -> Result<()> {
    range_of(address).map(drop).ok_or(Error::INVALID_VALUE)
}

pub(crate) fn prefetch(address: u64, _bytes: usize, _device: c_int, stream: usize) -> Result<()> {
    let target = Target::find(Null::Legacy, stream)?;
    range_of(address).ok_or(Error::INVALID_VALUE)?;
    target.issue(|| (), |_| Ok(()))
}
