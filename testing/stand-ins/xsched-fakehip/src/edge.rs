//! Boundary of the C API: the common beginning and end of every entry point.

use crate::result::{Error, Result};
use crate::{runtime, stats};
use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Meaning of a null stream handle: entry points come in two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Null {
    /// The device's null stream.
    Legacy,
    /// This thread's default stream (`_spt`).
    PerThread,
}

/// Condition that an entry point checks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// No condition.
    Nothing,
    /// A device, whose context is created if it is missing.
    Device,
}

/// Numbers of calls of one function.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) calls: AtomicU64,
    /// Number of calls that [`stats::Counters::commands`] counts.
    pub(crate) commands: AtomicU64,
}

impl Counts {
    pub(crate) const fn new() -> Self {
        Self { calls: AtomicU64::new(0), commands: AtomicU64::new(0) }
    }
}

thread_local! {
    /// Number of functions of this library on this thread's stack.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Set once the outermost of these functions has submitted a command.
    static GAVE: Cell<bool> = const { Cell::new(false) };
    static LAST_ERROR: Cell<c_int> = const { Cell::new(0) };
}

/// Notes that the running call has submitted a command.
pub(crate) fn gave() {
    GAVE.set(true);
}

/// Result of the thread's last call, until `clear` resets it. In HIP 7 it is the last error instead, however many calls
/// have succeeded since.
pub(crate) fn last_error(clear: bool) -> c_int {
    if clear { LAST_ERROR.replace(0) } else { LAST_ERROR.get() }
}

fn keeps_errors() -> bool {
    crate::lookup::major() >= 7
}

/// Runs the body of an entry point. A panic here is a defect of this library, but must not cross into C.
pub(crate) fn edge(need: Need, counts: &Counts, name: &str, body: impl FnOnce() -> Result<()>) -> c_int {
    counts.calls.fetch_add(1, Relaxed);
    let depth = DEPTH.get();
    if depth == 0 {
        GAVE.set(false);
    }
    DEPTH.set(depth + 1);
    let checked = || {
        // An injected failure hits calls of programs only: a call from within is part of the call that made it.
        if depth == 0
            && let Some(code) = stats::FAILURES.of(name)
        {
            return Err(Error(code));
        }
        if need == Need::Device {
            runtime::enter()?;
        }
        body()
    };
    let result = catch_unwind(AssertUnwindSafe(checked)).unwrap_or_else(|_| {
        stats::misuse(&format!("{name}: panic"));
        Err(Error::UNKNOWN)
    });
    DEPTH.set(depth);
    match result {
        Ok(()) => {
            if depth == 0 && GAVE.get() {
                counts.commands.fetch_add(1, Relaxed);
                stats::add(&stats::COUNTERS.commands);
            }
            if !keeps_errors() {
                LAST_ERROR.set(0);
            }
            0
        }
        Err(error) => {
            if error != Error::NOT_READY || !keeps_errors() {
                LAST_ERROR.set(error.0);
            }
            error.0
        }
    }
}
