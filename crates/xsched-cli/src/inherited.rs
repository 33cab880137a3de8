//! Restoration of the state that Rust's runtime changes before `main`: SIGPIPE, which it ignores, and closed standard descriptors, which it
//! opens on /dev/null. A program started by `run` gets both as it would without us.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

static IGNORED: AtomicBool = AtomicBool::new(false);
/// Bits of the descriptors that were closed: bit n = descriptor n.
static CLOSED: AtomicU8 = AtomicU8::new(0);
const STANDARD: std::ops::Range<i32> = 0..3;

extern "C" fn remember() {
    // SAFETY: sigaction with a null new action only reads; `old` is a plain C struct for which zeroes are valid.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut old) == 0 {
            IGNORED.store(old.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
        }
    }
    // SAFETY: asks for a flag, which an absent descriptor has none of.
    let closed = |fd: &i32| unsafe { libc::fcntl(*fd, libc::F_GETFD) } == -1;
    CLOSED.store(STANDARD.filter(closed).fold(0, |bits, fd| bits | 1 << fd), Ordering::Relaxed);
}

/// Entry of the init array, which runs before the runtime's own start.
#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn() = remember;

/// Makes a write beyond the file-size limit fail from now on, without ending the command or a daemon. By a handler, not by ignoring
/// SIGXFSZ: programs that the process becomes, or starts, then get the signal as it was.
pub(crate) fn outlive_file_limit() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: both are plain C structs for which zeroes are valid, and the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        if libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &raw mut old) == 0 && old.sa_sigaction == libc::SIG_DFL {
            libc::sigaction(libc::SIGXFSZ, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Restores both. Called directly before the process becomes another program: afterwards nothing can be reported where stderr was closed.
pub(crate) fn restore() {
    if !IGNORED.load(Ordering::Relaxed) {
        // SAFETY: SIG_DFL needs no handler to stay valid.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    let closed = CLOSED.load(Ordering::Relaxed);
    for fd in STANDARD.filter(|fd| closed & 1 << fd != 0) {
        // SAFETY: the runtime opened it, and nobody owns it: it counts as stdin, stdout or stderr.
        unsafe { libc::close(fd) };
    }
}
