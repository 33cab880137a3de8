//! Vendor functions that return functions: their answer is replaced by a stub of ours if it is a hooked function.
//!
//! No table of versions is needed: the answer is the address of one of the library's exported functions, and the hook
//! is looked up by that address.

use std::ffi::c_void;

use crate::enabled::platform_enabled;
use crate::interpose::Group;
use crate::interpose::{Hook, resolve};
use crate::lock::Lock;
use crate::process;

/// The hooked functions of one copy of a library: its load address, and the address of each.
type Copy = (usize, Vec<(usize, &'static Hook)>);

static COPIES: Lock<Vec<Copy>> = Lock::new();

/// A platform's hooks.
type Hooks = &'static [&'static Group];

/// Hook of the function at `given`, which `giver` returned.
fn hook_at(hooks: Hooks, given: usize, giver: usize) -> Option<&'static Hook> {
    let base = resolve::object_of(giver)?.0;
    let find = |copies: &[Copy]| {
        let (_, functions) = copies.iter().find(|(at, _)| *at == base)?;
        Some(functions.binary_search_by_key(&given, |(address, _)| *address).ok().map(|at| functions[at].1))
    };
    if let Some(known) = find(&COPIES.lock()) {
        return known;
    }
    // Without our lock: the loader has locks of its own.
    let mut functions: Vec<(usize, &'static Hook)> = hooks
        .iter()
        .flat_map(|group| group.hooks)
        .map(|hook| (resolve::in_scope_of(giver, hook.name) as usize, *hook))
        .filter(|(address, _)| *address != 0)
        .collect();
    functions.sort_by_key(|(address, _)| *address);
    let mut copies = COPIES.lock();
    copies.push((base, functions));
    find(&copies)?
}

/// Empties the cache in a forked child, if another thread of the parent held it.
pub(crate) fn forget_if_held() {
    COPIES.forget_if_held();
}

/// Replaces the answer that `giver`, a function of the platform that succeeded, wrote to `found`.
pub(crate) fn answered(platform: u8, hooks: Hooks, giver: *mut c_void, found: *mut c_void) {
    process::guarded("after a search for a function", || {
        if found.is_null() || !platform_enabled(platform) {
            return;
        }
        // SAFETY: the caller's own place for the answer, which the library just wrote.
        let place = unsafe { &mut *found.cast::<*mut c_void>() };
        if place.is_null() {
            return;
        }
        // A library that refers to its own functions by name may return our stubs.
        let hook = if resolve::is_ours(*place) {
            hooks.iter().flat_map(|group| group.hooks).copied().find(|hook| hook.exported as usize == *place as usize)
        } else {
            hook_at(hooks, *place as usize, giver as usize)
        };
        let Some(hook) = hook else { return };
        if platform_enabled(hook.platform) {
            *place = resolve::stub_for_given(hook, *place, giver);
        } else if resolve::is_ours(*place) {
            // The program has no such hook: it gets what `dlsym` gives it.
            let own = resolve::in_scope_of(giver as usize, hook.name);
            if !own.is_null() {
                *place = own;
            }
        }
    });
}
