//! Stream memory operations: waits for a value in memory, and writes of one.

use crate::edge::Null;
use crate::memory;
use crate::result::{Error, Result};
use crate::runtime::driver;
use crate::stats::{self, COUNTERS};
use crate::stream::Target;
use fakecuda::In;
use std::ffi::c_uint;

/// hipStreamBatchMemOpType.
const WAIT_32: u32 = 1;
const WRITE_32: u32 = 2;
const WAIT_64: u32 = 4;
const WRITE_64: u32 = 5;

/// Refuses memory that the runtime did not allocate or register.
fn check(address: u64, bytes: u64) -> Result<()> {
    let range = memory::range_of(address).ok_or(Error::INVALID_VALUE)?;
    if address + bytes <= range.start + range.bytes { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

/// The driver's number of a condition, which is the same in HIP. A mask is refused, since the driver's waits have none.
fn condition(flags: c_uint, mask_is_full: bool) -> Result<c_uint> {
    if flags > 3 {
        return Err(Error::INVALID_VALUE);
    }
    if mask_is_full { Ok(flags) } else { Err(Error::NOT_SUPPORTED) }
}

pub(crate) fn wait_32(stream: usize, address: u64, value: u32, flags: c_uint, mask: u32) -> Result<()> {
    let target = Target::find(Null::Legacy, stream)?;
    check(address, 4)?;
    // The condition "and" compares bits anyway, so that the mask can be merged into the value.
    let (value, mask) = if flags == 2 { (value & mask, u32::MAX) } else { (value, mask) };
    let flags = condition(flags, mask == u32::MAX)?;
    target.order(|| stats::add(&COUNTERS.waits), |real| driver()?.wait_32(real, address, value, flags))
}

pub(crate) fn wait_64(stream: usize, address: u64, value: u64, flags: c_uint, mask: u64) -> Result<()> {
    let target = Target::find(Null::Legacy, stream)?;
    check(address, 8)?;
    let (value, mask) = if flags == 2 { (value & mask, u64::MAX) } else { (value, mask) };
    let flags = condition(flags, mask == u64::MAX)?;
    target.order(|| stats::add(&COUNTERS.waits), |real| driver()?.wait_64(real, address, value, flags))
}

pub(crate) fn write_32(stream: usize, address: u64, value: u32, flags: c_uint) -> Result<()> {
    let target = Target::find(Null::Legacy, stream)?;
    check(address, 4)?;
    if flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    target.order(|| stats::add(&COUNTERS.writes), |real| driver()?.write_32(real, address, value, 0))
}

pub(crate) fn write_64(stream: usize, address: u64, value: u64, flags: c_uint) -> Result<()> {
    let target = Target::find(Null::Legacy, stream)?;
    check(address, 8)?;
    if flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    target.order(|| stats::add(&COUNTERS.writes), |real| driver()?.write_64(real, address, value, 0))
}

/// `hipStreamBatchMemOpParams`: type, address, value, flags.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params {
    operation: u32,
    pad: u32,
    address: u64,
    value: u64,
    flags: u32,
    pad_2: u32,
    rest: [u64; 2],
}

const _: () = assert!(size_of::<Params>() == 48);

pub(crate) fn batch(stream: usize, count: c_uint, params: In<Params>, flags: c_uint) -> Result<()> {
    Target::find(Null::Legacy, stream)?;
    if flags != 0 || count == 0 || count > 256 {
        return Err(Error::INVALID_VALUE);
    }
    for Params { operation, address, value, flags, .. } in params.list(count as usize)? {
        match operation {
            WAIT_32 => wait_32(stream, address, value as u32, flags, u32::MAX)?,
            WRITE_32 => write_32(stream, address, value as u32, flags)?,
            WAIT_64 => wait_64(stream, address, value, flags, u64::MAX)?,
            WRITE_64 => write_64(stream, address, value, flags)?,
            _ => return Err(Error::NOT_SUPPORTED),
        }
    }
    Ok(())
}
