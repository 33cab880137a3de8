//! Memory that a child with a copy of this process finds zeroed.

use std::ffi::c_void;

/// Size of a page on x86-64, in bytes.
const PAGE: usize = 4096;

/// Asks the kernel to zero a static of whole pages in children that get a copy of this process's memory (Linux 4.14).
/// Returns false if it refused: such children then find a copy.
pub(crate) fn wipe<T: ?Sized>(pages: &'static T) -> bool {
    let (at, bytes) = (std::ptr::from_ref(pages).cast::<c_void>(), size_of_val(pages).next_multiple_of(PAGE));
    // SAFETY: advice on pages that hold this static and its padding; the memory of this process itself stays as it is.
    at.addr().is_multiple_of(PAGE) && unsafe { libc::madvise(at.cast_mut(), bytes, libc::MADV_WIPEONFORK) } == 0
}
