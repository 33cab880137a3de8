//! Memory shared by a client and the device: one memfd per context with control words, completion words and the command
//! ring, and one with the context's memory (the *arena*). The device creates both, sealed against resizing, so that no
//! client can make it fault. Everything that a client stores is untrusted.

use crate::command::{Command, WORDS};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Number of streams of one context, including those destroyed but not yet drained. Only pages in use take memory.
pub const STREAMS: usize = 16_384;
/// Number of events of one context.
pub const EVENTS: usize = 65_536;
/// Number of entries of the command ring. The device empties it whenever it is awake, even if the streams are blocked.
pub const RING: usize = 8192;
/// Number of commands that a stream accepts before the next waits for the first to complete; as many as a GPU's channel
/// holds.
pub const STREAM_DEPTH: u64 = 1024;
/// Size of a context's range of device addresses in bytes: the lower part of the arena. How much memory there is behind
/// them is up to the device's capacity.
pub const DEVICE_BYTES: usize = 8 << 30;
/// Memory of a device in bytes, unless `SIMDEV_MEMORY_MIB` says otherwise.
pub const CAPACITY: u64 = 256 << 20;
/// Size of the host memory that the device can reach, in bytes: the upper part of the arena.
pub const HOST_BYTES: usize = 256 << 20;
/// Size of the arena, in bytes. Sparse: only pages in use take memory.
pub const ARENA_BYTES: usize = DEVICE_BYTES + HOST_BYTES;
/// Longest time slice, in µs.
pub const MAX_TIMESLICE_US: u64 = 10_000_000;

/// Words stored by the device.
#[repr(C, align(64))]
pub struct DeviceWords {
    /// 1 = the device sleeps, and will not read the ring without a doorbell. The client swaps in 0 and rings.
    pub asleep: AtomicU32,
    /// Number of ring entries read so far.
    pub tail: AtomicU64,
    /// Futex: changes when the ring gets room while [`ClientWords::room_waiters`] is not 0.
    pub room: AtomicU32,
    /// Futex: changes when an [`Action::Call`](crate::command::Action::Call) becomes due, see [`StreamWords::called`].
    pub calls: AtomicU32,
    /// Not 0 = a kernel of the context has faulted, by a [`Fault`](crate::command::Fault); nothing more of the context
    /// runs.
    pub faulted: AtomicU32,
    /// Process ID of the client whose kernel faulted: of several in one context it may be another.
    pub culprit: AtomicU32,
}

/// Words stored by the client.
#[repr(C, align(64))]
pub struct ClientWords {
    /// Number of ring entries written so far.
    pub head: AtomicU64,
    /// Number of threads waiting for room in the ring.
    pub room_waiters: AtomicU32,
    /// Bit 0: 0 = the context is evicted. Bits above: time of the client's store, in ns of CLOCK_MONOTONIC, so that
    /// commands submitted after it take effect after it.
    pub runnable: AtomicU64,
    /// Time slice in ns.
    pub timeslice_ns: AtomicU64,
}

/// Completion words of a stream, stored by the device except for `waiters`.
#[repr(C, align(64))]
pub struct StreamWords {
    /// Number of commands completed since the context began; continues when the slot is used for another stream.
    pub completed: AtomicU64,
    /// Number of the last command that was a call and became due.
    pub called: AtomicU64,
    /// Futex: changes with `completed` while `waiters` is not 0.
    pub wake: AtomicU32,
    /// Number of the client's threads that wait for this stream.
    pub waiters: AtomicU32,
}

/// Last record of an event.
#[repr(C)]
pub struct EventWords {
    /// Number of the record.
    pub record: AtomicU64,
    /// Device time of the record, in ns of CLOCK_MONOTONIC.
    pub at_ns: AtomicU64,
}

/// An entry of the ring: a [`Command`] in words, and the time at which it was submitted.
#[repr(C, align(64))]
pub struct Entry {
    words: [AtomicU64; WORDS],
    stamp_ns: AtomicU64,
}

impl Entry {
    /// Writes an entry. It becomes valid when [`ClientWords::head`] is stored with release ordering.
    pub fn put(&self, stamp_ns: u64, command: &Command) {
        for (word, value) in self.words.iter().zip(command.encode()) {
            word.store(value, Relaxed);
        }
        self.stamp_ns.store(stamp_ns, Relaxed);
    }

    /// Reads an entry; `None` if it is not a valid command.
    pub fn get(&self) -> Option<(u64, Command)> {
        let words = std::array::from_fn(|i| self.words[i].load(Relaxed));
        Some((self.stamp_ns.load(Relaxed), Command::decode(words)?))
    }
}

/// The shared control memory of a context.
#[repr(C, align(4096))]
pub struct Shared {
    /// The device's words.
    pub device: DeviceWords,
    /// The client's words.
    pub client: ClientWords,
    /// Completion words by stream slot.
    pub streams: [StreamWords; STREAMS],
    /// Event words by event slot.
    pub events: [EventWords; EVENTS],
    /// The command ring.
    pub ring: [Entry; RING],
}

const _: () = assert!(size_of::<Entry>() == 64 && size_of::<Shared>().is_multiple_of(4096));
