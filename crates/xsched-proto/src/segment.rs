//! Memory segment that a client shares with the daemon.
//!
//! A client makes one sealed memfd for its lifetime and hands it to every daemon it attaches to. Words fall into
//! two kinds, kept on separate cache lines: those the daemon stores (the gate and what goes with it) and those the
//! client stores (state and counters). The daemon treats every word of the second kind as untrusted.
//!
//! ```text
//! page 0   Header
//! …        GroupSlot   [GROUPS]    gate, state, accounting of a suspension unit
//! …        QueueSlot   [QUEUES]    per XQueue: its group, launches, the completion word the device writes
//! …        CounterSlot [COUNTERS]  launches of one thread on one queue: a plain add, no sharing
//! …        Histogram   [GROUPS]    times that threads waited at the closed gate
//! …        MemorySlot  [MEMORY_SLOTS]  memory of the process on one device
//! ```
//!
//! A segment has slots for many more queues than most programs have. Slots are used from the first on, and unused pages take no memory: the
//! header gives the number of slots that each side has to scan, and queues are made known to devices block by block ([`QUEUE_BLOCK`]).

use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering::*};

use crate::account::{MEMORY_SLOTS, MemorySlot};
use crate::gate::GateWord;
use crate::histogram::Histogram;

/// First word of a segment.
pub const MAGIC: u32 = u32::from_le_bytes(*b"XSG1");
/// Largest number of groups of one process.
pub const GROUPS: usize = 64;
/// Largest number of XQueues of one process alive at a time.
pub const QUEUES: usize = 32 * QUEUE_BLOCK;
/// Number of queues that are made known to a device at a time; [`DEVICE_BYTES`] of the segment come with the first block. Memory that a
/// driver knows stays in memory, so it is registered in blocks.
pub const QUEUE_BLOCK: usize = 1024;
/// Number of pairs of thread and queue that have a counter of their own; further ones share their queue's counter.
pub const COUNTERS: usize = 16_384;

/// Values of [`GroupSlot::state`], stored by the client.
pub mod state {
    /// No command is in flight, and there was no launch for the grace time.
    pub const IDLE: u32 = 0;
    /// The group wants the device, or still uses it.
    pub const READY: u32 = 1;
    /// The group's gate is closed and nothing is in flight any more, while a thread waits to go on.
    pub const DRAINED: u32 = 2;
}

/// Values of [`GroupSlot::lengths`], stored by the client.
pub mod length {
    /// Not known: too few commands were under a budget.
    pub const UNKNOWN: u32 = 0;
    /// Commands of [`crate::class::SHORT_US`] or less make up three quarters of the expected time or more.
    pub const SHORT: u32 = 1;
    /// Such commands make up less than three quarters of the expected time.
    pub const LONG: u32 = 2;
}

/// Header of a segment, its page 0.
#[repr(C, align(4096))]
pub struct Header {
    /// Is [`MAGIC`].
    pub magic: AtomicU32,
    /// Is [`crate::PROTOCOL_VERSION`].
    pub version: AtomicU32,
    /// [`GROUPS`], [`QUEUES`] and [`COUNTERS`] of the writer, so that a reader can refuse another layout.
    pub sizes: [AtomicU32; 3],
    /// Number of queue slots and of counter slots that were ever used; all others are empty.
    pub used: [AtomicU32; 2],
}

impl Header {
    /// Number of queue slots and of counter slots to scan, limited to the slots that exist whatever the words say.
    pub fn used(&self) -> (usize, usize) {
        let [queues, counters] = self.used.each_ref().map(|word| word.load(Acquire) as usize);
        (queues.min(QUEUES), counters.min(COUNTERS))
    }
}

