//! Stream memory operations.

use crate::edge::{In, Null};
use crate::memops::{MemOp, Params, check, parse};
use crate::op::Op;
use crate::result::Result;
use crate::stream;
use std::ffi::c_uint;
use xsched_sim::command::Width;

fn issue(null: Null, stream: usize, ops: Vec<MemOp>) -> Result<()> {
    let stream = stream::find(null, stream)?;
    let ctx = stream.context()?;
    check(&ops, &ctx)?;
    stream.no_implicit(&ctx)?;
    stream.issue(Op::MemOps(ops)).map(drop)
}

pub(crate) fn wait_32(null: Null, stream: usize, address: u64, value: u32, flags: c_uint) -> Result<()> {
    issue(null, stream, vec![MemOp::wait(address, Width::Word, value.into(), flags)?])
}

pub(crate) fn wait_64(null: Null, stream: usize, address: u64, value: u64, flags: c_uint) -> Result<()> {
    issue(null, stream, vec![MemOp::wait(address, Width::Double, value, flags)?])
}

pub(crate) fn write_32(null: Null, stream: usize, address: u64, value: u32, flags: c_uint) -> Result<()> {
    issue(null, stream, vec![MemOp::write(address, Width::Word, value.into(), flags)?])
}

pub(crate) fn write_64(null: Null, stream: usize, address: u64, value: u64, flags: c_uint) -> Result<()> {
    issue(null, stream, vec![MemOp::write(address, Width::Double, value, flags)?])
}

pub(crate) fn batch(null: Null, stream: usize, count: c_uint, params: In<Params>, flags: c_uint) -> Result<()> {
    issue(null, stream, parse(count, params, flags)?)
}
