//! Memory allocated plainly: cuMemAlloc and its like.

use super::super::types::*;
use super::super::{real, sig};
use super::calls::{address_at, allocates, lend, memory_calls};
use super::{device, driver, instead};
use crate::interpose::hooks;
use crate::platform::shared::memory::{Entry, Part, account, account::rounded, steps::frees, table};
use crate::process;

/// Alignment of the rows of pitched memory, in bytes, as long as the driver has not said what it is.
const PITCH: u64 = 512;

fn allocated(real: *mut c_void, place: *mut c_void, bytes: usize, part: Part, call: impl Fn() -> CUresult) -> CUresult {
    let bytes = rounded(bytes as u64);
    allocates(real, part, bytes, call, || (address_at::<u64>(place), bytes))
}

fn allocated_short(real: *mut c_void, place: *mut c_void, bytes: c_uint, call: impl Fn() -> CUresult) -> CUresult {
    let bytes = rounded(bytes.into());
    allocates(real, Part::Plain, bytes, call, || (address_at::<u32>(place), bytes))
}

/// Allocates rows, whose distance the driver decides: `pitch_at` reads it.
fn rows(
    real: *mut c_void,
    [width, height]: [u64; 2],
    call: impl Fn() -> CUresult,
    made: impl FnOnce() -> (u64, u64),
) -> CUresult {
    let size = |pitch: u64| rounded(pitch.saturating_mul(height));
    let estimate = size(width.checked_next_multiple_of(PITCH).unwrap_or(width));
    allocates(real, Part::Plain, estimate, call, || {
        let (address, pitch) = made();
        (address, size(pitch))
    })
}

fn pitched(
    real: *mut c_void,
    place: *mut c_void,
    pitch: *mut c_void,
    size: [u64; 2],
    call: impl Fn() -> CUresult,
) -> CUresult {
    rows(real, size, call, || (address_at::<u64>(place), address_at::<u64>(pitch)))
}

fn pitched_short(
    real: *mut c_void,
    place: *mut c_void,
    pitch: *mut c_void,
    size: [u64; 2],
    call: impl Fn() -> CUresult,
) -> CUresult {
    rows(real, size, call, || (address_at::<u32>(place), address_at::<u32>(pitch)))
}

/// Counts a variable of a module if it is managed. It is known until its context ends.
pub(in super::super) fn found_variable(real: *mut c_void, address: CUdeviceptr) {
    if table::may_have(address) && table::has(address) {
        return;
    }
    let Some(here) = device::current(real) else { return };
    let Some(bytes) = driver::managed(address) else { return };
    let bytes = rounded(bytes);
    account::add(here.slot, Part::Managed, bytes);
    let (context, slot) = (here.context, here.slot);
    table::insert(address, Entry { bytes, context, slot, part: Part::Managed, exported: false });
}

fn freed(real: *mut c_void, address: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    frees(address, || lend(real, call))
}

memory_calls! {
    ALLOCATIONS: Sync;
    fn cuMemAlloc(dptr: *mut c_void, bytesize: c_uint) [allocated_short(dptr, bytesize)];
    fn cuMemAllocManaged(dptr: *mut c_void, bytesize: usize, flags: c_uint) [allocated(dptr, bytesize, Part::Managed)];
    fn cuMemAllocPitch(dptr: *mut c_void, pPitch: *mut c_void, WidthInBytes: c_uint, Height: c_uint, ElementSizeBytes: c_uint) [pitched_short(dptr, pPitch, [WidthInBytes.into(), Height.into()])];
    fn cuMemAllocPitch_v2(dptr: *mut c_void, pPitch: *mut c_void, WidthInBytes: usize, Height: usize, ElementSizeBytes: c_uint) [pitched(dptr, pPitch, [WidthInBytes as u64, Height as u64])];
    fn cuMemAlloc_v2(dptr: *mut c_void, bytesize: usize) [allocated(dptr, bytesize, Part::Plain)];
    fn cuMemFree(dptr: c_uint) [freed(dptr.into())];
    fn cuMemFree_v2(dptr: CUdeviceptr) [freed(dptr)];
}

/// Beginning of the allocation that contains an address.
fn beginning(address: CUdeviceptr) -> Option<CUdeviceptr> {
    let ours = instead::served().and_then(|served| (served.range)(address));
    ours.map(|(at, _)| at).or_else(|| driver::beginning(address))
}

/// Memory that another process may open stays this process's: there it is not counted.
fn exported(_: *mut c_void, address: CUdeviceptr, call: impl FnOnce() -> CUresult) -> CUresult {
    let rc = call();
    if rc == SUCCESS {
        process::guarded("after memory was exported", || {
            let entry = table::mark_exported(beginning(address).unwrap_or(address))?;
            account::export(entry.slot, entry.bytes);
            Some(())
        });
    }
    rc
}

memory_calls! {
    EXPORTS: Memory;
    fn cuIpcGetMemHandle(pHandle: *mut c_void, dptr: CUdeviceptr) [exported(dptr)];
}