/// Slot of one suspension unit. 512 bytes; the first 64 are the daemon's (but for two bytes of the gate word), and so are 64 from
/// [`GroupSlot::hold_us`] on.
#[derive(Default)]
#[repr(C, align(256))]
pub struct GroupSlot {
    /// Gate word: decides whether launches go on. Both sides own bytes of it.
    pub gate: GateWord,
    /// Largest device time in flight while [`crate::gate::Gate::CONTENDED`], in µs; 0 = no budget.
    pub budget_us: AtomicU32,
    /// Largest number of commands in flight while [`crate::gate::Gate::CONTENDED`]; 0 = no budget.
    pub budget_commands: AtomicU32,
    /// Preemption level in force, 1..=3.
    pub level: AtomicU32,
    /// Number of times that the gate was opened; counted before each opening.
    pub grants: AtomicU32,
    /// Largest number of commands between two completion fences, so that room comes back in batches of this size; 0 = automatic.
    pub batch_commands: AtomicU32,
    /// Number of times that the group counted as idle for want of progress while others waited.
    pub stalls: AtomicU32,
    /// Number of times that the daemon noticed [`HEARD_LATE_NS`] or more after the group came to want the device.
    pub heard_late: AtomicU32,
    /// Sum of these delays, in µs.
    pub heard_late_us: AtomicU64,
    /// Longest of these delays, in µs.
    pub heard_late_longest_us: AtomicU64,
    /// [`GroupSlot::ready_at_ns`] of the last burst that the daemon has noticed.
    pub heard_ready_ns: AtomicU64,
    /// Bits of the pages to check while [`crate::gate::Gate::YIELDS`] is set, see [`crate::backlog`]; stored before the gate word.
    pub yields_to: AtomicU32,
    /// Number of the newest of these pages, modulo 2^32: a client that has not received that page yet does not go on.
    pub yields_epoch: AtomicU32,

    /// State of the group, see [`state`].
    pub state: AtomicU32,
    /// Priority lent by a thread of the process that waits for this group; [`i32::MIN`] = none.
    pub inherited_priority: AtomicI32,
    /// Number of launches known to be complete (sum over queues; exact only under [`crate::gate::Gate::CONTENDED`]).
    pub completed: AtomicU64,
    /// Time of the last change to READY, by the daemon's CLOCK_MONOTONIC in ns.
    pub ready_at_ns: AtomicU64,
    /// Time that threads have waited at the closed gate, in ns.
    pub wait_ns: AtomicU64,
    /// Number of launches that reached the driver before the daemon's answer.
    pub unscheduled_attach: AtomicU64,
    /// Number of launches that an operator's rule let through.
    pub unscheduled_passthrough: AtomicU64,
    /// Number of launches let through after an internal error.
    pub unscheduled_error: AtomicU64,
    /// Longest command as estimated by the client, in µs; of a command with gates inside, its longest part between them. 0 = not known.
    pub longest_us: AtomicU64,

    /// Liveness overrides: number of launches that the in-flight budget let through because nothing completed meanwhile.
    pub liveness_overrides: AtomicU64,
    /// Number of launches let through because a signal handler interrupted the wait.
    pub signal_overrides: AtomicU32,
    /// Number of launches at the end of the last burst, modulo 2^32. Written before `bursts`.
    pub burst_launches: AtomicU32,
    /// Number of launches of queues and counters that no longer exist.
    pub launches_retired: AtomicU64,
    /// Sum of [`Counter::system`] of queues and counters that no longer exist.
    pub system_retired: AtomicU64,
    /// 1 = the group belongs to the system domain, and comes before others of the same priority in its process.
    pub system: AtomicU32,
    /// Length of the commands that were under a budget lately, see [`length`].
    pub lengths: AtomicU32,
    /// Number of launches of the system domain that passed the closed gate by an operator's rule.
    pub exempt: AtomicU64,
    /// Number of bursts: times that the group went from ready to idle.
    pub bursts: AtomicU64,
    /// Length of the last burst, from its first launch to its last completion, in µs. Written before `bursts`.
    pub burst_us: AtomicU64,
    /// Sum of the times at which the present waits at the closed gate began, by the daemon's CLOCK_MONOTONIC in ns.
    pub waiting_since_ns: AtomicU64,
    /// Number of these waits.
    pub waiting: AtomicU32,
    /// 1 = gates may hold the group's commands that neither fences nor the next word announce, such as one gate before each command.
    pub untold_gates: AtomicU32,
    /// 1 while a gate inside a command may hold the group. Written by the device.
    pub held_inside: AtomicU32,
    /// 1 = the group's queues report on the page of their process whether they keep up, see [`crate::backlog`].
    pub publishes: AtomicU32,
    /// [`GroupSlot::ready_at_ns`] of the first burst that ended before the daemon noticed it; valid while it is later than
    /// [`GroupSlot::heard_ready_ns`].
    pub unheard_ready_ns: AtomicU64,
    /// Number of times that commands which gates on the device had held for long were released.
    pub releases: AtomicU64,
    /// Expected device time of the commands of the last burst, in µs; 0 = unknown. Written before `bursts`.
    pub burst_device_us: AtomicU32,
    /// Number of commands for which the device was the program's bottleneck, modulo 2^32: they waited for room in the budget, or are long.
    /// Counted while there is a budget.
    pub limited: AtomicU32,
    /// Time that threads waited at a gate that yields, because queues of the groups that it yields to were behind, in ns.
    pub yield_wait_ns: AtomicU64,
    /// Number of commands launched while the gate yielded.
    pub yield_passed: AtomicU64,

