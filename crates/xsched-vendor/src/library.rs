//! Vendor libraries, opened with libc's dlopen and dlsym as frameworks do: the preload library hooks both.

use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;

use xsched_proto::Error;

use crate::Result;

/// Open library. It is never closed, since vendor libraries keep threads of their own.
#[derive(Clone, Copy, Debug)]
pub struct Library(*mut c_void);

// SAFETY: a handle that is never closed; the loader may be asked from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Opens a library by file name or path.
    ///
    /// # Errors
    /// Returns the loader's own line.
    pub fn open(name: impl AsRef<Path>) -> Result<Library> {
        Library::with(name.as_ref(), libc::RTLD_NOW)
    }

    /// Opens a library of which not all must be there that it needs: missing functions count once they are called.
    ///
    /// # Errors
    /// Returns the loader's own line.
    pub fn open_lazily(name: impl AsRef<Path>) -> Result<Library> {
        Library::with(name.as_ref(), libc::RTLD_LAZY)
    }

    fn with(name: &Path, binding: c_int) -> Result<Library> {
        use std::os::unix::ffi::OsStrExt;
        let name = CString::new(name.as_os_str().as_bytes()).map_err(Error::environment)?;
        // SAFETY: `name` is a C string; a vendor library's constructors are trusted as its user trusts them.
        let handle = unsafe { libc::dlopen(name.as_ptr(), binding | libc::RTLD_LOCAL) };
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

    /// The address of a name; null if it has none. For the tables of [`functions!`](crate::functions).
    pub fn find(self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle is open for ever and `name` is a C string.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }

    /// Looks a function up.
    ///
    /// # Safety
    /// `F` must be an `extern "C"` function pointer type that fits the symbol.
    ///
    /// # Errors
    /// Returns an error that names the missing function.
    pub unsafe fn function<F: Copy>(self, name: &CStr) -> Result<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let address = self.find(name);
        if address.is_null() {
            return Err(Error::environment(format!("it has no {}", name.to_string_lossy())));
        }
        // SAFETY: same size, checked above; the caller vouches for the type.
        Ok(unsafe { std::mem::transmute_copy(&address) })
    }
}
