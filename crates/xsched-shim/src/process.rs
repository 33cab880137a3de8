//! The one runtime of this process.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::*};

use xsched_agent::{Host, Log, Settings, say, say_once};
use xsched_core::{Runtime, journal, thread};
use xsched_proto::wire::{self, Described};

use crate::interpose::{resolve, walk};
use crate::{domain, lock, platform, python, stats};

static RUNTIME: AtomicPtr<Runtime> = AtomicPtr::new(std::ptr::null_mut());
static STAGE: AtomicU32 = AtomicU32::new(UNTOUCHED);

const UNTOUCHED: u32 = 0;
const STARTING: u32 = 1;
const RUNNING: u32 = 2;
const OFF: u32 = 3;

/// Key whose destructor tells that a thread ends.
static THREAD_KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// The runtime, started if this is the first device call. `None` when scheduling is off in this process.
#[inline(always)]
pub fn runtime() -> Option<&'static Runtime> {
    let known = RUNTIME.load(Acquire);
    if known.is_null() {
        return start();
    }
    // SAFETY: published once, never freed.
    Some(unsafe { &*known })
}

/// The runtime if it is running already.
pub fn running() -> Option<&'static Runtime> {
    // SAFETY: published once, never freed.
    unsafe { RUNTIME.load(Acquire).as_ref() }
}

#[cold]
#[inline(never)]
fn start() -> Option<&'static Runtime> {
    match STAGE.compare_exchange(UNTOUCHED, STARTING, AcqRel, Acquire) {
        Ok(_) => {}
        Err(OFF) => return None,
        Err(_) => {
            while STAGE.load(Acquire) == STARTING {
                std::thread::yield_now();
            }
            return running();
        }
    }
    let started = std::panic::catch_unwind(|| {
        if disabled() {
            return None;
        }
        domain::start();
        start_journal();
        xsched_core::ask_before_waiting(python::holds_the_lock);
        let host = Host { platforms: platform::PLATFORMS, describe };
        let settings = Settings::read(|name| std::env::var(name).ok());
        let required = settings.required;
        match xsched_agent::start(settings, host) {
            Ok(rt) => Some(rt),
            Err(e) if required => xsched_agent::refuse(&e),
            Err(e) => {
                say(&format!("runs unscheduled: {e}"));
                None
            }
        }
    });
    let Ok(Some(rt)) = started else {
        STAGE.store(OFF, Release);
        return None;
    };
    // One thread at a time comes here. (No `Once`: a fork meanwhile would leave one in the child that never ends.)
    static HANDLERS: AtomicBool = AtomicBool::new(false);
    if !HANDLERS.load(Acquire) {
        register_handlers();
        HANDLERS.store(true, Release);
    }
    RUNTIME.store(std::ptr::from_ref(rt).cast_mut(), Release);
    STAGE.store(RUNNING, Release);
    Some(rt)
}

/// `XSCHED_JOURNAL` names a folder for what the models are asked and answer.
fn start_journal() {
    let Some(folder) = std::env::var_os("XSCHED_JOURNAL").filter(|folder| !folder.is_empty()) else { return };
    if let Err(e) = journal::start(folder.as_ref()) {
        say(&format!("XSCHED_JOURNAL ignored: cannot write in {}: {e}", folder.display()));
    }
}

/// When this library is loaded, since a handler that is registered while another thread forks does not act in that
/// child: what a thread of ours locked or began meanwhile would stay so there.
#[used]
#[unsafe(link_section = ".init_array")]
static WATCH_FORKS: extern "C" fn() = {
    extern "C" fn watch_forks() {
        // SAFETY: handlers that only touch atomics, this thread's own plain data, and locks that no other thread can
        // hold there.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_forked_child)) };
    }
    watch_forks
};

fn register_handlers() {
    // SAFETY: handlers that only touch atomics and this thread's own plain data.
    unsafe {
        let mut key: libc::pthread_key_t = 0;
        if libc::pthread_key_create(&mut key, Some(thread_ends)) == 0 {
            THREAD_KEY.store(key, Release);
        }
        libc::atexit(at_exit);
    }
}

/// What is still held is let go: a driver waits for its streams when the program ends.
extern "C" fn at_exit() {
    stats::write();
    let _ = std::panic::catch_unwind(|| {
        if let Some(rt) = running() {
            rt.detach_for_good();
            rt.end_looking();
        }
        platform::hsa::release();
        journal::end();
    });
}

unsafe extern "C" fn before_fork() {
    walk::before_fork();
}

unsafe extern "C" fn after_fork() {
    walk::after_fork();
}

