//! Hardware queues, as the C API uses them. They use the program's own context and stream, and create or destroy
//! neither.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use xsched_core::{Runtime, XQueue, thread};

use super::waits;
use crate::stage;

/// Address noted as the caller of calls that pass through this library's own stubs.
static HERE: u8 = 0;

/// Marks the next hooked call on this thread as ours, for the first copy of the library.
pub(crate) fn call_is_ours() {
    // Checked here, because the call that follows passes no hook that would do so.
    stage::leave_unless_ours(stage::Occasion::Use);
    let thread = thread::current();
    thread.caller.set((&raw const HERE).addr());
    thread.binding.set(0);
}

/// Guard: while it lives, holds by the program do not stop the calling thread's commands. An XQueue of the C API
/// launches under it, after it has applied the program's hold itself.
pub(crate) struct PassingHolds(bool);

impl PassingHolds {
    pub(crate) fn begin() -> PassingHolds {
        PassingHolds(thread::current().passes_holds.replace(true))
    }
}

impl Drop for PassingHolds {
    fn drop(&mut self) {
        thread::current().passes_holds.set(self.0);
    }
}

/// A hardware queue. [`super::stream_queue`] has that of platforms with streams.
pub(crate) trait HardwareQueue: Send + Sync {
    /// Key of its XQueue.
    fn key(&self) -> usize;

    /// Its XQueue, created if need be; `None` if the queue is not scheduled.
    fn xqueue(&self, rt: &'static Runtime) -> Option<&'static XQueue>;

    /// Runs `part` with the queue's context current on the calling thread.
    fn within(&self, part: &mut dyn FnMut());

    /// Passes a command to the driver by `enter`. Commands of one `kind` are expected to take equally long. To be
    /// called within the queue's context.
    fn launch(&self, kind: *const c_void, enter: &dyn Fn() -> c_int) -> c_int;

    /// Places a gate of this queue before its next command. The device waits at it while the program holds the queue,
    /// and then reports that it has reached command `number`. Returns false if there are no such gates. To be called
    /// within the queue's context.
    fn gate(&self, _rt: &Runtime, _queue: &XQueue, _number: u32) -> bool {
        false
    }

    /// Places a mark behind all commands so far; `None` if the driver refused. To be called within the queue's context.
    fn mark(&self) -> Option<Arc<dyn Mark>>;

    /// Waits for all commands so far. To be called within the queue's context.
    fn synchronize(&self) -> bool;

    /// Reports whether all commands so far are complete. To be called within the queue's context.
    fn is_idle(&self) -> bool;
}

/// A mark: a point in the order of a queue's commands, which can be waited for.
pub(crate) trait Mark: Send + Sync {
    /// Waits until the device reaches it.
    fn wait(&self) -> bool;

    /// Reports whether the device has reached it.
    fn is_reached(&self) -> bool;
}

/// Runs a call that waits for a queue. `all` is set if it waits for all commands of the queue.
pub(crate) fn waiting(key: usize, all: bool, wait: impl FnOnce() -> bool) -> bool {
    let awaited = waits::begin_for(|rt| rt.find(key));
    let done = wait();
    waits::end(awaited, all && done);
    done
}
