//! Calls that launch kernels.

use crate::context::Ctx;
use crate::edge::{In, Null};
use crate::launch::Launch;
use crate::module::{Function, find_function};
use crate::op::Op;
use crate::result::{Error, Result};
use crate::stream;
use std::ffi::c_uint;
use std::sync::Arc;

/// Checks the context of a function, which belongs to one; a library's kernel belongs to all.
fn check_context(function: &Function, ctx: &Arc<Ctx>) -> Result<()> {
    let same = function.ctx.as_ref().is_none_or(|owner| owner.as_ptr() == Arc::as_ptr(ctx));
    if same { Ok(()) } else { Err(Error::INVALID_HANDLE) }
}

#[allow(clippy::too_many_arguments)] // the driver's
pub(crate) fn kernel(
    null: Null,
    function: usize,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: usize,
    params: In<In<u8>>,
    extra: In<usize>,
) -> Result<()> {
    let stream = stream::find(null, stream)?;
    check_context(&*find_function(function)?, &stream.context()?)?;
    let shape = [grid_x, grid_y, grid_z, block_x, block_y, block_z, shared];
    let launch = Launch::new(function, shape, params, extra)?;
    stream.issue(Op::Kernel(launch)).map(drop)
}

#[allow(clippy::too_many_arguments)] // the driver's
pub(crate) fn cooperative(
    null: Null,
    function: usize,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: usize,
    params: In<In<u8>>,
) -> Result<()> {
    let (gx, gy, gz, none) = (grid_x, grid_y, grid_z, In::NOTHING);
    kernel(null, function, gx, gy, gz, block_x, block_y, block_z, shared, stream, params, none)
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: usize,
    attributes: usize,
    attribute_count: c_uint,
}

const _: () = assert!(std::mem::offset_of!(Config, stream) == 32);

pub(crate) fn kernel_ex(
    null: Null,
    config: In<Config>,
    function: usize,
    params: In<In<u8>>,
    extra: In<usize>,
) -> Result<()> {
    let Config { grid, block, shared, stream, .. } = config.get()?;
    let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
    kernel(null, function, gx, gy, gz, bx, by, bz, shared, stream, params, extra)
}
