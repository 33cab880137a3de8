//! Copies and sets of memory, linear and of rectangles.

use crate::driver::params::{Copy2d, Side};
use crate::edge::Null;
use crate::lookup::{Plt, reenter};
use crate::memory::{self, Kind};
use crate::register;
use crate::result::{Error, Result};
use crate::runtime::driver;
use crate::stats::{self, COUNTERS};
use crate::stream::Target;
use fakecuda::In;
use std::ffi::{c_int, c_uchar, c_uint, c_ushort};

/// hipMemcpyKind.
const TO_DEVICE: c_int = 1;
const TO_HOST: c_int = 2;
const ON_DEVICE: c_int = 3;
const DEFAULT: c_int = 4;

/// Return of a call: only after its command is done, or at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Yes,
    No,
}

/// Checks the direction of a copy: an unknown one is an error, one that does not fit the addresses counts as misuse.
pub(crate) fn check_kind(dst: u64, src: u64, kind: c_int) -> Result<()> {
    if !(0..=DEFAULT).contains(&kind) {
        return Err(Error::INVALID_MEMCPY_DIRECTION);
    }
    for (side, address) in [("to", dst), ("from", src)] {
        if memory::range_of(address).is_none() && memory::was_freed(address) {
            stats::misuse(&format!("copy {side} {address:#x}, which was freed"));
            return Err(Error::INVALID_VALUE);
        }
    }
    let on_device = |address| memory::range_of(address).is_some_and(|range| range.kind == Kind::Device);
    let known = |address| memory::range_of(address).is_some();
    let right = match kind {
        0 => !on_device(dst) && !on_device(src),
        TO_DEVICE => known(dst) && !on_device(src),
        TO_HOST => !on_device(dst) && known(src),
        ON_DEVICE => known(dst) && known(src),
        _ => true,
    };
    if !right {
        stats::misuse(&format!("copy from {src:#x} to {dst:#x} is not of kind {kind}"));
    }
    Ok(())
}

fn one(null: Null, dst: u64, src: u64, bytes: usize, kind: c_int, stream: usize, wait: Wait) -> Result<()> {
    let target = Target::find(null, stream)?;
    if bytes == 0 {
        return Ok(());
    }
    if dst == 0 || src == 0 {
        return Err(Error::INVALID_VALUE);
    }
    check_kind(dst, src, kind)?;
    let counted = || stats::add(&COUNTERS.copies);
    match (wait, null) {
        (Wait::Yes, Null::Legacy) if stream == 0 => target.issue(counted, |_| match kind {
            TO_DEVICE if memory::range_of(dst).is_some() => driver()?.copy_to_device(dst, src, bytes),
            TO_HOST if memory::range_of(src).is_some() => driver()?.copy_to_host(dst, src, bytes),
            _ => driver()?.copy(dst, src, bytes),
        }),
        _ => {
            target.issue(counted, |real| driver()?.copy_async(dst, src, bytes, real))?;
            if wait == Wait::Yes { target.with(|real| driver()?.stream_synchronize(real)) } else { Ok(()) }
        }
    }
}

pub(crate) fn copy(null: Null, dst: u64, src: u64, bytes: usize, kind: c_int) -> Result<()> {
    if let Some(call) = reenter(Plt::MemcpyAsync).filter(|_| null == Null::Legacy) {
        type Async = unsafe extern "C" fn(u64, u64, usize, c_int, usize) -> c_int;
        // SAFETY: hipMemcpyAsync's own signature, with the program's arguments.
        return match unsafe { std::mem::transmute::<usize, Async>(call)(dst, src, bytes, kind, 0) } {
            0 => crate::stream::synchronize(null, 0),
            error => Err(Error(error)),
        };
    }
    one(null, dst, src, bytes, kind, 0, Wait::Yes)
}

pub(crate) fn copy_async(null: Null, dst: u64, src: u64, bytes: usize, kind: c_int, stream: usize) -> Result<()> {
    one(null, dst, src, bytes, kind, stream, Wait::No)
}

/// Submits a copy and waits for it.
pub(crate) fn with_stream(dst: u64, src: u64, bytes: usize, kind: c_int, stream: usize) -> Result<()> {
    one(Null::Legacy, dst, src, bytes, kind, stream, Wait::Yes)
}

pub(crate) fn to_device(dst: u64, src: u64, bytes: usize) -> Result<()> {
    one(Null::Legacy, dst, src, bytes, TO_DEVICE, 0, Wait::Yes)
}

