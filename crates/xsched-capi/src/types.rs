//! Handles, results and numbers of the interface, as in C.

use std::ffi::{c_int, c_void};

/// Handle of an XQueue, a number and never a pointer; 0 = none.
pub type XQueueHandle = u64;
/// Handle of a hardware queue, a queue of a vendor's interface.
pub type HwQueueHandle = u64;
/// Handle of a command.
pub type HwCommandHandle = u64;
/// Priority: -255..=255, greater is more urgent; also [`NOT_EXECUTED`].
pub type Priority = i32;
/// Utilisation in percent: 0..=100.
pub type Utilization = i32;
/// Time slice in µs: 100..=10,000,000.
pub type Timeslice = i64;
/// Laxity in µs; -1 = none.
pub type Laxity = i64;
/// Deadline in µs; -1 = none.
pub type Deadline = i64;
/// Callback of a command: gets its queue and the pointer that the command was created with.
pub type LaunchCallback = Option<unsafe extern "C" fn(HwQueueHandle, *mut c_void) -> XResult>;

/// Priority of a queue that is not to be executed.
pub const NOT_EXECUTED: Priority = -256;

/// Result of a function. A callback may return any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct XResult(pub c_int);

impl XResult {
    /// The call succeeded.
    pub const SUCCESS: XResult = XResult(0);
    /// The vendor's interface refused.
    pub const HARDWARE: XResult = XResult(1);
    /// An argument is out of range or null.
    pub const INVALID_VALUE: XResult = XResult(2);
    /// A handle is not valid (any more), or there is no libxsched.
    pub const NOT_FOUND: XResult = XResult(3);
    /// Not allowed now, or from here.
    pub const NOT_ALLOWED: XResult = XResult(4);
    /// Not supported by the device or this build.
    pub const NOT_SUPPORTED: XResult = XResult(5);
    /// The scheduler did not respond as it should.
    pub const BAD_RESPONSE: XResult = XResult(6);
    /// An internal error.
    pub const UNKNOWN: XResult = XResult(999);
}

/// State of a queue, for [`XQueueState`].
pub mod state {
    /// Nothing is buffered or running.
    pub const IDLE: i32 = 1;
    /// Something is buffered or running.
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

    /// No scheduler: the program itself decides.
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
    /// Suspend: first wait for all commands submitted so far.
    pub const WAIT_ALL: i64 = 2;
    /// Suspend: first wait until no command is left, including those submitted meanwhile.
    pub const WAIT_IDLE: i64 = 4;
    /// Resume: drop all buffered commands.
    pub const DROP_COMMANDS: i64 = 1;
}

/// Names of the policies by number; each but the first is in `xsched policy list`.
pub const POLICIES: [&str; 12] = ["", "hpf", "hhpf", "chpf", "up", "pup", "spup", "kedf", "lax", "awf", "cfs", "mlfq"];

/// Name of the policy with a number; `None` for an unknown one.
pub fn policy_name(number: XPolicyType) -> Option<&'static str> {
    usize::try_from(number).ok().and_then(|at| POLICIES.get(at)).copied().filter(|name| !name.is_empty())
}
