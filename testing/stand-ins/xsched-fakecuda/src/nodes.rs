//! Nodes that copy and set memory, and new parameters for the nodes of a graph.

use crate::copy::{Copy, Rows, Set};
use crate::edge::{In, Out};
use crate::exec;
use crate::graph::{HostParams, KernelParams, KernelParamsV2, add_node, find_node, kind};
use crate::memory::{self, check_device};
use crate::op::Op;
use crate::result::{Error, Result};
use std::ffi::c_uint;

/// CU_MEMORYTYPE_...
const HOST: c_uint = 1;
const DEVICE: c_uint = 2;
const ARRAY: c_uint = 3;
const UNIFIED: c_uint = 4;

/// One side of a `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Side {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    kind: c_uint,
    host: u64,
    device: u64,
    array: usize,
    reserved: usize,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyParams {
    src: Side,
    dst: Side,
    width: usize,
    height: usize,
    depth: usize,
}

const _: () = assert!(size_of::<CopyParams>() == 200);

impl Side {
    /// Beginning of the box, and the layout of its rows and planes.
    fn rows(&self, width: usize, height: usize, depth: usize) -> Result<Rows> {
        let base = match self.kind {
            HOST => self.host,
            DEVICE | UNIFIED => self.device,
            ARRAY => return Err(Error::NOT_SUPPORTED),
            _ => return Err(Error::INVALID_VALUE),
        };
        let pitch = if self.pitch == 0 { self.x + width } else { self.pitch };
        let rows = if self.height == 0 { self.y + height } else { self.height };
        let fits = pitch >= self.x.saturating_add(width) && (depth == 1 || rows >= self.y.saturating_add(height));
        if base == 0 || !fits {
            return Err(Error::INVALID_VALUE);
        }
        let plane = rows.checked_mul(pitch).ok_or(Error::INVALID_VALUE)?;
        let address = base + (self.z * plane + self.y * pitch + self.x) as u64;
        let found = Rows { address, pitch, plane };
        if self.kind == DEVICE {
            check_device(address, (depth - 1) * plane + (height - 1) * pitch + width)?;
        }
        Ok(found)
    }

    fn of(rows: Rows, count: usize) -> Self {
        let kind = if memory::is_device(rows.address) { DEVICE } else { HOST };
        let (host, device) = if kind == HOST { (rows.address, 0) } else { (0, rows.address) };
        let height = if rows.plane == 0 { count } else { rows.plane / rows.pitch };
        Self { x: 0, y: 0, z: 0, level: 0, kind, host, device, array: 0, reserved: 0, pitch: rows.pitch, height }
    }
}

