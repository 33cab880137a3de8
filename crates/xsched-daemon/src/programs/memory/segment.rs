//! Segment of a client, and the readings of it.

use std::mem::offset_of;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use rustix::fs::SealFlags;
use xsched_engine::LaunchSum;
use xsched_proto::account::{MEMORY_SLOTS, MemorySlot};
use xsched_proto::histogram::Histogram;
use xsched_proto::segment::{
    COUNTERS, Counter, CounterSlot, GROUPS, GroupSlot, MAGIC, QUEUES, QueueSlot, SEGMENT_BYTES, Segment,
};

use super::launches::{GroupLaunches, Launches, QueueLaunches};
use super::mapping::{FileId, Mapping, discard, file_id};
use crate::Error;
use crate::tuning::LOOKED_AT_QUEUES;

/// Segment of a client. Everything in it is untrusted: a word has any value, and another one at the next reading. So no reading hands out a
/// part of the segment by a number that the client or its messages give: each finds one word, or a list of launches that is asked by slot.
///
/// The daemon reads few words of it through a mapping: the header, and the words of groups and of the first queues that the client has
/// announced ([`LOOKED_AT_QUEUES`]). Reading a page there that the client never used makes it memory of the daemon. All other counters are
/// read by system calls, for which such a page reads as zeros and takes no memory.
pub(crate) struct ClientSegment {
    mapping: Mapping<Segment>,
    file: OwnedFd,
    /// Number of queue slots up to the last announced one.
    announced: AtomicUsize,
}

