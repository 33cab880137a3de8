//! Where the C API begins: arguments as C gives them, and what every entry point does first.

use crate::fail::FAILURES;
use crate::result::{Error, Result};
use crate::{process, stats};
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Where a result goes. Only C makes one: it points to room for a `T`, or is null.
#[repr(transparent)]
#[derive(Debug)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// What is not wanted.
    pub const NOWHERE: Self = Self(std::ptr::null_mut());

    /// Into a value of our own.
    pub fn to(value: &mut T) -> Self {
        Self(value)
    }

    /// Stores a result that must go somewhere.
    pub fn put(self, value: T) -> Result<()> {
        self.required()?.maybe(value);
        Ok(())
    }

    /// Stores a result if it is wanted.
    pub fn maybe(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, and the caller vouches for the rest.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Fails unless it points somewhere.
    pub fn required(self) -> Result<Self> {
        if self.0.is_null() { Err(Error::INVALID_VALUE) } else { Ok(self) }
    }

    /// Stores a list of results, one after the other.
    pub fn list(self, values: impl IntoIterator<Item = T>) {
        for (index, value) in values.into_iter().enumerate() {
            Self(self.0.wrapping_add(index)).maybe(value);
        }
    }

    /// Is it not wanted?
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Where it points.
    pub fn address(self) -> *mut T {
        self.0
    }
}

impl<T: Copy> Out<T> {
    /// What is there so far, for what goes both ways.
    pub fn read(self) -> Result<T> {
        In(self.0.cast_const()).get()
    }
}

/// Where an argument is. Only C makes one: it points to values of `T`, or is null.
#[repr(transparent)]
#[derive(Debug)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// Null.
    pub const NOTHING: Self = Self(std::ptr::null());

    /// An address that C gave as a number.
    pub fn from_address(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance(address))
    }

    /// The value.
    pub fn get(self) -> Result<T> {
        self.at(0)
    }

    /// One of several.
    pub fn at(self, index: usize) -> Result<T> {
        if self.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: not null, and the caller vouches for the rest.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }

    /// The first `count` of several.
    pub fn list(self, count: usize) -> Result<Vec<T>> {
        (0..count).map(|index| self.at(index)).collect()
    }

    /// Is there none?
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// A C string, or null. Only C makes one.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Text(*const c_char);

impl Text {
    /// One of our own.
    pub fn from_c(text: &CStr) -> Self {
        Self(text.as_ptr())
    }

    /// Its text.
    pub fn get(self) -> Result<String> {
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
        if let Some(code) = FAILURES.of(name) {
            return Err(Error(code));
        }
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
