//! The runtime compiler (hiprtc), which is not part of this library: calls are forwarded to AMD's own `libhiprtc` of
//! the same major, if it can be opened.

use crate::lookup::major;
use crate::stats;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::OnceLock;

/// `HIPRTC_ERROR_INTERNAL_ERROR`.
pub(crate) const INTERNAL_ERROR: c_int = 11;

/// Handle of AMD's library, which is opened once; none if it is not installed.
fn library() -> Option<*mut c_void> {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let handle = *LIBRARY.get_or_init(|| {
        let name = CString::new(format!("libhiprtc.so.{}", major())).unwrap_or_default();
        // SAFETY: a C string; the library's constructors expect to be run by dlopen.
        unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }.expose_provenance()
    });
    (handle != 0).then(|| std::ptr::with_exposed_provenance_mut(handle))
}

/// AMD's function of this name. If there is none, the call is counted as unsupported.
pub(crate) fn function(name: &str) -> Option<*mut c_void> {
    let symbol = CString::new(name).ok()?;
    // SAFETY: an open library and a C string.
    let address = library().map(|library| unsafe { libc::dlsym(library, symbol.as_ptr()) });
    let found = address.filter(|address| !address.is_null());
    if found.is_none() {
        stats::unsupported(name);
    }
    found
}

pub(crate) fn error_string(result: c_int) -> *const c_char {
    let Some(address) = function("hiprtcGetErrorString") else { return c"no libhiprtc".as_ptr() };
    // SAFETY: hiprtcGetErrorString's own signature.
    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> *const c_char>(address)(result) }
}