impl ClientSegment {
    /// Checks that a file is a segment and will stay one, and maps it.
    pub(crate) fn new(file: OwnedFd) -> Result<ClientSegment, Error> {
        // Without these seals the client could shorten the file, and an access would raise SIGBUS.
        let wanted = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|_| Error::input("its segment is no memfd"))?;
        if seals.difference(SealFlags::EXEC) != wanted {
            return Err(Error::input("its segment is not sealed as it should be"));
        }
        // The first access to a huge page raises SIGBUS if none is left.
        let system =
            rustix::fs::fstatfs(&file).map_err(|e| Error::input(format!("its segment cannot be looked at: {e}")))?;
        if system.f_type == libc::HUGETLBFS_MAGIC {
            return Err(Error::input("its segment is made of huge pages"));
        }
        let size = rustix::fs::fstat(&file)
            .map_err(|e| Error::input(format!("its segment cannot be looked at: {e}")))?
            .st_size;
        if size as u64 != SEGMENT_BYTES as u64 {
            return Err(Error::input(format!("its segment has {size} bytes instead of {SEGMENT_BYTES}")));
        }
        // SAFETY: the size was checked, the seals keep it; a segment is made of atomics and padding.
        let mapping: Mapping<Segment> =
            unsafe { Mapping::new(&file) }.map_err(|e| Error::input(format!("its segment cannot be mapped: {e}")))?;
        let segment = ClientSegment { mapping, file, announced: AtomicUsize::new(0) };
        let header = &segment.get().header;
        let sizes = [GROUPS, QUEUES, COUNTERS].map(|n| n as u32);
        if header.magic.load(Acquire) != MAGIC
            || header.version.load(Relaxed) != xsched_proto::PROTOCOL_VERSION
            || header.sizes.each_ref().map(|s| s.load(Relaxed)) != sizes
        {
            return Err(Error::input("its segment has another layout"));
        }
        Ok(segment)
    }

    fn get(&self) -> &Segment {
        #[cfg(feature = "fuzzing")]
        super::between::step();
        self.mapping.get()
    }

    /// Words as the client has them, for a test that plays one.
    #[cfg(test)]
    pub(crate) fn words(&self) -> &Segment {
        self.get()
    }

    /// Words of the group in a slot. One that does not exist counts as another one of the client's.
    pub(super) fn group(&self, slot: usize) -> &GroupSlot {
        &self.get().groups[slot % GROUPS]
    }

    /// Times that the threads of the group in a slot have waited at the gate.
    pub(super) fn waits(&self, slot: usize) -> &Histogram {
        &self.get().waits[slot % GROUPS]
    }

    /// Words on memory in a slot.
    pub(super) fn account(&self, slot: usize) -> &MemorySlot {
        &self.get().memory[slot % MEMORY_SLOTS]
    }

    /// Queues that are checked for commands that the device executes.
    pub(super) fn looked_at(&self) -> impl Iterator<Item = &QueueSlot> {
        self.get().queues.iter().take(self.used().0.min(LOOKED_AT_QUEUES))
    }

    /// Descriptor of the segment's file, and the file's identity.
    pub(crate) fn file(&self) -> rustix::io::Result<(OwnedFd, FileId)> {
        Ok((rustix::io::fcntl_dupfd_cloexec(&self.file, 0)?, file_id(&self.file)?))
    }

    /// Releases the segment's memory. Only for a process that has ended: a living one would wait for ever for words that are gone.
    pub(crate) fn discard(&self) {
        discard(&self.file);
    }

    /// Notes that the client has announced a queue in this slot.
    pub(crate) fn announce(&self, slot: u16) {
        self.announced.fetch_max(usize::from(slot) + 1, Relaxed);
    }

    /// Number of queue slots and of counter slots to scan: as many as the client reports as used, of queues at most those up to the last
    /// one that it has announced.
    fn used(&self) -> (usize, usize) {
        let (queues, counters) = self.get().header.used();
        let queues = queues.min(self.announced.load(Relaxed));
        (queues, if queues == 0 { 0 } else { counters })
    }

    /// Reads some slots, which begin at `base` and have `BYTES` bytes each, and calls `take` for each that could be read.
    fn read<const BYTES: usize>(&self, base: usize, places: Range<usize>, mut take: impl FnMut(usize, &[u8; BYTES])) {
        let mut buffer = [0; READ_BYTES];
        let at_once = READ_BYTES / BYTES;
        for begin in places.clone().step_by(at_once) {
            let wanted = (places.end - begin).min(at_once);
            let offset = (base + begin * BYTES) as u64;
            #[cfg(feature = "fuzzing")]
            super::between::step();
            // The file is sealed at a segment's size, so that only an interruption can shorten the read.
            let got = rustix::io::pread(&self.file, &mut buffer[..wanted * BYTES], offset).unwrap_or(0);
            let (read, _) = buffer[..got].as_chunks::<BYTES>();
            read.iter().enumerate().for_each(|(at, place)| take(begin + at, place));
        }
    }

    /// Calls `take` with each of these queues: its slot, that of its group where it has one, and its launches by threads without a counter.
    fn read_queues(&self, places: Range<usize>, mut take: impl FnMut(usize, Option<usize>, Launches)) {
        self.read::<{ size_of::<QueueSlot>() }>(offset_of!(Segment, queues), places, |at, bytes| {
            let group = word_at::<4>(bytes, offset_of!(QueueSlot, group)).map(u32::from_ne_bytes).unwrap_or(0);
            take(at, (group as usize).checked_sub(1), launches_at(bytes, offset_of!(QueueSlot, shared)));
        });
    }

    /// Calls `take` with each of these counters that is in use: the slot of its queue, and its launches.
    fn read_counters(&self, places: Range<usize>, mut take: impl FnMut(usize, Launches)) {
        self.read::<{ size_of::<CounterSlot>() }>(offset_of!(Segment, counters), places, |_, bytes| {
            let queue = word_at::<4>(bytes, offset_of!(CounterSlot, queue)).map(u32::from_ne_bytes).unwrap_or(0);
            if let Some(queue) = (queue as usize).checked_sub(1) {
                take(queue, launches_at(bytes, offset_of!(CounterSlot, counter)));
            }
        });
    }

    /// Launches of each queue, by living and ended threads.
    pub(crate) fn queue_launches(&self) -> QueueLaunches {
        let (queues, counters) = self.used();
        let mut sums = QueueLaunches::of_places(queues);
        // Counters first: those of a queue that is there afterwards were its own.
        self.read_counters(0..counters, |queue, launches| sums.add(queue, launches));
        self.read_queues(0..queues, |queue, group, launches| {
            sums.add(queue, launches);
            sums.note(queue, group.is_some());
        });
        sums
    }

    /// Sums the launches of each group, including queues that are gone.
    pub(crate) fn group_launches(&self) -> GroupLaunches {
        let mut sum = LaunchSum::default();
        while !self.add_launches(&mut sum, usize::MAX) {}
        GroupLaunches::new(&sum)
    }

    /// Continues a sum with at most `places` queues and counters. Returns true if the sum is complete.
    pub(crate) fn add_launches(&self, sum: &mut LaunchSum, places: usize) -> bool {
        let LaunchSum { launches: sums, at: begin, of_queues, lengths, .. } = sum;
        // Taken once: with other lengths the places of a later piece would be others.
        let (queues, counters) = *lengths.get_or_insert_with(|| {
            for (slot, launches) in sums.iter_mut().enumerate() {
                *launches = self.group(slot).launches_retired.load(Relaxed);
            }
            self.used()
        });
        let end = begin.saturating_add(places);
        let mut add = |group: Option<usize>, launches: Launches| {
            if let Some(of_group) = group.and_then(|group| sums.get_mut(group)) {
                *of_group = of_group.wrapping_add(launches.all);
            }
        };
        let within = |len: usize, before: usize| {
            let at = |place: usize| place.saturating_sub(before).min(len);
            at(*begin)..at(end)
        };
        of_queues.resize(queues, NO_GROUP);
        self.read_queues(within(queues, 0), |queue, group, launches| {
            if let Some(of_queue) = of_queues.get_mut(queue) {
                *of_queue = group.and_then(|group| u8::try_from(group).ok()).unwrap_or(NO_GROUP);
            }
            add(group, launches);
        });
        self.read_counters(within(counters, queues), |queue, launches| {
            let group = of_queues.get(queue).copied().filter(|group| *group != NO_GROUP);
            add(group.map(usize::from), launches);
        });
        *begin = end;
        end >= queues + counters
    }
}

