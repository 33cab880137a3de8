//! Answers about memory that moves: those that the driver gives of its own memory.
//!
//! The driver is asked first, within the latch, so that it decides on errors and on sizes of values; then what differs is replaced.

use super::super::types::*;
use super::movable::{movable, pass};
use super::stays::Why;
use super::virtuals;
use super::{chunks, held, pools};

/// CUpointer_attribute.
const CONTEXT: c_uint = 1;
const MEMORY_TYPE: c_uint = 2;
const P2P_TOKENS: c_uint = 5;
pub(super) const SYNC_MEMOPS: c_uint = 6;
const BUFFER_ID: c_uint = 7;
const LEGACY_IPC: c_uint = 10;
const RANGE_START: c_uint = 11;
const RANGE_SIZE: c_uint = 12;
const HANDLE_TYPES: c_uint = 14;
const RDMA_CAPABLE: c_uint = 15;
const MEMPOOL: c_uint = 17;
const MAPPING_SIZE: c_uint = 18;
const MAPPING_BASE: c_uint = 19;
const BLOCK_ID: c_uint = 20;
const DECOMPRESS_CAPABLE: c_uint = 21;
/// CUDA_ERROR_NOT_SUPPORTED.
const NOT_SUPPORTED: CUresult = 801;
/// CU_MEMORYTYPE_DEVICE.
const DEVICE: u32 = 2;

/// Kind of memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Of this pool.
    Pooled(usize),
    /// Mapped by the program.
    Virtual,
}

/// Memory at an address, as the program is to see it.
struct Known {
    kind: Kind,
    at: u64,
    bytes: u64,
    mapped: (u64, u64),
    id: u64,
}

fn known(address: u64) -> Option<Known> {
    if let Some(mapped) = virtuals::mapped(address) {
        let virtuals::Mapped { at, bytes, id } = mapped;
        return Some(Known { kind: Kind::Virtual, at, bytes, mapped: (at, bytes), id });
    }
    let (segment, plain) = chunks::region_of(address, |at, region| {
        let mapped = (at, region.mapped_bytes);
        (
            mapped,
            (!region.is_segment).then_some(Known { kind: Kind::Plain, at, bytes: region.bytes, mapped, id: region.id }),
        )
    })?;
    plain.or_else(|| {
        let pools::Known { at, bytes, id, pool } = pools::block(address)?;
        Some(Known { kind: Kind::Pooled(pool), at, bytes, mapped: segment, id })
    })
}

/// Value that replaces the driver's.
enum Value {
    Double(u64),
    Word(u32),
    /// Truth in the lowest byte, whatever the size.
    Flag(bool),
}

fn value(known: &Known, which: c_uint) -> Option<Value> {
    let calls = virtuals::calls()?;
    let (is_plain, of_driver) = (known.kind == Kind::Plain, known.kind == Kind::Virtual);
    let (rdma, decompress) = calls.abilities();
    Some(match which {
        MEMORY_TYPE => Value::Word(DEVICE),
        BUFFER_ID | BLOCK_ID => Value::Double(known.id),
        MAPPING_BASE => Value::Double(known.mapped.0),
        MAPPING_SIZE => Value::Double(known.mapped.1),
        CONTEXT if is_plain => Value::Double(calls.context as u64),
        // Memory of pools has neither a context nor the abilities of plain memory.
        CONTEXT if !of_driver => Value::Double(0),
        LEGACY_IPC if is_plain && calls.is_exportable() => Value::Flag(true),
        HANDLE_TYPES if !of_driver => Value::Double(0),
        RANGE_START if !of_driver => Value::Double(known.at),
        RANGE_SIZE if !of_driver => Value::Double(known.bytes),
        RDMA_CAPABLE if !of_driver => Value::Flag(is_plain && rdma),
        DECOMPRESS_CAPABLE if !of_driver => Value::Flag(is_plain && decompress),
        MEMPOOL => match known.kind {
            Kind::Pooled(pool) => Value::Double(pool as u64),
            Kind::Plain | Kind::Virtual => return None,
        },
        _ => return None,
    })
}

