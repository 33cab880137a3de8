//! Events.

use crate::capture::{self, Capture};
use crate::context::{Ctx, current};
use crate::edge::{Null, Out};
use crate::ipc::Shared;
use crate::op::Op;
use crate::process::{Driver, driver, known};
use crate::result::{Error, Result};
use crate::stream;
use std::ffi::c_uint;
use std::sync::{Arc, Mutex, Weak};
use xsched_sim::client::{EventSlot, lock};

/// CU_EVENT_DISABLE_TIMING.
const DISABLE_TIMING: c_uint = 2;
/// CU_EVENT_INTERPROCESS.
const INTERPROCESS: c_uint = 4;
/// What an event that processes share must be.
pub(crate) const SHARED: c_uint = INTERPROCESS | DISABLE_TIMING;
/// CU_EVENT_RECORD_EXTERNAL, CU_EVENT_WAIT_EXTERNAL: in a capture, a node instead of a dependency.
const EXTERNAL: c_uint = 1;

/// An event.
pub(crate) struct Event {
    pub(crate) handle: usize,
    pub(crate) ctx: Weak<Ctx>,
    pub(crate) slot: EventSlot,
    flags: c_uint,
    pub(crate) shared: Option<Shared>,
    /// Where in a capture it was last recorded, if it was in one.
    pub(crate) captured: Mutex<Option<(Arc<Capture>, Vec<usize>)>>,
}

impl Event {
    /// A new event, known by its handle.
    pub(crate) fn add(driver: &Driver, ctx: &Arc<Ctx>, flags: c_uint, shared: Option<Shared>) -> Result<usize> {
        let slot = ctx.sim.create_event()?;
        let (ctx, captured) = (Arc::downgrade(ctx), Mutex::default());
        Ok(driver.events.add(|handle| Arc::new(Self { handle, ctx, slot, flags, shared, captured })).handle)
    }

    /// Was it ever recorded?
    fn is_recorded(&self) -> Result<bool> {
        match self.shared {
            Some(shared) => Ok(shared.recorded() > 0),
            None => Ok(self.context()?.sim.recorded(self.slot)?.is_some()),
        }
    }

    pub(crate) fn context(&self) -> Result<Arc<Ctx>> {
        let ctx = self.ctx.upgrade().ok_or(Error::CONTEXT_IS_DESTROYED)?;
        ctx.check()?;
        Ok(ctx)
    }

    /// Fails if its last record is in a capture, which is spoilt by that if it goes on (as driver 580 answers).
    fn not_captured(&self) -> Result<()> {
        if let Some((capture, _)) = &*lock(&self.captured) {
            if capture.has_ended() {
                return Err(Error::INVALID_VALUE);
            }
            capture.invalidate();
            return Err(Error::CAPTURED_EVENT);
        }
        Ok(())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(ctx) = self.ctx.upgrade() {
            let _ = ctx.sim.destroy_event(self.slot);
            self.shared.inspect(|shared| shared.end(&ctx));
        }
    }
}

/// The event that a handle names.
pub(crate) fn find(handle: usize) -> Result<Arc<Event>> {
    let event = known("event", handle, driver()?.events.get(handle))?;
    event.context()?;
    Ok(event)
}

pub(crate) fn create(out: Out<usize>, flags: c_uint) -> Result<()> {
    let out = out.required()?;
    let is_shared = flags & INTERPROCESS != 0;
    if flags & !7 != 0 || (is_shared && flags & DISABLE_TIMING == 0) {
        return Err(Error::INVALID_VALUE);
    }
    let ctx = current()?;
    let shared = if is_shared { Some(Shared::new(&ctx)?) } else { None };
    out.put(Event::add(driver()?, &ctx, flags, shared)?)
}

/// What was given with it still runs.
pub(crate) fn destroy(handle: usize) -> Result<()> {
    known("event", handle, driver()?.events.remove(handle)).map(drop)
}

pub(crate) fn record(null: Null, handle: usize, stream: usize) -> Result<()> {
    record_with_flags(null, handle, stream, 0)
}

pub(crate) fn record_with_flags(null: Null, handle: usize, stream: usize, flags: c_uint) -> Result<()> {
    let (event, stream) = (find(handle)?, stream::find(null, stream)?);
    if !Arc::ptr_eq(&event.context()?, &stream.context()?) {
        return Err(Error::INVALID_HANDLE);
    }
    if flags & EXTERNAL == 0
        && let Some(capture) = stream.capture()
    {
        let nodes = capture.front(&stream)?;
        *lock(&event.captured) = Some((capture, nodes));
        return Ok(());
    }
    if stream.capture().is_none() {
        *lock(&event.captured) = None;
    }
    stream.issue(Op::Record(event)).map(drop)
}

pub(crate) fn wait(null: Null, stream: usize, handle: usize, flags: c_uint) -> Result<()> {
    let (event, stream) = (find(handle)?, stream::find(null, stream)?);
    if flags & EXTERNAL != 0 {
        return stream.issue(Op::Wait(event)).map(drop);
    }
    let captured = lock(&event.captured).clone();
    match (stream.capture(), captured) {
        (None, None) => stream.issue(Op::Wait(event)).map(drop),
        (Some(capture), None) => {
            // Nothing recorded is nothing to wait for.
            if !event.is_recorded()? {
                return Ok(());
            }
            capture.invalidate();
            Err(Error::STREAM_CAPTURE_ISOLATION)
        }
        (own, Some((capture, nodes))) => capture::join(&stream, own, &capture, &nodes),
    }
}

pub(crate) fn query(handle: usize) -> Result<()> {
    let event = find(handle)?;
    event.not_captured()?;
    capture::potentially_unsafe()?;
    let ctx = event.context()?;
    if let Some(shared) = event.shared {
        return shared.query();
    }
    Ok(ctx.sim.recorded(event.slot)?.map_or(Ok(()), |mark| ctx.sim.query(mark))?)
}

pub(crate) fn synchronize(handle: usize) -> Result<()> {
    let event = find(handle)?;
    event.not_captured()?;
    capture::potentially_unsafe()?;
    let ctx = event.context()?;
    if let Some(shared) = event.shared {
        return shared.synchronize(&ctx);
    }
    ctx.sim.recorded(event.slot)?.map_or(Ok(()), |mark| ctx.wait(mark))
}

pub(crate) fn elapsed(out: Out<f32>, start: usize, end: usize) -> Result<()> {
    let (start, end) = (find(start)?, find(end)?);
    if (start.flags | end.flags) & DISABLE_TIMING != 0 {
        return Err(Error::INVALID_HANDLE);
    }
    start.not_captured()?;
    end.not_captured()?;
    let ns = |event: &Event| Ok::<_, Error>(event.context()?.sim.event_ns(event.slot)?.cast_signed());
    out.put((ns(&end)? - ns(&start)?) as f32 / 1e6)
}
