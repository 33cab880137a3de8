//! Ring of the last steps of groups, in bounded memory: 24 bytes each, written without a read of a clock and without an allocation.

use xsched_policy::Micros;
use xsched_proto::trace::Record;

/// The last records, numbered from the first that was ever written.
pub struct Ring {
    records: Vec<Record>,
    most: usize,
    written: u64,
}

impl Ring {
    /// A ring of so many bytes of records. The system commits memory as it is first written.
    pub fn new(bytes: usize) -> Ring {
        let most = (bytes / size_of::<Record>()).max(1);
        Ring { records: Vec::with_capacity(most), most, written: 0 }
    }

    pub(crate) fn push(&mut self, record: Record) {
        if self.records.len() < self.most {
            self.records.push(record);
        } else {
            self.records[(self.written % self.most as u64) as usize] = record;
        }
        self.written += 1;
    }

    /// Number of the next record.
    pub fn next(&self) -> u64 {
        self.written
    }

    /// Number of the oldest record that is still there.
    pub fn oldest(&self) -> u64 {
        self.written - self.records.len() as u64
    }

    /// Record with this number, if it is there.
    pub fn get(&self, number: u64) -> Option<&Record> {
        let is_there = (self.oldest()..self.written).contains(&number);
        is_there.then(|| &self.records[(number % self.most as u64) as usize])
    }

    /// Number of the first record that is not from before `us`. Records are sorted by time.
    pub fn first_since(&self, us: Micros) -> u64 {
        let (mut low, mut high) = (self.oldest(), self.written);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle).is_some_and(|record| record.at_us < us) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

const _: () = assert!(size_of::<Record>() == 24);

#[cfg(test)]
mod tests {
    use xsched_proto::trace::{What, Why};

    use super::*;

    fn record(at_us: Micros) -> Record {
        Record { at_us, group: 1, what: What::Idle, why: Why::Unsaid, policy: 0, level: 1, value: 0 }
    }

    #[test]
    fn the_oldest_records_make_room_and_numbers_stay() {
        let mut ring = Ring::new(4 * size_of::<Record>());
        assert_eq!((ring.oldest(), ring.next(), ring.first_since(0)), (0, 0, 0));
        let room = ring.records.capacity();
        for n in 0..10 {
            ring.push(record(100 + n));
        }
        assert_eq!((ring.oldest(), ring.next()), (6, 10));
        assert_eq!(ring.records.capacity(), room, "it grew");
        let times: Vec<_> = (0..12).map(|n| ring.get(n).map(|r| r.at_us)).collect();
        assert_eq!(times[5..], [None, Some(106), Some(107), Some(108), Some(109), None, None]);
        assert_eq!([0, 106, 107, 109, 110].map(|us| ring.first_since(us)), [6, 6, 7, 9, 10]);
    }

    #[test]
    fn a_ring_that_is_not_full_is_found_through_as_well() {
        let mut ring = Ring::new(100 * size_of::<Record>());
        [5, 5, 5, 8].into_iter().for_each(|at| ring.push(record(at)));
        assert_eq!([4, 5, 6, 8, 9].map(|us| ring.first_since(us)), [0, 0, 3, 3, 4]);
    }
}
