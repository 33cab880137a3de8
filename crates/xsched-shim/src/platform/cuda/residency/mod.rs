//! Memory that can leave the device, in programs with `XSCHED_MEMORY=swap`; others have nothing of this but one check when a function
//! is found.
//!
//! - [`latched`]: a function of this library before each of the driver's that hooks call in the end, whatever let the call through. It
//!   passes the residency latch ([`xsched_core::residency`]).
//! - [`chunks`]: memory of `cuMemAlloc` from 2 MiB on, as chunks behind addresses of this library's; [`pools`]: memory in the order of
//!   streams, in such chunks; [`virtuals`]: memory that a program maps itself, behind handles of this library's.
//! - [`answers`]: what a program is told about all of these; [`hooked`]: hooks for that; [`pins`]: what does not move; [`tickets`]: memory that other
//!   processes open.
//! - [`calls`]: the driver's calls that make and move chunks.
//! - [`mover`]: the thread that moves them. Nothing asks it to but `XSCHED_MEMORY_MOVES`, which has memory leave and come back at
//!   random.
//!
//! Memory of the first context that allocates moves. All other memory is the driver's own.

pub(super) mod answers;
mod calls;
mod chunks;
#[allow(non_snake_case)] // vendor names
pub(super) mod hooked;
#[allow(non_snake_case)] // vendor names
mod latched;
mod mover;
pub(crate) mod pins;
pub(super) mod pools;
mod tickets;
mod virtuals;

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use xsched_core::residency::{Inside, Latch, Residents};
use xsched_proto::memory::Hardware;
use xsched_proto::variables;

use self::calls::{Calls, Handle};
use crate::enabled::{CUDA, platform_enabled};
use crate::interpose::Hook;
use crate::interpose::beneath::{self, Beneath};
use crate::lock::Lock;

/// Longest sleep of a thread at the latch, in ns. The mover wakes it.
const SLEEP_NS: u64 = 100_000_000;

/// Memory that can leave, and the latch before it. Never freed.
struct Movable {
    calls: Calls,
    latch: Latch<Hardware>,
    /// Words of all threads that have passed the latch. Those of threads that ended stay, and are 0.
    threads: Lock<Vec<&'static Inside<Hardware>>>,
    residents: Lock<Residents<Handle>>,
    /// The context is gone: nothing moves any more.
    over: AtomicBool,
    /// Moves that were made, and those that ended with an error.
    moves: AtomicU64,
    failures: AtomicU64,
}

static MOVABLE: OnceLock<&'static Movable> = OnceLock::new();
/// Cleared for good where memory does not move: in a forked child, and if a part of this library has failed.
static POSSIBLE: AtomicBool = AtomicBool::new(true);

thread_local! {
    static INSIDE: Cell<Option<&'static Inside<Hardware>>> = const { Cell::new(None) };
}

/// Reports whether this program's memory is to be movable.
pub(super) fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| variables::text("XSCHED_MEMORY").as_deref() == Some("swap") && platform_enabled(CUDA))
}

fn movable() -> Option<&'static Movable> {
    MOVABLE.get().copied().filter(|_| POSSIBLE.load(Relaxed))
}

/// Constructor, run when this library is loaded: hooks call what lies here before the driver's functions.
#[used]
#[unsafe(link_section = ".init_array")]
static LIE_BENEATH: extern "C" fn() = {
    extern "C" fn lie_beneath() {
        beneath::put(&Beneath { before: under, behind: driver_function });
    }
    lie_beneath
};

/// Function for calls of a hook instead of the driver's: the latched one in a program whose memory is movable.
#[cold]
fn under(hook: &Hook, real: *mut c_void) -> *mut c_void {
    if hook.platform != CUDA || real.is_null() || !is_wanted() { real } else { latched::before(hook, real) }
}

/// The driver's function behind a latched one; any other address as it is.
#[cold]
fn driver_function(address: usize) -> usize {
    if MOVABLE.get().is_none() && !latched::is_used() { address } else { latched::behind(address) }
}

/// Makes a driver's call that touches device memory, once the latch is open.
fn pass<T>(call: impl FnOnce() -> T) -> T {
    let Some(movable) = movable() else { return call() };
    let thread = INSIDE.get().unwrap_or_else(|| {
        let fresh: &'static Inside<Hardware> = Box::leak(Box::default());
        movable.threads.lock().push(fresh);
        INSIDE.set(Some(fresh));
        fresh
    });
    let entry = movable.latch.enter(thread, |seen| {
        movable.latch.ask_back();
        movable.latch.sleep(seen, SLEEP_NS);
    });
    // Without clean-up while the driver runs, see `pipeline::enqueue`.
    let result = call();
    movable.latch.leave(thread, entry);
    result
}

/// Counts of moves, and of those that ended with an error; `None` without memory that can move.
pub(super) fn counts() -> Option<(u64, u64)> {
    MOVABLE.get().map(|movable| (movable.moves.load(Relaxed), movable.failures.load(Relaxed)))
}

/// Ends everything here, in a forked child, which has no mover and may not call the driver.
pub(super) fn forget_all() {
    POSSIBLE.store(false, Relaxed);
    pins::forget_all();
}
