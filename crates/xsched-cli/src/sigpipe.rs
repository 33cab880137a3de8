//! What SIGPIPE did before Rust's runtime began to ignore it, so that a program started by `run` gets it as it was.

use std::sync::atomic::{AtomicBool, Ordering};

static IGNORED: AtomicBool = AtomicBool::new(false);

extern "C" fn remember() {
    // SAFETY: sigaction with a null new action only reads; `old` is a plain C struct for which zeroes are valid.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut old) == 0 {
            IGNORED.store(old.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
        }
    }
}

/// Runs before the runtime's own start.
#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn() = remember;

/// Gives SIGPIPE its first meaning back.
pub(crate) fn restore() {
    if !IGNORED.load(Ordering::Relaxed) {
        // SAFETY: SIG_DFL needs no handler to stay valid.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
}
