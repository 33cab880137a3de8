//! Table of allocations by address. Handles of arrays are entries, too: no two live objects of a process have one
//! address.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

use super::account::{self, Part};
use crate::lock::Lock;

/// Number of parts of the map, each with a lock; a power of two.
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

/// Number of [`PLACES`]; a power of two.
const PLACE_COUNT: usize = 4096;
/// Allocations that need neither lock nor map, each in the place of its address's hash. One that finds its place taken is in [`MAP`].
static PLACES: [Place; PLACE_COUNT] = [const { Place::new() }; PLACE_COUNT];

type Shard = HashMap<u64, Entry, BuildHasherDefault<OfAddress>>;

static MAP: [Lock<Shard>; SHARDS] = [const { Lock::new() }; SHARDS];
/// Size of a region of addresses, as a power of two: memory of pools and memory that the table has lie in different ones.
const REGION: u32 = 21;
/// Number of counts of [`COUNTS`]; a power of two.
const REGIONS: usize = 4096;
/// Number of entries of the regions that have the same hash, so that most searches for an address that is not there end here. The upper
/// half counts those of the map alone.
static COUNTS: [AtomicU64; REGIONS] = [const { AtomicU64::new(0) }; REGIONS];
/// An entry in its place, in [`COUNTS`].
const PLACED: u64 = 1;
/// An entry of the map, in [`COUNTS`].
const MAPPED: u64 = 1 << 32 | PLACED;

/// A place with an entry at most. The thread that has changed the address to [`Place::TAKEN`] is the only one to touch the entry, until it
/// stores another value.
struct Place {
    /// Address of the allocation; 0 = none.
    address: AtomicU64,
    entry: UnsafeCell<MaybeUninit<Entry>>,
}

// SAFETY: one thread at a time touches the entry, see above.
unsafe impl Sync for Place {}

impl Place {
    /// Value of the address while a thread has the place. Like 0, it is no address of an allocation.
    const TAKEN: u64 = 1;
    /// Looks at a place that another thread has for some instructions, and then, should that thread not run, with pauses …
    const LOOKS: usize = 1_000;
    /// … for a second in all: a signal handler that has interrupted that thread would wait for ever.
    const LOOKS_WITH_PAUSES: usize = 10_000;
    const PAUSE: Duration = Duration::from_micros(100);

    const fn new() -> Place {
        Place { address: AtomicU64::new(0), entry: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    #[inline]
    fn of(address: u64) -> &'static Place {
        &PLACES[address.wrapping_mul(SPREAD) as usize >> (usize::BITS - PLACE_COUNT.ilog2())]
    }

    /// Puts an entry there, unless there is one.
    #[inline]
    fn put(&self, address: u64, entry: Entry) -> bool {
        let is_free = || self.address.compare_exchange(0, Place::TAKEN, Acquire, Relaxed).is_ok();
        if address <= Place::TAKEN || !is_free() {
            return false;
        }
        // SAFETY: taken just now.
        unsafe { (*self.entry.get()).write(entry) };
        self.address.store(address, Release);
        true
    }

    /// Takes the place of an address, and returns its entry, if it is there. [`Place::leave`] is to follow.
    #[inline]
    fn take(&self, address: u64) -> Option<Entry> {
        for look in 0..Place::LOOKS + Place::LOOKS_WITH_PAUSES {
            match self.address.load(Relaxed) {
                Place::TAKEN if look < Place::LOOKS => std::hint::spin_loop(),
                Place::TAKEN => std::thread::sleep(Place::PAUSE),
                other if other != address || other == 0 => break,
                _ if self.address.compare_exchange(address, Place::TAKEN, Acquire, Relaxed).is_err() => {}
                // SAFETY: taken just now, and written before the address was.
                _ => return Some(unsafe { (*self.entry.get()).assume_init() }),
            }
        }
        None
    }

    /// Leaves the place that was taken, without an entry or with one.
    #[inline]
    fn leave(&self, with: Option<(u64, Entry)>) {
        if let Some((_, entry)) = with {
            // SAFETY: taken by this thread.
            unsafe { (*self.entry.get()).write(entry) };
        }
        self.address.store(with.map_or(0, |(address, _)| address), Release);
    }
}

/// Count of an address's region.
#[inline(always)]
fn count(address: u64) -> &'static AtomicU64 {
    &COUNTS[(address >> REGION).wrapping_mul(SPREAD) as usize >> (usize::BITS - REGIONS.ilog2())]
}

