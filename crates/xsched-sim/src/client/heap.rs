//! A first-fit allocator over a range of offsets. Its bookkeeping lies outside the memory that it hands out.

use std::collections::BTreeMap;
use std::ops::Range;

/// Alignment of all blocks, in bytes.
const ALIGN: u64 = 256;

/// Allocator of blocks of memory, by offset.
#[derive(Debug)]
pub struct Heap {
    /// Free blocks: start → length; no two are adjacent.
    free: BTreeMap<u64, u64>,
    used: BTreeMap<u64, u64>,
}

impl Heap {
    /// A heap over a range, all of it free.
    pub fn new(range: Range<u64>) -> Self {
        Self { free: BTreeMap::from([(range.start, range.end - range.start)]), used: BTreeMap::new() }
    }

    /// Allocates a block of at least `bytes`, and returns its offset.
    pub fn alloc(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGN)?;
        let (&start, &length) = self.free.iter().find(|&(_, &length)| length >= bytes)?;
        self.free.remove(&start);
        if length > bytes {
            self.free.insert(start + bytes, length - bytes);
        }
        self.used.insert(start, bytes);
        Some(start)
    }

    /// Reports whether a block in use starts here.
    pub fn is_block(&self, start: u64) -> bool {
        self.used.contains_key(&start)
    }

    /// Start and length of the block in use that contains this offset.
    pub fn block_of(&self, offset: u64) -> Option<(u64, u64)> {
        let (&start, &length) = self.used.range(..=offset).next_back()?;
        (offset < start + length).then_some((start, length))
    }

    /// Number of free bytes, in any number of pieces.
    pub fn free_bytes(&self) -> u64 {
        self.free.values().sum()
    }

    /// Frees a block, and returns its length; `None` if no block starts there.
    pub fn free(&mut self, start: u64) -> Option<u64> {
        let bytes = self.used.remove(&start)?;
        let (mut start, mut length) = (start, bytes);
        if let Some(next) = self.free.remove(&(start + length)) {
            length += next;
        }
        if let Some((&before, &room)) = self.free.range(..start).next_back()
            && before + room == start
        {
            (start, length) = (before, length + room);
        }
        self.free.insert(start, length);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_apart_and_come_back() {
        let mut heap = Heap::new(1024..1024 + 4 * 256);
        let blocks: Vec<u64> = (0..4).map(|_| heap.alloc(200).unwrap()).collect();
        assert_eq!(blocks, [1024, 1280, 1536, 1792]);
        assert_eq!((heap.alloc(1), heap.free_bytes()), (None, 0));
        assert_eq!(heap.block_of(1279), Some((1024, 256)));
        for block in [1280, 1792, 1024, 1536] {
            assert!(heap.is_block(block));
            assert_eq!(heap.free(block), Some(256));
        }
        assert_eq!((heap.block_of(1279), heap.free_bytes()), (None, 1024));
        assert_eq!(heap.alloc(1024), Some(1024), "neighbours grew together");
        assert_eq!(heap.free(1280), None, "not the start of a block");
        assert_eq!(heap.alloc(u64::MAX), None);
    }
}
