//! The memory a client shares with the daemon.
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
//! …        Histogram   [GROUPS]    how long threads waited at the closed gate
//! ```
//!
//! There are places for many more queues than most programs have. They are used from the first on, and what is not used is not in
//! memory: the header tells how far each side has to look, and devices are told of queues block by block ([`QUEUE_BLOCK`]).

use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering::*};

use crate::gate::GateWord;
use crate::histogram::Histogram;

/// First word of a segment.
pub const MAGIC: u32 = u32::from_le_bytes(*b"XSG1");
/// Groups of one process.
pub const GROUPS: usize = 64;
/// XQueues of one process alive at a time.
pub const QUEUES: usize = 32 * QUEUE_BLOCK;
/// So many queues are made known to a device at a time, with [`DEVICE_BYTES`] before the first: memory that a driver knows stays in
/// memory.
pub const QUEUE_BLOCK: usize = 1024;
/// Pairs of thread and queue counted without sharing; further ones share their queue's counter.
pub const COUNTERS: usize = 16_384;

/// Values of [`GroupSlot::state`], stored by the client.
pub mod state {
    /// Nothing in flight and no launch for the grace time.
    pub const IDLE: u32 = 0;
    /// Wants the device, or still uses it.
    pub const READY: u32 = 1;
    /// Its gate is closed and nothing is in flight any more, while a thread waits to go on.
    pub const DRAINED: u32 = 2;
}

/// Values of [`GroupSlot::lengths`], stored by the client.
pub mod length {
    /// Nothing is known: too little was under a budget.
    pub const UNKNOWN: u32 = 0;
    /// Three quarters of the expected time or more are commands of [`crate::class::SHORT_US`] or less.
    pub const SHORT: u32 = 1;
    /// Less.
    pub const LONG: u32 = 2;
}

/// Page 0.
#[repr(C, align(4096))]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU32,
    /// [`crate::PROTOCOL_VERSION`].
    pub version: AtomicU32,
    /// [`GROUPS`], [`QUEUES`], [`COUNTERS`] of the writer, so that a reader can refuse another layout.
    pub sizes: [AtomicU32; 3],
    /// Places for queues and for counters that were ever used: no other holds anything.
    pub used: [AtomicU32; 2],
}

impl Header {
    /// Places for queues and for counters to look at, whatever the words say.
    pub fn used(&self) -> (usize, usize) {
        let [queues, counters] = self.used.each_ref().map(|word| word.load(Acquire) as usize);
        (queues.min(QUEUES), counters.min(COUNTERS))
    }
}

/// One suspension unit. 256 bytes; the first 64 are the daemon's (but for two bytes of the gate word).
#[derive(Default)]
#[repr(C, align(256))]
pub struct GroupSlot {
    /// Whether launches go on. Both sides own bytes of it.
    pub gate: GateWord,
    /// Device time allowed in flight while [`crate::gate::Gate::CONTENDED`], in µs; 0 = no budget.
    pub budget_us: AtomicU32,
    /// Commands allowed in flight while [`crate::gate::Gate::CONTENDED`]; 0 = no budget.
    pub budget_commands: AtomicU32,
    /// Preemption level in force, 1..=3.
    pub level: AtomicU32,
    /// How often the gate was opened, counted before it is.
    pub grants: AtomicU32,
    /// Commands after which a completion fence follows at the latest, so that room comes back in batches of this size; 0 = automatic.
    pub batch_commands: AtomicU32,
    /// Times that the group counted as idle for want of progress while others waited.
    pub stalls: AtomicU32,
    /// Times that the daemon took notice [`HEARD_LATE_NS`] or more after the group had come to want the device.
    pub heard_late: AtomicU32,
    /// How much later that was, added up, in µs.
    pub heard_late_us: AtomicU64,
    /// The longest of these, in µs.
    pub heard_late_longest_us: AtomicU64,
    /// [`GroupSlot::ready_at_ns`] of the last burst that the daemon has taken notice of.
    pub heard_ready_ns: AtomicU64,
    /// While [`crate::gate::Gate::YIELDS`]: the pages to look at, see [`crate::backlog`]; stored before the gate word.
    pub yields_to: AtomicU32,
    /// The number of the newest of these pages, modulo 2^32: a client that does not have it yet does not go on.
    pub yields_epoch: AtomicU32,

