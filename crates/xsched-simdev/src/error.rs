//! Boundary of the C API.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
pub(crate) use xsched_sim::client::{Error, Result};

/// Runs the body of an exported function. A panic here is a defect of this library, but must not end the program.
pub(crate) fn edge(body: impl FnOnce() -> Result<()>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error as c_int,
        Err(_) => Error::DeviceLost as c_int,
    }
}

/// Stores a result at the caller's place.
///
/// # Safety
/// `to` is null or valid for a write of `T`.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<()> {
    if to.is_null() {
        return Err(Error::InvalidValue);
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { to.write(value) };
    Ok(())
}
