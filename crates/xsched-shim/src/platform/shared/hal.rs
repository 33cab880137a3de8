//! What the C API asks of one hardware queue. It uses the program's own context and stream, and makes or destroys neither.
//!
//! [`StreamQueue`] is that for platforms with streams, over a [`StreamDriver`]. Commands go the way of all others
//! ([`super::path`]), so that a queue without the preload is scheduled like one with it, and what a command calls in turn
//! counts as the driver's own business: it is gated once.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use xsched_core::{Runtime, Work, XQueue, thread};

use super::path::{self, kernel_key};
use super::{DefaultStreamMode, Driver, Handle, Stream, StreamKind, late, waits};
use crate::enabled::platform_enabled;
use crate::stage;

/// Calls that go through this library's own functions are said to come from here.
static HERE: u8 = 0;

/// The next call on this thread that looks where it came from is one of ours, and means the first copy of the library.
pub(crate) fn call_is_ours() {
    // No hook of a vendor's function is passed here.
    stage::leave_unless_ours(stage::Occasion::Use);
    let thread = thread::current();
    thread.caller.set((&raw const HERE).addr());
    thread.binding.set(0);
}

/// While it lives, the calling thread launches commands whose turn its XQueue of the C API has decided: that the program
/// holds the queue concerns the others.
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

/// A queue of the hardware's.
pub(crate) trait HardwareQueue: Send + Sync {
    /// Key of its XQueue.
    fn key(&self) -> usize;

    /// Its XQueue, made if there is none yet. None where it is not scheduled.
    fn xqueue(&self, rt: &'static Runtime) -> Option<&'static XQueue>;

    /// Runs `part` with the context of the queue as the calling thread's.
    fn within(&self, part: &mut dyn FnMut());

    /// Takes a command into the driver, which `enter` does; `kind` tells commands that take equally long. Within its context.
    fn launch(&self, kind: *const c_void, enter: &dyn Fn() -> c_int) -> c_int;

    /// Puts a gate of the queue's own before what comes next: the device waits there while the program holds the queue, and
    /// then says that it has reached command `number`. False: there are no such gates. Within its context.
    fn gate(&self, _rt: &Runtime, _queue: &XQueue, _number: u32) -> bool {
        false
    }

    /// A mark behind everything given so far. None: the driver refused. Within its context.
    fn mark(&self) -> Option<Arc<dyn Mark>>;

    /// Waits for everything given so far. Within its context.
    fn synchronize(&self) -> bool;

    /// Whether everything given so far is complete. Within its context.
    fn is_idle(&self) -> bool;
}

/// A point in a queue.
pub(crate) trait Mark: Send + Sync {
    /// Waits until the device gets there.
    fn wait(&self) -> bool;

    /// Whether it got there.
    fn is_reached(&self) -> bool;
}

/// Runs a call that waits for a queue; `all` = for everything that it was given.
pub(crate) fn waiting(key: usize, all: bool, wait: impl FnOnce() -> bool) -> bool {
    let awaited = waits::begin_for(|rt| rt.find(key));
    let done = wait();
    waits::end(awaited, all && done);
    done
}

/// What else is asked of a driver with streams.
pub(in crate::platform) trait StreamDriver: Driver + Sync {
    /// What a thread must have as its own to use a stream: a context, a device.
    type Place: Copy + Send + Sync;