    /// See [`state`].
    pub state: AtomicU32,
    /// Priority lent by a thread of the same process that waits for this group; [`i32::MIN`] = none.
    pub inherited_priority: AtomicI32,
    /// Launches known to be complete (sum over queues; exact only while watched).
    pub completed: AtomicU64,
    /// The daemon's CLOCK_MONOTONIC at the last change to READY, in ns.
    pub ready_at_ns: AtomicU64,
    /// Time threads spent waiting at the closed gate, in ns.
    pub wait_ns: AtomicU64,
    /// Launches that reached the driver before the daemon's answer.
    pub unscheduled_attach: AtomicU64,
    /// Launches that an operator's rule let through.
    pub unscheduled_passthrough: AtomicU64,
    /// Launches let through after an internal error.
    pub unscheduled_error: AtomicU64,
    /// Longest command as estimated by the client, in µs; of one with gates inside, its longest part without. 0 = nothing is known.
    pub longest_us: AtomicU64,

    /// Liveness overrides: launches the in-flight budget let through because nothing completed meanwhile.
    pub liveness_overrides: AtomicU64,
    /// Launches let through because a signal handler interrupted the wait.
    pub signal_overrides: AtomicU64,
    /// Launches of queues and counters that no longer exist.
    pub launches_retired: AtomicU64,
    /// The same of [`Counter::system`].
    pub system_retired: AtomicU64,
    /// 1 = of the system domain: before others of the same priority in its process.
    pub system: AtomicU32,
    /// How long the commands are that were under a budget lately, see [`length`].
    pub lengths: AtomicU32,
    /// Launches of the system domain that went past the closed gate, by an operator's rule.
    pub exempt: AtomicU64,
    /// Times the group went from ready to idle: bursts.
    pub bursts: AtomicU64,
    /// From the first launch of the last burst to its last completion, in µs. Written before `bursts`.
    pub burst_us: AtomicU64,
    /// When the waits at the closed gate began that go on, by the daemon's CLOCK_MONOTONIC in ns, added up.
    pub waiting_since_ns: AtomicU64,
    /// How many they are.
    pub waiting: AtomicU32,
    /// 1 = gates may hold its commands that neither fences nor the next word tell of, such as one before each command.
    pub untold_gates: AtomicU32,
    /// Written by the device: 1 while a gate inside a command may hold the group.
    pub held_inside: AtomicU32,
    /// 1 = its queues tell on the page of their process whether they keep up, see [`crate::backlog`].
    pub publishes: AtomicU32,
    /// [`GroupSlot::ready_at_ns`] of the first burst that ended before the daemon took notice; counts while that is later than
    /// [`GroupSlot::heard_ready_ns`].
    pub unheard_ready_ns: AtomicU64,
    /// Times that commands which gates on the device had held for long were let go.
    pub releases: AtomicU64,
    /// Expected device time of the commands of the last burst, in µs; 0 = not known. Written before `bursts`.
    pub burst_device_us: AtomicU32,
    /// Commands for which the device was what held the program up, modulo 2^32: they waited for room in the budget, or are long. Counted
    /// while there is a budget.
    pub limited: AtomicU32,
    /// Time that threads waited at a gate that yields, since those that it makes room for were behind, in ns.
    pub yield_wait_ns: AtomicU64,
    /// Commands given while the gate yielded.
    pub yield_passed: AtomicU64,
}

/// News that the daemon takes notice of so long after it was announced are late, in ns. A busy machine delays a thread by some ms;
/// what comes later lets less urgent programs run beside more urgent ones for long enough to be felt.
pub const HEARD_LATE_NS: u64 = 5_000_000;

pub use crate::statistics::HeardLate;

impl HeardLate {
    /// With another one's.
    #[must_use]
    pub fn and(self, other: HeardLate) -> HeardLate {
        HeardLate {
            count: self.count.saturating_add(other.count),
            us: self.us.saturating_add(other.us),
            longest_us: self.longest_us.max(other.longest_us),
        }
    }

    /// One time that took so long, in ns; none if that is not late.
    fn of(ns: u64) -> HeardLate {
        let us = ns / 1_000;
        if ns < HEARD_LATE_NS { HeardLate::default() } else { HeardLate { count: 1, us, longest_us: us } }
    }
}

