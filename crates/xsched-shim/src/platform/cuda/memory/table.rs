//! Table of allocations by address. Handles of arrays are entries, too: no two live objects of a process have one
//! address.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering::*};

use super::account::{self, Part};
use crate::lock::Lock;

/// Number of parts of the table, each with a lock; a power of two.
const SHARDS: usize = 64;

/// An allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Size by which it is counted.
    pub(super) bytes: u64,
    /// Context that it ends with; 0 = none.
    pub(super) context: usize,
    pub(super) slot: u16,
    pub(super) part: Part,
    /// Other processes may use it.
    pub(super) exported: bool,
}

impl Entry {
    /// Counts the allocation out.
    pub(super) fn count_out(&self) {
        account::subtract(self.slot, self.part, self.bytes);
        if self.exported {
            account::unexport(self.slot, self.bytes);
        }
    }
}

/// Hash of an address. Addresses are evenly spaced; multiplying by an odd number spreads them over the upper bits, which
/// the map takes its tags from.
#[derive(Default)]
struct OfAddress(u64);

impl Hasher for OfAddress {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, address: u64) {
        self.0 = mixed(address);
    }
}

fn mixed(address: u64) -> u64 {
    let product = address.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}

type Shard = HashMap<u64, Entry, BuildHasherDefault<OfAddress>>;

static TABLE: [Lock<Shard>; SHARDS] = [const { Lock::new() }; SHARDS];
/// Number of entries of each shard, so that a search in an empty one needs no lock.
static COUNTS: [AtomicUsize; SHARDS] = [const { AtomicUsize::new(0) }; SHARDS];

fn shard(address: u64) -> usize {
    (mixed(address) >> 20) as usize % SHARDS
}

/// Enters an allocation. One that was there before is gone, though its end was not seen.
pub(super) fn insert(address: u64, entry: Entry) {
    let at = shard(address);
    let before = TABLE[at].lock().insert(address, entry);
    match before {
        Some(before) => before.count_out(),
        None => _ = COUNTS[at].fetch_add(1, Release),
    }
}

/// Takes an allocation out of the table.
#[inline]
pub(super) fn remove(address: u64) -> Option<Entry> {
    let at = shard(address);
    if COUNTS[at].load(Acquire) == 0 {
        return None;
    }
    let found = TABLE[at].lock().remove(&address);
    if found.is_some() {
        COUNTS[at].fetch_sub(1, Release);
    }
    found
}

/// Marks an allocation as exported, and returns it if it was not before.
pub(super) fn mark_exported(address: u64) -> Option<Entry> {
    let mut table = TABLE[shard(address)].lock();
    let entry = table.get_mut(&address).filter(|entry| !entry.exported)?;
    entry.exported = true;
    Some(*entry)
}

/// Takes all allocations of a context out of the table.
pub(super) fn remove_all(context: usize) -> Vec<Entry> {
    let mut gone = Vec::new();
    for (shard, count) in TABLE.iter().zip(&COUNTS) {
        if count.load(Acquire) == 0 {
            continue;
        }
        let before = gone.len();
        shard.lock().retain(|_, entry| {
            let stays = entry.context != context;
            if !stays {
                gone.push(*entry);
            }
            stays
        });
        count.fetch_sub(gone.len() - before, Release);
    }
    gone
}

/// Empties the table, in a forked child.
pub(super) fn forget_all() {
    TABLE.iter().for_each(Lock::forget);
    COUNTS.iter().for_each(|count| count.store(0, Release));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_is_found_once_and_ends_with_its_context() {
        let entry = |context| Entry { bytes: 512, context, slot: 0, part: Part::Plain, exported: false };
        (1..=10_000).for_each(|n| insert(n << 9, entry(1 + n as usize % 2)));
        assert!(COUNTS.iter().all(|count| count.load(Relaxed) > 50), "spread over the shards");
        assert!(remove(5 << 9).is_some() && remove(5 << 9).is_none());
        assert!(mark_exported(7 << 9).is_some() && mark_exported(7 << 9).is_none());
        assert_eq!((remove_all(2).len(), remove_all(2).len(), remove_all(1).len()), (4_999, 0, 5_000));
        assert!(COUNTS.iter().all(|count| count.load(Relaxed) == 0));
    }
}
