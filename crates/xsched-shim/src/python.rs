//! Queries of Python in this process: whether a thread holds the global interpreter lock, with which a thread waiting
//! at a gate would stop all other threads of its program; and whether a thread runs Python's signal handlers.

use std::ffi::{CStr, c_int, c_ulong, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::*};

use crate::interpose::resolve;

type Check = unsafe extern "C" fn() -> c_int;
type ThreadState = unsafe extern "C" fn() -> *mut c_void;

/// A symbol of Python's, looked up once.
struct Symbol {
    name: &'static CStr,
    at: AtomicUsize,
}

impl Symbol {
    const UNKNOWN: usize = usize::MAX;

    const fn new(name: &'static CStr) -> Symbol {
        Symbol { name, at: AtomicUsize::new(Symbol::UNKNOWN) }
    }

    /// Address of the symbol, if it exists.
    fn get(&self) -> Option<*mut c_void> {
        let mut at = self.at.load(Relaxed);
        if at == Symbol::UNKNOWN {
            at = resolve::in_global_scope(self.name) as usize;
            self.at.store(at, Relaxed);
        }
        (at != 0).then_some(at as *mut c_void)
    }

    /// Calls the function of this name, which returns the address of a thread's state.
    fn state(&self) -> Option<*mut c_void> {
        let function = self.get()?;
        // SAFETY: CPython's function of this name, which takes nothing; any thread may call it at any time.
        Some(unsafe { std::mem::transmute::<*mut c_void, ThreadState>(function)() })
    }
}

static CHECK: Symbol = Symbol::new(c"PyGILState_Check");
static VERSION: Symbol = Symbol::new(c"Py_Version");
/// Functions that return the current thread state: since 3.12 that of the calling thread, before of whichever thread
/// has the lock.
static CURRENT: [Symbol; 2] = [Symbol::new(c"PyThreadState_GetUnchecked"), Symbol::new(c"_PyThreadState_UncheckedGet")];
/// Function that returns the first state that the calling thread was given.
static OWN: Symbol = Symbol::new(c"PyGILState_GetThisThreadState");

/// `Py_Version` of the first Python whose function for the current state answers for the calling thread.
const STATE_BY_THREAD: c_ulong = 0x030c_0000;

/// Reports whether the calling thread holds the global lock of a Python interpreter in this process. Python's own
/// answer (`PyGILState_Check`) is always yes once a second interpreter existed, so this compares thread states instead.
/// In builds without a global lock (free-threaded), reports whether the thread counts as running Python: each garbage
/// collection stops all other threads until such a thread pauses.
pub(crate) fn holds_the_lock() -> bool {
    let Some(check) = CHECK.get() else { return false };
    // SAFETY: CPython's function of this name, documented to take nothing and to return an int; any thread may call it at
    // any time.
    let says_so = unsafe { std::mem::transmute::<*mut c_void, Check>(check)() == 1 };
    let [by_thread, current] = &CURRENT;
    if let Some(state) = by_thread.state() {
        return !state.is_null();
    }
    let Some(state) = current.state() else { return says_so };
    if state.is_null() {
        return false;
    }
    // SAFETY: a constant number of CPython's, where there is one.
    let version = VERSION.get().map_or(0, |at| unsafe { *at.cast::<c_ulong>() });
    if version >= STATE_BY_THREAD {
        return true;
    }
    // A "no" of Python's is always right, and so is a "yes" for the state that the thread was given first.
    says_so && (OWN.state() == Some(state) || is_of_this_thread(state).unwrap_or(says_so))
}

/// Number of words of a thread's state to read. The ID of its thread is among them: the seventeenth to twenty-third, up
/// to Python 3.11.
const STATE_WORDS: usize = 32;

/// Reports whether a state of an older Python belongs to the calling thread; `None` if it cannot be read. Read by a
/// system call, since its thread may end meanwhile and the memory be unmapped.
fn is_of_this_thread(state: *mut c_void) -> Option<bool> {
    let mut words = [0usize; STATE_WORDS];
    let bytes = size_of_val(&words);
    let (to, from) = (
        libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: bytes },
        libc::iovec { iov_base: state, iov_len: bytes },
    );
    // SAFETY: writes to `words`, whose size is passed; fails if the state cannot be read.
    // Called by its number, since not every C library has a function for it.
    let read = unsafe {
        libc::syscall(
            libc::SYS_process_vm_readv,
            libc::getpid(),
            &raw const to,
            1usize,
            &raw const from,
            1usize,
            0usize,
        )
    };
    // SAFETY: takes nothing, and cannot fail.
    let own = unsafe { libc::pthread_self() } as usize;
    (read == bytes as libc::c_long).then(|| words.contains(&own))
}

/// Reports whether Python runs the program's signal handlers on the calling thread. It runs them in the main thread,
/// after the launch has returned.
pub(crate) fn runs_handlers() -> bool {
    let is_main = rustix::thread::gettid() == rustix::process::getpid();
    is_main && CHECK.get().is_some()
}
