//! Defaults for programs built with one of GCC's sanitizers whose runtime is a library. The runtime calls functions of
//! these names for its default options; a definition of the program's own is found first.

use std::ffi::c_char;

// AddressSanitizer's runtime ends a program in which it is not the first library, unless this option turns the check
// off.
// SAFETY: nothing else defines it, but for the program and the runtime. No arguments; the text stays.
#[unsafe(no_mangle)]
extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}

// ThreadSanitizer's runtime does not see the atomic operations by which this library's threads synchronise, and reports
// the data they pass on as races.
// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn __tsan_default_suppressions() -> *const c_char {
    c"called_from_lib:/libxsched.so$\n".as_ptr()
}

/// Names of all functions exported here, for the audit of the library's exports.
pub const NAMES: &[&str] = &["__asan_default_options", "__tsan_default_suppressions"];
