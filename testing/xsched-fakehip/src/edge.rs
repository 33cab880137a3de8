//! Where the C API begins and ends: what every entry point does first and last.

use crate::result::{Error, Result};
use crate::{runtime, stats};
use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Which stream a null handle means: entry points come in two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Null {
    /// The device's null stream.
    Legacy,
    /// This thread's default stream (`_spt`).
    PerThread,
}

/// What an entry point needs before it does anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing.
    Nothing,
    /// A device, with its context made.
    Device,
}

/// How often a function was called.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) calls: AtomicU64,
    /// Those that are part of [`stats::Counters::commands`].
    pub(crate) commands: AtomicU64,
}

impl Counts {
    pub(crate) const fn new() -> Self {
        Self { calls: AtomicU64::new(0), commands: AtomicU64::new(0) }
    }
}

thread_local! {
    /// Functions of this library that this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// A command of the outermost of them went to the device.
    static GAVE: Cell<bool> = const { Cell::new(false) };
    static LAST_ERROR: Cell<c_int> = const { Cell::new(0) };
}

/// The call that is running gave a command to the device.
pub(crate) fn gave() {
    GAVE.set(true);
}

/// The result of the thread's last call, until it is asked for; in HIP 7 the last error instead, whatever succeeded since.
pub(crate) fn last_error(clear: bool) -> c_int {
    if clear { LAST_ERROR.replace(0) } else { LAST_ERROR.get() }
}

fn keeps_errors() -> bool {
    crate::lookup::major() >= 7
}

/// Runs the body of an entry point. A panic here is a defect of ours, but must not cross into C.
pub(crate) fn edge(need: Need, counts: &Counts, name: &str, body: impl FnOnce() -> Result<()>) -> c_int {
    counts.calls.fetch_add(1, Relaxed);
    let depth = DEPTH.get();
    if depth == 0 {
        GAVE.set(false);
    }
    DEPTH.set(depth + 1);
    let checked = || {
        // Calls from within are part of the one that made them.
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
