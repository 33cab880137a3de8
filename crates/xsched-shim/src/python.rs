//! Python's global lock: a thread that waits at a gate with it in hand stops all others of its program.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use crate::interpose::resolve;

type Check = unsafe extern "C" fn() -> c_int;

/// Whether the calling thread holds the global lock of a Python interpreter in this process. Looked for once.
pub(crate) fn holds_the_lock() -> bool {
    static CHECK: OnceLock<Option<Check>> = OnceLock::new();
    let check = CHECK.get_or_init(|| {
        let found = resolve::in_global_scope(c"PyGILState_Check");
        // SAFETY: CPython's function of this name, documented to take nothing and to return an int.
        (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Check>(found) })
    });
    // SAFETY: may be called by any thread at any time.
    check.is_some_and(|check| unsafe { check() } == 1)
}
