//! Cache of resolved functions by call site, for call sites that cannot share one answer.
//!
//! Lookups take no lock. An entry holds until some object may have been unmapped (`dlclose`): another object may then
//! be mapped in its place, with other calls at the same addresses.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::*, fence};

use super::Hook;

/// Number of call sites remembered.
const SITES: usize = 4096;
/// Number of adjacent entries searched for a call site.
const PROBES: usize = 8;
/// Low bit of an entry's state: the entry is being written.
const WRITING: u64 = 1;

/// An entry of the cache. `state` is twice the generation in which the rest was written, plus [`WRITING`]; 0 = never
/// written.
struct Site {
    state: AtomicU64,
    caller: AtomicUsize,
    hook: AtomicPtr<Hook>,
    real: AtomicPtr<c_void>,
}

static TABLE: [Site; SITES] = [const {
    Site {
        state: AtomicU64::new(0),
        caller: AtomicUsize::new(0),
        hook: AtomicPtr::new(std::ptr::null_mut()),
        real: AtomicPtr::new(std::ptr::null_mut()),
    }
}; SITES];

/// Generation of valid entries, raised whenever an object may have been unmapped.
static GENERATION: AtomicU64 = AtomicU64::new(1);
/// Number of calls to `dlclose` in progress.
static CLOSING: AtomicU64 = AtomicU64::new(0);

fn places(hook: &'static Hook, caller: usize) -> impl Iterator<Item = &'static Site> {
    let mixed = (caller ^ (std::ptr::from_ref(hook) as usize) << 7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let start = mixed >> 40;
    (0..PROBES).map(move |i| &TABLE[(start + i) % SITES])
}

/// Generation under which to store an answer. To be read before the search, so that a search during which an object
/// goes stores nothing valid.
pub(super) fn generation() -> u64 {
    GENERATION.load(Acquire)
}

/// Function cached for a call; null if there is none.
#[inline]
pub(super) fn look_up(hook: &'static Hook, caller: usize) -> *mut c_void {
    // In this order: a thread that reads 0 here reads the new generation below.
    if CLOSING.load(Acquire) != 0 {
        return std::ptr::null_mut();
    }
    let ready = GENERATION.load(Acquire) * 2;
    for site in places(hook, caller) {
        if site.state.load(Acquire) != ready
            || site.caller.load(Relaxed) != caller
            || !std::ptr::eq(site.hook.load(Relaxed), hook)
        {
            continue;
        }
        let real = site.real.load(Relaxed);
        fence(Acquire);
        if site.state.load(Relaxed) == ready {
            return real;
        }
    }
    std::ptr::null_mut()
}

/// Stores the answer of a search that began in `generation`.
pub(super) fn remember(hook: &'static Hook, caller: usize, real: *mut c_void, generation: u64) {
    for site in places(hook, caller) {
        let state = site.state.load(Relaxed);
        if state >= generation * 2 || state & WRITING != 0 {
            continue;
        }
        if site.state.compare_exchange(state, generation * 2 + WRITING, AcqRel, Relaxed).is_ok() {
            fence(Release);
            site.caller.store(caller, Relaxed);
            site.hook.store(std::ptr::from_ref(hook).cast_mut(), Relaxed);
            site.real.store(real, Relaxed);
            site.state.store(generation * 2, Release);
            return;
        }
    }
}

/// Runs `unmap`, which may unmap objects. Lookups find nothing meanwhile, and all earlier entries are invalid
/// afterwards.
pub(super) fn forget_after<T>(unmap: impl FnOnce() -> T, unmapped: impl FnOnce()) -> T {
    CLOSING.fetch_add(1, SeqCst);
    let result = unmap();
    GENERATION.fetch_add(1, SeqCst);
    unmapped();
    CLOSING.fetch_sub(1, SeqCst);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpose::{BINDINGS, Cells};

    #[test]
    fn call_sites_and_functions_are_told_apart_and_forgotten_together() {
        unsafe extern "C" fn stub() {}
        let hook = || Hook {
            name: c"function",
            platform: 0,
            exported: stub,
            thunks: [stub; BINDINGS - 1],
            known: [const { AtomicPtr::new(std::ptr::null_mut()) }; BINDINGS],
            cells: &Box::leak(Box::new(Cells::<1>::new())).0[0],
        };
        let hooks: Vec<&'static Hook> = (0..40).map(|_| &*Box::leak(Box::new(hook()))).collect();
        // Spaced like the entries of the functions, so that sums of the two coincide.
        let sites: Vec<usize> = hooks.iter().map(|h| 0x7000_0000 ^ std::ptr::from_ref(*h) as usize).collect();
        let value = |h: usize, s: usize| (0x1000 + h * 64 + s) as *mut c_void;
        let generation = generation();
        for (h, hook) in hooks.iter().enumerate() {
            for (s, site) in sites.iter().enumerate() {
                remember(hook, *site, value(h, s), generation);
            }
        }
        let known = |h: usize, s: usize| look_up(hooks[h], sites[s]);
        let pairs = || (0..hooks.len()).flat_map(|h| (0..sites.len()).map(move |s| (h, s)));
        let remembered = pairs().filter(|(h, s)| !known(*h, *s).is_null()).count();
        assert!(remembered > hooks.len() * sites.len() / 2, "{remembered} found their place");
        for (h, s) in pairs() {
            assert!([std::ptr::null_mut(), value(h, s)].contains(&known(h, s)), "another's answer");
        }
        forget_after(|| assert!(pairs().all(|(h, s)| known(h, s).is_null()), "nothing is believed meanwhile"), || ());
        assert!(pairs().all(|(h, s)| known(h, s).is_null()), "all is forgotten after");
        remember(hooks[0], sites[0], value(0, 0), generation);
        assert!(known(0, 0).is_null(), "an answer found before comes too late");
    }
}
