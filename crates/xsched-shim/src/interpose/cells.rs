//! Cells: the words from which a hooked call reads its real function.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use super::{BINDINGS, Hook, beneath};

/// A real function for each binding; null = not known.
pub type Reals = [AtomicPtr<c_void>; BINDINGS];

/// The real functions of a group of hooks, on pages of their own. A call reads its function here first. In a process
/// that got a copy of this process's memory (`fork`, `clone`) the kernel [wipes](crate::wiped::wipe) these pages, so
/// that the first call there finds no function and takes the slow path, which notices the new process.
#[repr(C, align(4096))]
pub struct Cells<const N: usize>(pub [Reals; N]);

impl<const N: usize> Cells<N> {
    /// Cells of which none is known.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Cells<N> {
        Cells([const { [const { AtomicPtr::new(std::ptr::null_mut()) }; BINDINGS] }; N])
    }
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

    /// Sets the cell that calls read.
    pub(super) fn fill(&self, binding: usize, real: *mut c_void) {
        self.cells[binding].store(beneath::before(self, real), Release);
    }
}
