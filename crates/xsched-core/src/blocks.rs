//! Places of which most programs use few: made in blocks, the first time that one of a block is used, and kept to the end.

use core::ops::Index;
use std::sync::OnceLock;

/// Places of a block.
const BLOCK: usize = 1024;

/// Places with things that are made by their number.
pub(crate) struct Blocks<T> {
    blocks: Box<[OnceLock<Box<[T]>>]>,
    make: fn(u16) -> T,
}

impl<T> Blocks<T> {
    /// None is there yet; the number of places is rounded up to whole blocks.
    pub(crate) fn new(places: usize, make: fn(u16) -> T) -> Blocks<T> {
        Blocks { blocks: (0..places.div_ceil(BLOCK)).map(|_| OnceLock::new()).collect(), make }
    }

    /// A place, made if need be.
    pub(crate) fn made(&self, at: u16) -> &T {
        let block = usize::from(at) / BLOCK;
        let first = (block * BLOCK) as u16;
        let places = self.blocks[block].get_or_init(|| (first..=first + (BLOCK - 1) as u16).map(self.make).collect());
        &places[usize::from(at) % BLOCK]
    }

    /// A place of a block that is there.
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.blocks.get(at / BLOCK)?.get()?.get(at % BLOCK)
    }

    /// All places of the blocks that are there: these are the first ones, as places are used from the first on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.blocks.iter().map_while(OnceLock::get).flatten()
    }
}

impl<T> Index<usize> for Blocks<T> {
    type Output = T;

    /// A place that was made: the number comes from one who has used it.
    fn index(&self, at: usize) -> &T {
        self.get(at).expect("a place that was used before")
    }
}
