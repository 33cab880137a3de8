//! Which function a call site was found to reach, for call sites that cannot share one answer.
//!
//! Read without a lock. What is remembered holds until some object may have been unmapped (`dlclose`): another may come
//! to lie in its place, with other calls at the same addresses.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::*, fence};

use super::Hook;

/// Call sites remembered.
const SITES: usize = 4096;
/// Neighbouring places tried.
const PROBES: usize = 8;
/// Low bit of a place's state: it is being written.
const WRITING: u64 = 1;

/// `state` is twice the generation in which the rest was written, plus [`WRITING`]; 0 = never.
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

/// Raised whenever an object may have been unmapped.
static GENERATION: AtomicU64 = AtomicU64::new(1);
/// Calls to `dlclose` under way.
static CLOSING: AtomicU64 = AtomicU64::new(0);

fn places(hook: &'static Hook, caller: usize) -> impl Iterator<Item = &'static Site> {
    let mixed = (caller ^ (std::ptr::from_ref(hook) as usize) << 7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let start = mixed >> 40;
    (0..PROBES).map(move |i| &TABLE[(start + i) % SITES])
}

/// The generation to remember an answer in, to be taken before the search for it.
pub(super) fn generation() -> u64 {
    GENERATION.load(Acquire)
}

/// What is remembered of a call; null if nothing is.
#[inline]
pub(super) fn look_up(hook: &'static Hook, caller: usize) -> *mut c_void {
    // In this order: who finds that nothing is being closed any more finds the new generation too.
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

/// Remembers the answer of a search that began in `generation`.
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

/// Around something that may unmap objects: nothing is believed meanwhile, and all is forgotten after.
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
        // As far apart as the functions' own entries, so that mixtures of the two coincide.
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
