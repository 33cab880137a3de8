//! Where the C API begins: arguments as C gives them, and what every entry point does first.

use crate::result::{Error, Result};
use crate::{process, stats};
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Where a result goes. Only C makes one: it points to room for a `T`, or is null.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    pub(crate) const NOWHERE: Self = Self(std::ptr::null_mut());

    /// Stores a result that must go somewhere.
    pub(crate) fn put(self, value: T) -> Result<()> {
        self.required()?.maybe(value);
        Ok(())
    }

    /// Stores a result if it is wanted.
    pub(crate) fn maybe(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, and the caller vouches for the rest.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Fails unless it points somewhere.
    pub(crate) fn required(self) -> Result<Self> {
        if self.0.is_null() { Err(Error::INVALID_VALUE) } else { Ok(self) }
    }

    /// Stores a list of results, one after the other.
    pub(crate) fn list(self, values: impl IntoIterator<Item = T>) {
        for (index, value) in values.into_iter().enumerate() {
            Self(self.0.wrapping_add(index)).maybe(value);
        }
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// Where an argument is. Only C makes one: it points to values of `T`, or is null.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    pub(crate) const NOTHING: Self = Self(std::ptr::null());

    /// An address that C gave as a number.
    pub(crate) fn from_address(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance(address))
    }

    pub(crate) fn get(self) -> Result<T> {
        self.at(0)
    }

    pub(crate) fn at(self, index: usize) -> Result<T> {
        if self.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: not null, and the caller vouches for the rest.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }

    pub(crate) fn list(self, count: usize) -> Result<Vec<T>> {
        (0..count).map(|index| self.at(index)).collect()
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// A C string, or null. Only C makes one.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// One of our own.
    pub(crate) fn from_c(text: &CStr) -> Self {
        Self(text.as_ptr())
    }

    pub(crate) fn get(self) -> Result<String> {
        if self.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: a C string, as the caller says.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}

/// Which stream a null handle means: entry points come in two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Null {
    /// The context's legacy default stream.
    Legacy,
    /// This thread's default stream.
    PerThread,
}

/// What an entry point needs before it does anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing.
    Nothing,
    /// `cuInit` in this very process, and not to be called by a host function.
    Driver,
}

/// Runs the body of an entry point. A panic here is a defect of ours, but must not cross into C.
pub(crate) fn edge(need: Need, count: &AtomicU64, name: &str, body: impl FnOnce() -> Result<()>) -> c_int {
    count.fetch_add(1, Relaxed);
    let checked = || {
        if need == Need::Driver {
            process::usable(name)?;
        }
        body()
    };
    match catch_unwind(AssertUnwindSafe(checked)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error.0,
        Err(_) => {
            stats::illegal(format!("{name}: panic"));
            Error::UNKNOWN.0
        }
    }
}
