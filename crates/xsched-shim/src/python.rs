//! Python's global lock: a thread that waits at a gate with it in hand stops all others of its program.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::*};

use crate::interpose::resolve;

type Check = unsafe extern "C" fn() -> c_int;

/// Whether the calling thread holds the global lock of a Python interpreter in this process. Looked for once.
pub(crate) fn holds_the_lock() -> bool {
    const UNKNOWN: usize = usize::MAX;
    static CHECK: AtomicUsize = AtomicUsize::new(UNKNOWN);
    let mut check = CHECK.load(Relaxed);
    if check == UNKNOWN {
        check = resolve::in_global_scope(c"PyGILState_Check") as usize;
        CHECK.store(check, Relaxed);
    }
    if check == 0 {
        return false;
    }
    // SAFETY: CPython's function of this name, documented to take nothing and to return an int; any thread may call it at
    // any time.
    unsafe { std::mem::transmute::<*mut c_void, Check>(check as *mut c_void)() == 1 }
}
