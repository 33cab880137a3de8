//! Streams of CUDA.

use crate::context::{Ctx, PRIORITIES, current};
use crate::edge::{Null, Out};
use crate::process::known;
use crate::result::{Error, Result};
use crate::sequence::{self, Member, Sequence};
use crate::slab::Slab;
use crate::stats;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_uint};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, TryLockError, Weak};
use xsched_sim::client::{Ordering, Slot, lock};

/// Kind of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Legacy,
    PerThread,
    User,
}

/// CU_STREAM_NON_BLOCKING.
const NON_BLOCKING: c_uint = 1;

/// A stream.
pub(crate) struct Stream {
    pub(crate) handle: usize,
    pub(crate) id: u64,
    pub(crate) ctx: Weak<Ctx>,
    pub(crate) kind: Kind,
    pub(crate) slot: Slot,
    flags: c_uint,
    priority: c_int,
    /// Capture that the stream is in, or was in last.
    pub(crate) capture: Mutex<Option<Arc<Sequence>>>,
    /// Held while commands that belong together are submitted.
    pub(crate) turn: Mutex<()>,
    /// Lifetime of the stream, for weak references.
    life: Arc<()>,
}

/// Streams by handle, other than default streams.
pub(crate) static STREAMS: Slab<Stream> = Slab::new(0x52);
/// Legacy default streams, by id of the context.
static LEGACY: Mutex<BTreeMap<u64, Arc<Stream>>> = Mutex::new(BTreeMap::new());

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// This thread's default streams, by id of the context. Dropped with the thread.
    static PER_THREAD: RefCell<HashMap<u64, PerThread>> = RefCell::new(HashMap::new());
}

/// A thread's default stream. Frees its slot when the thread ends.
struct PerThread(Arc<Stream>);

impl Drop for PerThread {
    fn drop(&mut self) {
        if let Some(ctx) = self.0.ctx.upgrade() {
            let _ = ctx.sim.destroy_stream(self.0.slot);
        }
    }
}

impl Stream {
    fn new(handle: usize, ctx: Weak<Ctx>, kind: Kind, slot: Slot, flags: c_uint, priority: c_int) -> Arc<Self> {
        let id = NEXT_ID.fetch_add(1, Relaxed);
        let (capture, turn) = (Mutex::default(), Mutex::default());
        Arc::new(Self { handle, id, ctx, kind, slot, flags, priority, capture, turn, life: Arc::default() })
    }

    /// A context's legacy default stream.
    fn legacy(ctx: &Arc<Ctx>) -> Arc<Self> {
        let make = || Self::new(0, Arc::downgrade(ctx), Kind::Legacy, Slot::DEFAULT, 0, 0);
        lock(&LEGACY).entry(ctx.id).or_insert_with(make).clone()
    }

    fn per_thread(ctx: &Arc<Ctx>) -> Result<Arc<Self>> {
        PER_THREAD.with_borrow_mut(|streams| {
            streams.retain(|_, stream| stream.0.ctx.upgrade().is_some_and(|ctx| ctx.is_alive()));
            if let Some(stream) = streams.get(&ctx.id) {
                return Ok(stream.0.clone());
            }
            let slot = ctx.sim.create_stream(0, Ordering::Blocking)?;
            let stream = Self::new(0, Arc::downgrade(ctx), Kind::PerThread, slot, 0, 0);
            streams.insert(ctx.id, PerThread(stream.clone()));
            Ok(stream)
        })
    }

    /// Reports whether the stream and the legacy stream wait for each other.
    pub(crate) fn blocks(&self) -> bool {
        self.kind != Kind::Legacy && self.flags & NON_BLOCKING == 0
    }

    /// Context of the stream. Fails if it may no longer be used.
    pub(crate) fn context(&self) -> Result<Arc<Ctx>> {
        let ctx = self.ctx.upgrade().ok_or(Error::CONTEXT_IS_DESTROYED)?;
        ctx.check()?;
        Ok(ctx)
    }

    /// Capture that the stream is in.
    pub(crate) fn capture(&self) -> Option<Arc<Sequence>> {
        lock(&self.capture).clone().filter(|sequence| !sequence.has_ended())
    }

    /// The stream as a member of a capture.
    pub(crate) fn member(&self, front: Vec<usize>) -> Member {
        Member { life: Arc::downgrade(&self.life), blocks: self.blocks(), front }
    }

    /// Makes the stream depend on nodes of a capture, which it joins unless it is in one.
    pub(crate) fn join(&self, own: Option<Arc<Sequence>>, capture: &Arc<Sequence>, nodes: &[usize]) -> Result<()> {
        match own {
            Some(own) if own.id != capture.id => {
                own.invalidate();
                capture.invalidate();
                return Err(Error::STREAM_CAPTURE_MERGE);
            }
            _ if capture.has_ended() => return Err(Error::CAPTURED_EVENT),
            None if self.kind == Kind::Legacy => {
                capture.invalidate();
                return Err(Error::STREAM_CAPTURE_IMPLICIT);
            }
            None => {
                *lock(&self.capture) = Some(capture.clone());
                capture.add(self.id, self.member(Vec::new()));
            }
            Some(_) => {}
        }
        let mut front = capture.front(self.id)?;
        front.extend(nodes);
        front.sort_unstable();
        front.dedup();
        capture.set_front(self.id, front);
        Ok(())
    }

