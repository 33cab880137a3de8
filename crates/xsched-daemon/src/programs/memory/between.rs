//! Hook between any two reads of a program's memory, for fuzz targets.

use std::sync::{Mutex, PoisonError};

/// Function that is called before each read, on the reader's thread.
type Hook = Box<dyn FnMut() + Send>;

static HOOK: Mutex<Option<Hook>> = Mutex::new(None);

/// Has a function called before each read of a segment, by all daemons of the process.
pub fn between_reads(hook: Option<Hook>) {
    *HOOK.lock().unwrap_or_else(PoisonError::into_inner) = hook;
}

/// Calls the function.
pub(super) fn step() {
    if let Some(hook) = &mut *HOOK.lock().unwrap_or_else(PoisonError::into_inner) {
        hook();
    }
}
