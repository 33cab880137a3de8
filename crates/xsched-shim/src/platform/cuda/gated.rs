//! Executable graphs with gates inside, and their numbers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};

use super::gate_nodes::{Gated, Refusal};
use super::types::*;
use crate::interpose::near;
use crate::lock::Lock;

/// Set once a graph of this process got gates.
pub(super) static SOME: AtomicBool = AtomicBool::new(false);
/// Number of graphs that got gates, and of those that should have but could not.
static GATED: AtomicU64 = AtomicU64::new(0);
static PLAIN: AtomicU64 = AtomicU64::new(0);
/// Reason for the first graph that could not.
static REFUSAL: Lock<Option<Refusal>> = Lock::new();

/// Stream into which graphs are launched, plus one; 0 = no graph was launched yet.
pub(super) static STREAM: AtomicUsize = AtomicUsize::new(0);

/// Clones behind the executable graphs that have gates.
static READY: Lock<HashMap<usize, Arc<Gated>>> = Lock::new();

/// Number of graphs instantiated with gates, number of graphs that could not be, and the reason for the first of these.
pub(crate) fn counts() -> (u64, u64, Option<&'static str>) {
    (GATED.load(Relaxed), PLAIN.load(Relaxed), *REFUSAL.lock())
}

/// Resets all state, in a forked child.
pub(super) fn forget_all() {
    READY.forget();
    REFUSAL.forget();
    SOME.store(false, Relaxed);
    GATED.store(0, Relaxed);
    PLAIN.store(0, Relaxed);
    STREAM.store(0, Relaxed);
}

/// The clone behind an executable graph, if it has gates.
#[inline]
pub(super) fn of(exec: CUgraphExec) -> Option<Arc<Gated>> {
    if !near!(SOME).load(Acquire) {
        return None;
    }
    READY.lock().get(&(exec as usize)).cloned()
}

/// Removes the clone behind an executable graph.
pub(super) fn take(exec: CUgraphExec) -> Option<Arc<Gated>> {
    of(exec).and_then(|_| READY.lock().remove(&(exec as usize)))
}

/// Counts a graph that got gates.
pub(super) fn accepted() {
    GATED.fetch_add(1, Relaxed);
}

/// Counts a graph that should have got gates but could not.
pub(super) fn refused(why: Refusal) {
    PLAIN.fetch_add(1, Relaxed);
    REFUSAL.lock().get_or_insert(why);
}

/// Records the clone behind a new executable graph. Its handle may be that of an earlier one that ended with its
/// context.
pub(super) fn remember(exec: CUgraphExec, gated: Option<Arc<Gated>>) {
    let mut ready = READY.lock();
    let is_gated = gated.is_some();
    let before = match gated {
        Some(gated) => ready.insert(exec as usize, gated),
        None => ready.remove(&(exec as usize)),
    };
    // Drops the old clone, which calls the driver, without our lock held.
    drop(ready);
    drop(before);
    if is_gated {
        SOME.store(true, Release);
    }
}
