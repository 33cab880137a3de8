//! Memory: allocation, and information on addresses.
//!
//! Device memory and pinned host memory both lie in the arena of their context, so an address is the same for the host
//! and the device. Other memory is copied through a stage. Words of it can be waited for and written if it is
//! registered and a shared mapping of a sealed memfd, which the device can map.

use crate::books::reap;
use crate::context::{CONTEXTS, Ctx, current};
use crate::edge::{In, Out};
use crate::graph_memory;
use crate::result::{Error, Result};
use crate::sequence::potentially_unsafe;
use crate::stats;
use crate::vmm;
use std::collections::BTreeSet;
use std::ffi::{c_uint, c_void};
use std::sync::{Arc, Mutex};
use xsched_sim::client::{self, lock};
use xsched_sim::command::Place;
use xsched_sim::layout::DEVICE_BYTES;

/// CU_MEMHOSTREGISTER_PORTABLE: registers with all contexts.
const PORTABLE: c_uint = 1;
/// Alignment of the rows of pitched memory, in bytes.
const PITCH: usize = 512;

/// A registered range of the program's own memory.
struct Registered {
    start: u64,
    bytes: u64,
    flags: c_uint,
    /// Handle of the context in which the memory was registered.
    owner: usize,
}

static REGISTERED: Mutex<Vec<Registered>> = Mutex::new(Vec::new());

pub(crate) fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Context whose arena contains an address, and the offset in it.
pub(crate) fn owner(address: u64, bytes: usize) -> Option<(Arc<Ctx>, u64)> {
    let contexts = CONTEXTS.all();
    contexts.into_iter().find_map(|ctx| ctx.sim.offset(pointer(address), bytes).map(|offset| (ctx, offset)))
}

/// Location of a word that the device can reach from a context.
pub(crate) fn place(ctx: &Arc<Ctx>, address: u64, bytes: usize) -> Result<Place> {
    let at = pointer(address);
    if let Ok(place) = ctx.sim.place(at, bytes) {
        return Ok(place);
    }
    // The range was registered with another context, for all contexts. Registers it with this one now.
    let registered = lock(&REGISTERED);
    let whole = |r: &&Registered| r.start <= address && address + bytes as u64 <= r.start + r.bytes;
    let Some(range) = registered.iter().find(whole) else {
        stats::illegal(format!("the device knows no word at {address:#x}"));
        return Err(Error::INVALID_VALUE);
    };
    if range.owner != ctx.handle && range.flags & PORTABLE == 0 {
        return Err(Error::INVALID_VALUE);
    }
    ctx.sim.regions.add(ctx.sim, pointer(range.start), range.bytes as usize)?;
    Ok(ctx.sim.place(at, bytes)?)
}

/// Checks that a range is memory of the device, as a whole and in one block.
pub(crate) fn check_device(address: u64, bytes: usize) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    if let Some(result) = vmm::check(address, bytes) {
        return result;
    }
    if let Some((ctx, offset)) = owner(address, bytes) {
        let heaps = lock(&ctx.sim.heaps);
        let inside = |heap: &client::Heap| {
            heap.block_of(offset).is_some_and(|(start, length)| offset + bytes as u64 <= start + length)
        };
        if inside(&heaps.device) || inside(&heaps.host) {
            return Ok(());
        }
    } else if is_registered(address, bytes) {
        return Ok(());
    }
    Err(Error::INVALID_VALUE)
}

/// Reports whether an address lies in device memory.
pub(crate) fn is_device(address: u64) -> bool {
    owner(address, 1).is_some_and(|(_, offset)| offset < DEVICE_BYTES as u64)
}

/// Reports whether a range is registered. Registered memory is read when the device reaches the copy, other memory when
/// the copy is submitted.
pub(crate) fn is_registered(address: u64, bytes: usize) -> bool {
    let end = address.saturating_add(bytes as u64);
    lock(&REGISTERED).iter().any(|r| r.start <= address && end <= r.start + r.bytes)
}

/// Drops the registrations of a context that ends.
pub(crate) fn forget_registered(ctx: &Ctx) {
    lock(&REGISTERED).retain(|range| range.owner != ctx.handle);
}

fn alloc_device(ctx: &Ctx, bytes: usize) -> Result<u64> {
    if bytes == 0 {
        return Err(Error::INVALID_VALUE);
    }
    ctx.memory.reap(ctx.sim);
    let offset = ctx.sim.allocate(bytes as u64)?;
    Ok(ctx.sim.address(offset).expose_provenance() as u64)
}

pub(crate) fn alloc(out: Out<u64>, bytes: usize) -> Result<()> {
    let out = out.required()?;
    potentially_unsafe()?;
    out.put(alloc_device(&*current()?, bytes)?)
}

