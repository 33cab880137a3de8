//! What a context keeps account of: blocks that are given back later, and what it shares with other processes.

use crate::result::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Mutex;
use xsched_sim::client::{self, Export, Mark, lock};

/// Blocks of a context that are given back once a stream has come so far.
#[derive(Default)]
pub(crate) struct Blocks {
    pub(crate) stages: Mutex<Vec<(Mark, u64)>>,
    pub(crate) freed: Mutex<Vec<(Mark, u64)>>,
}

impl Blocks {
    /// A block of pinned memory for a copy to go through.
    pub(crate) fn stage(&self, sim: &client::Context, bytes: usize) -> Result<u64> {
        reap(&self.stages, sim, |heaps| &mut heaps.host);
        lock(&sim.heaps).host.alloc(bytes as u64).ok_or(Error::OUT_OF_MEMORY)
    }

    /// That block is of no use any more from there on.
    pub(crate) fn unstage(&self, mark: Mark, offset: u64) {
        lock(&self.stages).push((mark, offset));
    }
}

/// Gives back those that no stream needs any more.
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

/// Memory of another process, as a context has it.
pub(crate) struct Opened {
    pub(crate) export: Export,
    pub(crate) length: u64,
    /// Its place and the block that it is in: offsets in the arena.
    pub(crate) at: u64,
    pub(crate) block: u64,
    pub(crate) times: u64,
}

/// What a context shares with other processes.
#[derive(Default)]
pub(crate) struct Shares {
    /// Its own memory, by the offset of the block.
    pub(crate) exports: Mutex<BTreeMap<u64, Export>>,
    /// That of others, by address.
    pub(crate) opened: Mutex<BTreeMap<u64, Opened>>,
    pub(crate) words: Mutex<Words>,
}

/// Words of events. Pages stay as long as the context, and words go on where they are when another event gets them: what is
/// under way then writes into memory that is not used.
#[derive(Default)]
pub(crate) struct Words {
    /// The context's own pages, by offset.
    pub(crate) pages: BTreeMap<u64, Export>,
    pub(crate) free: Vec<u64>,
    /// Pages of others: offset by number and secret.
    pub(crate) foreign: BTreeMap<(u64, u64), u64>,
}

impl Shares {
    /// A block of the context's is free again.
    pub(crate) fn freed(&self, sim: &client::Context, block: u64) {
        if let Some(export) = lock(&self.exports).remove(&block) {
            let _ = sim.unexport(export.number);
        }
    }

    /// The memory of another process that an address lies in: where it begins, and its length.
    pub(crate) fn opened(&self, address: u64) -> Option<(u64, u64)> {
        let opened = lock(&self.opened);
        let (&start, range) = opened.range(..=address).next_back()?;
        (address < start + range.length).then_some((start, range.length))
    }
}
