//! State of this process: its one runtime, and the ways in which scheduling begins and ends.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};

use xsched_agent::say_once;
use xsched_core::Runtime;
use xsched_proto::settings::Log;

use crate::interpose::resolve;
use crate::stage::{self, OFF, OWN, RUNNING, STARTING, UNTOUCHED};

/// Thread-specific key whose destructor runs when a watched thread ends.
static THREAD_KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// A `fn()` that releases work which platforms hold otherwise than by gates; 0 = none.
static LET_GO: AtomicUsize = AtomicUsize::new(0);

/// The runtime if it is running already.
pub fn running() -> Option<&'static Runtime> {
    // SAFETY: published once, never freed.
    unsafe { OWN.runtime.load(Acquire).as_ref() }
}

/// The runtime, made by `make` if this is the first call; another one waits for it. `None` when scheduling is off in this
/// process.
#[cold]
#[inline(never)]
pub(crate) fn begin(make: fn() -> Option<&'static Runtime>) -> Option<&'static Runtime> {
    stage::leave_unless_ours(stage::Occasion::Use);
    match OWN.stage.compare_exchange(UNTOUCHED, STARTING, AcqRel, Acquire) {
        Ok(_) => {}
        Err(OFF) => return None,
        Err(_) => {
            while OWN.stage.load(Acquire) == STARTING {
                std::thread::yield_now();
            }
            return running();
        }
    }
    stage::begun();
    let Ok(Some(rt)) = std::panic::catch_unwind(make) else {
        OWN.stage.store(OFF, Release);
        return None;
    };
    OWN.runtime.store(std::ptr::from_ref(rt).cast_mut(), Release);
    OWN.stage.store(RUNNING, Release);
    Some(rt)
}

/// Sets a function that releases further held work. It is called if an internal error ends scheduling.
pub(crate) fn let_go_by(let_go: fn()) {
    LET_GO.store(let_go as usize, Release);
}

/// Makes a call that may wait for the device, and lets the runtime know for its duration.
pub fn waiting<T>(call: impl FnOnce() -> T) -> T {
    match running() {
        Some(rt) => rt.wait_for_some(call),
        None => call(),
    }
}

/// Registers `ends` to run at the end of each thread that [`watch_thread`] watches.
pub(crate) fn watch_threads_by(ends: unsafe extern "C" fn(*mut std::ffi::c_void)) {
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: a place for the key, and a function that stays.
    if unsafe { libc::pthread_key_create(&mut key, Some(ends)) } == 0 {
        THREAD_KEY.store(key, Release);
    }
}

/// Watches the calling thread: the function given to [`watch_threads_by`] runs at its end.
pub fn watch_thread() {
    let key = THREAD_KEY.load(Acquire);
    if key != u32::MAX {
        // SAFETY: a key of ours; any value but null makes its destructor run.
        unsafe { libc::pthread_setspecific(key, std::ptr::dangling::<u8>().cast()) };
    }
}

/// Ends scheduling in this process after an internal error. Gates open for good, the application goes on, and the
/// reason is logged once.
#[cold]
pub fn step_aside(what: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    OWN.stage.store(OFF, Release);
    if let Some(rt) = running() {
        rt.detach_for_good();
    }
    let let_go = LET_GO.load(Acquire);
    if let_go != 0 {
        // SAFETY: what `let_go_by` was given.
        let let_go = unsafe { std::mem::transmute::<usize, fn()>(let_go) };
        let _ = std::panic::catch_unwind(let_go);
    }
    OWN.runtime.store(std::ptr::null_mut(), Release);
    say_once(&SAID, Log::Error, Log::Error, &format!("internal error, scheduling is off for this process: {what}"));
}

/// Runs a part of this library between an application and its driver. A panic in it turns scheduling off and goes no
/// further. Restores the caller's `errno`. Inlined, so that `part` is not copied.
#[inline(always)]
pub fn guarded<T>(what: &str, part: impl FnOnce() -> T) -> Option<T> {
    resolve::keeping_errno(|| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(part)).map_err(|_| step_aside(what)).ok()
    })
}