pub(crate) fn alloc_pitch(out: Out<u64>, pitch: Out<usize>, width: usize, rows: usize, unit: c_uint) -> Result<()> {
    let (out, pitch, ctx) = (out.required()?, pitch.required()?, current()?);
    potentially_unsafe()?;
    if ![4, 8, 16].contains(&unit) || width == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let row = width.checked_next_multiple_of(PITCH).ok_or(Error::OUT_OF_MEMORY)?;
    let address = alloc_device(&ctx, row.checked_mul(rows).ok_or(Error::OUT_OF_MEMORY)?)?;
    pitch.put(row)?;
    out.put(address)
}

/// Frees a block. Waits for all commands of the context first, as drivers do.
fn free_block(address: u64, heap: fn(&mut client::Heaps) -> &mut client::Heap) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    current()?;
    potentially_unsafe()?;
    let block = owner(address, 0).filter(|(ctx, offset)| heap(&mut lock(&ctx.sim.heaps)).is_block(*offset));
    let Some((ctx, offset)) = block else {
        stats::illegal(format!("no memory begins at {address:#x}"));
        return Err(Error::INVALID_VALUE);
    };
    if vmm::of(address).is_some() {
        stats::illegal(format!("reserved addresses at {address:#x} are freed"));
        return Err(Error::INVALID_VALUE);
    }
    if ctx.ipc.opened(address).is_some() {
        stats::illegal(format!("memory of another process at {address:#x} is freed"));
        return Err(Error::INVALID_VALUE);
    }
    ctx.sim.synchronize()?;
    ctx.ipc.freed(ctx.sim, offset);
    let length = lock(&ctx.sim.heaps).device.block_of(offset).map_or(0, |(_, length)| length);
    graph_memory::freed(&ctx, offset, length);
    ctx.sim.release(offset, heap)?;
    ctx.memory.unpool(offset);
    Ok(())
}

pub(crate) fn free(address: u64) -> Result<()> {
    free_block(address, |heaps| &mut heaps.device)?;
    lock(&MANAGED).remove(&address);
    Ok(())
}

pub(crate) fn host_free(address: *mut c_void) -> Result<()> {
    free_block(address.expose_provenance() as u64, |heaps| &mut heaps.host)
}

pub(crate) fn host_alloc(out: Out<*mut c_void>, bytes: usize, _: c_uint) -> Result<()> {
    let (out, ctx) = (out.required()?, current()?);
    potentially_unsafe()?;
    if bytes == 0 {
        return Err(Error::INVALID_VALUE);
    }
    reap(&ctx.memory.stages, ctx.sim, |heaps| &mut heaps.host);
    let offset = lock(&ctx.sim.heaps).host.alloc(bytes as u64).ok_or(Error::OUT_OF_MEMORY)?;
    let address = ctx.sim.address(offset);
    address.expose_provenance();
    out.put(address)
}

pub(crate) fn alloc_host(out: Out<*mut c_void>, bytes: usize) -> Result<()> {
    host_alloc(out, bytes, 0)
}

/// Allocates memory that the host can use, too: as all memory of the device is here.
pub(crate) fn alloc_managed(out: Out<u64>, bytes: usize, flags: c_uint) -> Result<()> {
    // CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_HOST.
    if ![1, 2].contains(&flags) {
        return Err(Error::INVALID_VALUE);
    }
    let mut at = 0;
    alloc(Out::to(&mut at), bytes)?;
    lock(&MANAGED).insert(at);
    out.put(at)
}

/// Addresses of managed memory.
static MANAGED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

fn is_managed(begins: u64) -> bool {
    lock(&MANAGED).contains(&begins)
}

pub(crate) fn host_register(address: *mut c_void, bytes: usize, flags: c_uint) -> Result<()> {
    let (ctx, start) = (current()?, address.expose_provenance() as u64);
    potentially_unsafe()?;
    let end = start.checked_add(bytes as u64).filter(|_| bytes != 0 && start != 0).ok_or(Error::INVALID_VALUE)?;
    let mut registered = lock(&REGISTERED);
    if registered.iter().any(|r| start < r.start + r.bytes && r.start < end) {
        return Err(Error::HOST_MEMORY_ALREADY_REGISTERED);
    }
    match ctx.sim.regions.add(ctx.sim, address, bytes) {
        // Memory that is not shared can be used for copies only.
        Ok(()) | Err(client::Error::NotSupported) => {}
        Err(error) => return Err(error.into()),
    }
    registered.push(Registered { start, bytes: bytes as u64, flags, owner: ctx.handle });
    Ok(())
}

