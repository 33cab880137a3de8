//! The C library's `ioctl`.

use std::ffi::{c_int, c_ulong, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};

use super::resolve;

/// The C library's `ioctl`, which takes one argument of any kind.
pub(crate) type IoctlFn = unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int;

/// The next `ioctl` behind ours, once known.
pub(crate) static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Finds the next `ioctl` behind ours, and stores it in [`REAL`].
pub(crate) extern "C" fn find_real() -> *mut c_void {
    let real = resolve::keeping_errno(|| resolve::next(c"ioctl"));
    let real = if real.is_null() { in_place as *const () as *mut c_void } else { real };
    REAL.store(real, Release);
    real
}

/// Stand-in if no `ioctl` is found; no known C library lacks it.
unsafe extern "C" fn in_place(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) as c_int }
}

/// The next `ioctl` behind ours.
pub(crate) fn real() -> IoctlFn {
    let mut known = REAL.load(Acquire);
    if known.is_null() {
        known = find_real();
    }
    // SAFETY: the C library's ioctl, or that of another library before it.
    unsafe { std::mem::transmute::<*mut c_void, IoctlFn>(known) }
}
