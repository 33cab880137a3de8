//! Memory that can leave, the latch before it, and orders to move it.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use xsched_core::MemoryWait;
use xsched_core::residency::{Entry, Inside, Latch, Residents};
use xsched_proto::memory::Hardware;
use xsched_proto::wire::MemoryOrder;

use super::super::memory::moved;
use super::calls::{Calls, Handle};
use super::drainer::Drain;
use super::{counts, touches};
use crate::lock::Lock;
use crate::{process, stage};

/// Errors of calls that an active capture forbids: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED and those after it.
const OF_CAPTURES: std::ops::RangeInclusive<i32> = 900..=908;
/// Longest sleep of a thread at the latch, in ns. The mover wakes it.
const SLEEP_NS: u64 = 100_000_000;

/// Memory that can leave, and the latch before it. Never freed.
pub(super) struct Movable {
    pub(super) calls: Calls,
    pub(super) latch: Latch<Hardware>,
    /// Words of all threads that have passed the latch. Those of threads that ended stay, and are 0.
    pub(super) threads: Lock<Vec<&'static Inside<Hardware>>>,
    pub(super) residents: Lock<Residents<Handle>>,
    pub(super) drain: Drain,
    /// Bytes of `residents` that are counted as away.
    away: Lock<u64>,
    /// Order of the daemon, with its number, that the mover has yet to take.
    order: Lock<Option<(u32, MemoryOrder)>>,
    /// The context is about to end, or gone: nothing moves any more.
    pub(super) over: AtomicBool,
    /// The driver refuses all work in the context, after a fault or at the end of the process.
    lost: AtomicBool,
    /// The process ends: memory stays where it can be reached.
    stays: AtomicBool,
    /// The mover has ended.
    pub(super) mover_ended: AtomicBool,
}

pub(super) static MOVABLE: OnceLock<&'static Movable> = OnceLock::new();
/// Cleared for good where memory does not move: in a forked child, and if a part of this library has failed.
pub(super) static POSSIBLE: AtomicBool = AtomicBool::new(true);

thread_local! {
    static INSIDE: Cell<Option<&'static Inside<Hardware>>> = const { Cell::new(None) };
}

pub(super) fn movable() -> Option<&'static Movable> {
    MOVABLE.get().copied().filter(|_| POSSIBLE.load(Relaxed))
}

impl Movable {
    pub(super) fn new(calls: Calls) -> Movable {
        counts::begin();
        Movable {
            calls,
            latch: Default::default(),
            threads: Lock::new(),
            residents: Lock::new(),
            drain: Drain::default(),
            away: Lock::new(),
            order: Lock::new(),
            over: false.into(),
            lost: false.into(),
            stays: false.into(),
            mover_ended: false.into(),
        }
    }

    /// Reports whether nothing moves any more.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Acquire) || self.lost.load(Acquire)
    }

    /// Reports whether the process ends, and memory need not move while it can be reached.
    pub(super) fn stays(&self) -> bool {
        self.stays.load(Acquire)
    }

    /// Checks after an error whether the context is lost. Nothing can touch memory in such a context: its commands are refused, and none is
    /// left on the device.
    pub(super) fn is_lost(&self) -> bool {
        let fails = || self.calls.synchronize_own().is_err_and(|error| !OF_CAPTURES.contains(&error));
        if fails() && fails() {
            self.lost.store(true, Release);
        }
        self.lost.load(Acquire)
    }

    /// Slot of the device in the process's account.
    pub(super) fn slot(&self) -> Option<u16> {
        moved::slot_of(self.calls.device())
    }

    /// Has the account follow the chunks: after a move, and after chunks were taken out, before the program's free is counted.
    pub(super) fn recount(&self) {
        let mut counted = self.away.lock();
        let (away, resident) = {
            let residents = self.residents.lock();
            touches::set_bounds(residents.chunks.iter().map(|chunk| (chunk.at(), chunk.bytes())));
            (residents.away_bytes(), residents.resident_bytes())
        };
        if let Some(slot) = self.slot() {
            moved::count(slot, *counted, away, resident);
            *counted = away;
        }
    }

    /// Counts memory that has left, before the move ends.
    pub(super) fn count_left(&self, bytes: u64) {
        let mut counted = self.away.lock();
        if let Some(slot) = self.slot() {
            moved::left(slot, bytes);
            *counted += bytes;
        }
    }

    /// Checks whether to wait no longer for room.
    pub(super) fn stops_waiting(&self) -> bool {
        self.is_over() || self.stays() || self.has_order() || self.latch.goal().is_reachable()
    }

    /// True: the daemon has an order that is not taken.
    pub(super) fn has_order(&self) -> bool {
        self.order.lock().is_some()
    }

    /// Takes the daemon's order.
    pub(super) fn take_order(&self) -> Option<(u32, MemoryOrder)> {
        self.order.lock().take()
    }
}

