//! Arrays of places of which most programs use few: made block by block, when the first place of a block is used, and kept to the
//! end.

use core::ops::Index;
use std::sync::OnceLock;

/// Number of places in a block.
const BLOCK: usize = 1024;

/// Places whose values are made from their numbers.
pub(crate) struct Blocks<T> {
    blocks: Box<[OnceLock<Box<[T]>>]>,
    make: fn(u16) -> T,
}

impl<T> Blocks<T> {
    /// Array without a block yet; the number of places is rounded up to whole blocks.
    pub(crate) fn new(places: usize, make: fn(u16) -> T) -> Blocks<T> {
        Blocks { blocks: (0..places.div_ceil(BLOCK)).map(|_| OnceLock::new()).collect(), make }
    }

    /// The value in a place, made if need be.
    pub(crate) fn made(&self, at: u16) -> &T {
        let block = usize::from(at) / BLOCK;
        let first = (block * BLOCK) as u16;
        let places = self.blocks[block].get_or_init(|| (first..=first + (BLOCK - 1) as u16).map(self.make).collect());
        &places[usize::from(at) % BLOCK]
    }

    /// The value in a place, if its block has been made.
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.blocks.get(at / BLOCK)?.get()?.get(at % BLOCK)
    }

    /// Values of all blocks that have been made: these are the first ones, as places are used from the first on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.blocks.iter().map_while(OnceLock::get).flatten()
    }
}

impl<T> Index<usize> for Blocks<T> {
    type Output = T;

    /// The value in a place that was made: only the user of a place knows its number.
    fn index(&self, at: usize) -> &T {
        self.get(at).expect("a place that was used before")
    }
}