pub(crate) fn to_host(dst: u64, src: u64, bytes: usize) -> Result<()> {
    one(Null::Legacy, dst, src, bytes, TO_HOST, 0, Wait::Yes)
}

pub(crate) fn on_device(dst: u64, src: u64, bytes: usize) -> Result<()> {
    one(Null::Legacy, dst, src, bytes, ON_DEVICE, 0, Wait::Yes)
}

pub(crate) fn to_device_async(dst: u64, src: u64, bytes: usize, stream: usize) -> Result<()> {
    one(Null::Legacy, dst, src, bytes, TO_DEVICE, stream, Wait::No)
}

pub(crate) fn to_host_async(dst: u64, src: u64, bytes: usize, stream: usize) -> Result<()> {
    one(Null::Legacy, dst, src, bytes, TO_HOST, stream, Wait::No)
}

pub(crate) fn on_device_async(dst: u64, src: u64, bytes: usize, stream: usize) -> Result<()> {
    one(Null::Legacy, dst, src, bytes, ON_DEVICE, stream, Wait::No)
}

pub(crate) fn peer(dst: u64, dst_device: c_int, src: u64, src_device: c_int, bytes: usize) -> Result<()> {
    crate::runtime::given(dst_device)?;
    crate::runtime::given(src_device)?;
    one(Null::Legacy, dst, src, bytes, DEFAULT, 0, Wait::Yes)
}

pub(crate) fn peer_async(dst: u64, to: c_int, src: u64, from: c_int, bytes: usize, stream: usize) -> Result<()> {
    crate::runtime::given(to)?;
    crate::runtime::given(from)?;
    one(Null::Legacy, dst, src, bytes, DEFAULT, stream, Wait::No)
}

/// Address of a byte in a variable, which is named by its host address.
pub(crate) fn in_symbol(symbol: usize, bytes: usize, offset: usize) -> Result<u64> {
    let (address, size) = register::variable(symbol)?;
    let end = offset.checked_add(bytes).filter(|&end| end <= size);
    end.map(|_| address + offset as u64).ok_or(Error::INVALID_VALUE)
}

pub(crate) fn to_symbol(null: Null, symbol: usize, src: u64, bytes: usize, offset: usize, kind: c_int) -> Result<()> {
    one(null, in_symbol(symbol, bytes, offset)?, src, bytes, kind, 0, Wait::Yes)
}

pub(crate) fn from_symbol(null: Null, dst: u64, symbol: usize, bytes: usize, offset: usize, kind: c_int) -> Result<()> {
    one(null, dst, in_symbol(symbol, bytes, offset)?, bytes, kind, 0, Wait::Yes)
}

pub(crate) fn to_symbol_async(
    null: Null,
    symbol: usize,
    src: u64,
    bytes: usize,
    offset: usize,
    kind: c_int,
    stream: usize,
) -> Result<()> {
    one(null, in_symbol(symbol, bytes, offset)?, src, bytes, kind, stream, Wait::No)
}

pub(crate) fn from_symbol_async(
    null: Null,
    dst: u64,
    symbol: usize,
    bytes: usize,
    offset: usize,
    kind: c_int,
    stream: usize,
) -> Result<()> {
    one(null, dst, in_symbol(symbol, bytes, offset)?, bytes, kind, stream, Wait::No)
}

#[allow(clippy::too_many_arguments)] // the runtime's
pub(crate) fn batch(
    dsts: In<u64>,
    srcs: In<u64>,
    sizes: In<usize>,
    count: usize,
    _attributes: In<u8>,
    _indices: In<usize>,
    _attribute_count: usize,
    failed: fakecuda::Out<usize>,
    stream: usize,
) -> Result<()> {
    if count == 0 || stream == 0 {
        return Err(Error::INVALID_VALUE);
    }
    for index in 0..count {
        let copy = || one(Null::Legacy, dsts.at(index)?, srcs.at(index)?, sizes.at(index)?, DEFAULT, stream, Wait::No);
        copy().inspect_err(|_| failed.maybe(index))?;
    }
    Ok(())
}

/// CU_MEMORYTYPE_HOST, DEVICE and UNIFIED.
const SIDE_HOST: c_uint = 1;
const SIDE_DEVICE: c_uint = 2;
const SIDE_UNIFIED: c_uint = 4;