    /// Longest time for which the group may keep the device through a gap within its requests, in µs; 0 = no longer than its grace time.
    pub hold_us: AtomicU32,
    /// Budget of the slowdown by gaps that are given away, in percent of the time alone: 105 = 1.05. Stored before `hold_us`.
    pub slowdown_percent: AtomicU32,
    _rest: [AtomicU32; 14],

    /// Number of gaps that the group kept the device through, and of those that it gave away, while it might keep them.
    pub gaps_kept: AtomicU64,
    /// See `gaps_kept`.
    pub gaps_given: AtomicU64,
    /// Mean length of the gaps of late that were kept, in µs.
    pub gap_us: AtomicU32,
    /// Learned cost of a gap that is given away, in µs.
    pub gap_cost_us: AtomicU32,
}

/// Delay from which on a report counts as noticed late by the daemon, in ns. A busy machine delays a thread by some ms; a longer delay lets
/// less urgent programs run beside more urgent ones for long enough to be felt.
pub const HEARD_LATE_NS: u64 = 5_000_000;

pub use crate::statistics::HeardLate;

impl HeardLate {
    /// Adds up two counts of delays.
    #[must_use]
    pub fn and(self, other: HeardLate) -> HeardLate {
        HeardLate {
            count: self.count.saturating_add(other.count),
            us: self.us.saturating_add(other.us),
            longest_us: self.longest_us.max(other.longest_us),
        }
    }

    /// Counts one delay, given in ns; counts nothing if that is not late.
    fn of(ns: u64) -> HeardLate {
        let us = ns / 1_000;
        if ns < HEARD_LATE_NS { HeardLate::default() } else { HeardLate { count: 1, us, longest_us: us } }
    }
}

impl GroupSlot {
    /// Time since which the group has wanted the device, or had wanted it before, without the daemon having noticed, in ns; none = the
    /// daemon has noticed everything.
    pub fn unheard_since_ns(&self) -> Option<u64> {
        let (ready_ns, heard_ns) = (self.ready_at_ns.load(Relaxed), self.heard_ready_ns.load(Relaxed));
        let first_ns = self.unheard_ready_ns.load(Relaxed);
        (ready_ns > heard_ns).then_some(if first_ns > heard_ns { first_ns.min(ready_ns) } else { ready_ns })
    }

    /// Daemon: notices everything that was announced so far. An announcement dated before `least_ns` counts from `least_ns`. Returns the
    /// delay in µs if it is late, else 0.
    pub fn hear(&self, now_ns: u64, least_ns: u64) -> u64 {
        let Some(since_ns) = self.unheard_since_ns() else { return 0 };
        self.hear_anew();
        let late = HeardLate::of(now_ns.saturating_sub(since_ns.max(least_ns)));
        if late.us > 0 {
            let HeardLate { count, us, longest_us } = self.heard_late().and(late);
            self.heard_late.store(count as u32, Relaxed);
            self.heard_late_us.store(us, Relaxed);
            self.heard_late_longest_us.store(longest_us, Relaxed);
        }
        late.us
    }

    /// Daemon: notices everything that was announced to a former daemon, without counting a delay. For a group that it takes over.
    pub fn hear_anew(&self) {
        self.heard_ready_ns.store(self.ready_at_ns.load(Relaxed), Relaxed);
    }

