//! Calls that copy and set memory.

use crate::context::{current, given};
use crate::copy::{Copy, Rows, Set};
use crate::edge::{In, Null, Out};
use crate::memory::check_device;
use crate::op::Op;
use crate::result::{Error, Result};
use crate::sequence::potentially_unsafe;
use crate::stream;
use std::ffi::{c_uchar, c_uint, c_ushort, c_void};

/// Behaviour of a call: whether it returns only when the copy is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Yes,
    No,
}

fn issue(null: Null, stream: usize, wait: Wait, copy: Copy) -> Result<()> {
    let stream = stream::find(null, stream)?;
    if copy.bytes == 0 || copy.rows == 0 {
        return Ok(());
    }
    match wait {
        Wait::Yes => stream.issue_and_wait(Op::Copy(copy)),
        Wait::No => stream.issue(Op::Copy(copy)).map(drop),
    }
}

fn address(pointer: *const c_void) -> Result<u64> {
    if pointer.is_null() { Err(Error::INVALID_VALUE) } else { Ok(pointer.expose_provenance() as u64) }
}

pub(crate) fn to_device(null: Null, dst: u64, src: *const c_void, bytes: usize) -> Result<()> {
    check_device(dst, bytes)?;
    issue(null, 0, Wait::Yes, Copy::new(dst, address(src)?, bytes))
}

pub(crate) fn to_host(null: Null, dst: *mut c_void, src: u64, bytes: usize) -> Result<()> {
    check_device(src, bytes)?;
    issue(null, 0, Wait::Yes, Copy::new(address(dst)?, src, bytes))
}

/// Copies within the device, without waiting, as drivers do.
pub(crate) fn on_device(null: Null, dst: u64, src: u64, bytes: usize) -> Result<()> {
    potentially_unsafe()?;
    on_device_async(null, dst, src, bytes, 0)
}

pub(crate) fn any(null: Null, dst: u64, src: u64, bytes: usize) -> Result<()> {
    issue(null, 0, Wait::Yes, Copy::new(dst, src, bytes))
}

pub(crate) fn to_device_async(null: Null, dst: u64, src: *const c_void, bytes: usize, stream: usize) -> Result<()> {
    check_device(dst, bytes)?;
    issue(null, stream, Wait::No, Copy::new(dst, address(src)?, bytes))
}

pub(crate) fn to_host_async(null: Null, dst: *mut c_void, src: u64, bytes: usize, stream: usize) -> Result<()> {
    check_device(src, bytes)?;
    issue(null, stream, Wait::No, Copy::new(address(dst)?, src, bytes))
}

pub(crate) fn on_device_async(null: Null, dst: u64, src: u64, bytes: usize, stream: usize) -> Result<()> {
    check_device(dst, bytes)?;
    check_device(src, bytes)?;
    issue(null, stream, Wait::No, Copy::new(dst, src, bytes))
}