impl Side {
    fn linear(address: u64, pitch: usize) -> Self {
        let kind = match memory::range_of(address) {
            Some(_) => SIDE_UNIFIED,
            None => SIDE_HOST,
        };
        Self { kind, host: address, device: address, pitch, ..Self::default() }
    }

    /// Translates HIP's number of a memory type to the driver's: host and device were 0 and 1 before 6.0.
    fn translated(self) -> Result<Self> {
        let address = |side: &Self| if side.host != 0 { side.host } else { side.device };
        let first = c_uint::from(crate::lookup::major() >= 6);
        let kind = match self.kind {
            kind if kind == first => SIDE_HOST,
            kind if kind == first + 1 => SIDE_DEVICE,
            3 | 4 => return Ok(Self { x: self.x, y: self.y, ..Self::linear(address(&self), self.pitch) }),
            _ => return Err(Error::NOT_SUPPORTED),
        };
        Ok(Self { kind, ..self })
    }
}

/// Submits the copy of a rectangle of `shape` (width in bytes, height in rows). Both sides are an address and a pitch.
pub(crate) fn rectangle(dst: (u64, usize), src: (u64, usize), shape: (usize, usize), real: usize) -> Result<()> {
    let (width, height) = shape;
    let copy = Copy2d { src: Side::linear(src.0, src.1), dst: Side::linear(dst.0, dst.1), width, height };
    driver()?.copy_2d_async(&raw const copy, real)
}

fn rows(null: Null, copy: Copy2d, stream: usize, wait: Wait) -> Result<()> {
    let target = Target::find(null, stream)?;
    if copy.width == 0 || copy.height == 0 {
        return Ok(());
    }
    if copy.src.pitch < copy.width || copy.dst.pitch < copy.width {
        return Err(Error::INVALID_PITCH_VALUE);
    }
    let counted = || stats::add(&COUNTERS.copies);
    if wait == Wait::Yes && stream == 0 && null == Null::Legacy {
        return target.issue(counted, |_| driver()?.copy_2d(&raw const copy));
    }
    target.issue(counted, |real| driver()?.copy_2d_async(&raw const copy, real))?;
    if wait == Wait::Yes { target.with(|real| driver()?.stream_synchronize(real)) } else { Ok(()) }
}

#[allow(clippy::too_many_arguments)] // the runtime's
fn linear_2d(
    null: Null,
    dst: u64,
    dst_pitch: usize,
    src: u64,
    src_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
    stream: usize,
    wait: Wait,
) -> Result<()> {
    if dst == 0 || src == 0 {
        return Err(Error::INVALID_VALUE);
    }
    check_kind(dst, src, kind)?;
    let copy = Copy2d { src: Side::linear(src, src_pitch), dst: Side::linear(dst, dst_pitch), width, height };
    rows(null, copy, stream, wait)
}

#[allow(clippy::too_many_arguments)] // the runtime's
pub(crate) fn copy_2d(
    null: Null,
    dst: u64,
    dst_pitch: usize,
    src: u64,
    src_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
) -> Result<()> {
    linear_2d(null, dst, dst_pitch, src, src_pitch, width, height, kind, 0, Wait::Yes)
}

#[allow(clippy::too_many_arguments)] // the runtime's
pub(crate) fn copy_2d_async(
    null: Null,
    dst: u64,
    dst_pitch: usize,
    src: u64,
    src_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
    stream: usize,
) -> Result<()> {
    linear_2d(null, dst, dst_pitch, src, src_pitch, width, height, kind, stream, Wait::No)
}

pub(crate) fn param_2d(copy: In<Copy2d>) -> Result<()> {
    param(copy, 0, Wait::Yes)
}

pub(crate) fn param_2d_async(copy: In<Copy2d>, stream: usize) -> Result<()> {
    param(copy, stream, Wait::No)
}

fn param(copy: In<Copy2d>, stream: usize, wait: Wait) -> Result<()> {
    let Copy2d { src, dst, width, height } = copy.get()?;
    rows(Null::Legacy, Copy2d { src: src.translated()?, dst: dst.translated()?, width, height }, stream, wait)
}

/// A pattern of 1, 2 or 4 bytes, to fill memory with.
#[derive(Clone, Copy)]
enum Pattern {
    Byte(u8),
    Half(u16),
    Word(u32),
}

impl Pattern {
    fn bytes(self) -> usize {
        match self {
            Self::Byte(_) => 1,
            Self::Half(_) => 2,
            Self::Word(_) => 4,
        }
    }
}