/// Replaces a value that the driver has written.
fn put(known: &Known, which: c_uint, place: *mut c_void) {
    if place.is_null() {
        return;
    }
    // SAFETY: the caller's own place for this attribute, which the driver just wrote.
    unsafe {
        match value(known, which) {
            Some(Value::Double(value)) => place.cast::<u64>().write_unaligned(value),
            Some(Value::Word(value)) => place.cast::<u32>().write_unaligned(value),
            Some(Value::Flag(value)) => place.cast::<u8>().write(value.into()),
            None => {}
        }
    }
}

/// Asks for an attribute. `None`, here and below: the memory is the driver's own.
pub(super) fn attribute(
    place: *mut c_void,
    which: c_uint,
    address: u64,
    ask: impl FnOnce() -> CUresult,
) -> Option<CUresult> {
    let known = known(address)?;
    if which == P2P_TOKENS {
        pin(address, 1);
    }
    let rc = pass(ask);
    if rc == SUCCESS {
        put(&known, which, place);
    }
    Some(rc)
}

/// Asks for several attributes: `places` are those of their values.
pub(super) fn attributes(
    count: c_uint,
    which: *const c_uint,
    places: *const *mut c_void,
    address: u64,
    ask: impl FnOnce() -> CUresult,
) -> Option<CUresult> {
    let known = known(address)?;
    let count = if which.is_null() || places.is_null() { 0 } else { count as usize };
    // SAFETY: the caller's own list, which the driver reads too.
    if (0..count).any(|i| unsafe { which.add(i).read() } == P2P_TOKENS) {
        pin(address, 1);
    }
    let rc = pass(ask);
    if rc == SUCCESS {
        for i in 0..count {
            // SAFETY: the caller's own lists, which the driver has read too.
            let (which, place) = unsafe { (which.add(i).read(), places.add(i).read()) };
            put(&known, which, place);
        }
    }
    Some(rc)
}

/// Sets an attribute. Synchronous operations are asked for before other hardware accesses memory.
pub(super) fn set_attribute(which: c_uint, address: u64, set: impl Fn(u64) -> CUresult) -> Option<CUresult> {
    let known = known(address)?;
    if which == SYNC_MEMOPS {
        pin(address, 1);
    }
    Some(pass(|| match known.kind {
        Kind::Virtual => set(address),
        // Each chunk is memory of its own for the driver.
        Kind::Plain | Kind::Pooled(_) => {
            let parts = chunks::parts_of(address);
            let refusal = parts.into_iter().map(set).find(|rc| *rc != SUCCESS);
            match refusal.unwrap_or(SUCCESS) {
                // The driver's answer for mapped memory, of which it lets no attribute be set.
                NOT_SUPPORTED if known.kind == Kind::Plain && which != SYNC_MEMOPS => virtuals::INVALID,
                rc => rc,
            }
        }
    }))
}

/// Finds the allocation that contains an address: its beginning and its size.
pub(super) fn range(address: u64) -> Option<(u64, u64)> {
    known(address).map(|known| (known.at, known.bytes))
}

/// Has memory stay on the device. False: it is not there now.
fn pin_for(address: u64, bytes: u64, why: Why) -> bool {
    let Some(movable) = movable() else { return true };
    let mut pin = |_| {
        let all =
            chunks::pin(movable, address, why).unwrap_or(true) && virtuals::pin_range(movable, address, bytes, why);
        all.then_some(())
    };
    held::tried(held::MANY, &mut pin).is_some()
}

/// Has memory stay on the device, since other hardware may use it.
fn pin(address: u64, bytes: u64) -> bool {
    pin_for(address, bytes, Why::Registered)
}

/// Binds a range to a multicast object.
pub(super) fn bind_range(address: u64, bytes: u64, bind: impl FnOnce() -> CUresult) -> Option<CUresult> {
    known(address)?;
    Some(if pin_for(address, bytes, Why::Multicast) { pass(bind) } else { virtuals::NO_MEMORY })
}

/// Exports a range for other hardware.
pub(super) fn export_range(address: u64, bytes: u64, export: impl FnOnce() -> CUresult) -> Option<CUresult> {
    known(address)?;
    Some(if pin(address, bytes) { pass(export) } else { virtuals::NO_MEMORY })
}