pub(crate) fn host_unregister(address: *mut c_void) -> Result<()> {
    current()?;
    potentially_unsafe()?;
    let (start, mut registered) = (address.addr() as u64, lock(&REGISTERED));
    let Some(index) = registered.iter().position(|range| range.start == start) else {
        stats::illegal(format!("no registered memory begins at {start:#x}"));
        return Err(Error::HOST_MEMORY_NOT_REGISTERED);
    };
    registered.swap_remove(index);
    for ctx in CONTEXTS.all() {
        // A context that never registered the range fails here, which does not matter.
        let _ = ctx.sim.regions.remove(ctx.sim, address);
    }
    Ok(())
}

pub(crate) fn host_device_pointer(out: Out<u64>, address: *mut c_void, flags: c_uint) -> Result<()> {
    let (out, ctx, at) = (out.required()?, current()?, address.expose_provenance() as u64);
    if flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let mine = ctx.sim.offset(address, 1).is_some();
    let registered = lock(&REGISTERED);
    let range = registered.iter().find(|r| (r.start..r.start + r.bytes).contains(&at));
    let seen = range.is_some_and(|r| r.owner == ctx.handle || r.flags & PORTABLE != 0);
    if mine || seen { out.put(at) } else { Err(Error::INVALID_VALUE) }
}

pub(crate) fn host_flags(out: Out<c_uint>, address: *mut c_void) -> Result<()> {
    current()?;
    let at = address.addr() as u64;
    let registered = lock(&REGISTERED);
    let found = registered.iter().find(|r| (r.start..r.start + r.bytes).contains(&at)).map(|r| r.flags);
    // Pinned memory is mapped (CU_MEMHOSTALLOC_DEVICEMAP), whatever flags it was allocated with.
    let flags = found.or_else(|| owner(at, 1).map(|_| 2)).ok_or(Error::INVALID_VALUE)?;
    out.put(flags)
}

pub(crate) fn info(free: Out<usize>, total: Out<usize>) -> Result<()> {
    let ctx = current()?;
    ctx.memory.reap(ctx.sim);
    let memory = ctx.sim.memory()?;
    free.put(memory.free() as usize)?;
    total.put(memory.capacity as usize)
}

pub(crate) fn address_range(base: Out<u64>, size: Out<usize>, address: u64) -> Result<()> {
    current()?;
    if let Some(known) = vmm::of(address) {
        let mapping = known.mapping.ok_or(Error::NOT_FOUND)?;
        base.maybe(mapping.start);
        size.maybe(mapping.bytes as usize);
        return Ok(());
    }
    let (ctx, offset) = owner(address, 1).ok_or(Error::NOT_FOUND)?;
    if let Some((start, length)) = ctx.ipc.opened(address) {
        base.maybe(start);
        size.maybe(length as usize);
        return Ok(());
    }
    let heaps = lock(&ctx.sim.heaps);
    let (start, length) =
        heaps.device.block_of(offset).or_else(|| heaps.host.block_of(offset)).ok_or(Error::NOT_FOUND)?;
    base.maybe(address - (offset - start));
    size.maybe(length as usize);
    Ok(())
}

/// Bytes that a mapping of the driver's own has for a block of this size.
fn mapped_bytes(bytes: u64) -> u64 {
    if bytes < vmm::GRANULARITY { bytes } else { bytes.next_multiple_of(vmm::GRANULARITY) }
}

/// Several attributes. One that does not hold for the address becomes 0, as NVIDIA documents.
pub(crate) fn pointer_attributes(
    count: c_uint,
    attributes: In<c_uint>,
    values: In<*mut c_void>,
    address: u64,
) -> Result<()> {
    let (attributes, values) = (attributes.list(count as usize)?, values.list(count as usize)?);
    for (attribute, value) in attributes.into_iter().zip(values) {
        if value.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        let mut found = 0u64;
        // SAFETY: a local, large enough for every attribute; which bytes of the caller's place are its is decided as above.
        let asked = pointer_attribute(
            unsafe { std::mem::transmute::<Out<u64>, Out<c_void>>(Out::to(&mut found)) },
            attribute,
            address,
        );
        let words = if DOUBLES.contains(&attribute) { 8 } else { 4 };
        let found = if asked.is_ok() { found } else { 0 };
        // SAFETY: the caller's place for this attribute, of this size by cuda.h.
        unsafe { std::ptr::copy_nonoverlapping(found.to_le_bytes().as_ptr(), value.cast(), words) };
    }
    Ok(())
}

/// Unit of the mappings of pools, with driver 580.
const POOL_GRANULARITY: u64 = 32 << 20;

/// Attributes with values of 8 bytes.
const DOUBLES: [c_uint; 12] = [1, 3, 4, 7, 11, 12, 14, 17, 18, 19, 20, 5];

