//! Threads of this library that programs need not know of.

/// Starts a thread that takes no signals.
pub(super) fn quietly(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    // SAFETY: signal sets on the stack.
    unsafe {
        let (mut all, mut old) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        let started = std::thread::Builder::new().name(name.into()).spawn(work);
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
        started.is_ok()
    }
}
