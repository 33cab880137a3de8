//! Table of allocations by address. Handles of arrays are entries, too: no two live objects of a process have one
//! address.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU32, Ordering::*};

use super::account::{self, Part};
use crate::lock::Lock;

/// Number of parts of the table, each with a lock; a power of two.
const SHARDS: usize = 64;

/// An allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Size by which it is counted.
    pub(crate) bytes: u64,
    /// Context that it ends with; 0 = none.
    pub(crate) context: usize,
    pub(crate) slot: u16,
    pub(crate) part: Part,
    /// Other processes may use it.
    pub(crate) exported: bool,
}

impl Entry {
    /// Counts the allocation out.
    pub(crate) fn count_out(&self) {
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

/// Odd number whose multiples spread over the upper bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

fn mixed(address: u64) -> u64 {
    let product = address.wrapping_mul(SPREAD);
    product ^ (product >> 32)
}

type Shard = HashMap<u64, Entry, BuildHasherDefault<OfAddress>>;

static TABLE: [Lock<Shard>; SHARDS] = [const { Lock::new() }; SHARDS];
/// Size of a region of addresses, as a power of two: memory of pools and memory that the table has lie in different ones.
const REGION: u32 = 21;
/// Number of counts of [`COUNTS`]; a power of two.
const REGIONS: usize = 4096;
/// Number of entries of the regions that have the same hash, so that most searches for an address that is not there need no
/// lock. Changed under the lock of their part of the table.
static COUNTS: [AtomicU32; REGIONS] = [const { AtomicU32::new(0) }; REGIONS];

/// Place of an address's region in [`COUNTS`].
#[inline(always)]
fn place(address: u64) -> usize {
    (address >> REGION).wrapping_mul(SPREAD) as usize >> (usize::BITS - REGIONS.ilog2())
}

/// Part of the table for an address: that of its region.
fn shard(address: u64) -> &'static Lock<Shard> {
    &TABLE[place(address) % SHARDS]
}

/// Changes the count of an address's region, with its part of the table locked.
fn count(address: u64, change: impl FnOnce(u32) -> u32) {
    let count = &COUNTS[place(address)];
    count.store(change(count.load(Relaxed)), Release);
}

/// Reports whether the table may have an entry for an address: false = it has none.
#[inline(always)]
pub(crate) fn may_have(address: u64) -> bool {
    COUNTS[place(address)].load(Acquire) != 0
}

/// Enters an allocation. One that was there before is gone, though its end was not seen.
pub(crate) fn insert(address: u64, entry: Entry) {
    let mut entries = shard(address).lock();
    let before = entries.insert(address, entry);
    if before.is_none() {
        count(address, |n| n.wrapping_add(1));
    }
    drop(entries);
    before.iter().for_each(Entry::count_out);
}

/// Takes an allocation out of the table.
pub(crate) fn remove(address: u64) -> Option<Entry> {
    let mut entries = shard(address).lock();
    let found = entries.remove(&address);
    if found.is_some() {
        count(address, |n| n.wrapping_sub(1));
    }
    found
}

/// Reports whether an allocation begins at an address.
pub(crate) fn has(address: u64) -> bool {
    shard(address).lock().contains_key(&address)
}

/// Marks an allocation as exported, and returns it if it was not before.
pub(crate) fn mark_exported(address: u64) -> Option<Entry> {
    let mut entries = shard(address).lock();
    let entry = entries.get_mut(&address).filter(|entry| !entry.exported)?;
    entry.exported = true;
    Some(*entry)
}

/// Takes all allocations of a context out of the table.
pub(crate) fn remove_all(context: usize) -> Vec<Entry> {
    let mut gone = Vec::new();
    for shard in TABLE.iter().filter(|shard| !shard.is_untouched()) {
        shard.lock().retain(|address, entry| {
            let stays = entry.context != context;
            if !stays {
                count(*address, |n| n.wrapping_sub(1));
                gone.push(*entry);
            }
            stays
        });
    }
    gone
}

/// Empties the table, in a forked child.
pub(crate) fn forget_all() {
    TABLE.iter().for_each(Lock::forget);
    COUNTS.iter().for_each(|count| count.store(0, Release));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_is_found_once_and_ends_with_its_context() {
        let entry = |context| Entry { bytes: 512, context, slot: 0, part: Part::Plain, exported: false };
        (1..=10_000).for_each(|n| insert(n << 20, entry(1 + n as usize % 2)));
        assert!(TABLE.iter().all(|shard| shard.lock().len() > 50), "spread over the shards");
        assert!(may_have(5 << 20) && !(1..64).all(|n| may_have(n << 40)));
        assert!(remove(5 << 20).is_some() && remove(5 << 20).is_none());
        assert!(mark_exported(7 << 20).is_some() && mark_exported(7 << 20).is_none());
        assert_eq!((remove_all(2).len(), remove_all(2).len(), remove_all(1).len()), (4_999, 0, 5_000));
        assert!(COUNTS.iter().all(|count| count.load(Relaxed) == 0) && !may_have(7 << 20));
    }
}
