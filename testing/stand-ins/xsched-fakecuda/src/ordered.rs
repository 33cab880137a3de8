//! Memory that is allocated and freed in the order of a stream.

use crate::capture;
use crate::edge::{Null, Out};
use crate::graph_memory::{self, Block};
use crate::memory::pointer;
use crate::op::Op;
use crate::pool;
use crate::result::{Error, Result};
use crate::stats;
use crate::stream;
use crate::vmm;
use xsched_sim::client::lock;

fn pooled(null: Null, out: Out<u64>, bytes: usize, stream: usize, pool: Option<usize>) -> Result<()> {
    let (out, stream) = (out.required()?, stream::find(null, stream)?);
    let ctx = stream.context()?;
    let pool = pool.map_or_else(|| pool::current(ctx.device), |pool| pool::given(pool, ctx.device))?;
    if let Some(capture) = stream.capture() {
        let block = Block::new(&ctx, bytes)?;
        out.put(block.address())?;
        return capture::add(&capture, &stream, Op::Memory(block));
    }
    if bytes == 0 {
        return Err(Error::INVALID_VALUE);
    }
    ctx.memory.reap(ctx.sim);
    let offset = ctx.memory.pooled(ctx.sim, pool, bytes)?;
    out.put(ctx.sim.address(offset).expose_provenance() as u64)
}

pub(crate) fn alloc_async(null: Null, out: Out<u64>, bytes: usize, stream: usize) -> Result<()> {
    pooled(null, out, bytes, stream, None)
}

pub(crate) fn alloc_from_pool(null: Null, out: Out<u64>, bytes: usize, pool: usize, stream: usize) -> Result<()> {
    pooled(null, out, bytes, stream, Some(pool))
}

pub(crate) fn free_async(null: Null, address: u64, stream: usize) -> Result<()> {
    let stream = stream::find(null, stream)?;
    let ctx = stream.context()?;
    if let Some(capture) = stream.capture() {
        capture.invalidate();
        return Err(Error::NOT_SUPPORTED);
    }
    let offset = ctx.sim.offset(pointer(address), 0).filter(|&o| lock(&ctx.sim.heaps).device.is_block(o));
    let mut freed = lock(&ctx.memory.freed);
    let own = ctx.ipc.opened(address).is_none() && vmm::of(address).is_none();
    let Some(offset) = offset.filter(|&o| own && freed.iter().all(|&(_, other)| other != o)) else {
        stats::illegal(format!("no memory begins at {address:#x}"));
        return Err(Error::INVALID_VALUE);
    };
    ctx.ipc.freed(ctx.sim, offset);
    let length = lock(&ctx.sim.heaps).device.block_of(offset).map_or(0, |(_, length)| length);
    graph_memory::freed(&ctx, offset, length);
    let mark = ctx.sim.end(stream.slot)?;
    freed.push((mark, offset));
    Ok(())
}