/// Checks that the bytes to set lie in memory that the runtime allocated or registered.
pub(crate) fn in_memory(address: u64, bytes: usize) -> Result<()> {
    let Some(range) = memory::range_of(address) else {
        if memory::was_freed(address) {
            stats::misuse(&format!("set of {address:#x}, which was freed"));
        }
        return Err(Error::INVALID_VALUE);
    };
    if address + bytes as u64 > range.start + range.bytes { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

/// Sets `width` patterns in each of `rows`.
fn set(null: Null, address: u64, pitch: usize, what: Pattern, width: usize, rows: usize, stream: usize) -> Result<()> {
    let target = Target::find(null, stream)?;
    if width == 0 || rows == 0 {
        return Ok(());
    }
    let bytes = width.checked_mul(what.bytes()).ok_or(Error::INVALID_VALUE)?;
    let extent = (rows - 1).checked_mul(pitch).and_then(|n| n.checked_add(bytes)).ok_or(Error::INVALID_VALUE)?;
    in_memory(address, extent)?;
    let counted = || stats::add(&COUNTERS.sets);
    target.issue(counted, |real| {
        let driver = driver()?;
        match (what, rows) {
            (Pattern::Byte(value), 1) => driver.set_8(address, value, width, real),
            (Pattern::Half(value), 1) => driver.set_16(address, value, width, real),
            (Pattern::Word(value), 1) => driver.set_32(address, value, width, real),
            (Pattern::Byte(value), _) => driver.set_2d_8(address, pitch, value, width, rows, real),
            (Pattern::Half(value), _) => driver.set_2d_16(address, pitch, value, width, rows, real),
            (Pattern::Word(value), _) => driver.set_2d_32(address, pitch, value, width, rows, real),
        }
    })
}

pub(crate) fn set_bytes(null: Null, address: u64, value: c_int, bytes: usize) -> Result<()> {
    set(null, address, bytes, Pattern::Byte(value as u8), bytes, 1, 0)
}

pub(crate) fn set_bytes_async(null: Null, address: u64, value: c_int, bytes: usize, stream: usize) -> Result<()> {
    set(null, address, bytes, Pattern::Byte(value as u8), bytes, 1, stream)
}

pub(crate) fn set_8(address: u64, value: c_uchar, count: usize) -> Result<()> {
    set_8_async(address, value, count, 0)
}

pub(crate) fn set_16(address: u64, value: c_ushort, count: usize) -> Result<()> {
    set_16_async(address, value, count, 0)
}

pub(crate) fn set_32(address: u64, value: c_int, count: usize) -> Result<()> {
    set_32_async(address, value, count, 0)
}

pub(crate) fn set_8_async(address: u64, value: c_uchar, count: usize, stream: usize) -> Result<()> {
    set(Null::Legacy, address, count, Pattern::Byte(value), count, 1, stream)
}

pub(crate) fn set_16_async(address: u64, value: c_ushort, count: usize, stream: usize) -> Result<()> {
    set(Null::Legacy, address, count, Pattern::Half(value), count, 1, stream)
}

pub(crate) fn set_32_async(address: u64, value: c_int, count: usize, stream: usize) -> Result<()> {
    set(Null::Legacy, address, count, Pattern::Word(value.cast_unsigned()), count, 1, stream)
}

pub(crate) fn set_2d(null: Null, address: u64, pitch: usize, value: c_int, width: usize, height: usize) -> Result<()> {
    set_2d_async(null, address, pitch, value, width, height, 0)
}

#[allow(clippy::too_many_arguments)] // the runtime's
pub(crate) fn set_2d_async(
    null: Null,
    address: u64,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
    stream: usize,
) -> Result<()> {
    set(null, address, pitch, Pattern::Byte(value as u8), width, height, stream)
}

pub(crate) fn set_2d_8(address: u64, pitch: usize, value: c_uchar, w: usize, h: usize, stream: usize) -> Result<()> {
    set(Null::Legacy, address, pitch, Pattern::Byte(value), w, h, stream)
}

pub(crate) fn set_2d_16(address: u64, pitch: usize, value: c_ushort, w: usize, h: usize, stream: usize) -> Result<()> {
    set(Null::Legacy, address, pitch, Pattern::Half(value), w, h, stream)
}

pub(crate) fn set_2d_32(address: u64, pitch: usize, value: c_uint, w: usize, h: usize, stream: usize) -> Result<()> {
    set(Null::Legacy, address, pitch, Pattern::Word(value), w, h, stream)
}