    /// Returns the delays so far.
    pub fn heard_late(&self) -> HeardLate {
        HeardLate {
            count: self.heard_late.load(Relaxed).into(),
            us: self.heard_late_us.load(Relaxed),
            longest_us: self.heard_late_longest_us.load(Relaxed),
        }
    }

    /// Returns the delays so far, including the present one if it is late by now.
    pub fn heard_late_by(&self, now_ns: u64) -> HeardLate {
        let so_far_ns = self.unheard_since_ns().map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        self.heard_late().and(HeardLate::of(so_far_ns))
    }

    /// Counts a thread that begins to wait at the closed gate.
    pub fn begin_wait(&self, now_ns: u64) {
        self.waiting_since_ns.fetch_add(now_ns, Relaxed);
        self.waiting.fetch_add(1, Release);
    }

    /// Counts a thread out that waits no more.
    pub fn end_wait(&self, began_ns: u64) {
        self.waiting.fetch_sub(1, Relaxed);
        self.waiting_since_ns.fetch_sub(began_ns, Release);
    }

    /// Time that the present waits have taken so far, in ns, summed up. No wait began before `least_ns`. Returns 0 where the words are
    /// inconsistent: they change one after the other, and the process may write anything there.
    pub fn waiting_ns(&self, now_ns: u64, least_ns: u64) -> u64 {
        let waiting = u64::from(self.waiting.load(Acquire));
        let since = self.waiting_since_ns.load(Acquire);
        if u64::from(self.waiting.load(Relaxed)) != waiting {
            return 0;
        }
        let so_far = waiting.wrapping_mul(now_ns).wrapping_sub(since);
        if so_far <= waiting.saturating_mul(now_ns.saturating_sub(least_ns)) { so_far } else { 0 }
    }
}

/// Slot of one XQueue. 128 bytes.
#[repr(C, align(128))]
pub struct QueueSlot {
    /// 1 + index of the queue's [`GroupSlot`]; 0 = slot unused.
    pub group: AtomicU32,
    /// Number of the last fence that the device has reached. The device writes it if it can: see [`GATE_FOLLOWS`].
    pub completed_word: AtomicU32,
    /// Counter for launches of threads without a counter of their own.
    pub shared: Counter,
    /// For the client alone: 0 while the program itself holds the queue. The queue's own gates on the device wait for 1.
    pub go: AtomicU32,
    /// Number of the last command that passed such a gate. The device writes it.
    pub reached: AtomicU32,
    /// Value of `completed_word` once the device has reached the last fence; 0 = none was placed.
    pub fence: AtomicU32,
}

/// Bit of a fence's number: a gate of the queue's group follows the fence directly.
pub const GATE_FOLLOWS: u32 = 1;

impl QueueSlot {
    /// Reports whether the device has work of the queue to execute that no gate of its group holds, as far as fences tell. `before` is
    /// `completed_word` as it was when the gate closed: a device gate at which the device stood then had let it through.
    pub fn is_executing(&self, before: u32) -> bool {
        let completed = self.completed_word.load(Relaxed);
        let waits = completed & GATE_FOLLOWS != 0 && completed != before;
        let fence = self.fence.load(Relaxed);
        fence != 0 && fence != completed && !waits
    }
}

/// Launches, counted by plain adds. Their sum is the number of commands that the driver accepted, plus those that wait at the gate right
/// now.
#[repr(C)]
pub struct Counter {
    /// Number of launches that passed an open gate at once.
    pub launches: AtomicU64,
    /// Number of launches that took the slow path, because the device is shared.
    pub tracked: AtomicU64,
    /// Number of launches of both kinds that belong to the system domain; counted only under [`crate::gate::Gate::INSPECT`].
    pub system: AtomicU64,
    /// For the client alone: changes whenever a thread's memory of the queue is outdated. It lies here because this cache line is needed
    /// anyway.
    pub stamp: AtomicU64,
}

impl Counter {
    /// Number of launches of both kinds.
    pub fn total(&self) -> u64 {
        self.launches.load(Relaxed).wrapping_add(self.tracked.load(Relaxed))
    }
}

