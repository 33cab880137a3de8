//! Copies and sets of boxes of memory: planes of rows, with gaps between them. Arrays are not supported.

use crate::copy::{check_kind, in_memory, rectangle};
use crate::driver::params::{DriverCopy3d, DriverSide};
use crate::edge::Null;
use crate::memory::{self, Kind};
use crate::result::{Error, Result};
use crate::runtime::driver;
use crate::stats::{self, COUNTERS};
use crate::stream::Target;
use fakecuda::{In, Out};
use std::ffi::{c_int, c_uint};

/// `hipExtent`. For memory without an array, the width is in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    width: usize,
    height: usize,
    depth: usize,
}

/// `hipPitchedPtr`: bytes from row to row, and the number of rows in a plane.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Pitched {
    address: u64,
    pitch: usize,
    width: usize,
    rows: usize,
}

/// `hipPos`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Position {
    x: usize,
    y: usize,
    z: usize,
}

/// `hipMemcpy3DParms`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Copy3d {
    src_array: usize,
    src_at: Position,
    src: Pitched,
    dst_array: usize,
    dst_at: Position,
    dst: Pitched,
    extent: Extent,
    kind: c_int,
}

const _: () = assert!(size_of::<Copy3d>() == 160 && std::mem::offset_of!(Copy3d, extent) == 128);

/// CU_MEMORYTYPE_...
const HOST: c_uint = 1;
const DEVICE: c_uint = 2;
const UNIFIED: c_uint = 4;

impl DriverSide {
    fn new(from: &Pitched, at: Position, extent: Extent) -> Self {
        let kind = match memory::range_of(from.address).map(|range| range.kind) {
            Some(Kind::Device) => DEVICE,
            Some(Kind::Managed { pinned: false }) => UNIFIED,
            _ => HOST,
        };
        let (host, device) = if kind == HOST { (from.address, 0) } else { (0, from.address) };
        let rows = if extent.depth == 1 { from.rows.max(at.y + extent.height) } else { from.rows };
        Self { at: [at.x, at.y, at.z], kind, host, device, pitch: from.pitch, rows, ..Self::default() }
    }

    fn pitched(&self) -> Result<(Pitched, Position)> {
        let address = if self.kind == HOST { self.host } else { self.device };
        if self.array != 0 || address == 0 {
            return Err(Error::NOT_SUPPORTED);
        }
        let [x, y, z] = self.at;
        Ok((Pitched { address, pitch: self.pitch, width: self.pitch, rows: self.rows }, Position { x, y, z }))
    }
}

impl Copy3d {
    /// A copy of `bytes` consecutive bytes.
    pub(crate) fn line(dst: u64, src: u64, bytes: usize, kind: c_int) -> Self {
        let side = |address| Pitched { address, pitch: bytes, width: bytes, rows: 1 };
        let origin = Position { x: 0, y: 0, z: 0 };
        let extent = Extent { width: bytes, height: 1, depth: 1 };
        let (src, dst) = (side(src), side(dst));
        Self { src_array: 0, src_at: origin, src, dst_array: 0, dst_at: origin, dst, extent, kind }
    }

    /// Parameters of a driver's node. An empty copy is an error there.
    pub(crate) fn for_driver(&self) -> Result<DriverCopy3d> {
        let Extent { width, height, depth } = self.extent;
        if self.src_array != 0 || self.dst_array != 0 {
            return Err(Error::NOT_SUPPORTED);
        }
        if width == 0 || height == 0 || depth == 0 {
            return Err(Error::INVALID_VALUE);
        }
        let first = |side: &Pitched, at| side.plane(at, self.extent, 0);
        check_kind(first(&self.dst, self.dst_at)?, first(&self.src, self.src_at)?, self.kind)?;
        let low = |side: &Pitched, at: Position| side.rows != 0 && side.rows < at.y + height;
        if depth > 1 && (low(&self.src, self.src_at) || low(&self.dst, self.dst_at)) {
            return Err(Error::INVALID_VALUE);
        }
        let high = |side: &Pitched, at: Position| Pitched {
            rows: if side.rows == 0 { at.y + height } else { side.rows },
            ..*side
        };
        Ok(DriverCopy3d {
            src: DriverSide::new(&high(&self.src, self.src_at), self.src_at, self.extent),
            dst: DriverSide::new(&high(&self.dst, self.dst_at), self.dst_at, self.extent),
            extent: [width, height, depth],
        })
    }

