//! Capture sequences: which streams are in one, and what they forbid meanwhile. What they record is in [`crate::capture`].

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
    /// Ids of its context and of the stream that it began with.
    ctx: u64,
    pub(crate) origin: u64,
    state: Mutex<State>,
}

/// A stream that is captured.
pub(crate) struct Member {
    /// Ends with the stream.
    pub(crate) life: Weak<()>,
    /// Does the legacy stream wait for it?
    pub(crate) blocks: bool,
    /// The nodes that its next command depends on.
    pub(crate) front: Vec<usize>,
}

#[derive(Default)]
struct State {
    /// By id of the stream.
    members: BTreeMap<u64, Member>,
    invalidated: bool,
    ended: bool,
}

static ACTIVE: Mutex<Vec<Arc<Sequence>>> = Mutex::new(Vec::new());
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// How this thread's calls stand to captures.
    static MODE: Cell<c_int> = const { Cell::new(GLOBAL) };
}

impl Sequence {
    /// Begins with a stream of a context.
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

    /// Takes a stream in.
    pub(crate) fn add(&self, stream: u64, member: Member) {
        lock(&self.state).members.insert(stream, member);
    }

    /// The nodes that a stream's next command depends on.
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

    /// The nodes that each stream's next command depends on, by the stream's id.
    pub(crate) fn fronts(&self) -> BTreeMap<u64, Vec<usize>> {
        lock(&self.state).members.iter().map(|(&id, member)| (id, member.front.clone())).collect()
    }

    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.state).ended
    }

    /// Spoils it: it goes on, but nothing will come of it.
    pub(crate) fn invalidate(&self) {
        lock(&self.state).invalidated = true;
    }

    pub(crate) fn status(&self) -> c_int {
        if lock(&self.state).invalidated { STATUS_INVALIDATED } else { STATUS_ACTIVE }
    }

    fn captures_blocking_stream(&self) -> bool {
        lock(&self.state).members.values().any(|member| member.blocks && member.life.strong_count() > 0)
    }

    /// Its streams run again.
    pub(crate) fn end(&self) {
        {
            let mut state = lock(&self.state);
            state.ended = true;
            state.members.clear();
        }
        lock(&ACTIVE).retain(|other| other.id != self.id);
    }
}

/// A call that may wait, or do work on the legacy stream, behind the caller's back: forbidden by captures according to
/// their mode and the thread's.
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

/// Work on the legacy stream of a context would have to wait for a blocking stream that is being captured.
pub(crate) fn no_implicit(ctx: u64) -> Result<()> {
    invalidate_all(|c| c.ctx == ctx && c.captures_blocking_stream(), Error::STREAM_CAPTURE_IMPLICIT)
}

/// The same without spoiling what would have to be waited for.
pub(crate) fn is_implicit(ctx: u64) -> bool {
    lock(&ACTIVE).iter().any(|c| c.ctx == ctx && c.captures_blocking_stream())
}

/// A context cannot be waited for while it has a capture.
pub(crate) fn no_capture_in(ctx: u64) -> Result<()> {
    invalidate_all(|c| c.ctx == ctx, Error::STREAM_CAPTURE_UNSUPPORTED)
}

fn invalidate_all(which: impl Fn(&&Arc<Sequence>) -> bool, error: Error) -> Result<()> {
    let hit: Vec<Arc<Sequence>> = lock(&ACTIVE).iter().filter(which).cloned().collect();
    hit.iter().for_each(|capture| capture.invalidate());
    if hit.is_empty() { Ok(()) } else { Err(error) }
}

/// Those of a context.
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

/// Where a mode is and goes.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct InOut(In<c_int>);

impl InOut {
    fn out(self) -> Out<c_int> {
        // SAFETY: both are an address alone; C gave it for both.
        unsafe { std::mem::transmute::<In<c_int>, Out<c_int>>(self.0) }
    }
}
