//! Vendor libraries, opened with libc's dlopen and dlsym as frameworks do: the preload library hooks both.

use std::ffi::{CStr, CString, c_void};
use std::path::Path;

use crate::failure::{Error, Result};

/// Open library. It is never closed, since vendor libraries keep threads of their own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library(*mut c_void);

impl Library {
    /// Opens a library by file name or path.
    ///
    /// # Errors
    /// Returns the loader's own line.
    pub(crate) fn open(name: impl AsRef<Path>) -> Result<Library> {
        use std::os::unix::ffi::OsStrExt;
        let name = CString::new(name.as_ref().as_os_str().as_bytes()).map_err(Error::environment)?;
        // SAFETY: `name` is a C string; a vendor library's constructors are trusted as its user trusts them.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: dlerror returns null or a C string valid until this thread's next call of the loader.
            let why = unsafe {
                let text = libc::dlerror();
                if text.is_null() {
                    "unknown error".into()
                } else {
                    CStr::from_ptr(text).to_string_lossy().into_owned()
                }
            };
            return Err(Error::environment(why));
        }
        Ok(Library(handle))
    }

    /// Looks a function up.
    ///
    /// # Safety
    /// `F` must be an `extern "C"` function pointer type that fits the symbol.
    ///
    /// # Errors
    /// Returns an error that names the missing function.
    pub(crate) unsafe fn function<F: Copy>(self, name: &CStr) -> Result<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the handle is open for ever and `name` is a C string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if address.is_null() {
            return Err(Error::environment(format!("it has no {}", name.to_string_lossy())));
        }
        // SAFETY: same size, checked above; the caller vouches for the type.
        Ok(unsafe { std::mem::transmute_copy(&address) })
    }
}
