//! What a thread remembers: the XQueues it used last, and whether it is inside a vendor call already.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering::*, compiler_fence};

use xsched_proto::segment::gate;

use crate::queue::XQueue;
use crate::runtime::Runtime;

/// XQueues a thread finds without asking the [`Runtime`].
const ENTRIES: usize = 8;

#[derive(Clone, Copy)]
struct Entry {
    key: usize,
    generation: u32,
    queue: Option<&'static XQueue>,
    gate: Option<&'static core::sync::atomic::AtomicU32>,
    counter: Option<&'static AtomicU64>,
}

const EMPTY: Entry = Entry { key: usize::MAX, generation: 0, queue: None, gate: None, counter: None };

/// State of one thread. Plain data without a destructor, so that it needs no registration with the C library.
struct Thread {
    entries: [Cell<Entry>; ENTRIES],
    /// Stack address of the outermost hook this thread is in; 0 = none.
    inside: Cell<usize>,
    /// Highest rank of the groups this thread launched to; see [`crate::Lend`].
    rank: Cell<i32>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread { entries: [const { Cell::new(EMPTY) }; ENTRIES], inside: Cell::new(0), rank: Cell::new(i32::MIN) }
    };
}

/// An address on the current stack.
#[inline(always)]
fn stack_address() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let sp: usize;
        // SAFETY: reads a register, touches no memory.
        unsafe { core::arch::asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
        sp
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let here = 0u8;
        &raw const here as usize
    }
}

/// Marks this thread as inside a vendor call until dropped (or until the frame is left by `longjmp`: a mark whose
/// frame lies below the stack pointer is out of date).
pub struct Inside {
    before: usize,
}

impl Inside {
    /// Enters; `None` when the thread is inside a vendor call already, whose own calls are not ours to judge.
    #[inline(always)]
    pub fn enter() -> Option<Inside> {
        THREAD.with(|t| {
            let here = stack_address();
            let before = t.inside.get();
            if before != 0 && here < before {
                return None;
            }
            t.inside.set(here);
            Some(Inside { before })
        })
    }
}

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        let _ = self.before;
        THREAD.with(|t| t.inside.set(0));
    }
}

/// How a launch goes on.
pub enum Entered {
    /// The gate stands plainly open and the launch is counted: call the driver, then [`Counted::done`].
    Fast(Counted),
    /// The queue is known, but the gate wants a closer look: [`XQueue::admit`].
    Careful(&'static XQueue, &'static AtomicU64),
    /// This thread has not used the queue lately: [`remember`] it and enter again.
    Unknown,
}

/// A launch counted by [`enter`].
pub struct Counted(&'static AtomicU64);

impl Counted {
    /// Takes the count back if the driver refused the launch.
    #[inline(always)]
    pub fn done(self, accepted: bool) {
        if !accepted {
            self.0.store(self.0.load(Relaxed).wrapping_sub(1), Release);
        }
    }
}

/// The fast path of a launch on the queue with this key: find it, count, one load of the gate word.
#[inline(always)]
pub fn enter(key: usize) -> Entered {
    THREAD.with(|t| {
        let entry = &t.entries[slot_of(key)];
        let e = entry.get();
        let (Some(queue), Some(word), Some(counter)) = (e.queue, e.gate, e.counter) else { return Entered::Unknown };
        if e.key != key || queue.generation.load(Relaxed) != e.generation {
            return Entered::Unknown;
        }
        // Count, then look: whoever sets QUIET and issues a barrier either sees the count or is seen (see
        // `Group::try_idle`). The barrier orders the processor; this orders the compiler.
        counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
        compiler_fence(SeqCst);
        if word.load(Relaxed) == gate::GRANTED {
            return Entered::Fast(Counted(counter));
        }
        Entered::Careful(queue, counter)
    })
}

#[inline(always)]
fn slot_of(key: usize) -> usize {
    // Handles are addresses of heap objects: the low bits say nothing.
    (key ^ (key >> 4) ^ (key >> 9)) % ENTRIES
}

/// Lets this thread find a queue by [`enter`].
pub fn remember(rt: &'static Runtime, key: usize, queue: &'static XQueue, counter: &'static AtomicU64) {
    let generation = queue.generation.load(Acquire);
    let group = queue.group(rt);
    let rank = group.rank.load(Relaxed);
    THREAD.with(|t| {
        t.rank.set(t.rank.get().max(rank));
        t.entries[slot_of(key)].set(Entry {
            key,
            generation,
            queue: Some(queue),
            gate: Some(&group.slot(rt).gate),
            counter: Some(counter),
        });
    });
}

/// Highest rank of the groups this thread launched to.
pub(crate) fn rank() -> i32 {
    THREAD.with(|t| t.rank.get())
}

/// In a forked child: the segment is not mapped here, so nothing remembered may be used.
pub fn forget_all() {
    THREAD.with(|t| {
        for entry in &t.entries {
            entry.set(EMPTY);
        }
        t.inside.set(0);
        t.rank.set(i32::MIN);
    });
}
