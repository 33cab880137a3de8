//! What a client and the device share: one memfd per context with control words, completion words and the command
//! ring, and one with the context's memory (the *arena*). The device makes both, sealed against resizing, so that
//! no client can make the device fault. Everything a client stores is untrusted.

use crate::command::{Command, WORDS};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Streams of one context, including those destroyed but not yet drained. Only touched pages exist.
pub const STREAMS: usize = 16_384;
/// Events of one context.
pub const EVENTS: usize = 65_536;
/// Entries of the command ring. The device empties it whenever it is awake, whatever the streams wait for.
pub const RING: usize = 8192;
/// Commands a stream takes before the next one waits for the first to complete; as many as a GPU channel holds.
pub const STREAM_DEPTH: u64 = 1024;
/// Device memory of a context, in bytes: the lower part of the arena.
pub const DEVICE_BYTES: usize = 256 << 20;
/// Host memory that the device can reach, in bytes: the upper part of the arena.
pub const HOST_BYTES: usize = 256 << 20;
/// The arena, in bytes. Sparse: only touched pages exist.
pub const ARENA_BYTES: usize = DEVICE_BYTES + HOST_BYTES;
/// Longest time slice, in µs.
pub const MAX_TIMESLICE_US: u64 = 10_000_000;

/// Words stored by the device.
#[repr(C, align(64))]
pub struct DeviceWords {
    /// 1 = the device sleeps and will not look at the ring without a doorbell. The client swaps in 0 and rings.
    pub asleep: AtomicU32,
    /// Ring entries read so far.
    pub tail: AtomicU64,
    /// Futex: moves when room appears in the ring while [`ClientWords::room_waiters`] is not 0.
    pub room: AtomicU32,
    /// Futex: moves when a [`Action::Call`](crate::command::Action::Call) becomes due, see [`StreamWords::called`].
    pub calls: AtomicU32,
    /// Not 0 = a kernel of the context has faulted, by a [`Fault`](crate::command::Fault); nothing more of it will run.
    pub faulted: AtomicU32,
    /// The process id of the client whose kernel that was: of several in one context it may be another.
    pub culprit: AtomicU32,
}

/// Words stored by the client.
#[repr(C, align(64))]
pub struct ClientWords {
    /// Ring entries written so far.
    pub head: AtomicU64,
    /// Threads waiting for room in the ring.
    pub room_waiters: AtomicU32,
    /// Bit 0: 0 = the context is evicted. Above it: when the client said so, in ns of CLOCK_MONOTONIC, so that what
    /// it gives afterwards comes afterwards.
    pub runnable: AtomicU64,
    /// Time slice in ns.
    pub timeslice_ns: AtomicU64,
}

/// A stream's completion words, stored by the device but for `waiters`.
#[repr(C, align(64))]
pub struct StreamWords {
    /// Commands completed since the context began; goes on when the slot is used for another stream.
    pub completed: AtomicU64,
    /// Number of the last command that was a call and has become due.
    pub called: AtomicU64,
    /// Futex: moves with `completed` while `waiters` is not 0.
    pub wake: AtomicU32,
    /// Threads of the client that wait for this stream.
    pub waiters: AtomicU32,
}

/// When an event was last recorded.
#[repr(C)]
pub struct EventWords {
    /// Number of that record.
    pub record: AtomicU64,
    /// Its device time, in ns of CLOCK_MONOTONIC.
    pub at_ns: AtomicU64,
}

/// One entry of the ring: a [`Command`] in words, and when it was given.
#[repr(C, align(64))]
pub struct Entry {
    words: [AtomicU64; WORDS],
    stamp_ns: AtomicU64,
}

impl Entry {
    /// Writes an entry; it counts once [`ClientWords::head`] has been stored with release ordering.
    pub fn put(&self, stamp_ns: u64, command: &Command) {
        for (word, value) in self.words.iter().zip(command.encode()) {
            word.store(value, Relaxed);
        }
        self.stamp_ns.store(stamp_ns, Relaxed);
    }

    /// Reads an entry; `None` if it is no command.
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
    /// By stream.
    pub streams: [StreamWords; STREAMS],
    /// By event.
    pub events: [EventWords; EVENTS],
    /// The command ring.
    pub ring: [Entry; RING],
}

const _: () = assert!(size_of::<Entry>() == 64 && size_of::<Shared>().is_multiple_of(4096));
