//! Children that have a copy of this process's memory. One of `fork` starts anew: the C library calls a handler there. One of a bare
//! `clone` or `_Fork` is found out at its first call ([`stage`]) and goes unscheduled.

use std::sync::atomic::AtomicBool;

use xsched_agent::say_once;
use xsched_core::{journal, thread};
use xsched_proto::settings::{Log, Settings};

use crate::exports::exec;
use crate::interpose::{resolve, walk};
use crate::stage::{self, Occasion};
use crate::{capi, domain, enabled, lock, platform};

/// When this library is loaded, since a handler that is registered while another thread forks does not act in that
/// child: what a thread of ours locked or began meanwhile would stay so there.
#[used]
#[unsafe(link_section = ".init_array")]
static WATCH_FORKS: extern "C" fn() = {
    extern "C" fn watch_forks() {
        stage::leave_by(leave);
        // Nothing is locked or begun there.
        if enabled::unfit_libc().is_some() {
            return;
        }
        // SAFETY: handlers that only touch atomics, this thread's own plain data, and locks that no other thread can
        // hold there.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_forked_child)) };
    }
    watch_forks
};

unsafe extern "C" fn before_fork() {
    exec::before_fork();
    walk::before_fork();
}

unsafe extern "C" fn after_fork() {
    walk::after_fork();
}

/// The child has neither the agent thread nor the segment; it starts anew at its own first device call.
unsafe extern "C" fn in_forked_child() {
    walk::in_forked_child();
    // Most programs that fork have nothing to do with us: their children are not to pay for what they never touched.
    if stage::is_untouched() && !lock::any_locked() {
        return;
    }
    forget_parent();
}

/// In a child in which no handler of `fork` has run. It has no agent, and the C library does not promise that it can have threads.
fn leave(occasion: Occasion) {
    resolve::keeping_errno(|| {
        walk::in_forked_child();
        forget_parent();
        stage::stay_off();
        if occasion == Occasion::End {
            return;
        }
        let settings = Settings::of_process();
        let why = "it was made by clone or _Fork without the C library's fork handlers";
        if settings.required {
            xsched_agent::refuse(&why);
        }
        static SAID: AtomicBool = AtomicBool::new(false);
        say_once(&SAID, settings.log, Log::Info, &format!("runs unscheduled: {why}"));
    });
}

/// Forgets what is of the parent, and locks that its other threads held.
fn forget_parent() {
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
    platform::start::forget_if_held();
    capi::forget();
    resolve::forget_if_held();
    stage::forget();
}
