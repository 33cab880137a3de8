//! Results.

use crate::wire::status;

/// Why the device did not do it. The numbers are those of the C API's `simError`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Error {
    /// An argument is out of range, or the memory cannot be used.
    InvalidValue = 1,
    /// The device cannot hold it.
    OutOfMemory = 2,
    /// No such device, or none answers.
    NoDevice = 3,
    /// A stream or event that is no more.
    InvalidHandle = 4,
    /// Not complete yet.
    NotReady = 5,
    /// Memory that the device cannot reach.
    NotSupported = 6,
    /// The device or the context has ended.
    DeviceLost = 7,
    /// A kernel of the context has faulted: nothing more of it runs.
    Faulted = 8,
}

/// With an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// From the first word of a reply.
    pub(super) fn check(word: u64) -> Result<()> {
        match word {
            status::OK => Ok(()),
            status::INVALID_VALUE => Err(Self::InvalidValue),
            status::OUT_OF_MEMORY => Err(Self::OutOfMemory),
            _ => Err(Self::NoDevice),
        }
    }
}