/// The child has neither the agent thread nor the segment; it starts anew at its own first device call.
unsafe extern "C" fn in_forked_child() {
    walk::in_forked_child();
    // Most programs that fork have nothing to do with us: their children are not to pay for what they never touched.
    if STAGE.load(Acquire) == UNTOUCHED && !lock::any_locked() {
        return;
    }
    thread::forget_all();
    journal::forget();
    domain::forget_all();
    xsched_core::close_all_in_child();
    platform::forget_suffix_fences();
    platform::cuda::forget_all();
    platform::hip::forget_all();
    platform::hsa::forget_all();
    platform::sim::forget_all_registrations();
    platform::opencl::forget_if_held();
    resolve::forget_if_held();
    RUNTIME.store(std::ptr::null_mut(), Release);
    STAGE.store(UNTOUCHED, Release);
}

unsafe extern "C" fn thread_ends(_: *mut std::ffi::c_void) {
    let _ = std::panic::catch_unwind(|| {
        if let Some(rt) = running() {
            rt.thread_exit();
        }
        domain::thread_ends();
        thread::forget_all();
    });
}

/// Makes a call that may wait for the device.
pub fn waiting<T>(call: impl FnOnce() -> T) -> T {
    match running() {
        Some(rt) => rt.wait_for_some(call),
        None => call(),
    }
}

/// Makes sure that [`thread_ends`] runs for the calling thread.
pub fn watch_thread() {
    let key = THREAD_KEY.load(Acquire);
    if key != u32::MAX {
        // SAFETY: a key of ours; any value but null makes its destructor run.
        unsafe { libc::pthread_setspecific(key, std::ptr::dangling::<u8>().cast()) };
    }
}

fn disabled() -> bool {
    std::env::var_os("XSCHED_DISABLE").is_some_and(|v| !v.is_empty() && v != "0")
}

/// Whether a platform (see [`platform`]) is scheduled in this process: neither `XSCHED_DISABLE` is set nor
/// `XSCHED_PLATFORMS` leaves it out.
pub fn platform_enabled(platform: u8) -> bool {
    static ENABLED: AtomicU32 = AtomicU32::new(u32::MAX);
    let mut enabled = ENABLED.load(Relaxed);
    if enabled == u32::MAX {
        enabled = if disabled() {
            0
        } else {
            match std::env::var("XSCHED_PLATFORMS") {
                Ok(list) if !list.is_empty() => {
                    complain_of(&list);
                    list.split(',')
                        .filter_map(|word| {
                            let word = word.trim().to_ascii_lowercase();
                            platform::PLATFORMS.iter().position(|p| p.kind().name() == word)
                        })
                        .fold(0, |bits, at| bits | 1 << at)
                }
                _ => u32::MAX >> 1,
            }
        };
        ENABLED.store(enabled, Relaxed);
    }
    enabled & (1 << platform) != 0
}

/// Says once what is wrong with a list of platforms. A preloaded library must not end its host for it.
#[cold]
fn complain_of(platforms: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if let Some(fault) = wire::Platform::fault_in(platforms) {
        let log = Settings::read(|name| std::env::var(name).ok()).log;
        say_once(&SAID, log, Log::Error, &fault);
    }
}

/// An error of ours: step aside. Gates open for good and the application goes on; said once.
#[cold]
pub fn step_aside(what: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    STAGE.store(OFF, Release);
    if let Some(rt) = running() {
        rt.detach_for_good();
    }
    let _ = std::panic::catch_unwind(platform::hsa::release);
    RUNTIME.store(std::ptr::null_mut(), Release);
    say_once(&SAID, Log::Error, Log::Error, &format!("internal error, scheduling is off for this process: {what}"));
}

/// Runs a part of ours between an application and its driver; a panic in it turns scheduling off and is over.
/// The caller's `errno` stays as it is. Inlined, so that `part` is not copied.
#[inline(always)]
pub fn guarded<T>(what: &str, part: impl FnOnce() -> T) -> Option<T> {
    resolve::keeping_errno(|| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(part)).map_err(|_| step_aside(what)).ok()
    })
}

fn describe() -> Vec<Described> {
    let mut lines: Vec<Described> = resolve::found()
        .into_iter()
        .map(|f| Described::Function {
            name: f.hook.name.to_string_lossy().into_owned(),
            address: f.address as u64,
            file: resolve::object_of(f.address).map_or_else(|| "?".into(), |o| o.1.to_string_lossy().into_owned()),
            via: f.via.into(),
        })
        .collect();
    lines.sort_by_key(|line| match line {
        Described::Function { name, .. } => name.clone(),
        _ => String::new(),
    });
    lines.extend(
        domain::launches_by_library()
            .unwrap_or_default()
            .into_iter()
            .map(|(name, n)| Described::Note { text: format!("{n} launches came from {name}") }),
    );
    lines.extend(
        stats::added()
            .into_iter()
            .map(|(name, n)| Described::Note { text: format!("{n} calls of {name} were added to follow completions") }),
    );
    lines
}
