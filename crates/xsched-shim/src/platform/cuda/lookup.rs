//! `cuGetProcAddress`: what it hands out is what the driver answers, behind a stub of ours where that is a hooked function.
//!
//! No table of versions: the driver's answer is the address of one of its exported functions, and which one is looked up
//! by address.

use std::sync::Mutex;

use super::types::*;
use super::{real, sig};
use crate::interpose::{Hook, hooks, resolve};
use crate::platform::CUDA;
use crate::process;

/// The hooked functions of one copy of the driver: its load address, and the address of each.
type Copy = (usize, Vec<(usize, &'static Hook)>);

static COPIES: Mutex<Vec<Copy>> = Mutex::new(Vec::new());

/// The hook of the function at `given`, which `giver` handed out.
fn hook_at(given: usize, giver: usize) -> Option<&'static Hook> {
    let base = resolve::object_of(giver)?.0;
    let find = |copies: &[Copy]| {
        let (_, functions) = copies.iter().find(|(at, _)| *at == base)?;
        Some(functions.binary_search_by_key(&given, |(address, _)| *address).ok().map(|at| functions[at].1))
    };
    if let Some(known) = find(&COPIES.lock().unwrap_or_else(|e| e.into_inner())) {
        return known;
    }
    // Not under our lock: the loader has locks of its own.
    let mut functions: Vec<(usize, &'static Hook)> = super::HOOKS
        .iter()
        .copied()
        .flatten()
        .map(|hook| (resolve::in_scope_of(giver, hook.name) as usize, *hook))
        .filter(|(address, _)| *address != 0)
        .collect();
    functions.sort_by_key(|(address, _)| *address);
    let mut copies = COPIES.lock().unwrap_or_else(|e| e.into_inner());
    copies.push((base, functions));
    find(&copies)?
}

fn answered(real: *mut c_void, found: *mut c_void) {
    process::guarded("after a search for a function", || {
        if found.is_null() || !process::platform_enabled(CUDA) {
            return;
        }
        // SAFETY: the caller's own place for the answer, which the driver just wrote.
        let place = unsafe { &mut *found.cast::<*mut c_void>() };
        if place.is_null() {
            return;
        }
        // A driver that refers to its own functions by name may hand out ours.
        let hook = if resolve::is_ours(*place) {
            super::HOOKS.iter().copied().flatten().copied().find(|hook| hook.exported as usize == *place as usize)
        } else {
            hook_at(*place as usize, real as usize)
        };
        if let Some(hook) = hook {
            *place = resolve::stub_for_given(hook, *place, real);
        }
    });
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
const _: sig::cuGetProcAddress = cuGetProcAddress;

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
const _: sig::cuGetProcAddress_v2 = cuGetProcAddress_v2;

hooks! { CUDA;
    cuGetProcAddress => super::cuGetProcAddress,
    cuGetProcAddress_v2 => super::cuGetProcAddress_v2,
}
