//! Commands of the C API, and their stages.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard};

use xsched_capi::types::{HwQueueHandle, XResult};

thread_local! {
    /// Set while the calling thread is in a command's callback.
    static IN_COMMAND: Cell<bool> = const { Cell::new(false) };
}

/// Reports whether the calling thread is in a command's callback. A callback must not wait for its own queue.
pub(super) fn is_in_command() -> bool {
    IN_COMMAND.get()
}

type Callback = unsafe extern "C" fn(HwQueueHandle, *mut c_void) -> XResult;

/// Stage of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not submitted yet.
    Fresh,
    /// In the buffer of the XQueue with this handle.
    Buffered(u64),
    /// Passed to the driver: handle of the XQueue, and the command's number in it.
    Launched(u64, u64),
    /// Removed from the buffer of the XQueue with this handle, never to be launched.
    Dropped(u64),
}

/// A command: a callback of the program's that enqueues work.
pub(super) struct Command {
    callback: Callback,
    data: usize,
    state: Mutex<(Stage, XResult)>,
}

impl Command {
    pub(super) fn new(callback: Callback, data: *mut c_void) -> Command {
        Command { callback, data: data.addr(), state: Mutex::new((Stage::Fresh, XResult::SUCCESS)) }
    }

    fn state(&self) -> MutexGuard<'_, (Stage, XResult)> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(super) fn stage(&self) -> Stage {
        self.state().0
    }

    pub(super) fn set_stage(&self, stage: Stage) {
        self.state().0 = stage;
    }

    /// Result of the callback; `NOT_FOUND` if the command was dropped.
    pub(super) fn result(&self) -> XResult {
        match *self.state() {
            (Stage::Dropped(_), _) => XResult::NOT_FOUND,
            (_, result) => result,
        }
    }

    /// Kind of the command, equal for commands with the same callback.
    pub(super) fn kind(&self) -> *const c_void {
        self.callback as *const c_void
    }

    /// Runs the callback on the calling thread. Returns whether it succeeded.
    pub(super) fn run(&self, queue: HwQueueHandle) -> bool {
        let outer = IN_COMMAND.replace(true);
        // SAFETY: the program's own function and pointer, which it keeps valid until the command is complete or destroyed.
        let result = unsafe { (self.callback)(queue, self.data as *mut c_void) };
        IN_COMMAND.set(outer);
        self.state().1 = result;
        result == XResult::SUCCESS
    }
}