/// Counter slot: launches of one thread on one queue. 64 bytes, written by that thread with a plain add.
#[repr(C, align(64))]
pub struct CounterSlot {
    /// 1 + index of the [`QueueSlot`]; 0 = slot unused.
    pub queue: AtomicU32,
    /// Launches of the thread on the queue.
    pub counter: Counter,
}

/// Layout of the whole segment.
#[repr(C)]
pub struct Segment {
    /// Magic number, version and sizes.
    pub header: Header,
    /// Slots of suspension units.
    pub groups: [GroupSlot; GROUPS],
    /// Slots of XQueues.
    pub queues: [QueueSlot; QUEUES],
    /// Counters by thread and queue.
    pub counters: [CounterSlot; COUNTERS],
    /// Times that threads waited at the closed gate of each group, without the present waits.
    pub waits: [Histogram; GROUPS],
    /// Memory of the process, by device.
    pub memory: [MemorySlot; MEMORY_SLOTS],
}

/// Size of a [`Segment`] in bytes, a whole number of pages.
pub const SEGMENT_BYTES: usize = size_of::<Segment>();

/// Part of a segment, in bytes from its beginning, that a device needs of a program with one block of queues: the header, the groups, and
/// that block.
pub const DEVICE_BYTES: usize = core::mem::offset_of!(Segment, queues) + BLOCK_BYTES;

const BLOCK_BYTES: usize = QUEUE_BLOCK * size_of::<QueueSlot>();

/// Part of a segment that is made known to a device together with the word at `offset`: its offset and its size, in bytes. None for a word
/// that no device needs.
pub fn device_part(offset: usize) -> Option<(usize, usize)> {
    if offset < DEVICE_BYTES {
        return Some((0, DEVICE_BYTES));
    }
    let block = (offset - DEVICE_BYTES) / BLOCK_BYTES;
    (offset < core::mem::offset_of!(Segment, counters)).then_some((DEVICE_BYTES + block * BLOCK_BYTES, BLOCK_BYTES))
}

/// Heartbeat page: made by the daemon, read-only for clients. The daemon beats each 50 ms while some group is suspended.
#[repr(C)]
pub struct Heartbeat {
    /// CLOCK_MONOTONIC of the daemon at the last beat, in ns. A client in another time namespace can still see that it changes.
    pub beat_ns: AtomicU64,
    /// Number of best-effort clients with contexts that have time slices, by [`device_place`]: a client that makes a context beside such
    /// clients gives it another slice. Devices that share a place count as one.
    pub best_effort: [AtomicU32; DEVICE_PLACES],
    /// [`crate::clock::offset_ns`] of the daemon: from this and its own offset, a client computes the daemon's time.
    pub clock_offset_ns: AtomicI64,
}

/// Size of the file in memory that holds the heartbeat page, in bytes.
pub const HEARTBEAT_BYTES: u64 = 4096;

/// Number of places for devices on the heartbeat page.
pub const DEVICE_PLACES: usize = 256;

/// Index of a device's figure on the heartbeat page, by the hash (FNV-1a) of its key.
pub fn device_place(key: &str) -> usize {
    let hash = key
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    (hash ^ hash >> 32) as usize % DEVICE_PLACES
}