/// Sets an attribute. For memory that a program maps itself there is none to set, as with driver 580.
pub(crate) fn set_pointer_attribute(value: In<c_uint>, attribute: c_uint, address: u64) -> Result<()> {
    value.get()?;
    if vmm::of(address).is_some() {
        return Err(Error::NOT_SUPPORTED);
    }
    if attribute == 6 && owner(address, 1).is_some() { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

/// CU_POINTER_ATTRIBUTE_CONTEXT, MEMORY_TYPE, DEVICE_POINTER, HOST_POINTER, SYNC_MEMOPS, IS_MANAGED, DEVICE_ORDINAL, and those below.
pub(crate) fn pointer_attribute(value: Out<c_void>, attribute: c_uint, address: u64) -> Result<()> {
    // SAFETY: no `T` is read or written by the cast; the attribute decides what is.
    let as_word = || unsafe { std::mem::transmute::<Out<c_void>, Out<u32>>(value) };
    // SAFETY: as above.
    let as_double = || unsafe { std::mem::transmute::<Out<c_void>, Out<u64>>(value) };
    let found = owner(address, 1);
    let registered = is_registered(address, 1);
    let on_device = found.as_ref().is_some_and(|(_, offset)| *offset < DEVICE_BYTES as u64);
    if found.is_none() && !registered {
        return Err(Error::INVALID_VALUE);
    }
    let virtual_range = vmm::of(address);
    let mapping = virtual_range.as_ref().and_then(|known| known.mapping.as_ref());
    let block = || {
        let (mut base, mut size) = (0, 0);
        address_range(Out::to(&mut base), Out::to(&mut size), address).map(|()| (base, size as u64))
    };
    let pool = || {
        let (ctx, _) = found.as_ref()?;
        ctx.memory.pool_of(ctx.sim.offset(pointer(block().ok()?.0), 1)?).map(|pool| pool as u64)
    };
    match attribute {
        1 if virtual_range.is_some() || pool().is_some() => as_double().put(0),
        1 => as_double().put(found.as_ref().map_or(0, |(ctx, _)| ctx.handle as u64)),
        // CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST.
        2 => as_word().put(if on_device && mapping.is_none_or(|mapping| mapping.on_device) { 2 } else { 1 }),
        3 => as_double().put(address),
        4 if on_device => Err(Error::INVALID_VALUE),
        4 => as_double().put(address),
        6 => as_word().put(0),
        8 => as_word().put(block().is_ok_and(|(base, _)| is_managed(base)).into()),
        // BUFFER_ID, MEMORY_BLOCK_ID: those of a mapping are new with each.
        7 | 20 => {
            as_double().put(mapping.map_or_else(|| block().map(|(base, _)| base >> 9), |mapping| Ok(mapping.number))?)
        }
        // CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
        10 => as_word().put((on_device && virtual_range.is_none() && pool().is_none()).into()),
        // RANGE_START_ADDR, RANGE_SIZE: of the reservation. MAPPED, ALLOWED_HANDLE_TYPES.
        11 => as_double().put(virtual_range.map_or_else(|| block().map(|(base, _)| base), |known| Ok(known.start))?),
        12 => as_double().put(virtual_range.map_or_else(|| block().map(|(_, size)| size), |known| Ok(known.bytes))?),
        13 => as_word().put((virtual_range.is_none() || mapping.is_some()).into()),
        14 => as_double().put(mapping.map_or(0, |mapping| mapping.handles as u64)),
        // MEMPOOL_HANDLE
        17 => as_double().put(pool().unwrap_or(0)),
        // GPU_DIRECT_RDMA_CAPABLE, ACCESS_FLAGS (CU_POINTER_ATTRIBUTE_ACCESS_FLAGS_READWRITE), IS_HW_DECOMPRESS_CAPABLE
        15 | 21 => {
            let created = mapping.map(|mapping| if attribute == 15 { mapping.rdma } else { mapping.decompress });
            as_word().put((on_device && created.unwrap_or(virtual_range.is_none() && pool().is_none())).into())
        }
        16 => as_word().put(3),
        // MAPPING_SIZE, MAPPING_BASE_ADDR
        18 if pool().is_some() => as_double().put(block()?.1.next_multiple_of(POOL_GRANULARITY)),
        18 => as_double()
            .put(mapping.map_or_else(|| block().map(|(_, size)| mapped_bytes(size)), |mapping| Ok(mapping.bytes))?),
        19 => as_double().put(block()?.0),
        9 => as_word().put(found.as_ref().map_or(0, |(ctx, _)| ctx.device as u32)),
        _ => Err(Error::NOT_SUPPORTED),
    }
}