/// Part of the map for an address.
fn shard(address: u64) -> &'static Lock<Shard> {
    &MAP[mixed(address) as usize % SHARDS]
}

/// Part of the map for an address, if it may have an entry for it.
fn mapped(address: u64) -> Option<&'static Lock<Shard>> {
    (count(address).load(Acquire) >= MAPPED).then(|| shard(address))
}

/// Reports whether the table may have an entry for an address: false = it has none.
#[inline(always)]
pub(crate) fn may_have(address: u64) -> bool {
    count(address).load(Acquire) != 0
}

/// Enters an allocation. One that was there before is gone, though its end was not seen.
pub(crate) fn insert(address: u64, entry: Entry) {
    let before = remove(address);
    if Place::of(address).put(address, entry) {
        count(address).fetch_add(PLACED, Release);
    } else {
        insert_mapped(address, entry);
    }
    before.iter().for_each(Entry::count_out);
}

#[cold]
#[inline(never)]
fn insert_mapped(address: u64, entry: Entry) {
    let mut entries = shard(address).lock();
    entries.insert(address, entry);
    count(address).fetch_add(MAPPED, Release);
}

/// Takes an allocation out of the table.
#[inline]
pub(crate) fn remove(address: u64) -> Option<Entry> {
    let place = Place::of(address);
    let Some(entry) = place.take(address) else { return remove_mapped(address) };
    place.leave(None);
    count(address).fetch_sub(PLACED, Release);
    Some(entry)
}

#[inline]
fn remove_mapped(address: u64) -> Option<Entry> {
    let mut entries = mapped(address)?.lock();
    let found = entries.remove(&address)?;
    count(address).fetch_sub(MAPPED, Release);
    Some(found)
}

/// Reports whether an allocation begins at an address.
pub(crate) fn has(address: u64) -> bool {
    let place = Place::of(address);
    let placed = place.take(address);
    if let Some(entry) = placed {
        place.leave(Some((address, entry)));
    }
    placed.is_some() || mapped(address).is_some_and(|shard| shard.lock().contains_key(&address))
}

/// Marks an allocation as exported, and returns it if it was not before.
pub(crate) fn mark_exported(address: u64) -> Option<Entry> {
    let mark = |entry: &mut Entry| !std::mem::replace(&mut entry.exported, true);
    let place = Place::of(address);
    if let Some(mut entry) = place.take(address) {
        let is_new = mark(&mut entry);
        place.leave(Some((address, entry)));
        return is_new.then_some(entry);
    }
    let mut entries = mapped(address)?.lock();
    let entry = entries.get_mut(&address)?;
    mark(entry).then_some(*entry)
}

/// Takes all allocations of a context out of the table.
pub(crate) fn remove_all(context: usize) -> Vec<Entry> {
    let mut gone = Vec::new();
    for place in &PLACES {
        let address = place.address.load(Acquire);
        let Some(entry) = Some(address).filter(|&at| at > Place::TAKEN).and_then(|at| place.take(at)) else { continue };
        if entry.context != context {
            place.leave(Some((address, entry)));
            continue;
        }
        place.leave(None);
        count(address).fetch_sub(PLACED, Release);
        gone.push(entry);
    }
    for shard in MAP.iter().filter(|shard| !shard.is_untouched()) {
        let entries = shard.lock().extract_if(|_, entry| entry.context == context).collect::<Vec<_>>();
        for (address, entry) in entries {
            count(address).fetch_sub(MAPPED, Release);
            gone.push(entry);
        }
    }
    gone
}

