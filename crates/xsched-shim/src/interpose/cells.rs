//! Places of real functions, where calls read them.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use super::{BINDINGS, Hook};

/// A real function for each binding; null = not known.
pub type Reals = [AtomicPtr<c_void>; BINDINGS];

/// The real functions of a group of hooks, on pages of their own. A call reads its function here first. In a child that has a copy of
/// this process's memory the kernel [wipes](wipe) them, so that the first call there takes the slow way, which finds out where it is.
#[repr(C, align(4096))]
pub struct Cells<const N: usize>(pub [Reals; N]);

/// Bytes of a page of x86-64.
const PAGE: usize = 4096;

impl<const N: usize> Cells<N> {
    /// Cells of which none is known.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Cells<N> {
        Cells([const { [const { AtomicPtr::new(std::ptr::null_mut()) }; BINDINGS] }; N])
    }
}

/// Lets children with a copy of this process's memory find a static of whole pages zeroed (Linux 4.14). False: they find a copy, as of
/// everything else.
pub(crate) fn wipe<T: ?Sized>(pages: &'static T) -> bool {
    let (at, bytes) = (std::ptr::from_ref(pages).cast::<c_void>(), size_of_val(pages).next_multiple_of(PAGE));
    // SAFETY: advice on pages that hold this static and its padding; the memory of this process itself stays as it is.
    at.addr().is_multiple_of(PAGE) && unsafe { libc::madvise(at.cast_mut(), bytes, libc::MADV_WIPEONFORK) } == 0
}

impl Hook {
    /// The real function of a binding, if it is known.
    pub(super) fn known(&self, binding: usize) -> *mut c_void {
        self.known[binding].load(Acquire)
    }

    /// Sets the real function of a binding; null = not known any more.
    pub(super) fn set(&self, binding: usize, real: *mut c_void) {
        self.known[binding].store(real, Release);
        self.fill(binding, real);
    }

    /// Sets what calls read.
    pub(super) fn fill(&self, binding: usize, real: *mut c_void) {
        self.cells[binding].store(real, Release);
    }
}