impl CopyParams {
    fn copy(&self) -> Result<Copy> {
        let Self { src, dst, width, height, depth } = self;
        if *width == 0 || *height == 0 || *depth == 0 {
            return Err(Error::INVALID_VALUE);
        }
        let (src, dst) = (src.rows(*width, *height, *depth)?, dst.rows(*width, *height, *depth)?);
        Ok(Copy { dst, src, bytes: *width, rows: *height, planes: *depth })
    }
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetParams {
    address: u64,
    pitch: usize,
    value: c_uint,
    unit: c_uint,
    width: usize,
    height: usize,
}

impl SetParams {
    fn set(&self) -> Result<Set> {
        let &Self { address, pitch, value, unit, width, height } = self;
        if ![1, 2, 4].contains(&unit) || width == 0 || height == 0 {
            return Err(Error::INVALID_VALUE);
        }
        let bytes = width.checked_mul(unit as usize).ok_or(Error::INVALID_VALUE)?;
        let pitch = if height == 1 { bytes } else { pitch };
        let set = Set { address, unit: unit as u8, pattern: value, bytes, rows: height, pitch };
        set.check()?;
        Ok(set)
    }
}

pub(crate) fn add_copy(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    params: In<CopyParams>,
    context: usize,
) -> Result<()> {
    crate::context::find(context)?;
    add_node(out, graph, after, count, Op::Copy(params.get()?.copy()?))
}

pub(crate) fn add_set(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    params: In<SetParams>,
    context: usize,
) -> Result<()> {
    crate::context::find(context)?;
    add_node(out, graph, after, count, Op::Set(params.get()?.set()?))
}

fn op(node: usize) -> Result<Op> {
    let (graph, index) = find_node(node)?;
    Ok(graph.nodes()[index].op.clone())
}

/// Returns a node's parameters. Pointers are to the beginning of the copy, without the offsets it was created with.
pub(crate) fn get_copy(node: usize, out: Out<CopyParams>) -> Result<()> {
    let Op::Copy(copy) = op(node)? else { return Err(Error::INVALID_VALUE) };
    let (src, dst) = (Side::of(copy.src, copy.rows), Side::of(copy.dst, copy.rows));
    out.put(CopyParams { src, dst, width: copy.bytes, height: copy.rows, depth: copy.planes })
}

pub(crate) fn get_set(node: usize, out: Out<SetParams>) -> Result<()> {
    let Op::Set(set) = op(node)? else { return Err(Error::INVALID_VALUE) };
    let (unit, width) = (set.unit.into(), set.bytes / usize::from(set.unit));
    out.put(SetParams { address: set.address, pitch: set.pitch, value: set.pattern, unit, width, height: set.rows })
}

pub(crate) fn get_host(node: usize, out: Out<HostParams>) -> Result<()> {
    let Op::Host(function, argument) = op(node)? else { return Err(Error::INVALID_VALUE) };
    out.put(HostParams::of(function, argument))
}

/// Replaces a node's command by one of the same kind.
fn set_op(node: usize, op: Op) -> Result<()> {
    let (graph, index) = find_node(node)?;
    graph.replace(index, op)
}

pub(crate) fn set_kernel(node: usize, params: In<KernelParams>) -> Result<()> {
    set_op(node, params.get()?.op(0)?)
}

pub(crate) fn set_kernel_v2(node: usize, params: In<KernelParamsV2>) -> Result<()> {
    set_op(node, params.get()?.op()?)
}

pub(crate) fn set_copy(node: usize, params: In<CopyParams>) -> Result<()> {
    set_op(node, Op::Copy(params.get()?.copy()?))
}

pub(crate) fn set_set(node: usize, params: In<SetParams>) -> Result<()> {
    set_op(node, Op::Set(params.get()?.set()?))
}

pub(crate) fn set_host(node: usize, params: In<HostParams>) -> Result<()> {
    set_op(node, params.get()?.op()?)
}

/// Replaces a copy in an executable graph. Only contiguous copies are accepted, between memory of the same kinds as
/// before.
pub(crate) fn exec_set_copy(exec: usize, node: usize, params: In<CopyParams>, context: usize) -> Result<()> {
    crate::context::find(context)?;
    let new = params.get()?.copy()?;
    let of_kind = |a: Rows, b: Rows| memory::is_device(a.address) == memory::is_device(b.address);
    exec::replace(exec, node, Op::Copy(new), |old| match old {
        Op::Copy(old) => {
            (old.rows, old.planes, new.rows, new.planes) == (1, 1, 1, 1)
                && of_kind(old.src, new.src)
                && of_kind(old.dst, new.dst)
        }
        _ => false,
    })
}

/// Replaces a set in an executable graph. Its height cannot change and, if it is a rectangle, none of its measures.
pub(crate) fn exec_set_set(exec: usize, node: usize, params: In<SetParams>, context: usize) -> Result<()> {
    crate::context::find(context)?;
    let new = params.get()?.set()?;
    exec::replace(exec, node, Op::Set(new), |old| match old {
        Op::Set(old) if old.rows == 1 => new.rows == 1,
        Op::Set(old) => (old.unit, old.bytes, old.rows, old.pitch) == (new.unit, new.bytes, new.rows, new.pitch),
        _ => false,
    })
}

pub(crate) fn exec_set_host(exec: usize, node: usize, params: In<HostParams>) -> Result<()> {
    exec::replace(exec, node, params.get()?.op()?, |old| kind(old) == 3)
}
