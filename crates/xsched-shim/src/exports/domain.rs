//! The exported functions of `include/xsched/domain.h`, under their names for HIP and for CUDA.
#![allow(non_snake_case)] // published names

use std::ffi::c_int;

use xsched_core::inspect::Domain;

use crate::domain::{self, sites};
use crate::{platform, process};

/// Success in both vendors' numbering, as are the errors below.
const OK: c_int = 0;
const INVALID_VALUE: c_int = 1;
const OUT_OF_MEMORY: c_int = 2;
const ILLEGAL_STATE: c_int = 401;

const SYSTEM: c_int = 0;
const APPLICATION: c_int = 1;
const AUTO: c_int = 2;

/// The domain of a number; `Some(None)` = automatic.
fn domain_of(number: c_int) -> Option<Option<Domain>> {
    match number {
        SYSTEM => Some(Some(Domain::System)),
        APPLICATION => Some(Some(Domain::Application)),
        AUTO => Some(None),
        _ => None,
    }
}

/// Runs the body of an entry point. A panic in it is returned as an error.
fn guarded(part: impl FnOnce() -> c_int) -> c_int {
    process::guarded("in a scheduling domain function", part).unwrap_or(ILLEGAL_STATE)
}

unsafe extern "C" fn set(number: c_int, caller: usize) -> c_int {
    guarded(|| {
        let Some(domain) = domain_of(number) else { return INVALID_VALUE };
        domain::look(platform::hooked_names);
        if sites::set(caller, domain) { OK } else { ILLEGAL_STATE }
    })
}

unsafe extern "C" fn get(place: *mut c_int, caller: usize) -> c_int {
    guarded(|| {
        if place.is_null() {
            return INVALID_VALUE;
        }
        let number = match sites::explicit(caller) {
            Some(Domain::System) => SYSTEM,
            Some(Domain::Application) => APPLICATION,
            None => AUTO,
        };
        // SAFETY: the caller's own place, not null.
        unsafe { *place = number };
        OK
    })
}

unsafe extern "C" fn push(number: c_int) -> c_int {
    guarded(|| {
        let Some(domain) = domain_of(number) else { return INVALID_VALUE };
        domain::look(platform::hooked_names);
        if sites::push(domain) { OK } else { OUT_OF_MEMORY }
    })
}

unsafe extern "C" fn pop() -> c_int {
    guarded(|| if sites::pop() { OK } else { ILLEGAL_STATE })
}

/// Exports functions of one argument. The implementation also gets the return address, which identifies the calling
/// library.
macro_rules! exported {
    ($($name:ident => $implementation:path;)*) => {
        $(
            // SAFETY: the argument stays where it is; the second one's register is free at a function's entry.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                core::arch::naked_asm!("mov rsi, qword ptr [rsp]", "jmp {}", sym $implementation)
            }
        )*
    };
}

exported! {
    hipSetSchedulingDomain => set;
    hipGetSchedulingDomain => get;
    hipPushSchedulingDomain => push;
    hipPopSchedulingDomain => pop;
    XSetSchedulingDomain => set;
    XGetSchedulingDomain => get;
    XPushSchedulingDomain => push;
    XPopSchedulingDomain => pop;
}

// SAFETY: as `set`; `within` is only compared with where objects lie.
#[unsafe(no_mangle)]
unsafe extern "C" fn XSetSchedulingDomainFor(number: c_int, within: usize) -> c_int {
    // SAFETY: plain numbers.
    unsafe { set(number, within) }
}

// SAFETY: as `get`.
#[unsafe(no_mangle)]
unsafe extern "C" fn XGetSchedulingDomainFor(place: *mut c_int, within: usize) -> c_int {
    // SAFETY: the caller's own place.
    unsafe { get(place, within) }
}

/// Names of all functions exported here, for the audit of the library's exports.
pub const NAMES: &[&str] = &[
    "hipSetSchedulingDomain",
    "hipGetSchedulingDomain",
    "hipPushSchedulingDomain",
    "hipPopSchedulingDomain",
    "XSetSchedulingDomain",
    "XGetSchedulingDomain",
    "XPushSchedulingDomain",
    "XPopSchedulingDomain",
    "XSetSchedulingDomainFor",
    "XGetSchedulingDomainFor",
];
