//! Streams as hardware queues: [`StreamQueue`], over a [`StreamDriver`]. Their commands take the path of all others
//! ([`super::path`]), so that a queue is scheduled alike with and without the preload. Driver calls that a command makes
//! in turn count as the driver's own: each command is gated once.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use xsched_core::{Runtime, Work, XQueue};

use super::hal::{HardwareQueue, Mark, PassingHolds, call_is_ours};
use super::path::{self, kernel_key};
use super::{DefaultStreamMode, Driver, Handle, Stream, StreamKind, late};
use crate::enabled::platform_enabled;

/// Further functions of a driver with streams.
pub(in crate::platform) trait StreamDriver: Driver + Sync {
    /// State that a thread must make current to use a stream: a context, a device.
    type Place: Copy + Send + Sync;

    /// Place of a stream; by default the calling thread's.
    fn place_of(&self, handle: Handle) -> Option<Self::Place>;
    /// Runs `part` with the place current.
    fn within(&self, place: Self::Place, part: &mut dyn FnMut());
    /// Creates an event without timing, whose waiting threads sleep.
    fn new_event(&self) -> Option<usize>;
    /// Records an event in a stream.
    fn record(&self, event: usize, stream: Stream) -> bool;
    /// Waits for an event.
    fn wait_for(&self, event: usize) -> bool;
    /// Reports whether an event has occurred.
    fn has_come(&self, event: usize) -> bool;
    /// Destroys an event.
    fn destroy(&self, event: usize);
    /// Waits for all commands of a stream.
    fn synchronize(&self, stream: Stream) -> bool;
    /// Reports whether a stream has no commands left.
    fn is_idle(&self, stream: Stream) -> bool;
    /// See [`HardwareQueue::gate`].
    fn own_gate(&self, rt: &Runtime, queue: &XQueue, number: u32) -> bool;
}

/// A stream as a hardware queue.
pub(in crate::platform) struct StreamQueue<D: StreamDriver> {
    api: &'static D,
    /// A function of the library, for [`Driver::beside`].
    real: usize,
    /// A handle that means this stream in either mode, as a number.
    stream: usize,
    key: usize,
    place: D::Place,
}

impl<D: StreamDriver> StreamQueue<D> {
    /// The stream as seen by the calling thread; `None` if there is no such stream, or no context.
    pub(crate) fn new(real: *mut c_void, stream: Stream) -> Option<StreamQueue<D>> {
        let api = D::beside(real)?;
        let handle = api.handle(stream, DefaultStreamMode::Legacy)?;
        if handle.which == StreamKind::PerThread {
            // On the worker thread the handle would mean another stream.
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
        self.api.within(self.place, &mut || {
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
