//! Memory of graphs: that of the nodes that allocate. It is in use from the creation of its node until the graph and all
//! executable graphs with the node are gone, or the program has freed it.

use crate::context::Ctx;
use crate::edge::{In, Out};
use crate::process::device;
use crate::result::{Error, Result};
use std::ffi::{c_int, c_uint};
use std::sync::{Arc, Mutex, Weak};
use xsched_sim::client::{Mark, lock};

/// Memory of a node.
pub(crate) struct Block {
    ctx: Weak<Ctx>,
    offset: u64,
    bytes: u64,
    /// End of the last launch of a graph with the node.
    mark: Mutex<Option<Mark>>,
}

impl Block {
    /// Allocates memory for a node.
    pub(crate) fn new(ctx: &Arc<Ctx>, bytes: usize) -> Result<Arc<Self>> {
        if bytes == 0 {
            return Err(Error::INVALID_VALUE);
        }
        ctx.memory.reap(ctx.sim);
        let offset = ctx.sim.allocate(bytes as u64)?;
        let bytes = lock(&ctx.sim.heaps).device.block_of(offset).map_or(0, |(_, length)| length);
        lock(&ctx.memory.of_graphs).insert(offset);
        ACCOUNT.add(ctx.device, bytes);
        Ok(Arc::new(Self { ctx: Arc::downgrade(ctx), offset, bytes, mark: Mutex::default() }))
    }

    /// Address of the memory.
    pub(crate) fn address(&self) -> u64 {
        self.ctx.upgrade().map_or(0, |ctx| ctx.sim.address(self.offset).expose_provenance() as u64)
    }

    /// Notes that a launch uses the memory until this mark.
    pub(crate) fn used_until(&self, mark: Mark) {
        *lock(&self.mark) = Some(mark);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let Some(ctx) = self.ctx.upgrade() else { return };
        if !lock(&ctx.memory.of_graphs).remove(&self.offset) {
            return;
        }
        ACCOUNT.remove(ctx.device, self.bytes);
        match *lock(&self.mark) {
            Some(mark) => {
                lock(&ctx.memory.freed).push((mark, self.offset));
                ctx.memory.reap(ctx.sim);
            }
            // Fails only if the context has ended, and its memory with it.
            None => drop(ctx.sim.release(self.offset, |heaps| &mut heaps.device)),
        }
    }
}

/// Memory of graphs by device, with the highest amount, in bytes.
struct Account(Mutex<Vec<(u64, u64)>>);

static ACCOUNT: Account = Account(Mutex::new(Vec::new()));

impl Account {
    fn with<T>(&self, device: usize, body: impl FnOnce(&mut (u64, u64)) -> T) -> T {
        let mut all = lock(&self.0);
        if all.len() <= device {
            all.resize(device + 1, (0, 0));
        }
        body(&mut all[device])
    }

    fn add(&self, device: usize, bytes: u64) {
        self.with(device, |(now, high)| {
            *now += bytes;
            *high = *now.max(high);
        });
    }

    fn remove(&self, device: usize, bytes: u64) {
        self.with(device, |(now, _)| *now = now.saturating_sub(bytes));
    }
}

/// Notes that the program itself has freed a block, or that its context ends.
pub(crate) fn freed(ctx: &Ctx, offset: u64, bytes: u64) {
    if lock(&ctx.memory.of_graphs).remove(&offset) {
        ACCOUNT.remove(ctx.device, bytes);
    }
}

/// Notes that a context ends, with the memory of all its graphs.
pub(crate) fn forget(ctx: &Ctx) {
    let all = std::mem::take(&mut *lock(&ctx.memory.of_graphs));
    for offset in all {
        let bytes = lock(&ctx.sim.heaps).device.block_of(offset).map_or(0, |(_, length)| length);
        ACCOUNT.remove(ctx.device, bytes);
    }
}

/// Amounts of memory: in use, its highest, reserved, its highest. Nothing is reserved but what is in use.
pub(crate) fn attribute(number: c_int, which: c_uint, value: Out<u64>) -> Result<()> {
    let (now, high) = ACCOUNT.with(device(number)?, |amounts| *amounts);
    match which {
        0 | 2 => value.put(now),
        1 | 3 => value.put(high),
        _ => Err(Error::INVALID_VALUE),
    }
}

/// Makes a highest amount the present one; no other value can be set.
pub(crate) fn set_attribute(number: c_int, which: c_uint, value: In<u64>) -> Result<()> {
    let device = device(number)?;
    if ![1, 3].contains(&which) || value.get()? != 0 {
        return Err(Error::INVALID_VALUE);
    }
    ACCOUNT.with(device, |(now, high)| *high = *now);
    Ok(())
}

/// Trims nothing: memory that no graph needs is free at once.
pub(crate) fn trim(number: c_int) -> Result<()> {
    device(number).map(drop)
}
