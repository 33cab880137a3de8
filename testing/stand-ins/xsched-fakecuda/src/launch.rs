//! Launches of kernels.

use crate::context::Ctx;
use crate::edge::In;
use crate::memory;
use crate::module::{Kernel, find_function};
use crate::result::{Error, Result};
use crate::vmm;
use std::ffi::{c_uint, c_void};
use std::sync::Arc;
use xsched_sim::command::{Action, KernelOp, TensorOp};

/// Largest number of arguments that a kernel has.
const PARAMETERS: usize = 7;

/// Device time of a kernel without work, in ns.
const BASE_NS: u64 = 2_000;

/// A kernel with its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    kernel: Kernel,
    /// Handle that the program passed; grid, block and bytes of shared memory.
    pub(crate) function: usize,
    pub(crate) shape: [c_uint; 7],
    /// Arguments in order, each in the low bits.
    arguments: [u64; PARAMETERS],
}

impl Launch {
    /// Reads the arguments from the places in which a launch has them.
    pub(crate) fn new(function: usize, shape: [c_uint; 7], params: In<In<u8>>, extra: In<usize>) -> Result<Self> {
        let [gx, gy, gz, bx, by, bz, shared] = shape;
        check_shape([gx, gy, gz], [bx, by, bz], shared)?;
        let kernel = find_function(function)?.kernel;
        let mut arguments = [0; PARAMETERS];
        let packed = if params.is_null() && !kernel.parameters().is_empty() { Some(buffer(extra)?) } else { None };
        for (index, (&size, offset)) in kernel.parameters().iter().zip(kernel.offsets()).enumerate() {
            let (from, skip) = match packed {
                Some(buffer) => (buffer, offset),
                None => (params.at(index)?, 0),
            };
            let mut bytes = [0; 8];
            for (i, byte) in bytes.iter_mut().take(size).enumerate() {
                *byte = from.at(skip + i)?;
            }
            arguments[index] = u64::from_le_bytes(bytes);
        }
        Ok(Self { kernel, function, shape, arguments })
    }

    /// Action for the device. A kernel that reaches outside the context's memory faults.
    pub(crate) fn action(&self, ctx: &Arc<Ctx>) -> Action {
        let fault = Action::Kernel { op: KernelOp::Fault, count: 0, duration_ns: BASE_NS, x: 0, y: 0, a: 0.0 };
        self.within(ctx).unwrap_or(fault)
    }

    fn within(&self, ctx: &Arc<Ctx>) -> Option<Action> {
        let [first, second, third, fourth, fifth, sixth, seventh] = self.arguments;
        let floats = |address: u64, count: u32| {
            let pointer = std::ptr::with_exposed_provenance::<c_void>(address as usize);
            vmm::check(address, count as usize * 4).unwrap_or(Ok(())).ok()?;
            ctx.sim.offset(pointer, count as usize * 4).filter(|offset| offset.is_multiple_of(4))
        };
        let count = first as u32;
        // Throughput of 4 elements per ns.
        let work = BASE_NS + u64::from(count) / 4;
        let kernel = |op, count, duration_ns, x, y, a| Some(Action::Kernel { op, count, duration_ns, x, y, a });
        match self.kernel {
            Kernel::Empty => kernel(KernelOp::Nop, 0, BASE_NS, 0, 0, 0.0),
            Kernel::Spin => kernel(KernelOp::Nop, 0, first, 0, 0, 0.0),
            Kernel::Crash => None,
            Kernel::AssertFalse => kernel(KernelOp::Assert, 0, BASE_NS, 0, 0, 0.0),
            Kernel::Axpy => {
                let (x, y) = (floats(third, count)?, floats(fourth, count)?);
                kernel(KernelOp::Axpy, count, work, x, y, f32::from_bits(second as u32))
            }
            Kernel::Fill => {
                let y = floats(third, count)?;
                kernel(KernelOp::Fill, count, work, 0, y, f32::from_bits(second as u32))
            }
            Kernel::Reduce => kernel(KernelOp::Sum, count, work, floats(second, count)?, floats(third, 1)?, 0.0),
            Kernel::Copy => {
                let (x, y) = (floats(second, count)?, floats(third, count)?);
                Some(Action::copy(y, x, u64::from(count) * 4))
            }
            Kernel::Gemm => {
                let sizes = [count, second as u32, third as u32, 0];
                self.tensor(ctx, TensorOp::Gemm, sizes, [fourth, fifth, sixth])
            }
            Kernel::Conv2d => {
                let sizes = [count, second as u32, third as u32, fourth as u32];
                self.tensor(ctx, TensorOp::Conv2d, sizes, [fifth, sixth, seventh])
            }
            Kernel::Stamp => Some(Action::Stamp { place: memory::place(ctx, first, 8).ok()?, duration_ns: BASE_NS }),
        }
    }

    fn tensor(&self, ctx: &Arc<Ctx>, op: TensorOp, sizes: [u32; 4], operands: [u64; 3]) -> Option<Action> {
        let counts = op.floats(sizes)?;
        let place = |i: usize| {
            let pointer = std::ptr::with_exposed_provenance::<c_void>(operands[i] as usize);
            let bytes = usize::try_from(counts[i]).ok()?.checked_mul(4)?;
            vmm::check(operands[i], bytes).unwrap_or(Ok(())).ok()?;
            ctx.sim.offset(pointer, bytes).filter(|offset| offset.is_multiple_of(4))
        };
        let (x, w, y) = (place(0)?, place(1)?, place(2)?);
        // Each result needs this many multiplications; 500 per ns.
        let each = if op == TensorOp::Gemm { u64::from(sizes[2]) } else { counts[1] };
        let duration_ns = BASE_NS + counts[2].saturating_mul(each) / 500;
        Some(Action::Tensor { op, sizes, duration_ns, x, w, y })
    }
}

/// Finds CU_LAUNCH_PARAM_BUFFER_POINTER (1) in a list that ends with 0.
fn buffer(extra: In<usize>) -> Result<In<u8>> {
    for index in (0..).step_by(2) {
        match extra.at(index)? {
            0 => break,
            1 => return Ok(In::from_address(extra.at(index + 1)?)),
            _ => {}
        }
    }
    Err(Error::INVALID_VALUE)
}

/// Checks that a device has room for the grid.
fn check_shape(grid: [c_uint; 3], block: [c_uint; 3], shared: c_uint) -> Result<()> {
    let threads: u64 = block.iter().map(|&n| u64::from(n)).product();
    let fits = grid.iter().all(|&n| n > 0)
        && grid[0] <= 0x7fff_ffff
        && grid[1..].iter().all(|&n| n <= 0xffff)
        && (1..=1024).contains(&threads)
        && shared <= 227 << 10;
    if fits { Ok(()) } else { Err(Error::INVALID_VALUE) }
}
