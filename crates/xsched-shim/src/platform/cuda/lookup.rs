//! `cuGetProcAddress`: returns the driver's answer, or a stub of ours if that is a hooked function.

use super::types::*;
use super::{real, sig};
use crate::enabled::CUDA;
use crate::interpose::hooks;
use crate::platform::shared::lookup;

fn answered(real: *mut c_void, found: *mut c_void) {
    lookup::answered(CUDA, super::HOOKS, real, found);
}

unsafe extern "C" fn cuGetProcAddress(symbol: *mut c_void, found: *mut c_void, version: c_int, flags: u64) -> CUresult {
    let (real, function) = real!(cuGetProcAddress);
    // SAFETY: the caller's own arguments.
    let rc = unsafe { function(symbol, found, version, flags) };
    if rc == SUCCESS {
        answered(real, found);
    }
    rc
}

unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *mut c_void,
    found: *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_void,
) -> CUresult {
    let (real, function) = real!(cuGetProcAddress_v2);
    // SAFETY: the caller's own arguments.
    let rc = unsafe { function(symbol, found, version, flags, status) };
    if rc == SUCCESS {
        answered(real, found);
    }
    rc
}

hooks! { CUDA, LOOKUPS: Lookup; cuGetProcAddress cuGetProcAddress_v2 }
