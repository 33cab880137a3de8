//! Results of requests to the device.

use crate::wire::status;

/// Reason why a request failed. The numbers are those of the C API's `simError`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Error {
    /// An argument is out of range, or the memory cannot be used.
    InvalidValue = 1,
    /// The device has no room for it.
    OutOfMemory = 2,
    /// There is no such device, or none answers.
    NoDevice = 3,
    /// The stream or event no longer exists.
    InvalidHandle = 4,
    /// Not complete yet.
    NotReady = 5,
    /// The device cannot reach this memory.
    NotSupported = 6,
    /// The device or the context has ended.
    DeviceLost = 7,
    /// A kernel of the context has faulted, so nothing more of it runs.
    Faulted = 8,
}

/// Result with an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Result of the first word of a reply.
    pub(super) fn check(word: u64) -> Result<()> {
        match word {
            status::OK => Ok(()),
            status::INVALID_VALUE => Err(Self::InvalidValue),
            status::OUT_OF_MEMORY => Err(Self::OutOfMemory),
            _ => Err(Self::NoDevice),
        }
    }
}
