//! What becomes of a forked child.

use xsched_core::{journal, thread};

use crate::exports::exec;
use crate::interpose::{resolve, walk};
use crate::{capi, domain, enabled, lock, platform, process};

/// When this library is loaded, since a handler that is registered while another thread forks does not act in that
/// child: what a thread of ours locked or began meanwhile would stay so there.
#[used]
#[unsafe(link_section = ".init_array")]
static WATCH_FORKS: extern "C" fn() = {
    extern "C" fn watch_forks() {
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
    if process::is_untouched() && !lock::any_locked() {
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
    platform::start::forget_if_held();
    capi::forget();
    resolve::forget_if_held();
    process::forget();
}