impl GroupSlot {
    /// Since when the group wants the device, or wanted it, without the daemon having taken notice, in ns.
    pub fn unheard_since_ns(&self) -> Option<u64> {
        let (ready_ns, heard_ns) = (self.ready_at_ns.load(Relaxed), self.heard_ready_ns.load(Relaxed));
        let first_ns = self.unheard_ready_ns.load(Relaxed);
        (ready_ns > heard_ns).then_some(if first_ns > heard_ns { first_ns.min(ready_ns) } else { ready_ns })
    }

    /// Daemon: takes notice of all that was announced so far. What is said to have begun before `least_ns` counts from there. Returns
    /// by how much that is late, in µs; 0 = it is not.
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

    /// Daemon: the same of a group that it takes on. What was announced before is none of its business.
    pub fn hear_anew(&self) {
        self.heard_ready_ns.store(self.ready_at_ns.load(Relaxed), Relaxed);
    }

    /// News that has come late so far.
    pub fn heard_late(&self) -> HeardLate {
        HeardLate {
            count: self.heard_late.load(Relaxed).into(),
            us: self.heard_late_us.load(Relaxed),
            longest_us: self.heard_late_longest_us.load(Relaxed),
        }
    }

    /// Late news so far, with what is late by now.
    pub fn heard_late_by(&self, now_ns: u64) -> HeardLate {
        let so_far_ns = self.unheard_since_ns().map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        self.heard_late().and(HeardLate::of(so_far_ns))
    }

    /// A thread begins to wait at the closed gate.
    pub fn begin_wait(&self, now_ns: u64) {
        self.waiting_since_ns.fetch_add(now_ns, Relaxed);
        self.waiting.fetch_add(1, Release);
    }

    /// It waits no more.
    pub fn end_wait(&self, began_ns: u64) {
        self.waiting.fetch_sub(1, Relaxed);
        self.waiting_since_ns.fetch_sub(began_ns, Release);
    }

