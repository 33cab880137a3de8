//! `XSCHED_REQUIRE`: a program that would run unscheduled from the start ends instead, at its first device call.
//!
//! Only the start is guarded. Once a group of the process was registered, the loss of the daemon is reported and the program goes
//! on: ending it then would lose its work.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};

use xsched_flow::tuning::REQUIRED_NS;

use crate::report::say;

/// Exit code for trouble with the environment, the same as of the command.
pub const ENVIRONMENT: i32 = 3;

/// Reason why the program is not attached, as far as it is known. Leaked, since a lock might be held for ever in a forked child.
static WHY: AtomicPtr<String> = AtomicPtr::new(std::ptr::null_mut());
static FINAL: AtomicBool = AtomicBool::new(false);

/// Has the first launch wait for the scheduler, or end the program.
pub(crate) fn guard_start() {
    xsched_core::require_registration(unscheduled);
}

/// Agent: notes why the program is not attached. `is_final`: trying again is no use.
pub(crate) fn note(why: &impl Display, is_final: bool) {
    WHY.store(Box::into_raw(Box::new(why.to_string())), Release);
    if is_final {
        FINAL.store(true, Release);
    }
}

fn unscheduled(waited_ns: u64) {
    if FINAL.load(Acquire) || waited_ns >= REQUIRED_NS {
        // SAFETY: only ever set to leaked boxes.
        let why = unsafe { WHY.load(Acquire).as_ref() };
        refuse(&why.map_or("the daemon did not take the program within 3 s", |why| why));
    }
}

/// Ends the program with one line and exit code 3. At once: handlers and destructors might wait for a lock that the thread
/// at the device call holds.
pub fn refuse(why: &impl Display) -> ! {
    say(&format!("{why}; --require was given (XSCHED_REQUIRE=1): the program ends instead of running unscheduled"));
    // SAFETY: ends the process.
    unsafe { libc::_exit(ENVIRONMENT) }
}
