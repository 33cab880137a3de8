//! Events.

use crate::edge::Null;
use crate::registry::Registry;
use crate::result::{Error, Result};
use crate::runtime::{current_number, driver, runtime};
use crate::stats::{self, COUNTERS};
use crate::stream::Target;
use fakecuda::Out;
use std::ffi::c_uint;
use std::sync::{Arc, LazyLock};

/// hipEventBlockingSync, hipEventDisableTiming: the driver's own numbers.
const COMMON: c_uint = 3;
const DISABLE_TIMING: c_uint = 2;
/// hipEventInterprocess, of events without times only.
const INTERPROCESS: c_uint = 4;
/// hipEventDisableSystemFence, hipEventReleaseToDevice, hipEventReleaseToSystem: of no meaning here.
const FENCES: c_uint = 0xe000_0000;

/// An event.
pub(crate) struct Event {
    /// The driver's.
    pub(crate) real: usize,
    pub(crate) device: usize,
    /// Of several processes.
    shared: bool,
}

impl Event {
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }
}

static EVENTS: LazyLock<Registry<Event>> = LazyLock::new(Registry::new);

/// By handle.
pub(crate) fn events() -> Result<&'static Registry<Event>> {
    runtime().map(|_| &*EVENTS)
}

/// A handle for a driver's event.
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

/// A destroyed event is told as what it was made in being gone, as real runtimes do.
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

/// Records an event if there is one, as launches with a start and a stop event do.
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

/// In ms.
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
