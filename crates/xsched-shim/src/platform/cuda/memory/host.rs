//! Pinned memory of the host: counted by itself, under no limit of a device.

use super::super::types::*;
use super::super::{real, sig};
use super::calls::{address_at, lend, memory_calls};
use super::device;
use crate::interpose::hooks;
use crate::platform::shared::memory::{Entry, Part, account, steps::frees, table};
use crate::process;

/// Runs a call that pins memory, whose address `at` returns afterwards.
fn pins(real: *mut c_void, bytes: u64, call: impl FnOnce() -> CUresult, at: impl FnOnce() -> u64) -> CUresult {
    let rc = lend(real, call);
    if rc == SUCCESS {
        process::guarded("after memory was pinned", || {
            let here = device::current(real)?;
            account::add(here.slot, Part::Host, bytes);
            let entry = Entry { bytes, context: here.context, slot: here.slot, part: Part::Host, exported: false };
            table::insert(at(), entry);
            Some(())
        });
    }
    rc
}

fn allocated(real: *mut c_void, place: *mut c_void, bytes: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    pins(real, bytes, call, || address_at::<u64>(place))
}

fn registered(real: *mut c_void, address: *mut c_void, bytes: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    pins(real, bytes, call, || address as u64)
}

fn freed(real: *mut c_void, address: *mut c_void, call: impl FnOnce() -> CUresult) -> CUresult {
    frees(address as u64, || lend(real, call))
}

memory_calls! {
    PINNED: Sync;
    fn cuMemAllocHost(pp: *mut c_void, bytesize: c_uint) [allocated(pp, bytesize.into())];
    fn cuMemAllocHost_v2(pp: *mut c_void, bytesize: usize) [allocated(pp, bytesize as u64)];
    fn cuMemFreeHost(p: *mut c_void) [freed(p)];
    fn cuMemHostAlloc(pp: *mut c_void, bytesize: usize, Flags: c_uint) [allocated(pp, bytesize as u64)];
    fn cuMemHostRegister(p: *mut c_void, bytesize: usize, Flags: c_uint) [registered(p, bytesize as u64)];
    fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, Flags: c_uint) [registered(p, bytesize as u64)];
    fn cuMemHostUnregister(p: *mut c_void) [freed(p)];
}
