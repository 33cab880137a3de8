//! Start and end of the library in a process.

use crate::lookup::{self, PLT, Symbol, major};
use crate::stats;
use crate::table::{Entry, TABLE};
use std::ffi::c_int;
use std::sync::atomic::Ordering::Relaxed;

/// Stores the facts about the linked library, whose constructor calls this.
///
/// # Safety
/// `symbols` points to `count` symbols, `plt` to an array of addresses; both are static.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fakehip_start(
    major: c_int,
    symbols: *const Symbol,
    count: usize,
    plt: *const [usize; PLT],
) {
    // SAFETY: the caller's duty is the same.
    if unsafe { lookup::begin(major, symbols, count, plt) } {
        // SAFETY: the handler lives as long as the process: the library is never unloaded.
        unsafe { libc::atexit(report) };
    }
}

extern "C" fn report() {
    let of = |count: fn(&Entry) -> u64| -> stats::Map {
        let used = TABLE.iter().map(|entry| (entry.name, count(entry))).filter(|&(_, count)| count != 0);
        used.map(|(name, count)| (name.to_string(), count.into())).collect()
    };
    stats::report(
        major(),
        of(|entry| entry.counts.calls.load(Relaxed)),
        of(|entry| entry.counts.commands.load(Relaxed)),
    );
}
