//! Capture sequences: the streams in them, and the calls that they forbid meanwhile. Recording is in
//! [`crate::capture`].

use crate::edge::{In, Out};
use crate::result::{Error, Result};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};
use std::thread::ThreadId;
use xsched_sim::client::lock;

/// CU_STREAM_CAPTURE_MODE_...
pub(crate) const GLOBAL: c_int = 0;
pub(crate) const RELAXED: c_int = 2;

/// CU_STREAM_CAPTURE_STATUS_...
pub(crate) const STATUS_NONE: c_int = 0;
pub(crate) const STATUS_ACTIVE: c_int = 1;
pub(crate) const STATUS_INVALIDATED: c_int = 2;

/// A capture sequence.
pub(crate) struct Sequence {
    pub(crate) id: u64,
    pub(crate) mode: c_int,
    pub(crate) thread: ThreadId,
    /// Ids of the context, and of the stream that the capture began with.
    ctx: u64,
    pub(crate) origin: u64,
    state: Mutex<State>,
}

/// A stream in a capture.
pub(crate) struct Member {
    /// Dangling once the stream is gone.
    pub(crate) life: Weak<()>,
    /// Set if the legacy stream synchronises with it.
    pub(crate) blocks: bool,
    /// Nodes that its next command depends on.
    pub(crate) front: Vec<usize>,
}

#[derive(Default)]
struct State {
    /// Streams by id.
    members: BTreeMap<u64, Member>,
    invalidated: bool,
    ended: bool,
}

static ACTIVE: Mutex<Vec<Arc<Sequence>>> = Mutex::new(Vec::new());
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// Capture mode of this thread.
    static MODE: Cell<c_int> = const { Cell::new(GLOBAL) };
}

impl Sequence {
    /// Begins a sequence with a stream of a context.
    pub(crate) fn begin(mode: c_int, ctx: u64, origin: u64, member: Member) -> Arc<Self> {
        let members = BTreeMap::from([(origin, member)]);
        let sequence = Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Relaxed),
            mode,
            thread: std::thread::current().id(),
            ctx,
            origin,
            state: Mutex::new(State { members, ..State::default() }),
        });
        lock(&ACTIVE).push(sequence.clone());
        sequence
    }

    /// Adds a stream.
    pub(crate) fn add(&self, stream: u64, member: Member) {
        lock(&self.state).members.insert(stream, member);
    }

    /// Nodes that a stream's next command depends on.
    pub(crate) fn front(&self, stream: u64) -> Result<Vec<usize>> {
        let state = lock(&self.state);
        if state.invalidated {
            return Err(Error::STREAM_CAPTURE_INVALIDATED);
        }
        Ok(state.members.get(&stream).map(|member| member.front.clone()).unwrap_or_default())
    }

    pub(crate) fn set_front(&self, stream: u64, front: Vec<usize>) {
        if let Some(member) = lock(&self.state).members.get_mut(&stream) {
            member.front = front;
        }
    }

    /// Nodes that each stream's next command depends on, by id of the stream.
    pub(crate) fn fronts(&self) -> BTreeMap<u64, Vec<usize>> {
        lock(&self.state).members.iter().map(|(&id, member)| (id, member.front.clone())).collect()
    }

    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.state).ended
    }

    /// Invalidates the capture: it stays active, but will return no graph.
    pub(crate) fn invalidate(&self) {
        lock(&self.state).invalidated = true;
    }

    pub(crate) fn status(&self) -> c_int {
        if lock(&self.state).invalidated { STATUS_INVALIDATED } else { STATUS_ACTIVE }
    }

    fn captures_blocking_stream(&self) -> bool {
        lock(&self.state).members.values().any(|member| member.blocks && member.life.strong_count() > 0)
    }

    /// Ends the capture; its streams execute commands again.
    pub(crate) fn end(&self) {
        {
            let mut state = lock(&self.state);
            state.ended = true;
            state.members.clear();
        }
        lock(&ACTIVE).retain(|other| other.id != self.id);
    }
}

/// Checks that no capture forbids a potentially unsafe call, which may wait or use the legacy stream implicitly.
/// Captures forbid it depending on their own mode and the thread's.
pub(crate) fn potentially_unsafe() -> Result<()> {
    let (mode, me) = (MODE.get(), std::thread::current().id());
    if mode == RELAXED {
        return Ok(());
    }
    let forbids = |c: &&Arc<Sequence>| {
        (c.thread == me && c.mode != RELAXED) || (mode == GLOBAL && c.thread != me && c.mode == GLOBAL)
    };
    invalidate_all(forbids, Error::STREAM_CAPTURE_UNSUPPORTED)
}

/// Fails if work on a context's legacy stream would have to wait for a blocking stream that is being captured.
pub(crate) fn no_implicit(ctx: u64) -> Result<()> {
    invalidate_all(|c| c.ctx == ctx && c.captures_blocking_stream(), Error::STREAM_CAPTURE_IMPLICIT)
}

/// Reports whether [`no_implicit`] would fail, without invalidating captures.
pub(crate) fn is_implicit(ctx: u64) -> bool {
    lock(&ACTIVE).iter().any(|c| c.ctx == ctx && c.captures_blocking_stream())
}

/// Fails if the context has a capture, since it cannot be waited for then.
pub(crate) fn no_capture_in(ctx: u64) -> Result<()> {
    invalidate_all(|c| c.ctx == ctx, Error::STREAM_CAPTURE_UNSUPPORTED)
}

fn invalidate_all(which: impl Fn(&&Arc<Sequence>) -> bool, error: Error) -> Result<()> {
    let hit: Vec<Arc<Sequence>> = lock(&ACTIVE).iter().filter(which).cloned().collect();
    hit.iter().for_each(|capture| capture.invalidate());
    if hit.is_empty() { Ok(()) } else { Err(error) }
}

/// Active sequences of a context.
pub(crate) fn of_context(ctx: u64) -> Vec<Arc<Sequence>> {
    lock(&ACTIVE).iter().filter(|c| c.ctx == ctx).cloned().collect()
}

pub(crate) fn exchange_mode(mode: InOut) -> Result<()> {
    let wanted = mode.0.get()?;
    if !(GLOBAL..=RELAXED).contains(&wanted) {
        return Err(Error::INVALID_VALUE);
    }
    mode.out().put(MODE.replace(wanted))
}

/// A mode that is both argument and result.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct InOut(In<c_int>);

impl InOut {
    fn out(self) -> Out<c_int> {
        // SAFETY: both are an address alone; C gave it for both.
        unsafe { std::mem::transmute::<In<c_int>, Out<c_int>>(self.0) }
    }
}