    /// Fails if this is the legacy stream and its work would have to wait for a blocking stream that is being captured.
    pub(crate) fn no_implicit(&self, ctx: &Ctx) -> Result<()> {
        if self.kind == Kind::Legacy { sequence::no_implicit(ctx.id) } else { Ok(()) }
    }

    /// Checks, before the stream ends, that no call is submitting a command to it.
    pub(crate) fn ends(&self) {
        if matches!(self.turn.try_lock(), Err(TryLockError::WouldBlock)) {
            stats::illegal(format!("stream {:#x} ends while it is given a command", self.handle));
        }
    }

    /// Fails if the stream, or a blocking stream that it would wait for, is being captured. Invalidates that capture.
    fn not_capturing(&self, ctx: &Ctx) -> Result<()> {
        if let Some(capture) = self.capture() {
            capture.invalidate();
            return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
        }
        self.no_implicit(ctx)?;
        sequence::potentially_unsafe()
    }
}

/// Removes the streams of a context that is gone.
pub(crate) fn forget_of(ctx: &Ctx) {
    lock(&LEGACY).remove(&ctx.id);
    STREAMS.remove_if(|stream| stream.ctx.as_ptr() == std::ptr::from_ref(ctx));
}

/// The stream of a handle.
pub(crate) fn find(null: Null, handle: usize) -> Result<Arc<Stream>> {
    match (handle, null) {
        (0, Null::Legacy) | (1, _) => Ok(Stream::legacy(&current()?)),
        (0, Null::PerThread) | (2, _) => Stream::per_thread(&current()?),
        _ => {
            let stream = known("stream", handle, STREAMS.get(handle))?;
            stream.context()?;
            Ok(stream)
        }
    }
}

pub(crate) fn create(out: Out<usize>, flags: c_uint) -> Result<()> {
    create_with_priority(out, flags, 0)
}

pub(crate) fn create_with_priority(out: Out<usize>, flags: c_uint, priority: c_int) -> Result<()> {
    let out = out.required()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let ctx = current()?;
    let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
    let ordering = if flags & NON_BLOCKING == 0 { Ordering::Blocking } else { Ordering::Free };
    let slot = ctx.sim.create_stream(priority, ordering)?;
    let weak = Arc::downgrade(&ctx);
    let stream = STREAMS.add(|handle| Stream::new(handle, weak, Kind::User, slot, flags, priority));
    out.put(stream.handle)
}

pub(crate) fn destroy(handle: usize) -> Result<()> {
    let stream = known("stream", handle, STREAMS.get(handle))?;
    if let Some(capture) = stream.capture() {
        capture.invalidate();
    }
    stream.ends();
    STREAMS.remove(handle);
    Ok(stream.context()?.sim.destroy_stream(stream.slot)?)
}

pub(crate) fn query(null: Null, handle: usize) -> Result<()> {
    let stream = find(null, handle)?;
    let ctx = stream.context()?;
    stream.not_capturing(&ctx)?;
    let ends = ctx.sim.ends(stream.slot)?;
    Ok(ends.into_iter().try_for_each(|mark| ctx.sim.query(mark))?)
}

pub(crate) fn synchronize(null: Null, handle: usize) -> Result<()> {
    let stream = find(null, handle)?;
    let ctx = stream.context()?;
    stream.not_capturing(&ctx)?;
    ctx.sim.ends(stream.slot)?.into_iter().try_for_each(|mark| ctx.wait(mark))?;
    // A fault counts even if no command is pending.
    ctx.check()?;
    ctx.synchronized();
    Ok(())
}

pub(crate) fn get_priority(null: Null, handle: usize, out: Out<c_int>) -> Result<()> {
    out.put(find(null, handle)?.priority)
}

pub(crate) fn get_flags(null: Null, handle: usize, out: Out<c_uint>) -> Result<()> {
    out.put(find(null, handle)?.flags)
}

pub(crate) fn get_id(null: Null, handle: usize, out: Out<u64>) -> Result<()> {
    out.put(find(null, handle)?.id)
}

pub(crate) fn get_ctx(null: Null, handle: usize, out: Out<usize>) -> Result<()> {
    out.put(find(null, handle)?.context()?.handle)
}

pub(crate) fn get_ctx_v2(null: Null, handle: usize, ctx: Out<usize>, green: Out<usize>) -> Result<()> {
    green.maybe(0);
    ctx.put(find(null, handle)?.context()?.handle)
}

pub(crate) fn get_device(null: Null, handle: usize, out: Out<c_int>) -> Result<()> {
    out.put(find(null, handle)?.context()?.device as c_int)
}
