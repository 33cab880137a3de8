//! Calls that allocate and free.

use std::ffi::c_int;

use super::super::SUCCESS;
use super::Here;
use super::account::{self, Part};
use super::claims::{self, Claim, Keeper};
use super::table::{self, Entry};
use crate::process;

/// Runs a call that allocates memory on the device that `at` returns; `None` = its memory is not counted. `bytes` is the
/// size as far as it is known before. After a success `made` returns the address and the exact size.
pub(crate) fn allocates<K: Keeper>(
    part: Part,
    bytes: u64,
    at: impl FnOnce() -> Option<Here>,
    call: impl Fn() -> c_int,
    made: impl FnOnce() -> (u64, u64),
) -> c_int {
    let claimed = process::guarded("before an allocation", || {
        let here = at()?;
        Some((here, claims::claim::<K>(here.slot, bytes)))
    });
    let (here, claim) = match claimed.flatten() {
        Some((_, Claim::Refused)) => return K::OUT_OF_MEMORY,
        Some((_, Claim::Uncounted)) | None => return call(),
        Some(counted) => counted,
    };
    let rc = claims::with_room::<K>(here.slot, bytes, claim, call);
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
pub(crate) fn frees(address: u64, call: impl FnOnce() -> c_int) -> c_int {
    if !table::may_have(address) {
        return call();
    }
    // Taken out before the library can give the address to another thread.
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
