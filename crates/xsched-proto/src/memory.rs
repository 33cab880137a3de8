//! Words that threads and processes share, as the protocols over them use them. [`Hardware`] is the implementation that runs; a model of a
//! protocol puts the words of a checker in its place.

use core::sync::atomic::Ordering::{self, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64, compiler_fence, fence};

use rustix::io::Errno;
use rustix::thread::{MembarrierCommand, futex, membarrier};

/// Atomic word. Its methods are those of [`core::sync::atomic`].
#[allow(missing_docs)]
pub trait Word<T> {
    fn new(value: T) -> Self;
    fn load(&self, order: Ordering) -> T;
    fn store(&self, value: T, order: Ordering);
    fn swap(&self, value: T, order: Ordering) -> T;
    fn fetch_add(&self, value: T, order: Ordering) -> T;
    fn fetch_sub(&self, value: T, order: Ordering) -> T;
    fn fetch_and(&self, value: T, order: Ordering) -> T;
    fn fetch_or(&self, value: T, order: Ordering) -> T;
    fn compare_exchange(&self, old: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T>;
}

/// Threads that may sleep on a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleepers {
    /// Threads of this process only.
    Own,
    /// Threads of any process that maps the word.
    All,
}

/// Reason for which a sleep on a word ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The word had another value, a wake-up came, or the time was over: check again.
    Look,
    /// A signal handler ran on this thread.
    Signal,
}

/// Words, barriers, and sleeping on a word, as a protocol over shared memory needs them.
pub trait Memory: 'static {
    /// Word of 32 bits, on which a thread can sleep.
    type U32: Word<u32>;
    /// Word of 64 bits.
    type U64: Word<u64>;

    /// Orders the operations before it before those after it, as seen by a thread that issues a [`Memory::heavy_barrier`]. For the side
    /// that runs often: no instruction.
    fn light_barrier();

    /// Orders memory for the side that runs rarely: every thread of this process passes a full barrier meanwhile.
    fn heavy_barrier();

    /// Full barrier right after a read-modify-write; no instruction where a read-modify-write is a full barrier itself.
    fn barrier_after_rmw();

    /// Sleeps while the word is `expected`, for at most `most_ns`.
    fn sleep(word: &Self::U32, expected: u32, sleepers: Sleepers, most_ns: u64) -> Woken;

    /// Wakes all threads that sleep on the word.
    fn wake(word: &Self::U32, sleepers: Sleepers);
}

/// Memory of this machine.
pub struct Hardware;

impl Memory for Hardware {
    type U32 = AtomicU32;
    type U64 = AtomicU64;

    #[inline(always)]
    fn light_barrier() {
        compiler_fence(SeqCst);
    }

    fn heavy_barrier() {
        let _ = membarrier(MembarrierCommand::PrivateExpedited);
    }

    #[inline(always)]
    fn barrier_after_rmw() {
        // A locked instruction is a full barrier.
        if cfg!(target_arch = "x86_64") { compiler_fence(SeqCst) } else { fence(SeqCst) }
    }

    fn sleep(word: &AtomicU32, expected: u32, sleepers: Sleepers, most_ns: u64) -> Woken {
        let timeout =
            rustix::time::Timespec { tv_sec: (most_ns / 1_000_000_000) as _, tv_nsec: (most_ns % 1_000_000_000) as _ };
        match futex::wait(word, flags(sleepers), expected, Some(&timeout)) {
            Err(Errno::INTR) => Woken::Signal,
            _ => Woken::Look,
        }
    }

    fn wake(word: &AtomicU32, sleepers: Sleepers) {
        // The call can only fail for an invalid address.
        let _ = futex::wake(word, flags(sleepers), i32::MAX as u32);
    }
}

fn flags(sleepers: Sleepers) -> futex::Flags {
    match sleepers {
        Sleepers::Own => futex::Flags::PRIVATE,
        Sleepers::All => futex::Flags::empty(),
    }
}

macro_rules! word {
    ($atomic:ty, $value:ty) => {
        impl Word<$value> for $atomic {
            #[inline(always)]
            fn new(value: $value) -> Self {
                Self::new(value)
            }
            #[inline(always)]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }
            #[inline(always)]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order)
            }
            #[inline(always)]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.swap(value, order)
            }
            #[inline(always)]
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.fetch_add(value, order)
            }
            #[inline(always)]
            fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.fetch_sub(value, order)
            }
            #[inline(always)]
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.fetch_and(value, order)
            }
            #[inline(always)]
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.fetch_or(value, order)
            }
            #[inline(always)]
            fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(old, new, success, failure)
            }
        }
    };
}

word!(AtomicU32, u32);
word!(AtomicU64, u64);
