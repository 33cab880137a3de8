//! Threads of the library.

use super::error::{Error, Result};

/// Starts a thread that receives none of the program's signals.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
    // SAFETY: both sets are local; filled before use.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let thread = std::thread::Builder::new().name(name.into()).stack_size(256 << 10).spawn(body);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        thread.map(drop).map_err(|_| Error::OutOfMemory)
    }
}
