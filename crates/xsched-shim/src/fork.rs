//! Handling of children that have a copy of this process's memory. A child of `fork` starts afresh: the C library runs
//! a handler in it. A child of a bare `clone` or `_Fork` is detected at its first call ([`stage`]) and stays
//! unscheduled.

use std::sync::atomic::{AtomicBool, Ordering::*};

use xsched_core::{journal, thread};

use crate::exports::exec;
use crate::interpose::{resolve, walk};
use crate::stage::{self, Occasion};
use crate::{capi, domain, enabled, lock, platform};

/// Constructor, run when this library is loaded. A handler that is registered while another thread forks does not run
/// in that child, and locks or work of this library's threads would stay there half-done.
#[used]
#[unsafe(link_section = ".init_array")]
static WATCH_FORKS: extern "C" fn() = {
    extern "C" fn watch_forks() {
        stage::leave_by(leave);
        // With such a C library this process locks and starts nothing.
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

/// Resets the child, which has neither the agent thread nor the segment. It starts afresh at its own first device call.
unsafe extern "C" fn in_forked_child() {
    walk::in_forked_child();
    // Most programs that fork never use a device. Their children must not pay for resetting what was never used.
    if stage::is_untouched() && !lock::any_locked() {
        return;
    }
    forget_parent();
}

/// Leaves a child unscheduled in which no fork handler has run. It has no agent, and the C library does not promise
/// that it can have threads.
fn leave(occasion: Occasion) {
    resolve::keeping_errno(|| {
        walk::in_forked_child();
        forget_parent();
        stage::stay_off();
        if occasion == Occasion::End {
            return;
        }
        // Nothing here may allocate: a thread of the parent may have held the heap's lock, which nobody lets go of here.
        let told = stage::told();
        if told.required {
            xsched_agent::say_whole(REFUSED);
            // SAFETY: ends the process.
            unsafe { libc::_exit(xsched_agent::ENVIRONMENT) }
        }
        static SAID: AtomicBool = AtomicBool::new(false);
        if told.says && !SAID.swap(true, AcqRel) {
            xsched_agent::say_whole(UNSCHEDULED);
        }
    });
}

/// Lines of such a child, which cannot be put together there.
const UNSCHEDULED: &str =
    "xsched: runs unscheduled: it was made by clone or _Fork without the C library's fork handlers\n";
const REFUSED: &str = "xsched: it was made by clone or _Fork without the C library's fork handlers; --require was given \
                       (XSCHED_REQUIRE=1): the program ends instead of running unscheduled\n";

/// Abandons the parent's state, and locks that other threads of the parent held.
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
