//! For programs that are built with a sanitizer of GCC's, whose runtime is a library. It asks functions of these names for what holds by
//! default; one that the program defines itself is found first.

use std::ffi::c_char;

// AddressSanitizer's runtime ends a program in which it is not the first library, unless it is told not to look.
// SAFETY: nothing else defines it, but for the program and the runtime. No arguments; the text stays.
#[unsafe(no_mangle)]
extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}

// ThreadSanitizer's does not see the atomic words by which threads of this library agree, and takes what they hand over for races.
// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn __tsan_default_suppressions() -> *const c_char {
    c"called_from_lib:/libxsched.so$\n".as_ptr()
}

/// Everything exported here, for the audit of what the library exports.
pub const NAMES: &[&str] = &["__asan_default_options", "__tsan_default_suppressions"];