/// Takes an order of the daemon. False: no memory of this slot can move. Called on the agent thread.
pub(in super::super) fn order(slot: u16, number: u32, order: MemoryOrder) -> bool {
    let can_move = |movable: &&Movable| !movable.is_over() && !movable.stays() && movable.slot() == Some(slot);
    let Some(movable) = movable().filter(can_move) else { return false };
    *movable.order.lock() = Some((number, order));
    movable.latch.wake_mover();
    true
}

/// Pause between two looks at whether the mover has ended, and how many looks.
const LOOK: Duration = Duration::from_millis(1);
const LOOKS: u32 = 2_000;

/// Handler for the end of the process, which runs before the driver's: the mover leaves the driver, whose functions fail from then on, and
/// memory stays where the program's own handlers reach it.
pub(super) extern "C" fn at_exit() {
    let _ = std::panic::catch_unwind(|| {
        // A child without handlers of `fork` has no mover to wait for.
        let is_ours = !stage::is_untold_copy() && process::running().is_some();
        let Some(movable) = movable().filter(|_| is_ours) else { return };
        movable.stays.store(true, Release);
        movable.latch.open_for_good();
        movable.latch.wake_mover();
        for _ in 0..LOOKS {
            if movable.mover_ended.load(Acquire) {
                return;
            }
            std::thread::sleep(LOOK);
        }
    });
}

/// Makes a driver's call that touches device memory, once the latch is open.
pub(super) fn pass<T>(call: impl FnOnce() -> T) -> T {
    let Some(movable) = movable() else { return call() };
    let (thread, entry) = enter(movable);
    // Without clean-up while the driver runs, see `pipeline::enqueue`.
    let result = call();
    movable.latch.leave(thread, entry);
    result
}

/// Makes a call that begins a capture and counts it. The mover sees the capture as soon as this thread is outside the latch, and no wait
/// for the device that it gave up is still about to reach the driver, which would make the capture invalid.
pub(in super::super) fn capturing<T>(call: impl FnOnce() -> T) -> T {
    let Some(movable) = movable() else { return call() };
    pass(|| {
        movable.drain.wait_for_stale();
        call()
    })
}

/// Enters the latch. A thread for which no daemon decides, or that a signal let through its gate, has memory mapped to the host.
#[inline]
fn enter(movable: &'static Movable) -> (&'static Inside<Hardware>, Entry) {
    let thread = INSIDE.get().unwrap_or_else(|| {
        let fresh: &'static Inside<Hardware> = Box::leak(Box::default());
        movable.threads.lock().push(fresh);
        INSIDE.set(Some(fresh));
        fresh
    });
    let (mut wait, mut is_interrupted) = (None, false);
    let entry = movable.latch.enter(thread, |seen| {
        let wait = wait.get_or_insert_with(MemoryWait::begin);
        if wait.must_end(process::running(), std::mem::take(&mut is_interrupted)) {
            movable.latch.open_for_good();
        } else if seen.is_away() {
            // Memory that is just leaving is asked for once it is away: a program that always runs would keep it otherwise.
            movable.latch.ask_back();
        }
        is_interrupted = movable.latch.sleep(seen, SLEEP_NS);
    });
    (thread, entry)
}

/// Ends everything here, in a forked child, which has no mover and may not call the driver.
pub(in super::super) fn forget_all() {
    POSSIBLE.store(false, Relaxed);
}