    /// That of a stream, by default the calling thread's.
    fn place_of(&self, handle: Handle) -> Option<Self::Place>;
    /// Runs `part` there.
    fn within(&self, place: Self::Place, part: &mut dyn FnMut());
    /// A new event without a time, on which threads sleep.
    fn new_event(&self) -> Option<usize>;
    /// Records it.
    fn record(&self, event: usize, stream: Stream) -> bool;
    /// Waits for it.
    fn wait_for(&self, event: usize) -> bool;
    /// Whether it has come.
    fn has_come(&self, event: usize) -> bool;
    /// Destroys it.
    fn destroy(&self, event: usize);
    /// Waits for a stream.
    fn synchronize(&self, stream: Stream) -> bool;
    /// Whether a stream has nothing left to do.
    fn is_idle(&self, stream: Stream) -> bool;
    /// See [`HardwareQueue::gate`].
    fn own_gate(&self, rt: &Runtime, queue: &XQueue, number: u32) -> bool;
}

/// A stream.
pub(in crate::platform) struct StreamQueue<D: StreamDriver> {
    api: &'static D,
    /// A function of the library, for [`Driver::beside`].
    real: usize,
    /// The handle that means the same stream in either mode, as a number.
    stream: usize,
    key: usize,
    place: D::Place,
}

impl<D: StreamDriver> StreamQueue<D> {
    /// The stream, as the calling thread means it. None: there is no such stream, or no context.
    pub(crate) fn new(real: *mut c_void, stream: Stream) -> Option<StreamQueue<D>> {
        let api = D::beside(real)?;
        let handle = api.handle(stream, DefaultStreamMode::Legacy)?;
        if handle.which == StreamKind::PerThread {
            // To the worker it would be another one.
            return None;
        }
        if api.is_blocking(handle) {
            late::note_blocking();
        }
        let place = api.place_of(handle)?;
        Some(StreamQueue { api, real: real.addr(), stream: handle.stream.addr(), key: handle.key, place })
    }

    fn real(&self) -> *mut c_void {
        self.real as *mut c_void
    }

    fn stream(&self) -> Stream {
        self.stream as Stream
    }
}

impl<D: StreamDriver> HardwareQueue for StreamQueue<D> {
    fn key(&self) -> usize {
        self.key
    }

    fn xqueue(&self, rt: &'static Runtime) -> Option<&'static XQueue> {
        if !platform_enabled(D::PLATFORM) {
            return None;
        }
        let mut found = None;
        HardwareQueue::within(self, &mut || {
            let handle = self.api.handle(self.stream(), DefaultStreamMode::Legacy);
            found = handle.and_then(|handle| rt.make_queue(handle.key, || self.api.describe(rt, handle)));
        });
        found
    }

    fn within(&self, part: &mut dyn FnMut()) {
        self.api.within(self.place, part);
    }

    fn launch(&self, kind: *const c_void, enter: &dyn Fn() -> c_int) -> c_int {
        let _passing = PassingHolds::begin();
        call_is_ours();
        let work = || Work { key: kernel_key(kind, &[]), ..path::UNKNOWN };
        path::enqueue::<D>(self.real(), self.stream(), DefaultStreamMode::Legacy, work, enter)
    }

    fn gate(&self, rt: &Runtime, queue: &XQueue, number: u32) -> bool {
        self.api.own_gate(rt, queue, number)
    }

    fn mark(&self) -> Option<Arc<dyn Mark>> {
        let event = EventMark { api: self.api, event: self.api.new_event()?, place: self.place };
        self.api.record(event.event, self.stream()).then(|| Arc::new(event) as Arc<dyn Mark>)
    }

    fn synchronize(&self) -> bool {
        self.api.synchronize(self.stream())
    }

    fn is_idle(&self) -> bool {
        self.api.is_idle(self.stream())
    }
}

struct EventMark<D: StreamDriver> {
    api: &'static D,
    event: usize,
    place: D::Place,
}

impl<D: StreamDriver> EventMark<D> {
    fn ask(&self, what: impl Fn(&D, usize) -> bool) -> bool {
        let mut answer = false;
        self.api.within(self.place, &mut || answer = what(self.api, self.event));
        answer
    }
}

impl<D: StreamDriver> Mark for EventMark<D> {
    fn wait(&self) -> bool {
        self.ask(D::wait_for)
    }

    fn is_reached(&self) -> bool {
        self.ask(D::has_come)
    }
}

impl<D: StreamDriver> Drop for EventMark<D> {
    fn drop(&mut self) {
        self.api.destroy(self.event);
    }
}
