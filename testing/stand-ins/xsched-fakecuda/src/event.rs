//! Events of CUDA.

use crate::context::{Ctx, current};
use crate::edge::Out;
use crate::process::known;
use crate::result::{Error, Result};
use crate::sequence::{Sequence, potentially_unsafe};
use crate::shared::Shared;
use crate::slab::Slab;
use std::ffi::c_uint;
use std::sync::{Arc, Mutex, Weak};
use xsched_sim::client::{EventSlot, lock};

/// CU_EVENT_DISABLE_TIMING.
const DISABLE_TIMING: c_uint = 2;
/// CU_EVENT_INTERPROCESS.
const INTERPROCESS: c_uint = 4;
/// Flags that an interprocess event must have.
pub(crate) const SHARED: c_uint = INTERPROCESS | DISABLE_TIMING;

/// An event.
pub(crate) struct Event {
    pub(crate) handle: usize,
    pub(crate) ctx: Weak<Ctx>,
    pub(crate) slot: EventSlot,
    flags: c_uint,
    pub(crate) shared: Option<Shared>,
    /// Capture and nodes of the last record, if it was in a capture.
    pub(crate) captured: Mutex<Option<(Arc<Sequence>, Vec<usize>)>>,
}

/// Events by handle.
pub(crate) static EVENTS: Slab<Event> = Slab::new(0x53);

impl Event {
    /// Creates an event, and returns its handle.
    pub(crate) fn add(ctx: &Arc<Ctx>, flags: c_uint, shared: Option<Shared>) -> Result<usize> {
        let slot = ctx.sim.create_event()?;
        let (ctx, captured) = (Arc::downgrade(ctx), Mutex::default());
        Ok(EVENTS.add(|handle| Arc::new(Self { handle, ctx, slot, flags, shared, captured })).handle)
    }

    /// Reports whether the event was ever recorded.
    pub(crate) fn is_recorded(&self) -> Result<bool> {
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

    /// Fails if the last record is in a capture, and invalidates the capture if it is still active (as driver 580
    /// does).
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

/// The event of a handle.
pub(crate) fn find(handle: usize) -> Result<Arc<Event>> {
    let event = known("event", handle, EVENTS.get(handle))?;
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
    out.put(Event::add(&ctx, flags, shared)?)
}

/// Destroys an event. Commands already submitted with it still run.
pub(crate) fn destroy(handle: usize) -> Result<()> {
    known("event", handle, EVENTS.remove(handle)).map(drop)
}

pub(crate) fn query(handle: usize) -> Result<()> {
    let event = find(handle)?;
    event.not_captured()?;
    potentially_unsafe()?;
    let ctx = event.context()?;
    if let Some(shared) = event.shared {
        return shared.query();
    }
    Ok(ctx.sim.recorded(event.slot)?.map_or(Ok(()), |mark| ctx.sim.query(mark))?)
}

pub(crate) fn synchronize(handle: usize) -> Result<()> {
    let event = find(handle)?;
    event.not_captured()?;
    potentially_unsafe()?;
    let ctx = event.context()?;
    if let Some(shared) = event.shared {
        return shared.synchronize(&ctx);
    }
    ctx.sim.recorded(event.slot)?.map_or(Ok(()), |mark| ctx.wait(mark))?;
    ctx.synchronized();
    Ok(())
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