/// Empties the table, in a forked child.
pub(crate) fn forget_all() {
    PLACES.iter().for_each(|place| place.address.store(0, Release));
    MAP.iter().for_each(Lock::forget);
    COUNTS.iter().for_each(|count| count.store(0, Release));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn entry(bytes: u64, context: usize) -> Entry {
        Entry { bytes, context, slot: 0, part: Part::Plain, exported: false }
    }

    #[test]
    fn an_allocation_is_found_once_and_ends_with_its_context() {
        let _only = ONE_AT_A_TIME.lock();
        (1..=10_000).for_each(|n| insert(n << 20, entry(512, 1 + n as usize % 2)));
        let placed = PLACES.iter().filter(|place| place.address.load(Relaxed) != 0).count();
        assert!((3_000..=PLACE_COUNT).contains(&placed), "spread over the places: {placed}");
        assert!(MAP.iter().all(|shard| shard.lock().len() > 30), "and over the shards");
        assert!(may_have(5 << 20) && !(1..64).all(|n| may_have(n << 40)));
        assert!(has(5 << 20) && remove(5 << 20).is_some() && remove(5 << 20).is_none() && !has(5 << 20));
        (6..100).for_each(|n| assert!(mark_exported(n << 20).is_some() && mark_exported(n << 20).is_none(), "{n}"));
        assert_eq!((remove_all(2).len(), remove_all(2).len(), remove_all(1).len()), (4_999, 0, 5_000));
        assert!(COUNTS.iter().all(|count| count.load(Relaxed) == 0) && !may_have(7 << 20));
    }

    /// Two addresses have one place: the second one is in the map, also once the first has left.
    #[test]
    fn an_address_that_comes_again_replaces_what_it_was_wherever_that_is() {
        let _only = ONE_AT_A_TIME.lock();
        let first = 1 << 30;
        let second = (1..).map(|n| first + (n << 21)).find(|&n| std::ptr::eq(Place::of(n), Place::of(first))).unwrap();
        insert(first, entry(1, 7));
        insert(second, entry(2, 7));
        assert_eq!((has(second), remove(first).map(|entry| entry.bytes)), (true, Some(1)));
        insert(second, entry(3, 7));
        insert(first, entry(4, 7));
        assert_eq!([second, second, first].map(|at| remove(at).map(|entry| entry.bytes)), [Some(3), None, Some(4)]);
        assert!(!may_have(first) && !may_have(second));
    }

    #[test]
    fn a_place_that_a_thread_has_for_long_is_waited_for() {
        let _only = ONE_AT_A_TIME.lock();
        let address = 3 << 30;
        insert(address, entry(8, 7));
        let place = Place::of(address);
        let held = place.take(address).unwrap();
        let (began, begins) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            began.send(()).unwrap();
            remove(address).map(|entry| entry.bytes)
        });
        begins.recv().unwrap();
        place.leave(Some((address, held)));
        assert_eq!((other.join().unwrap(), may_have(address)), (Some(8), false));
    }

    #[test]
    fn no_address_is_no_place() {
        let _only = ONE_AT_A_TIME.lock();
        for address in [0, 1] {
            assert!(remove(address).is_none() && !has(address) && mark_exported(address).is_none());
            insert(address, entry(5, 7));
            assert_eq!((has(address), remove(address).map(|entry| entry.bytes)), (true, Some(5)));
            assert!(remove(address).is_none() && !may_have(address));
        }
        assert!(PLACES.iter().all(|place| place.address.load(Relaxed) == 0));
    }

    #[test]
    fn threads_find_what_they_entered_where_places_are_contended() {
        let _only = ONE_AT_A_TIME.lock();
        let work = |thread: u64| {
            let (mut own, mut random) = (BTreeMap::new(), thread + 1);
            for _ in 0..100_000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let address = ((random >> 50 << 2 | thread) + 2) << 9;
                match own.remove(&address) {
                    Some(bytes) => {
                        assert!(has(address) && may_have(address));
                        assert_eq!(remove(address).map(|entry| entry.bytes), Some(bytes));
                    }
                    None => {
                        insert(address, entry(random, 1));
                        own.insert(address, random);
                    }
                }
            }
            own.len()
        };
        let left: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || work(n))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(remove_all(1).len(), left);
        assert!(COUNTS.iter().all(|count| count.load(Relaxed) == 0));
    }

    /// The tests share the table.
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
}
