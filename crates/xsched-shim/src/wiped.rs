//! Memory that children with a copy of this process find zeroed.

use std::ffi::c_void;

/// Bytes of a page of x86-64.
const PAGE: usize = 4096;

/// Lets children with a copy of this process's memory find a static of whole pages zeroed (Linux 4.14). False: they find a copy, as of
/// everything else.
pub(crate) fn wipe<T: ?Sized>(pages: &'static T) -> bool {
    let (at, bytes) = (std::ptr::from_ref(pages).cast::<c_void>(), size_of_val(pages).next_multiple_of(PAGE));
    // SAFETY: advice on pages that hold this static and its padding; the memory of this process itself stays as it is.
    at.addr().is_multiple_of(PAGE) && unsafe { libc::madvise(at.cast_mut(), bytes, libc::MADV_WIPEONFORK) } == 0
}