    /// Reads the parameters of a node that a capture recorded.
    pub(crate) fn from_driver(params: &DriverCopy3d) -> Result<Self> {
        let ((src, src_at), (dst, dst_at)) = (params.src.pitched()?, params.dst.pitched()?);
        let [width, height, depth] = params.extent;
        let kind = match (params.src.kind, params.dst.kind) {
            (HOST, HOST) => 0,
            (HOST, DEVICE) => 1,
            (DEVICE, HOST) => 2,
            (DEVICE, DEVICE) => 3,
            _ => 4,
        };
        let extent = Extent { width, height, depth };
        Ok(Self { src_array: 0, src_at, src, dst_array: 0, dst_at, dst, extent, kind })
    }
}

impl Pitched {
    /// Address of the first byte of plane `z` of the box.
    fn plane(&self, at: Position, extent: Extent, z: usize) -> Result<u64> {
        if self.address == 0 {
            return Err(Error::INVALID_VALUE);
        }
        if self.pitch < at.x.saturating_add(extent.width) {
            return Err(Error::INVALID_PITCH_VALUE);
        }
        // A height of 0 means that a plane is as high as the box.
        let rows = if self.rows == 0 { at.y + extent.height } else { self.rows };
        let row = (at.z + z).checked_mul(rows).and_then(|row| row.checked_add(at.y)).ok_or(Error::INVALID_VALUE)?;
        row.checked_mul(self.pitch).map(|bytes| self.address + (bytes + at.x) as u64).ok_or(Error::INVALID_VALUE)
    }
}

pub(crate) fn alloc(out: Out<Pitched>, extent: Extent) -> Result<()> {
    let out = out.required()?;
    let (mut address, mut pitch) = (0, 0);
    if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
        return Ok(out.put(Pitched { address: 0, pitch: 0, width: extent.width, rows: extent.height })?);
    }
    let rows = extent.height.checked_mul(extent.depth).ok_or(Error::INVALID_VALUE)?;
    memory::alloc_pitch(Out::to(&mut address), Out::to(&mut pitch), extent.width, rows)?;
    Ok(out.put(Pitched { address, pitch, width: extent.width, rows: extent.height })?)
}

pub(crate) fn copy(null: Null, copy: In<Copy3d>) -> Result<()> {
    given(null, copy, 0)?;
    crate::stream::synchronize(null, 0)
}

pub(crate) fn copy_async(null: Null, copy: In<Copy3d>, stream: usize) -> Result<()> {
    given(null, copy, stream)
}

fn given(null: Null, copy: In<Copy3d>, stream: usize) -> Result<()> {
    let copy = copy.get()?;
    let target = Target::find(null, stream)?;
    if copy.src_array != 0 || copy.dst_array != 0 {
        return Err(Error::NOT_SUPPORTED);
    }
    let extent = copy.extent;
    if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
        return Ok(());
    }
    let planes: Vec<(u64, u64)> = (0..extent.depth)
        .map(|z| Ok((copy.dst.plane(copy.dst_at, extent, z)?, copy.src.plane(copy.src_at, extent, z)?)))
        .collect::<Result<_>>()?;
    check_kind(planes[0].0, planes[0].1, copy.kind)?;
    let counted = || stats::add(&COUNTERS.copies);
    target.issue(counted, |real| {
        let shape = (extent.width, extent.height);
        planes.iter().try_for_each(|&(dst, src)| rectangle((dst, copy.dst.pitch), (src, copy.src.pitch), shape, real))
    })
}

pub(crate) fn set(null: Null, to: Pitched, value: c_int, extent: Extent) -> Result<()> {
    set_async(null, to, value, extent, 0)
}

pub(crate) fn set_async(null: Null, to: Pitched, value: c_int, extent: Extent, stream: usize) -> Result<()> {
    let target = Target::find(null, stream)?;
    if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
        return Ok(());
    }
    let origin = Position { x: 0, y: 0, z: 0 };
    let planes: Vec<u64> = (0..extent.depth).map(|z| to.plane(origin, extent, z)).collect::<Result<_>>()?;
    let bytes = (extent.height - 1) * to.pitch + extent.width;
    in_memory(planes[planes.len() - 1], bytes)?;
    in_memory(planes[0], bytes)?;
    let counted = || stats::add(&COUNTERS.sets);
    target.issue(counted, |real| {
        planes
            .iter()
            .try_for_each(|&at| driver()?.set_2d_8(at, to.pitch, value as u8, extent.width, extent.height, real))
    })
}
