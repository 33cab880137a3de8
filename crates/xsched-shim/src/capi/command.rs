//! Commands, and what became of them.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard};

use xsched_capi::types::{HwQueueHandle, XResult};

thread_local! {
    /// Whether the calling thread is in a command's callback.
    static IN_COMMAND: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is in a command's callback, which must not wait for its own queue.
pub(super) fn is_in_command() -> bool {
    IN_COMMAND.get()
}

type Callback = unsafe extern "C" fn(HwQueueHandle, *mut c_void) -> XResult;

/// How far a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not submitted yet.
    Fresh,
    /// In the buffer of the XQueue with this handle.
    Buffered(u64),
    /// Given to the driver as the command of this number of that XQueue.
    Launched(u64, u64),
    /// Out of the buffer again, never to be launched.
    Dropped(u64),
}

/// Something to be launched: a callback of the program's.
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

    /// What its callback returned, or that it was dropped.
    pub(super) fn result(&self) -> XResult {
        match *self.state() {
            (Stage::Dropped(_), _) => XResult::NOT_FOUND,
            (_, result) => result,
        }
    }

    /// Tells alike commands: those of one callback.
    pub(super) fn kind(&self) -> *const c_void {
        self.callback as *const c_void
    }

    /// Calls back, on the calling thread. True: all went well.
    pub(super) fn run(&self, queue: HwQueueHandle) -> bool {
        let outer = IN_COMMAND.replace(true);
        // SAFETY: the program's own function and pointer, which it keeps valid until the command is complete or destroyed.
        let result = unsafe { (self.callback)(queue, self.data as *mut c_void) };
        IN_COMMAND.set(outer);
        self.state().1 = result;
        result == XResult::SUCCESS
    }
}
