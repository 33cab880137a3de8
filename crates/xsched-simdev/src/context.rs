//! A context, and the numbers in handles that refer to it.

use crate::error::{Error, Result};
use crate::handle::{Handle, Kind};
use std::ffi::c_void;
use std::ops::Deref;
use xsched_sim::client::{self, EventSlot, Ordering, Slot};

/// One context of the process. Never freed: a thread may still be inside when it is reset.
pub(crate) struct Context {
    device: u8,
    epoch: u8,
    inner: &'static client::Context,
}

impl Deref for Context {
    type Target = client::Context;

    fn deref(&self) -> &'static client::Context {
        self.inner
    }
}

impl Context {
    pub(crate) fn new(device: u8, epoch: u8) -> Result<&'static Self> {
        let inner = client::Context::new(device, Ordering::Free)?;
        Ok(Box::leak(Box::new(Self { device, epoch, inner })))
    }

    /// Creates a stream, and returns its handle for the C API.
    pub(crate) fn create_stream(&self, priority: i32) -> Result<*mut c_void> {
        let Slot { number: slot, generation } = self.inner.create_stream(priority, Ordering::Free)?;
        Ok(Handle { kind: Kind::Stream, device: self.device, epoch: self.epoch, generation, slot }.encode())
    }

    /// Creates an event, and returns its handle for the C API.
    pub(crate) fn create_event(&self) -> Result<*mut c_void> {
        let EventSlot { number: slot, generation } = self.inner.create_event()?;
        Ok(Handle { kind: Kind::Event, device: self.device, epoch: self.epoch, generation, slot }.encode())
    }

    /// Slot of a stream's handle, if it belongs to this context.
    pub(crate) fn slot(&self, handle: Handle) -> Result<Slot> {
        self.check(handle)?;
        Ok(Slot { number: handle.slot, generation: handle.generation })
    }

    /// Slot of an event's handle, if it belongs to this context.
    pub(crate) fn event(&self, handle: Handle) -> Result<EventSlot> {
        self.check(handle)?;
        Ok(EventSlot { number: handle.slot, generation: handle.generation })
    }

    fn check(&self, handle: Handle) -> Result<()> {
        if handle.epoch == self.epoch { Ok(()) } else { Err(Error::InvalidHandle) }
    }
}
