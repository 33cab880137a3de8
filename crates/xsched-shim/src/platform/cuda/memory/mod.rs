//! Memory of the process on its devices: counted, limited, and reported as if the device had the limit's size.
//!
//! - [`account`]: the words that the daemon shares ([`MemorySlot`](xsched_proto::account::MemorySlot)), what is claimed
//!   before an allocation, and refusals.
//! - [`device`]: the device of a call and its slot; [`driver`]: the driver's functions that only this folder calls.
//! - [`table`]: allocations by address, so that a free subtracts what was added.
//! - One file for each way to get memory: [`plain`], [`arrays`], [`host`], [`pools`], [`virtuals`], [`graphs`], and
//!   [`overhead`] for contexts. `docs/internals/cuda.md` has the table of ways.
//! - [`moved`]: memory that leaves its device and comes back; [`instead`]: what this library has in place of the driver's.
//! - [`figures`]: the driver's answers on free and total memory; [`nvml`]: those of NVIDIA's management library.
//!
//! An allocation is counted before the driver is called, so that two threads cannot both take the last of an allowance,
//! and counted out again if the driver refuses it. Memory is counted out after the driver has freed it. An address that
//! is not in the table was allocated unseen: the driver is called, and nothing is counted.

mod account;
#[allow(non_snake_case)] // vendor names
pub(super) mod arrays;
mod device;
mod driver;
#[allow(non_snake_case)] // vendor names
pub(super) mod figures;
#[allow(non_snake_case)] // vendor names
pub(super) mod graphs;
#[allow(non_snake_case)] // vendor names
pub(super) mod host;
pub(super) mod instead;
pub(super) mod moved;
#[allow(non_snake_case)] // vendor names
pub(super) mod nvml;
pub(super) mod overhead;
#[allow(non_snake_case)] // vendor names
pub(super) mod plain;
#[allow(non_snake_case)] // vendor names
pub(super) mod pools;
mod table;
#[allow(non_snake_case)] // vendor names
pub(super) mod virtuals;

use account::Part;
use table::Entry;

use super::api::Api;
use super::pool::noting;
use super::types::*;
use crate::platform::shared::waits::lending_call;
use crate::process;

/// CUDA_ERROR_OUT_OF_MEMORY.
const OUT_OF_MEMORY: CUresult = 2;

/// Hooks functions that have to do with memory, each with the function that handles it and what that needs besides the
/// address of the real function and the call.
macro_rules! memory_calls {
    (
        $list:ident: $class:ident;
        $(fn $name:ident($($arg:ident: $ty:ty),*) [$way:ident($($given:expr),*)];)*
    ) => {
        $(
            unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                $way(real, $($given,)* || unsafe { function($($arg),*) })
            }
        )*
        hooks! { CUDA, $list: $class; $($name)* }
    };
}
use memory_calls;

/// Runs a call that may wait for the device.
fn lend(real: *mut c_void, call: impl FnOnce() -> CUresult) -> CUresult {
    noting(lending_call::<Api, _>(real, call))
}

/// Runs a call that allocates memory of the current device. `bytes` is its size as far as it is known before. After a
/// success `made` returns the address and the exact size.
fn allocates(
    real: *mut c_void,
    part: Part,
    bytes: u64,
    call: impl Fn() -> CUresult,
    made: impl FnOnce() -> (u64, u64),
) -> CUresult {
    let claimed = process::guarded("before an allocation", || {
        let here = device::current(real)?;
        Some((here, account::claim(here.slot, bytes)))
    });
    let here = match claimed.flatten() {
        Some((_, account::Claim::Refused)) => return OUT_OF_MEMORY,
        Some((here, account::Claim::Counted)) => here,
        Some((_, account::Claim::Uncounted)) | None => return lend(real, call),
    };
    let rc = account::with_room(here.slot, bytes, || lend(real, &call));
    process::guarded("after an allocation", || {
        if rc != SUCCESS {
            account::unclaim(here.slot, bytes);
            return;
        }
        let (address, exact) = made();
        account::settle(here.slot, part, bytes, exact);
        table::insert(address, Entry { bytes: exact, context: here.context, slot: here.slot, part, exported: false });
    });
    rc
}

/// Runs a call that frees what begins at an address.
fn frees(address: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    // Taken out before the driver can give the address to another thread.
    let Some(entry) = process::guarded("before memory is freed", || table::remove(address)).flatten() else {
        return call();
    };
    let rc = call();
    process::guarded("after memory was freed", || {
        if rc == SUCCESS {
            entry.count_out();
        } else {
            table::insert(address, entry);
        }
    });
    rc
}

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

/// Reports whether a device's memory is limited for this process. Only then its contexts are measured, since NVIDIA's library takes
/// some 50 ms to answer.
pub(super) fn is_limited(real: *mut c_void, device: CUdevice) -> bool {
    device::by_number(real, device).is_some_and(|slot| !account::is_unlimited(slot))
}

/// Memory by device at this moment, in bytes, as a further member of a JSON object; empty if none was counted.
fn members() -> String {
    let devices: Vec<String> = device::slots().filter_map(account::described).collect();
    if devices.is_empty() { String::new() } else { format!(",\"memory\":[{}]", devices.join(",")) }
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
