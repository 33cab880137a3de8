//! Accounts of a context: blocks to be freed later, and memory shared with other processes.

use crate::result::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use xsched_sim::client::{self, Export, Mark, lock};

/// Keeper of memory for blocks, whose memory is not a block's own.
pub(crate) trait Keeper: Send + Sync {
    fn handle(&self) -> usize;
    /// Takes memory for a block.
    fn take(&self, bytes: u64) -> Result<()>;
    /// Has memory of a block back.
    fn returned(&self, bytes: u64);
}

/// Blocks of keepers, with their lengths, by offset.
type Kept = BTreeMap<u64, (Arc<dyn Keeper>, u64)>;

/// Blocks of a context that are to be freed once a stream reaches a mark.
#[derive(Default)]
pub(crate) struct Blocks {
    pub(crate) stages: Mutex<Vec<(Mark, u64)>>,
    pub(crate) freed: Mutex<Vec<(Mark, u64)>>,
    /// Blocks of graphs' nodes, by offset.
    pub(crate) of_graphs: Mutex<BTreeSet<u64>>,
    /// Blocks of pools, with their lengths, by offset.
    pooled: Mutex<Kept>,
}

impl Blocks {
    /// Allocates a block of pinned memory as a stage for a copy.
    pub(crate) fn stage(&self, sim: &client::Context, bytes: usize) -> Result<u64> {
        reap(&self.stages, sim, |heaps| &mut heaps.host);
        lock(&sim.heaps).host.alloc(bytes as u64).ok_or(Error::OUT_OF_MEMORY)
    }

    /// Allocates a block of a pool.
    pub(crate) fn pooled(&self, sim: &client::Context, pool: Arc<dyn Keeper>, bytes: usize) -> Result<u64> {
        let (offset, length) = {
            let heap = &mut lock(&sim.heaps).device;
            let offset = heap.alloc(bytes as u64).ok_or(Error::OUT_OF_MEMORY)?;
            (offset, heap.block_of(offset).map_or(0, |(_, length)| length))
        };
        if let Err(error) = pool.take(length) {
            lock(&sim.heaps).device.free(offset);
            return Err(error);
        }
        lock(&self.pooled).insert(offset, (pool, length));
        Ok(offset)
    }

    /// Pool of the block at an offset; `None` if it is of none.
    pub(crate) fn pool_of(&self, offset: u64) -> Option<usize> {
        lock(&self.pooled).get(&offset).map(|(pool, _)| pool.handle())
    }

    /// Returns the memory of a block that was freed to its pool, if it is of one.
    pub(crate) fn unpool(&self, offset: u64) {
        let found = lock(&self.pooled).remove(&offset);
        if let Some((pool, bytes)) = found {
            pool.returned(bytes);
        }
    }

    /// Returns the memory of all blocks to their pools, when their context ends.
    pub(crate) fn unpool_all(&self) {
        let all = std::mem::take(&mut *lock(&self.pooled));
        all.into_values().for_each(|(pool, bytes)| pool.returned(bytes));
    }

    /// Frees the device memory whose streams have reached its end.
    pub(crate) fn reap(&self, sim: &client::Context) {
        let done: Vec<u64> = {
            let mut freed = lock(&self.freed);
            let done: Vec<u64> =
                freed.iter().filter(|(mark, _)| sim.reached(*mark)).map(|&(_, offset)| offset).collect();
            freed.retain(|&(_, offset)| !done.contains(&offset));
            done
        };
        for offset in done {
            let _ = sim.release(offset, |heaps| &mut heaps.device);
            self.unpool(offset);
        }
    }

    /// Frees a stage once the mark is reached.
    pub(crate) fn unstage(&self, mark: Mark, offset: u64) {
        lock(&self.stages).push((mark, offset));
    }
}

/// Frees the blocks whose marks were reached.
pub(crate) fn reap(
    blocks: &Mutex<Vec<(Mark, u64)>>,
    sim: &client::Context,
    heap: fn(&mut client::Heaps) -> &mut client::Heap,
) {
    lock(blocks).retain(|&(mark, offset)| {
        let pending = !sim.reached(mark);
        if !pending {
            let _ = sim.release(offset, heap);
        }
        pending
    });
}

/// Memory of another process, opened in a context.
pub(crate) struct Opened {
    pub(crate) export: Export,
    pub(crate) length: u64,
    /// Place of the memory, and block that contains it: offsets in the arena.
    pub(crate) at: u64,
    pub(crate) block: u64,
    pub(crate) times: u64,
}

/// Memory that a context shares with other processes.
#[derive(Default)]
pub(crate) struct Shares {
    /// Exports of its own memory, by the offset of the block.
    pub(crate) exports: Mutex<BTreeMap<u64, Export>>,
    /// Opened memory of other processes, by address.
    pub(crate) opened: Mutex<BTreeMap<u64, Opened>>,
    pub(crate) words: Mutex<Words>,
}

/// Words of events. Pages live as long as the context, and a word's count goes on when another event gets it, so a
/// write that is still under way hits memory that is not in use.
#[derive(Default)]
pub(crate) struct Words {
    /// The context's own pages, by offset.
    pub(crate) pages: BTreeMap<u64, Export>,
    pub(crate) free: Vec<u64>,
    /// Offsets of other processes' pages, by number and secret of the export.
    pub(crate) foreign: BTreeMap<(u64, u64), u64>,
}

impl Shares {
    /// Withdraws the export of a block of the context that was freed.
    pub(crate) fn freed(&self, sim: &client::Context, block: u64) {
        if let Some(export) = lock(&self.exports).remove(&block) {
            let _ = sim.unexport(export.number);
        }
    }

    /// Beginning and length of another process's memory that contains an address.
    pub(crate) fn opened(&self, address: u64) -> Option<(u64, u64)> {
        let opened = lock(&self.opened);
        let (&start, range) = opened.range(..=address).next_back()?;
        (address < start + range.length).then_some((start, range.length))
    }
}
