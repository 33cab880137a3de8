//! Functions that calls of hooks reach instead of a vendor's, where a platform puts its own before them.

use std::ffi::c_void;
use std::sync::OnceLock;

use super::Hook;

/// Functions of a platform that puts its own before a vendor's.
pub struct Beneath {
    /// Function to call instead of a vendor's one, or that one.
    pub before: fn(&Hook, *mut c_void) -> *mut c_void,
    /// Vendor's function behind one of the platform's; any other address as it is.
    pub behind: fn(usize) -> usize,
}

static BENEATH: OnceLock<&'static Beneath> = OnceLock::new();

/// Has hooks call what a platform puts before a vendor's functions. Only while the library is loaded, before any hook is called.
pub fn put(beneath: &'static Beneath) {
    let _ = BENEATH.set(beneath);
}

/// Function for calls of a hook, found for this vendor's one.
#[cold]
pub(crate) fn before(hook: &Hook, real: *mut c_void) -> *mut c_void {
    BENEATH.get().map_or(real, |beneath| (beneath.before)(hook, real))
}

/// Vendor's function behind an address.
#[cold]
pub(super) fn behind(address: usize) -> usize {
    BENEATH.get().map_or(address, |beneath| (beneath.behind)(address))
}