const _: () = {
    assert!(size_of::<GroupSlot>() == 512);
    assert!(core::mem::offset_of!(GroupSlot, state) == 64);
    assert!(core::mem::offset_of!(GroupSlot, liveness_overrides) == 128);
    assert!(core::mem::offset_of!(GroupSlot, hold_us) == 256);
    assert!(core::mem::offset_of!(GroupSlot, gaps_kept) == 320);
    assert!(size_of::<QueueSlot>() == 128);
    assert!(size_of::<CounterSlot>() == 64);
    assert!(
        SEGMENT_BYTES.is_multiple_of(4096) && DEVICE_BYTES.is_multiple_of(4096) && BLOCK_BYTES.is_multiple_of(4096)
    );
    assert!(QUEUES <= u16::MAX as usize);
    assert!(COUNTERS <= u16::MAX as usize);
    assert!(size_of::<Histogram>() == 256);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_executes_what_no_gate_holds_until_its_last_fence() {
        // SAFETY: made of atomics, for which 0 is valid.
        let queue: QueueSlot = unsafe { core::mem::zeroed() };
        let executes = |completed: u32, fence: u32, before: u32| {
            queue.completed_word.store(completed, Relaxed);
            queue.fence.store(fence, Relaxed);
            queue.is_executing(before)
        };
        assert!(!executes(0, 0, 0), "nothing was given to it");
        assert!(!executes(4, 4, 2) && executes(4, 6, 2));
        assert!(!executes(5, 8, 2), "held at the gate behind fence 5");
        assert!(executes(5, 8, 5), "it had passed that when the gate closed");
        assert!(!executes(4, 0, 2), "a client that tells of no fence");
    }

    #[test]
    fn a_device_is_told_of_each_block_of_queues_by_itself() {
        let queue = |n: usize| core::mem::offset_of!(Segment, queues) + n * size_of::<QueueSlot>();
        assert_eq!(device_part(0), Some((0, DEVICE_BYTES)));
        assert_eq!(device_part(queue(QUEUE_BLOCK - 1)), Some((0, DEVICE_BYTES)));
        assert_eq!(device_part(queue(QUEUE_BLOCK)), Some((DEVICE_BYTES, BLOCK_BYTES)));
        let last = device_part(queue(QUEUES - 1) + 4).unwrap();
        assert_eq!(last.0 + last.1, core::mem::offset_of!(Segment, counters));
        assert_eq!(device_part(core::mem::offset_of!(Segment, counters)), None);
    }

    #[test]
    fn news_count_as_late_from_the_first_burst_that_was_not_heard_of() {
        let (slot, ms) = (GroupSlot::default(), 1_000_000);
        let wants = |at_ms: u64| slot.ready_at_ns.store(at_ms * ms, Relaxed);
        let late = |count, us, longest_us| HeardLate { count, us, longest_us };
        assert_eq!(slot.unheard_since_ns(), None);
        wants(10);
        slot.hear(11 * ms, 0);
        assert_eq!((slot.unheard_since_ns(), slot.heard_late()), (None, late(0, 0, 0)), "in time");
        // Two bursts pass unnoticed, and a third goes on.
        for at_ms in [20, 21] {
            wants(at_ms);
            slot.unheard_ready_ns.store(slot.unheard_since_ns().unwrap(), Relaxed);
        }
        wants(22);
        assert_eq!(slot.unheard_since_ns(), Some(20 * ms));
        assert_eq!((slot.heard_late_by(24 * ms).count, slot.heard_late_by(25 * ms)), (0, late(1, 5_000, 5_000)));
        slot.hear(50 * ms, 0);
        assert_eq!((slot.unheard_since_ns(), slot.heard_late()), (None, late(1, 30_000, 30_000)));
        // The first unnoticed burst of then does not count for the present one.
        wants(60);
        slot.hear(67 * ms, 0);
        assert_eq!(slot.heard_late(), late(2, 37_000, 30_000));
        wants(70);
        slot.hear_anew();
        slot.hear(99 * ms, 0);
        assert_eq!(slot.heard_late(), late(2, 37_000, 30_000), "of a former daemon's time");
        // An impossible time does not count.
        wants(100);
        slot.hear(200 * ms, 190 * ms);
        assert_eq!(slot.heard_late().us, 47_000);
    }

    #[test]
    fn waits_that_go_on_are_added_up() {
        // SAFETY: atomics only, valid when zero.
        let slot: GroupSlot = unsafe { core::mem::zeroed() };
        assert_eq!(slot.waiting_ns(1_000, 0), 0);
        slot.begin_wait(600);
        slot.begin_wait(900);
        assert_eq!(slot.waiting_ns(1_000, 500), 500);
        assert_eq!(slot.waiting_ns(700, 500), 0, "one began later");
        slot.end_wait(600);
        assert_eq!((slot.waiting_ns(1_000, 500), slot.waiting_ns(1_000, 950)), (100, 0));
        slot.end_wait(900);
        assert_eq!(slot.waiting_ns(2_000, 0), 0);
        // A program that writes nonsense gains no more than the longest possible wait.
        slot.waiting.store(u32::MAX, Relaxed);
        slot.waiting_since_ns.store(u64::MAX / 3, Relaxed);
        assert!(slot.waiting_ns(10_000, 9_000) <= u64::from(u32::MAX) * 1_000);
    }
}
