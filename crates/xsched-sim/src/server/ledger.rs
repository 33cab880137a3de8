//! The account of the devices' memory: its use by each client.

use std::collections::BTreeMap;

/// Memory that several clients may hold.
struct Object {
    device: usize,
    bytes: u64,
    /// Number of holds by key of the client.
    holders: BTreeMap<u64, u64>,
}

/// Account of all memory in use.
pub(super) struct Ledger {
    /// Memory of each device, in bytes.
    capacity: Vec<u64>,
    /// Memory of a single client, in bytes: by key of the client, with its device.
    taken: BTreeMap<u64, (usize, u64)>,
    /// Memory that several clients may hold, by number.
    objects: BTreeMap<u64, Object>,
}

impl Ledger {
    /// An account of devices with these capacities in bytes, all of it free.
    pub(super) fn new(capacity: Vec<u64>) -> Self {
        Self { capacity, taken: BTreeMap::new(), objects: BTreeMap::new() }
    }

    /// Memory of a device, in bytes.
    pub(super) fn capacity(&self, device: usize) -> u64 {
        self.capacity.get(device).copied().unwrap_or(0)
    }

    /// Memory in use on a device, in bytes.
    pub(super) fn used(&self, device: usize) -> u64 {
        let taken = self.taken.values().filter(|(of, _)| *of == device).map(|(_, bytes)| bytes);
        let held = self.objects.values().filter(|object| object.device == device).map(|object| &object.bytes);
        taken.chain(held).sum()
    }

    /// Memory in use by a client, in bytes.
    pub(super) fn own(&self, key: u64) -> u64 {
        let held = self.objects.values().filter(|object| object.holders.contains_key(&key)).map(|object| object.bytes);
        self.taken.get(&key).map_or(0, |(_, bytes)| *bytes) + held.sum::<u64>()
    }

    fn has_room(&self, device: usize, bytes: u64) -> bool {
        bytes <= self.capacity(device) - self.used(device)
    }

    /// Adds memory of a client. Returns false, and adds nothing, if the device has not as much.
    pub(super) fn take(&mut self, key: u64, device: usize, bytes: u64) -> bool {
        let room = self.has_room(device, bytes);
        if room {
            self.taken.entry(key).or_insert((device, 0)).1 += bytes;
        }
        room
    }

    /// Removes memory of a client. Returns false, and removes nothing, if it has not as much.
    pub(super) fn give(&mut self, key: u64, bytes: u64) -> bool {
        match self.taken.get_mut(&key) {
            Some((_, taken)) if *taken >= bytes => {
                *taken -= bytes;
                true
            }
            _ => false,
        }
    }

    /// Adds a hold of memory with this number, and the memory itself if nobody holds it. Returns its device; `None` if that
    /// has not as much.
    pub(super) fn hold(&mut self, key: u64, device: usize, number: u64, bytes: u64) -> Option<usize> {
        if !self.objects.contains_key(&number) && !self.has_room(device, bytes) {
            return None;
        }
        let new = || Object { device, bytes, holders: BTreeMap::new() };
        let object = self.objects.entry(number).or_insert_with(new);
        *object.holders.entry(key).or_default() += 1;
        Some(object.device)
    }

    /// Removes a hold. Returns false if there is none.
    pub(super) fn drop_hold(&mut self, key: u64, number: u64) -> bool {
        let Some(object) = self.objects.get_mut(&number) else { return false };
        let Some(holds) = object.holders.get_mut(&key) else { return false };
        *holds -= 1;
        if *holds == 0 {
            object.holders.remove(&key);
        }
        if object.holders.is_empty() {
            self.objects.remove(&number);
        }
        true
    }

    /// Removes everything of a client that is gone.
    pub(super) fn remove(&mut self, key: u64) {
        self.taken.remove(&key);
        self.objects.retain(|_, object| {
            object.holders.remove(&key);
            !object.holders.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_leaves_nothing_behind() {
        let mut ledger = Ledger::new(vec![100, 10]);
        assert!(ledger.take(1, 0, 60) && !ledger.take(2, 0, 41) && ledger.take(2, 0, 40));
        assert!(!ledger.take(1, 0, u64::MAX) && ledger.hold(1, 0, 7, 1).is_none());
        assert_eq!((ledger.used(0), ledger.own(1), ledger.own(2), ledger.used(1)), (100, 60, 40, 0));
        assert!(!ledger.give(1, 61) && ledger.give(1, 60) && !ledger.give(1, 1) && !ledger.give(3, 0));
        assert_eq!(ledger.used(0), 40);
    }

    #[test]
    fn held_memory_counts_once_and_until_the_last_hold_ends() {
        let mut ledger = Ledger::new(vec![100, 100]);
        assert_eq!(ledger.hold(1, 0, 7, 60), Some(0));
        assert_eq!(ledger.hold(2, 1, 7, 60), Some(0), "its device stays");
        assert_eq!(ledger.hold(2, 1, 7, 60), Some(0));
        assert_eq!((ledger.used(0), ledger.used(1), ledger.own(1), ledger.own(2)), (60, 0, 60, 60));
        ledger.remove(1);
        assert_eq!((ledger.used(0), ledger.own(1)), (60, 0));
        assert!(ledger.drop_hold(2, 7) && !ledger.drop_hold(1, 7));
        assert_eq!(ledger.used(0), 60);
        assert!(ledger.drop_hold(2, 7) && !ledger.drop_hold(2, 7));
        assert_eq!(ledger.used(0), 0);
    }

    #[test]
    fn the_end_of_a_client_frees_what_only_it_had() {
        let mut ledger = Ledger::new(vec![100]);
        assert!(ledger.take(1, 0, 10) && ledger.take(2, 0, 20) && ledger.hold(1, 0, 9, 30).is_some());
        ledger.remove(1);
        assert_eq!((ledger.used(0), ledger.own(2)), (20, 20));
    }
}
