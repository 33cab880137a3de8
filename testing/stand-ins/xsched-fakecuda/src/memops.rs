//! Stream memory operations.

use crate::context::Ctx;
use crate::edge::In;
use crate::memory;
use crate::result::{Error, Result};
use crate::stats::{COUNTERS, Counters};
use std::ffi::c_uint;
use std::sync::Arc;
use xsched_sim::command::{Action, Condition, Width};

/// CU_STREAM_WAIT_VALUE_FLUSH.
const WAIT_FLUSH: c_uint = 1 << 30;

/// CUstreamBatchMemOpType.
const WAIT_32: u32 = 1;
const WRITE_32: u32 = 2;
const FLUSH_REMOTE_WRITES: u32 = 3;
const WAIT_64: u32 = 4;
const WRITE_64: u32 = 5;
const BARRIER: u32 = 6;

/// One operation on a word.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MemOp {
    Wait { address: u64, width: Width, condition: Condition, value: u64 },
    Write { address: u64, width: Width, value: u64 },
}

impl MemOp {
    pub(crate) fn wait(address: u64, width: Width, value: u64, flags: c_uint) -> Result<Self> {
        let condition = Condition::new((flags & !WAIT_FLUSH).into()).ok_or(Error::INVALID_VALUE)?;
        Ok(Self::Wait { address, width, condition, value })
    }

    pub(crate) fn write(address: u64, width: Width, value: u64, flags: c_uint) -> Result<Self> {
        // CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER existed in the first API only.
        if flags != 0 {
            return Err(Error::INVALID_VALUE);
        }
        Ok(Self::Write { address, width, value })
    }

    /// Action for the device. The word must be reachable from the context.
    pub(crate) fn action(self, ctx: &Arc<Ctx>) -> Result<Action> {
        match self {
            Self::Wait { address, width, condition, value } => {
                let place = memory::place(ctx, address, width as usize)?;
                Counters::add(&COUNTERS.waits);
                Ok(Action::WaitValue { place, width, condition, value })
            }
            Self::Write { address, width, value } => {
                let place = memory::place(ctx, address, width as usize)?;
                Counters::add(&COUNTERS.writes);
                Ok(Action::WriteValue { place, width, value })
            }
        }
    }
}

/// `CUstreamBatchMemOpParams`: type, address, value, flags.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params {
    operation: u32,
    flags_of_barrier: u32,
    address: u64,
    value: u64,
    flags: u32,
    pad: u32,
    alias: u64,
    rest: u64,
}

/// Parses a batch of operations.
pub(crate) fn parse(count: c_uint, params: In<Params>, flags: c_uint) -> Result<Vec<MemOp>> {
    // CU_STREAM_BATCH_MEM_OP_...: at most 256 at once.
    if flags != 0 || count > 256 {
        return Err(Error::INVALID_VALUE);
    }
    let mut ops = Vec::new();
    for Params { operation, address, value, flags, .. } in params.list(count as usize)? {
        let word = u64::from(value as u32);
        match operation {
            WAIT_32 => ops.push(MemOp::wait(address, Width::Word, word, flags)?),
            WRITE_32 => ops.push(MemOp::write(address, Width::Word, word, flags)?),
            WAIT_64 => ops.push(MemOp::wait(address, Width::Double, value, flags)?),
            WRITE_64 => ops.push(MemOp::write(address, Width::Double, value, flags)?),
            // Nothing to do, as the device works in order and has no caches.
            BARRIER | FLUSH_REMOTE_WRITES => {}
            _ => return Err(Error::NOT_SUPPORTED),
        }
    }
    Ok(ops)
}

/// Checks that every word is reachable from the context.
pub(crate) fn check(ops: &[MemOp], ctx: &Arc<Ctx>) -> Result<()> {
    for op in ops {
        let (MemOp::Wait { address, width, .. } | MemOp::Write { address, width, .. }) = *op;
        memory::place(ctx, address, width as usize)?;
    }
    Ok(())
}
