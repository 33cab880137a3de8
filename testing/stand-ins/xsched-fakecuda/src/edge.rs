//! Boundary of the C API: arguments as C passes them, and the common beginning of every entry point.

use crate::fail::FAILURES;
use crate::result::{Error, Result};
use crate::{process, stats};
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Place for a result. Only C makes one: it points to room for a `T`, or is null.
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
    /// No place: the result is not wanted.
    pub const NOWHERE: Self = Self(std::ptr::null_mut());

    /// A place in a variable of our own.
    pub fn to(value: &mut T) -> Self {
        Self(value)
    }

    /// Stores a result. Fails if there is no place for it.
    pub fn put(self, value: T) -> Result<()> {
        self.required()?.maybe(value);
        Ok(())
    }

    /// Stores a result, if there is a place for it.
    pub fn maybe(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, and the caller vouches for the rest.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Fails if there is no place.
    pub fn required(self) -> Result<Self> {
        if self.0.is_null() { Err(Error::INVALID_VALUE) } else { Ok(self) }
    }

    /// Stores a list of results, one after the other.
    pub fn list(self, values: impl IntoIterator<Item = T>) {
        for (index, value) in values.into_iter().enumerate() {
            Self(self.0.wrapping_add(index)).maybe(value);
        }
    }

    /// Reports whether there is no place.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Address of the place.
    pub fn address(self) -> *mut T {
        self.0
    }
}

impl<T: Copy> Out<T> {
    /// Reads the current value, for parameters that go both ways.
    pub fn read(self) -> Result<T> {
        In(self.0.cast_const()).get()
    }
}

/// Location of an argument. Only C makes one: it points to values of `T`, or is null.
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
    /// Null, for an absent argument.
    pub const NOTHING: Self = Self(std::ptr::null());

    /// Location at an address that C passed as a number.
    pub fn from_address(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance(address))
    }

    /// The value.
    pub fn get(self) -> Result<T> {
        self.at(0)
    }

    /// The value at an index.
    pub fn at(self, index: usize) -> Result<T> {
        if self.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: not null, and the caller vouches for the rest.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }

    /// The first `count` values.
    pub fn list(self, count: usize) -> Result<Vec<T>> {
        (0..count).map(|index| self.at(index)).collect()
    }

    /// Reports whether the argument is absent.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// A C string, or null. Only C makes one.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Text(*const c_char);

impl Text {
    /// A C string of our own.
    pub fn from_c(text: &CStr) -> Self {
        Self(text.as_ptr())
    }

    /// The text.
    pub fn get(self) -> Result<String> {
        if self.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: a C string, as the caller says.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}

/// Meaning of a null stream handle: entry points come in two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Null {
    /// The context's legacy default stream.
    Legacy,
    /// This thread's default stream.
    PerThread,
}

/// Condition that an entry point checks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// No condition.
    Nothing,
    /// `cuInit` was called in this very process, and the caller is not a host function.
    Driver,
}

/// Runs the body of an entry point. A panic here is a defect of this library, but must not cross into C.
pub(crate) fn edge(need: Need, count: &AtomicU64, name: &str, body: impl FnOnce() -> Result<()>) -> c_int {
    count.fetch_add(1, Relaxed);
    let checked = || {
        FAILURES.hold(name);
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
