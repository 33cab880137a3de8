//! Handles, results and numbers of the interface, as C has them.

use std::ffi::{c_int, c_void};

/// A number that stands for an XQueue; never a pointer. 0 is none.
pub type XQueueHandle = u64;
/// A number that stands for a queue of the hardware's, as its vendor's interface has it.
pub type HwQueueHandle = u64;
/// A number that stands for a command.
pub type HwCommandHandle = u64;
/// -255..=255, greater is more urgent; [`NOT_EXECUTED`] beside.
pub type Priority = i32;
/// 0..=100 percent.
pub type Utilization = i32;
/// 100..=10,000,000 µs.
pub type Timeslice = i64;
/// µs; -1 = none.
pub type Laxity = i64;
/// µs; -1 = none.
pub type Deadline = i64;
/// What a command does: gets its queue and the pointer that it was made with.
pub type LaunchCallback = Option<unsafe extern "C" fn(HwQueueHandle, *mut c_void) -> XResult>;

/// The priority of a queue that is not to be executed.
pub const NOT_EXECUTED: Priority = -256;

/// What a function answers. Any number may come from a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct XResult(pub c_int);

impl XResult {
    /// All went well.
    pub const SUCCESS: XResult = XResult(0);
    /// The vendor's interface refused.
    pub const HARDWARE: XResult = XResult(1);
    /// An argument is out of range or null.
    pub const INVALID_VALUE: XResult = XResult(2);
    /// A handle stands for nothing (any more), or there is no libxsched.
    pub const NOT_FOUND: XResult = XResult(3);
    /// Not now, or not from here.
    pub const NOT_ALLOWED: XResult = XResult(4);
    /// The device or this build cannot.
    pub const NOT_SUPPORTED: XResult = XResult(5);
    /// The scheduler did not answer as it should.
    pub const BAD_RESPONSE: XResult = XResult(6);
    /// An error of ours.
    pub const UNKNOWN: XResult = XResult(999);
}

/// State of a queue, for [`XQueueState`].
pub mod state {
    /// Nothing is buffered or running.
    pub const IDLE: i32 = 1;
    /// Something is.
    pub const READY: i32 = 2;
}

/// One of [`state`]; 0 = unknown.
pub type XQueueState = c_int;
/// A kind of scheduler, see [`scheduler`].
pub type XSchedulerType = c_int;
/// The number of a policy, see [`policy_name`].
pub type XPolicyType = c_int;

/// Kinds of scheduler.
pub mod scheduler {
    use std::ffi::c_int;

    /// The program itself decides.
    pub const APP_MANAGED: c_int = 1;
    /// A scheduler inside the process.
    pub const LOCAL: c_int = 2;
    /// The daemon.
    pub const GLOBAL: c_int = 3;
}

/// Flags of `XQueueCreate`, `XQueueSuspend` and `XQueueResume`.
pub mod flag {
    /// Create: commands are launched by the thread that submits them.
    pub const BLOCKING_SUBMIT: i64 = 1;
    /// Suspend: return when what was launched and is not held is complete.
    pub const SYNC_HW_QUEUE: i64 = 1;
    /// Suspend: first wait for all that was submitted.
    pub const WAIT_ALL: i64 = 2;
    /// Suspend: first wait until nothing is left, also of what is submitted meanwhile.
    pub const WAIT_IDLE: i64 = 4;
    /// Resume: forget what is buffered.
    pub const DROP_COMMANDS: i64 = 1;
}

/// Names of the policies, by number: one of `xsched policy list` each.
pub const POLICIES: [&str; 12] = ["", "hpf", "hhpf", "chpf", "up", "pup", "spup", "kedf", "lax", "awf", "cfs", "mlfq"];

/// The policy of a number; none for an unknown one.
pub fn policy_name(number: XPolicyType) -> Option<&'static str> {
    usize::try_from(number).ok().and_then(|at| POLICIES.get(at)).copied().filter(|name| !name.is_empty())
}
