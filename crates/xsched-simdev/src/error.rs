//! Results, and the edge of the C API.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use xsched_sim::wire::status;

/// `enum simError` without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Error {
    InvalidValue = 1,
    OutOfMemory = 2,
    NoDevice = 3,
    InvalidHandle = 4,
    NotReady = 5,
    NotSupported = 6,
    DeviceLost = 7,
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// From the first word of a reply.
    pub(crate) fn check(word: u64) -> Result<()> {
        match word {
            status::OK => Ok(()),
            status::INVALID_VALUE => Err(Self::InvalidValue),
            status::OUT_OF_MEMORY => Err(Self::OutOfMemory),
            _ => Err(Self::NoDevice),
        }
    }
}

/// Runs the body of an exported function. A panic here is a defect of ours, but must not end somebody's program.
pub(crate) fn edge(body: impl FnOnce() -> Result<()>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error as c_int,
        Err(_) => Error::DeviceLost as c_int,
    }
}

/// Stores a result where the caller wants it.
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