pub(crate) fn any_async(null: Null, dst: u64, src: u64, bytes: usize, stream: usize) -> Result<()> {
    issue(null, stream, Wait::No, Copy::new(dst, src, bytes))
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy2d {
    src: Side2d,
    dst: Side2d,
    width: usize,
    height: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Side2d {
    x: usize,
    y: usize,
    kind: c_uint,
    host: usize,
    device: u64,
    array: usize,
    pitch: usize,
}

impl Side2d {
    fn rows(&self, width: usize) -> Result<Rows> {
        // CU_MEMORYTYPE_HOST, DEVICE, ARRAY, UNIFIED.
        let base = match self.kind {
            1 => self.host as u64,
            2 | 4 => self.device,
            3 => return Err(Error::NOT_SUPPORTED),
            _ => return Err(Error::INVALID_VALUE),
        };
        let pitch = if self.pitch == 0 { width } else { self.pitch };
        if pitch < width || base == 0 {
            return Err(Error::INVALID_VALUE);
        }
        Ok(Rows { address: base + (self.y * pitch + self.x) as u64, pitch, plane: 0 })
    }
}

fn copy_2d(null: Null, copy: In<Copy2d>, stream: usize, wait: Wait) -> Result<()> {
    let Copy2d { src, dst, width, height } = copy.get()?;
    let copy = Copy { dst: dst.rows(width)?, src: src.rows(width)?, bytes: width, rows: height, planes: 1 };
    for (side, rows) in [(src, copy.src), (dst, copy.dst)] {
        if side.kind == 2 {
            check_device(rows.address, if height == 0 { 0 } else { copy.extent(rows.pitch) })?;
        }
    }
    issue(null, stream, wait, copy)
}

pub(crate) fn sync_2d(null: Null, copy: In<Copy2d>) -> Result<()> {
    copy_2d(null, copy, 0, Wait::Yes)
}

pub(crate) fn async_2d(null: Null, copy: In<Copy2d>, stream: usize) -> Result<()> {
    copy_2d(null, copy, stream, Wait::No)
}

pub(crate) fn peer(null: Null, dst: u64, dst_ctx: usize, src: u64, src_ctx: usize, bytes: usize) -> Result<()> {
    peer_async(null, dst, dst_ctx, src, src_ctx, bytes, 0)
}

/// Copies between contexts, through the host. The stream's context executes the copy.
pub(crate) fn peer_async(
    null: Null,
    dst: u64,
    dst_ctx: usize,
    src: u64,
    src_ctx: usize,
    bytes: usize,
    stream: usize,
) -> Result<()> {
    given(dst_ctx)?.check()?;
    given(src_ctx)?.check()?;
    any_async(null, dst, src, bytes, stream)
}

#[allow(clippy::too_many_arguments)] // the driver's
pub(crate) fn batch(
    null: Null,
    dsts: In<u64>,
    srcs: In<u64>,
    sizes: In<usize>,
    count: usize,
    _attributes: In<u8>,
    _indices: In<usize>,
    _attribute_count: usize,
    failed: Out<usize>,
    stream: usize,
) -> Result<()> {
    // Neither default stream is accepted.
    if stream <= 2 || count == 0 {
        return Err(Error::INVALID_VALUE);
    }
    for index in 0..count {
        let copy = Copy::new(dsts.at(index)?, srcs.at(index)?, sizes.at(index)?);
        issue(null, stream, Wait::No, copy).inspect_err(|_| failed.maybe(index))?;
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)] // the driver's
pub(crate) fn batch_v2(
    null: Null,
    dsts: In<u64>,
    srcs: In<u64>,
    sizes: In<usize>,
    count: usize,
    attributes: In<u8>,
    indices: In<usize>,
    attribute_count: usize,
    stream: usize,
) -> Result<()> {
    batch(null, dsts, srcs, sizes, count, attributes, indices, attribute_count, Out::NOWHERE, stream)
}

/// Sets memory, without waiting, as drivers do on device memory.
fn set(null: Null, set: Set, stream: usize) -> Result<()> {
    let stream = stream::find(null, stream)?;
    if set.bytes == 0 || set.rows == 0 {
        return Ok(());
    }
    set.check()?;
    stream.issue(Op::Set(set)).map(drop)
}

fn line(address: u64, unit: u8, pattern: u32, count: usize) -> Result<Set> {
    let bytes = count.checked_mul(unit.into()).ok_or(Error::INVALID_VALUE)?;
    Ok(Set { address, unit, pattern, bytes, rows: 1, pitch: bytes })
}

fn rectangle(address: u64, pitch: usize, unit: u8, pattern: u32, width: usize, rows: usize) -> Result<Set> {
    Ok(Set { rows, pitch, ..line(address, unit, pattern, width)? })
}

/// A synchronous set, which is potentially unsafe in a capture.
fn now(null: Null, what: Set) -> Result<()> {
    current()?;
    potentially_unsafe()?;
    set(null, what, 0)
}

pub(crate) fn set_8(null: Null, at: u64, value: c_uchar, count: usize) -> Result<()> {
    now(null, line(at, 1, value.into(), count)?)
}

pub(crate) fn set_16(null: Null, at: u64, value: c_ushort, count: usize) -> Result<()> {
    now(null, line(at, 2, value.into(), count)?)
}

pub(crate) fn set_32(null: Null, at: u64, value: c_uint, count: usize) -> Result<()> {
    now(null, line(at, 4, value, count)?)
}

pub(crate) fn set_8_async(null: Null, at: u64, value: c_uchar, count: usize, stream: usize) -> Result<()> {
    set(null, line(at, 1, value.into(), count)?, stream)
}

pub(crate) fn set_16_async(null: Null, at: u64, value: c_ushort, count: usize, stream: usize) -> Result<()> {
    set(null, line(at, 2, value.into(), count)?, stream)
}

pub(crate) fn set_32_async(null: Null, at: u64, value: c_uint, count: usize, stream: usize) -> Result<()> {
    set(null, line(at, 4, value, count)?, stream)
}

pub(crate) fn set_2d_8(null: Null, at: u64, pitch: usize, value: c_uchar, w: usize, h: usize) -> Result<()> {
    now(null, rectangle(at, pitch, 1, value.into(), w, h)?)
}

pub(crate) fn set_2d_16(null: Null, at: u64, pitch: usize, value: c_ushort, w: usize, h: usize) -> Result<()> {
    now(null, rectangle(at, pitch, 2, value.into(), w, h)?)
}

pub(crate) fn set_2d_32(null: Null, at: u64, pitch: usize, value: c_uint, w: usize, h: usize) -> Result<()> {
    now(null, rectangle(at, pitch, 4, value, w, h)?)
}

pub(crate) fn set_2d_8_async(
    null: Null,
    at: u64,
    pitch: usize,
    value: c_uchar,
    w: usize,
    h: usize,
    stream: usize,
) -> Result<()> {
    set(null, rectangle(at, pitch, 1, value.into(), w, h)?, stream)
}

pub(crate) fn set_2d_16_async(
    null: Null,
    at: u64,
    pitch: usize,
    value: c_ushort,
    w: usize,
    h: usize,
    stream: usize,
) -> Result<()> {
    set(null, rectangle(at, pitch, 2, value.into(), w, h)?, stream)
}

pub(crate) fn set_2d_32_async(
    null: Null,
    at: u64,
    pitch: usize,
    value: c_uint,
    w: usize,
    h: usize,
    stream: usize,
) -> Result<()> {
    set(null, rectangle(at, pitch, 4, value, w, h)?, stream)
}
