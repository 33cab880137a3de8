//! `hipRegisterScheduler` of `include/xsched/scheduler.h`: stores the table of an operator's own scheduler, in the
//! process that the daemon starts for it.
#![allow(non_snake_case)] // published names

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use xsched_proto::variables;

/// Success, and two errors in both vendors' numbering.
const OK: c_int = 0;
const INVALID_VALUE: c_int = 1;
const NOT_SUPPORTED: c_int = 801;

/// Versions of the table: 1 decides for groups, 2 for streams.
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=2;

/// `XSchedScheduler` or `XSchedStreamScheduler`. They differ in the arguments of their callbacks, which are not called
/// here.
#[repr(C)]
#[derive(Clone, Copy)]
struct Table {
    size: usize,
    version: u32,
    pointers: [*mut c_void; 4],
}

// SAFETY: plain values; what the pointers mean is up to the one thread that calls them.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

static TABLE: OnceLock<Table> = OnceLock::new();

/// # Safety
/// `table` is null or begins with its own size and version, as scheduler.h says.
unsafe fn register(table: *const Table) -> c_int {
    if variables::get("XSCHED_SCHEDULER_HOST").is_none() {
        return NOT_SUPPORTED;
    }
    if table.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: by the caller's promise; the whole table only once its size is known.
    unsafe {
        if (&raw const (*table).size).read() < size_of::<Table>()
            || !VERSIONS.contains(&(&raw const (*table).version).read())
        {
            return INVALID_VALUE;
        }
        match TABLE.set(*table) {
            Ok(()) => OK,
            Err(_) => INVALID_VALUE,
        }
    }
}

// SAFETY: the caller's promise is the header's.
#[unsafe(no_mangle)]
unsafe extern "C" fn hipRegisterScheduler(table: *const Table) -> c_int {
    // SAFETY: as above.
    unsafe { register(table) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn XRegisterScheduler(table: *const Table) -> c_int {
    // SAFETY: as above.
    unsafe { register(table) }
}

// SAFETY: no arguments.
#[unsafe(no_mangle)]
extern "C" fn XRegisteredScheduler() -> *const Table {
    TABLE.get().map_or(std::ptr::null(), std::ptr::from_ref)
}

/// Names of all functions exported here, for the audit of the library's exports.
pub const NAMES: &[&str] = &["hipRegisterScheduler", "XRegisterScheduler", "XRegisteredScheduler"];
