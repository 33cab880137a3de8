//! Events of HIP: their handles, records, waits and times.

use crate::edge::Null;
use crate::registry::Registry;
use crate::result::{Error, Result};
use crate::runtime::{current_number, driver, runtime};
use crate::stats::{self, COUNTERS};
use crate::stream::Target;
use fakecuda::Out;
use std::ffi::c_uint;
use std::sync::{Arc, LazyLock};

/// hipEventBlockingSync and hipEventDisableTiming, which have the driver's own numbers.
const COMMON: c_uint = 3;
const DISABLE_TIMING: c_uint = 2;
/// hipEventInterprocess, for events without times only.
const INTERPROCESS: c_uint = 4;
/// hipEventDisableSystemFence, hipEventReleaseToDevice, hipEventReleaseToSystem, which have no effect here.
const FENCES: c_uint = 0xe000_0000;

/// An event that a program created.
pub(crate) struct Event {
    /// The driver's handle.
    pub(crate) real: usize,
    pub(crate) device: usize,
    /// Set if several processes share the event.
    shared: bool,
}

impl Event {
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }
}

static EVENTS: LazyLock<Registry<Event>> = LazyLock::new(Registry::new);

/// Events by handle.
pub(crate) fn events() -> Result<&'static Registry<Event>> {
    runtime().map(|_| &*EVENTS)
}

/// Adds a handle for a driver's event.
pub(crate) fn add(real: usize, shared: bool) -> Result<usize> {
    let (device, mut handle) = (current_number(), 0);
    events()?.add(|made| {
        handle = made;
        Event { real, device, shared }
    });
    Ok(handle)
}

/// The event that a handle names.
pub(crate) fn find(handle: usize) -> Result<Arc<Event>> {
    match events()?.get(handle) {
        Some(event) => Ok(event),
        None if handle == 0 => Err(Error::INVALID_HANDLE),
        None => stats::wrong(&format!("event {handle:#x} does not exist"), Error::INVALID_HANDLE),
    }
}

pub(crate) fn create(out: Out<usize>) -> Result<()> {
    create_with_flags(out, 0)
}

pub(crate) fn create_with_flags(out: Out<usize>, flags: c_uint) -> Result<()> {
    let out = out.required()?;
    let shared = flags & INTERPROCESS != 0;
    if flags & !(COMMON | INTERPROCESS | FENCES) != 0 || (shared && flags & DISABLE_TIMING == 0) {
        return Err(Error::INVALID_VALUE);
    }
    let mut real = 0;
    driver()?.event_create(&raw mut real, flags & (COMMON | INTERPROCESS))?;
    Ok(out.put(add(real, shared)?)?)
}

/// Destroys an event. If it is destroyed already, the error is that of a destroyed context, as in real runtimes.
pub(crate) fn destroy(handle: usize) -> Result<()> {
    let event = find(handle).map_err(|e| if handle == 0 { e } else { Error::CONTEXT_IS_DESTROYED })?;
    events()?.remove(handle);
    driver()?.event_destroy(event.real)
}

pub(crate) fn record(null: Null, handle: usize, stream: usize) -> Result<()> {
    let (event, target) = (find(handle)?, Target::find(null, stream)?);
    if event.device != target.device {
        return Err(Error::INVALID_HANDLE);
    }
    target.order(|| stats::add(&COUNTERS.records), |real| driver()?.event_record(event.real, real))
}

pub(crate) fn record_with_flags(handle: usize, stream: usize, flags: c_uint) -> Result<()> {
    if flags > 1 {
        return Err(Error::INVALID_VALUE);
    }
    record(Null::Legacy, handle, stream)
}

/// Records an event unless the handle is null, for launches with a start and a stop event.
pub(crate) fn record_if_given(handle: usize, target: &Target) -> Result<()> {
    if handle == 0 {
        return Ok(());
    }
    let event = find(handle)?;
    target.with(|real| driver()?.event_record(event.real, real))
}

pub(crate) fn query(handle: usize) -> Result<()> {
    driver()?.event_query(find(handle)?.real)
}

pub(crate) fn synchronize(handle: usize) -> Result<()> {
    driver()?.event_synchronize(find(handle)?.real)
}

/// Stores the time between two events, in ms.
pub(crate) fn elapsed(out: Out<f32>, start: usize, stop: usize) -> Result<()> {
    let (out, start, stop) = (out.required()?, find(start)?, find(stop)?);
    let mut ms = 0.0;
    driver()?.event_elapsed(&raw mut ms, start.real, stop.real)?;
    Ok(out.put(ms)?)
}

pub(crate) fn wait(null: Null, handle: usize, event: usize, flags: c_uint) -> Result<()> {
    if flags > 1 {
        return Err(Error::INVALID_VALUE);
    }
    let target = Target::find(null, handle)?;
    let event = find(event)?;
    target.order(|| (), |real| driver()?.stream_wait_event(real, event.real, flags))
}