/// Largest number of bytes read by one system call: 64 queues, or 128 counters.
const READ_BYTES: usize = 8 << 10;
/// Represents the group of a slot without a queue: there are fewer groups.
const NO_GROUP: u8 = u8::MAX;

/// Bytes of a word within a slot.
fn word_at<const BYTES: usize>(place: &[u8], at: usize) -> Option<[u8; BYTES]> {
    place.get(at..)?.first_chunk().copied()
}

/// Counter within a slot.
fn launches_at(place: &[u8], at: usize) -> Launches {
    let count = |field: usize| word_at::<8>(place, at + field).map(u64::from_ne_bytes).unwrap_or(0);
    let all = count(offset_of!(Counter, launches)).wrapping_add(count(offset_of!(Counter, tracked)));
    Launches { all, system: count(offset_of!(Counter, system)) }
}

#[cfg(test)]
mod tests {
    use rustix::fs::MemfdFlags;

    use super::*;

    #[test]
    fn places_that_were_never_used_are_read_as_zeros_and_become_no_memory() {
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, SEGMENT_BYTES as u64).unwrap();
        let other = rustix::io::dup(&file).unwrap();
        // SAFETY: as long as a segment, which is atomics.
        let mapping: Mapping<Segment> = unsafe { Mapping::new(&file).unwrap() };
        let segment = ClientSegment { mapping, file, announced: AtomicUsize::new(0) };
        let used = &segment.get().header.used;
        used[0].store(u32::MAX, Relaxed);
        used[1].store(u32::MAX, Relaxed);
        segment.get().groups[0].launches_retired.store(7, Relaxed);
        let bytes = || rustix::fs::fstat(&other).unwrap().st_blocks * 512;
        let before = bytes();
        assert_eq!(segment.queue_launches().places(), 0, "no queue is announced");
        segment.announce(u16::try_from(QUEUES - 1).unwrap());
        assert_eq!(segment.queue_launches().places(), QUEUES);
        let sums = segment.group_launches();
        let others: Vec<u16> = (1..GROUPS as u16).collect();
        assert_eq!((sums.of(&[0]), sums.of(&others)), (7, 0));
        // The words of all groups were read; they lie in eight pages.
        assert!(bytes() <= before + 8 * 4096, "{before} bytes before, {} now", bytes());
    }

    #[test]
    fn launches_are_the_same_whether_they_are_added_up_at_once_or_piece_by_piece() {
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, SEGMENT_BYTES as u64).unwrap();
        // SAFETY: as long as a segment, which is atomics.
        let mapping = unsafe { Mapping::new(&file).unwrap() };
        let segment = ClientSegment { mapping, file, announced: AtomicUsize::new(QUEUES) };
        let words = segment.get();
        words.header.used[0].store(700, Relaxed);
        words.header.used[1].store(1_300, Relaxed);
        for at in 0..700 {
            words.queues[at].group.store(1 + at as u32 % 3, Relaxed);
            words.queues[at].shared.launches.store(at as u64, Relaxed);
        }
        for at in 0..1_300 {
            words.counters[at].queue.store(1 + at as u32 / 2, Relaxed);
            words.counters[at].counter.tracked.store(7 * at as u64, Relaxed);
        }
        words.groups[1].launches_retired.store(1_000_000, Relaxed);
        let whole = segment.group_launches();
        assert_eq!(whole.of(&[0, 1, 2]), 1_000_000 + (0..700).sum::<u64>() + 7 * (0..1_300).sum::<u64>());
        for places in [1, 37, 512, 700, 5_000] {
            let (mut sum, mut pieces) = (LaunchSum::default(), 1);
            while !segment.add_launches(&mut sum, places) {
                pieces += 1;
            }
            assert_eq!((GroupLaunches::new(&sum), pieces), (whole.clone(), 2_000_usize.div_ceil(places)));
        }
    }
}
