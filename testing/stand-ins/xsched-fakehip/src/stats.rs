//! Counts of the operations performed, for tests to compare with other counts.

use crate::result::{Error, Result};
use fakecuda::Failures;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of the operations that this copy of the runtime submitted: all `u64`, in this order, for
        /// `fakehipGetCounters`.
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)*
        }

        pub(crate) static COUNTERS: Counters = Counters { $($name: AtomicU64::new(0),)* };

        /// Names and values, in the order of the fields.
        pub(crate) fn values() -> Vec<(&'static str, u64)> {
            vec![$((stringify!($name), COUNTERS.$name.load(Relaxed)),)*]
        }
    };
}

counters! {
    /// Calls of launch, copy and set functions that submitted work to the device. Calls that failed, that a capture
    /// recorded, or that another function of this library made are not counted.
    commands,
    /// Launches of kernels, including those of graphs.
    kernels,
    /// Launches among `kernels` of kernels for which no host code exists: they took device time and did nothing.
    unknown_kernels,
    /// Copies, including those of graphs.
    copies,
    /// Sets, including those of graphs.
    sets,
    /// Launches of graphs.
    graph_launches,
    /// Waits for a value.
    waits,
    /// Writes of a value.
    writes,
    /// Records of events.
    records,
    /// Commands recorded by a capture, not run.
    captured,
    /// Registrations of kernels by host address.
    registered,
    /// Calls that no correct program makes.
    misuse,
    /// Calls of functions that are not implemented.
    unsupported,
}

pub(crate) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

pub(crate) fn add_all(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Relaxed);
}

pub(crate) static FAILURES: Failures = Failures::new("FAKEHIP");

/// Number of calls whose texts of misuse are kept.
const KEPT: usize = 32;

static MISUSE: Mutex<Vec<String>> = Mutex::new(Vec::new());
static UNSUPPORTED: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

/// Counts a call that no correct program makes, and keeps its text. With FAKEHIP_STRICT it aborts instead.
pub(crate) fn misuse(what: &str) {
    add(&COUNTERS.misuse);
    if is_set("FAKEHIP_STRICT") {
        eprintln!("fakehip: {what}");
        std::process::abort();
    }
    let mut texts = MISUSE.lock().unwrap_or_else(|e| e.into_inner());
    if texts.len() < KEPT {
        texts.push(what.into());
    }
}

/// Counts a misuse and returns its error.
pub(crate) fn wrong<T>(what: &str, error: Error) -> Result<T> {
    misuse(what);
    Err(error)
}

/// Reports whether a variable of the environment is set to something other than 0.
pub(crate) fn is_set(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| !value.is_empty() && value != "0")
}

pub(crate) fn unsupported(name: &str) {
    add(&COUNTERS.unsupported);
    *UNSUPPORTED.lock().unwrap_or_else(|e| e.into_inner()).entry(name.into()).or_default() += 1;
}

/// Numbers by name.
pub(crate) type Map = serde_json::Map<String, Value>;

/// Appends a line of JSON to the file that FAKEHIP_STATS names. Called at the end of the process. `calls` and
/// `commands` hold the numbers of each function.
pub(crate) fn report(major: c_int, calls: Map, commands: Map) {
    let Some(path) = std::env::var_os("FAKEHIP_STATS").filter(|path| !path.is_empty()) else { return };
    let mut line = serde_json::Map::new();
    line.insert("pid".into(), std::process::id().into());
    line.insert("major".into(), major.into());
    line.extend(values().into_iter().map(|(name, value)| (name.into(), value.into())));
    line.insert("calls".into(), calls.into());
    line.insert("commands_of".into(), commands.into());
    let unsupported = UNSUPPORTED.lock().unwrap_or_else(|e| e.into_inner()).clone();
    line.insert("unsupported_calls".into(), unsupported.into_iter().map(|(k, v)| (k, Value::from(v))).collect());
    if let Some((counted, failed)) = FAILURES.told() {
        line.insert("counted".into(), counted.into());
        line.insert("failed".into(), failed.into());
    }
    line.insert("misused".into(), MISUSE.lock().unwrap_or_else(|e| e.into_inner()).clone().into());
    let unknown = COUNTERS.unknown_kernels.load(Relaxed);
    if unknown != 0 {
        let note = format!("{unknown} launches were of kernels that this runtime cannot run: they took time, no more");
        line.insert("note".into(), note.into());
    }
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let text = format!("{}\n", Value::Object(line));
    // If this fails, the test that set the variable misses the line.
    let _ = file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
}

/// Stores the first `room` of the counters at `out`, and returns the number of counters.
///
/// # Safety
/// `out` has room for `room` words.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub(crate) unsafe extern "C" fn fakehipGetCounters(out: *mut u64, room: usize) -> usize {
    let values = values();
    for (index, (_, value)) in values.iter().take(room).enumerate() {
        // SAFETY: the caller guarantees the room.
        unsafe { out.add(index).write(*value) };
    }
    values.len()
}