    /// How long the waits that go on have taken so far, in ns. None began before `least_ns`; 0 where the words say otherwise, which
    /// change one after the other, in a process that may write there what it likes.
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

/// One XQueue. 128 bytes.
#[repr(C, align(128))]
pub struct QueueSlot {
    /// 1 + index of its [`GroupSlot`]; 0 = slot unused.
    pub group: AtomicU32,
    /// Number of the last fence that the device has reached, written by the device where it can: see [`GATE_FOLLOWS`].
    pub completed_word: AtomicU32,
    /// Launches of threads that found no counter of their own.
    pub shared: Counter,
    /// The client's own: 0 while the program itself holds the queue. Gates of the queue's own wait on the device for 1.
    pub go: AtomicU32,
    /// Number of the last command that passed such a gate, written by the device.
    pub reached: AtomicU32,
    /// What `completed_word` will be once the device has reached the last fence; 0 = none was placed.
    pub fence: AtomicU32,
}

/// A fence's number with this bit says that a gate of the queue's group follows directly.
pub const GATE_FOLLOWS: u32 = 1;

impl QueueSlot {
    /// Whether the device has something of the queue to execute that no gate of its group holds, as far as fences tell. `before` is
    /// `completed_word` as it was when the gate closed: at a gate where the device stood then it was let through.
    pub fn is_executing(&self, before: u32) -> bool {
        let completed = self.completed_word.load(Relaxed);
        let waits = completed & GATE_FOLLOWS != 0 && completed != before;
        let fence = self.fence.load(Relaxed);
        fence != 0 && fence != completed && !waits
    }
}

/// Launches, counted by plain adds. Their sum is the number of commands the driver accepted, but for those that wait
/// at the gate right now.
#[repr(C)]
pub struct Counter {
    /// Launches that went by an open gate at once.
    pub launches: AtomicU64,
    /// Launches that were looked at more closely, because the device is shared.
    pub tracked: AtomicU64,
    /// How many of both are of the system domain; counted only under [`crate::gate::Gate::INSPECT`].
    pub system: AtomicU64,
    /// The client's own: changes whenever what a thread remembers of the queue is outdated. It lies here since this line of
    /// the cache is needed anyway.
    pub stamp: AtomicU64,
}

impl Counter {
    /// Both kinds.
    pub fn total(&self) -> u64 {
        self.launches.load(Relaxed).wrapping_add(self.tracked.load(Relaxed))
    }
}

/// Launches of one thread on one queue. 64 bytes: written by its thread with a plain add.
#[repr(C, align(64))]
pub struct CounterSlot {
    /// 1 + index of its [`QueueSlot`]; 0 = unused.
    pub queue: AtomicU32,
    /// Launches.
    pub counter: Counter,
}

/// The whole segment.
#[repr(C)]
pub struct Segment {
    /// Identification.
    pub header: Header,
    /// Suspension units.
    pub groups: [GroupSlot; GROUPS],
    /// XQueues.
    pub queues: [QueueSlot; QUEUES],
    /// Counters by thread.
    pub counters: [CounterSlot; COUNTERS],
    /// How long threads waited at the closed gate of each group; waits that go on are not in it.
    pub waits: [Histogram; GROUPS],
}

/// Bytes of a [`Segment`], whole pages.
pub const SEGMENT_BYTES: usize = size_of::<Segment>();

/// The part of a segment, in bytes from its beginning, that a device needs of a program with one block of queues: header, groups, and
/// that block.
pub const DEVICE_BYTES: usize = core::mem::offset_of!(Segment, queues) + BLOCK_BYTES;

const BLOCK_BYTES: usize = QUEUE_BLOCK * size_of::<QueueSlot>();

/// The part of a segment with the word at `offset` that a device is told of at once: where it begins, and its bytes. None for a word
/// that no device needs.
pub fn device_part(offset: usize) -> Option<(usize, usize)> {
    if offset < DEVICE_BYTES {
        return Some((0, DEVICE_BYTES));
    }
    let block = (offset - DEVICE_BYTES) / BLOCK_BYTES;
    (offset < core::mem::offset_of!(Segment, counters)).then_some((DEVICE_BYTES + block * BLOCK_BYTES, BLOCK_BYTES))
}

/// The heartbeat page: made by the daemon, read-only for clients. One beat each 50 ms while some group is suspended.
#[repr(C)]
pub struct Heartbeat {
    /// The daemon's CLOCK_MONOTONIC at the last beat, in ns. Another in a time namespace of its own sees that it changes.
    pub beat_ns: AtomicU64,
    /// How many best-effort clients have contexts with time slices, by [`device_place`]: who makes one beside them gives it
    /// another slice. Devices that share a place are taken for one.
    pub best_effort: [AtomicU32; DEVICE_PLACES],
    /// [`crate::clock::offset_ns`] of the daemon: with its own a client tells the daemon's time.
    pub clock_offset_ns: AtomicI64,
}

/// Size of the file in memory that holds the heartbeat page, in bytes.
pub const HEARTBEAT_BYTES: u64 = 4096;

/// Places for devices on the heartbeat page.
pub const DEVICE_PLACES: usize = 256;

/// Where on the heartbeat page a device's figure stands, by its key (FNV-1a).
pub fn device_place(key: &str) -> usize {
    let hash = key
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    (hash ^ hash >> 32) as usize % DEVICE_PLACES
}

const _: () = {
    assert!(size_of::<GroupSlot>() == 256);
    assert!(core::mem::offset_of!(GroupSlot, state) == 64);
    assert!(core::mem::offset_of!(GroupSlot, liveness_overrides) == 128);
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
        // Two bursts that were not heard of, and one that goes on.
        for at_ms in [20, 21] {
            wants(at_ms);
            slot.unheard_ready_ns.store(slot.unheard_since_ns().unwrap(), Relaxed);
        }
        wants(22);
        assert_eq!(slot.unheard_since_ns(), Some(20 * ms));
        assert_eq!((slot.heard_late_by(24 * ms).count, slot.heard_late_by(25 * ms)), (0, late(1, 5_000, 5_000)));
        slot.hear(50 * ms, 0);
        assert_eq!((slot.unheard_since_ns(), slot.heard_late()), (None, late(1, 30_000, 30_000)));
        // The first one of then is not of now.
        wants(60);
        slot.hear(67 * ms, 0);
        assert_eq!(slot.heard_late(), late(2, 37_000, 30_000));
        wants(70);
        slot.hear_anew();
        slot.hear(99 * ms, 0);
        assert_eq!(slot.heard_late(), late(2, 37_000, 30_000), "of a former daemon's time");
        // A time that cannot be is none.
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
        // What a liar writes is no more than it can be.
        slot.waiting.store(u32::MAX, Relaxed);
        slot.waiting_since_ns.store(u64::MAX / 3, Relaxed);
        assert!(slot.waiting_ns(10_000, 9_000) <= u64::from(u32::MAX) * 1_000);
    }
}
