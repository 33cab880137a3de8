//! Counts of the operations performed, for tests to compare with other counts.

use crate::counts;
use crate::fail::FAILURES;
use serde_json::Value;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of this process's operations: all `u64`, in this order, for `fakeGetCounters`.
        #[derive(Debug)]
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)*
        }

        pub(crate) static COUNTERS: Counters = Counters { $($name: AtomicU64::new(0),)* };

        impl Counters {
            fn all(&self) -> Vec<&AtomicU64> {
                vec![$(&self.$name),*]
            }
        }

        /// Names and values, in the order of the fields.
        pub(crate) fn values() -> Vec<(&'static str, u64)> {
            vec![$((stringify!($name), COUNTERS.$name.load(Relaxed)),)*]
        }
    };
}

counters! {
    /// Kernels, including those of graphs.
    kernels,
    /// Kernels that were nodes of a launched graph.
    graph_kernels,
    /// Copies, including those of graphs.
    copies,
    /// Copies that were nodes of a launched graph.
    graph_copies,
    /// Sets, including those of graphs.
    sets,
    /// Sets that were nodes of a launched graph.
    graph_sets,
    /// Launches of graphs.
    graph_launches,
    /// Host functions and callbacks that have returned.
    host_functions,
    /// Waits for a value.
    waits,
    /// Writes of a value.
    writes,
    /// Records of events.
    records,
    /// Commands recorded by a capture, not run.
    captured,
    /// Contexts created.
    contexts,
    /// Ranges of addresses for commands that were on the host at the call, in part at least.
    host_ranges,
    /// Calls that no correct program makes.
    illegal,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }
}

/// Numbers of handles of memory and of ranges of addresses that are left, given once there are some.
static LEFT: OnceLock<fn() -> (usize, usize)> = OnceLock::new();

/// Has the report tell what is left.
pub(crate) fn tell_left(left: fn() -> (usize, usize)) {
    let _ = LEFT.set(left);
}

/// Number of illegal calls whose texts are kept.
const KEPT: usize = 32;

static ILLEGAL: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Counts a call that no correct program makes, and keeps its text.
pub(crate) fn illegal(what: String) {
    Counters::add(&COUNTERS.illegal);
    let mut texts = ILLEGAL.lock().unwrap_or_else(|e| e.into_inner());
    if texts.len() < KEPT {
        texts.push(what);
    }
}

/// Resets all counts, in a forked child.
pub(crate) fn reset() {
    counts::ALL.iter().for_each(|(_, counter)| counter.store(0, Relaxed));
    COUNTERS.all().into_iter().for_each(|counter| counter.store(0, Relaxed));
}

/// Appends a line of JSON to the file that FAKECUDA_STATS names. Called at the end of the process.
pub(crate) extern "C" fn report() {
    let Some(path) = std::env::var_os("FAKECUDA_STATS").filter(|path| !path.is_empty()) else { return };
    let mut line = serde_json::Map::new();
    line.insert("pid".into(), std::process::id().into());
    line.extend(values().into_iter().map(|(name, value)| (name.into(), value.into())));
    let calls = counts::ALL.iter().map(|(name, count)| (name, count.load(Relaxed))).filter(|&(_, count)| count != 0);
    line.insert("calls".into(), calls.map(|(name, count)| (name.to_string(), Value::from(count))).collect());
    if let Some((counted, failed)) = FAILURES.told() {
        line.insert("counted".into(), counted.into());
        line.insert("failed".into(), failed.into());
    }
    let (handles, ranges) = LEFT.get().map_or((0, 0), |left| left());
    line.insert("handles".into(), handles.into());
    line.insert("ranges".into(), ranges.into());
    line.insert("illegal_calls".into(), ILLEGAL.lock().map(|texts| texts.clone()).unwrap_or_default().into());
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let text = format!("{}\n", Value::Object(line));
    // If this fails, the test that set the variable misses the line.
    let _ = file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
}
