//! Memory of CUDA programs: counted, limited, and reported as if the device had the limit's size.
//!
//! - [`device`]: the device of a call and its slot; [`driver`]: the driver's functions that only this folder calls.
//! - [`keeper`]: CUDA for [claims](crate::platform::shared::memory); [`calls`]: the hooks' common steps.
//! - One file for each way to get memory: [`plain`], [`arrays`], [`host`], [`pools`], [`virtuals`], [`graphs`], and
//!   [`overhead`] for contexts. `docs/internals/cuda.md` has the table of ways.
//! - [`moved`]: memory that leaves its device and comes back; [`instead`]: what this library has in place of the driver's.
//! - [`figures`]: the driver's answers on free and total memory; [`nvml`]: those of NVIDIA's management library.

#[allow(non_snake_case)] // vendor names
pub(super) mod arrays;
mod calls;
mod device;
mod driver;
#[allow(non_snake_case)] // vendor names
pub(super) mod figures;
#[allow(non_snake_case)] // vendor names
pub(super) mod graphs;
#[allow(non_snake_case)] // vendor names
pub(super) mod host;
pub(super) mod instead;
mod keeper;
pub(super) mod moved;
#[allow(non_snake_case)] // vendor names
pub(super) mod nvml;
pub(super) mod overhead;
#[allow(non_snake_case)] // vendor names
pub(super) mod plain;
#[allow(non_snake_case)] // vendor names
pub(super) mod pools;
#[allow(non_snake_case)] // vendor names
pub(super) mod virtuals;

use super::types::*;
use crate::platform::shared::memory::{Entry, account, table};
use crate::process;

/// Makes the device of a new context known to the daemon, and counts what the context itself takes, given the state before
/// it was made.
pub(super) fn context_made(real: *mut c_void, device: CUdevice, context: usize, before: Option<overhead::Before>) {
    if let Some(slot) = device::by_number(real, device)
        && let Some(before) = before
    {
        before.made(slot, context);
    }
}

/// Counts out what ended with a context (`None` = one that is not known).
pub(super) fn context_ended(context: Option<usize>) {
    device::forget_current();
    if let Some(context) = context {
        table::remove_all(context).iter().for_each(Entry::count_out);
        overhead::ended(context);
    }
    pools::refresh_all();
    graphs::refresh_all();
}

/// Reports whether this process measures what a new context takes: under a limit of its own. NVIDIA's library takes some 50 ms to
/// answer. A daemon, which has it open, measures all processes.
pub(super) fn measures_contexts(real: *mut c_void, device: CUdevice) -> bool {
    device::by_number(real, device).is_some_and(|slot| !account::is_unlimited(slot))
        && process::running().is_some_and(|rt| !rt.has_memory_daemon())
}

/// Drops what is known of a stream that is being destroyed.
pub(super) fn stream_ended(stream: CUstream) {
    device::forget_stream(stream);
}

/// Resets all state, in a forked child.
pub(super) fn forget_all() {
    device::forget_all();
    table::forget_all();
    pools::forget_all();
    virtuals::forget_all();
    overhead::forget_all();
    graphs::forget_all();
}
