//! Stream capture: commands become nodes of a graph, and much is not allowed meanwhile.

use crate::context::Ctx;
use crate::edge::{In, Null, Out};
use crate::graph::{Graph, node_handle, node_index};
use crate::op::Op;
use crate::process::driver;
use crate::result::{Error, Result};
use crate::stats::{COUNTERS, Counters};
use crate::stream::{self, Kind, Stream};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};
use std::thread::ThreadId;
use xsched_sim::client::lock;

/// CU_STREAM_CAPTURE_MODE_...
const GLOBAL: c_int = 0;
const RELAXED: c_int = 2;

/// CU_STREAM_CAPTURE_STATUS_...
const STATUS_NONE: c_int = 0;
const STATUS_ACTIVE: c_int = 1;
const STATUS_INVALIDATED: c_int = 2;

/// A capture sequence.
pub(crate) struct Capture {
    id: u64,
    mode: c_int,
    thread: ThreadId,
    ctx: u64,
    origin: u64,
    graph: Arc<Graph>,
    /// The graph is the program's, and outlives a capture that comes to nothing.
    given: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By stream: the stream, and the nodes that its next command depends on.
    streams: BTreeMap<u64, (Weak<Stream>, Vec<usize>)>,
    invalidated: bool,
    ended: bool,
}

static ACTIVE: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// How this thread's calls stand to captures.
    static MODE: Cell<c_int> = const { Cell::new(GLOBAL) };
}

impl Capture {
    /// Records a command of a stream.
    pub(crate) fn add(&self, stream: &Stream, op: Op) -> Result<()> {
        let front = self.front(stream)?;
        let node = self.graph.add(op, front);
        Counters::add(&COUNTERS.captured);
        self.set_front(stream, vec![node]);
        Ok(())
    }

    /// The nodes that a stream's next command depends on.
    pub(crate) fn front(&self, stream: &Stream) -> Result<Vec<usize>> {
        let state = lock(&self.state);
        if state.invalidated {
            return Err(Error::STREAM_CAPTURE_INVALIDATED);
        }
        Ok(state.streams.get(&stream.id).map(|(_, front)| front.clone()).unwrap_or_default())
    }

    fn set_front(&self, stream: &Stream, front: Vec<usize>) {
        if let Some((_, old)) = lock(&self.state).streams.get_mut(&stream.id) {
            *old = front;
        }
    }

    /// Spoils it: it goes on, but nothing will come of it.
    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.state).ended
    }

    pub(crate) fn invalidate(&self) {
        lock(&self.state).invalidated = true;
    }

    fn status(&self) -> c_int {
        if lock(&self.state).invalidated { STATUS_INVALIDATED } else { STATUS_ACTIVE }
    }

    fn captures_blocking_stream(&self) -> bool {
        lock(&self.state).streams.values().any(|(stream, _)| stream.upgrade().is_some_and(|s| s.blocks()))
    }

    /// Its streams run again.
    fn end(&self) {
        let streams = {
            let mut state = lock(&self.state);
            state.ended = true;
            std::mem::take(&mut state.streams)
        };
        for stream in streams.values().filter_map(|(stream, _)| stream.upgrade()) {
            *lock(&stream.capture) = None;
        }
        lock(&ACTIVE).retain(|other| other.id != self.id);
    }

    /// Does every stream's work lie before the end of the first one's?
    fn is_joined(&self) -> bool {
        let state = lock(&self.state);
        let Some((_, ends)) = state.streams.get(&self.origin) else { return false };
        let before = self.graph.ancestors(ends);
        state.streams.values().all(|(_, front)| front.iter().all(|node| before.contains(node)))
    }
}

/// Makes a stream depend on nodes of a capture, which it joins unless it is in one.
pub(crate) fn join(
    stream: &Arc<Stream>,
    own: Option<Arc<Capture>>,
    capture: &Arc<Capture>,
    nodes: &[usize],
) -> Result<()> {
    match own {
        Some(own) if own.id != capture.id => {
            own.invalidate();
            capture.invalidate();
            return Err(Error::STREAM_CAPTURE_MERGE);
        }
        _ if lock(&capture.state).ended => return Err(Error::CAPTURED_EVENT),
        None if stream.kind == Kind::Legacy => {
            capture.invalidate();
            return Err(Error::STREAM_CAPTURE_IMPLICIT);
        }
        None => {
            *lock(&stream.capture) = Some(capture.clone());
            lock(&capture.state).streams.insert(stream.id, (Arc::downgrade(stream), Vec::new()));
        }
        Some(_) => {}
    }
    let mut front = capture.front(stream)?;
    front.extend(nodes);
    front.sort_unstable();
    front.dedup();
    capture.set_front(stream, front);
    Ok(())
}

/// A call that may wait, or do work on the legacy stream, behind the caller's back: forbidden by captures according to
/// their mode and the thread's.
pub(crate) fn potentially_unsafe() -> Result<()> {
    let (mode, me) = (MODE.get(), std::thread::current().id());
    if mode == RELAXED {
        return Ok(());
    }
    let forbids = |c: &&Arc<Capture>| {
        (c.thread == me && c.mode != RELAXED) || (mode == GLOBAL && c.thread != me && c.mode == GLOBAL)
    };
    invalidate_all(forbids, Error::STREAM_CAPTURE_UNSUPPORTED)
}

/// Work on the legacy stream would have to wait for a blocking stream that is being captured.
pub(crate) fn no_implicit(stream: &Stream, ctx: &Ctx) -> Result<()> {
    if stream.kind != Kind::Legacy {
        return Ok(());
    }
    invalidate_all(|c| c.ctx == ctx.id && c.captures_blocking_stream(), Error::STREAM_CAPTURE_IMPLICIT)
}

/// A context cannot be waited for while it has a capture.
pub(crate) fn no_capture_in(ctx: &Ctx) -> Result<()> {
    invalidate_all(|c| c.ctx == ctx.id, Error::STREAM_CAPTURE_UNSUPPORTED)
}

fn invalidate_all(which: impl Fn(&&Arc<Capture>) -> bool, error: Error) -> Result<()> {
    let hit: Vec<Arc<Capture>> = lock(&ACTIVE).iter().filter(which).cloned().collect();
    hit.iter().for_each(|capture| capture.invalidate());
    if hit.is_empty() { Ok(()) } else { Err(error) }
}

/// A context is gone, and its captures with it.
pub(crate) fn end_of(ctx: u64) {
    let mine: Vec<Arc<Capture>> = lock(&ACTIVE).iter().filter(|c| c.ctx == ctx).cloned().collect();
    mine.iter().for_each(|capture| capture.end());
}

pub(crate) fn begin(null: Null, handle: usize) -> Result<()> {
    begin_in_mode(null, handle, GLOBAL)
}

pub(crate) fn begin_in_mode(null: Null, handle: usize, mode: c_int) -> Result<()> {
    start(null, handle, mode, None)
}

/// What is recorded is added to a graph, behind some of its nodes.
pub(crate) fn begin_to_graph(
    null: Null,
    handle: usize,
    graph: usize,
    after: In<usize>,
    edges: In<u8>,
    count: usize,
    mode: c_int,
) -> Result<()> {
    let graph = crate::graph::find(graph)?;
    if !edges.is_null() {
        return Err(Error::NOT_SUPPORTED);
    }
    let after = if count == 0 { Vec::new() } else { after.list(count)? };
    let after = after.into_iter().map(|node| node_index(&graph, node)).collect::<Result<_>>()?;
    start(null, handle, mode, Some((graph, after)))
}

fn start(null: Null, handle: usize, mode: c_int, into: Option<(Arc<Graph>, Vec<usize>)>) -> Result<()> {
    let stream = stream::find(null, handle)?;
    if !(GLOBAL..=RELAXED).contains(&mode) {
        return Err(Error::INVALID_VALUE);
    }
    if stream.kind == Kind::Legacy {
        return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
    }
    let ctx = stream.context()?.id;
    let mut own = lock(&stream.capture);
    if own.is_some() {
        return Err(Error::ILLEGAL_STATE);
    }
    let given = into.is_some();
    let (graph, front) = into.map_or_else(|| Ok::<_, Error>((Graph::add_new()?, Vec::new())), Ok)?;
    let streams = BTreeMap::from([(stream.id, (Arc::downgrade(&stream), front))]);
    let capture = Arc::new(Capture {
        id: NEXT_ID.fetch_add(1, Relaxed),
        mode,
        thread: std::thread::current().id(),
        ctx,
        origin: stream.id,
        graph,
        given,
        state: Mutex::new(State { streams, ..State::default() }),
    });
    *own = Some(capture.clone());
    lock(&ACTIVE).push(capture);
    Ok(())
}

pub(crate) fn end(null: Null, handle: usize, out: Out<usize>) -> Result<()> {
    out.maybe(0);
    let stream = stream::find(null, handle)?;
    let capture = stream.capture().ok_or(Error::ILLEGAL_STATE)?;
    if capture.origin != stream.id {
        capture.invalidate();
        return Err(Error::STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != RELAXED && capture.thread != std::thread::current().id() {
        capture.invalidate();
        return Err(Error::STREAM_CAPTURE_WRONG_THREAD);
    }
    let (status, joined) = (capture.status(), capture.is_joined());
    capture.end();
    let result = match (status, joined) {
        (STATUS_INVALIDATED, _) => Err(Error::STREAM_CAPTURE_INVALIDATED),
        (_, false) => Err(Error::STREAM_CAPTURE_UNJOINED),
        (_, true) => out.put(capture.graph.handle),
    };
    if result.is_err() && !capture.given {
        driver()?.graphs.remove(capture.graph.handle);
    }
    result
}

pub(crate) fn is_capturing(null: Null, handle: usize, out: Out<c_int>) -> Result<()> {
    get_info(null, handle, out.required()?, Out::NOWHERE)
}

pub(crate) fn get_info(null: Null, handle: usize, status: Out<c_int>, id: Out<u64>) -> Result<()> {
    get_info_v2(null, handle, status, id, Out::NOWHERE, Out::NOWHERE, Out::NOWHERE)
}

#[allow(clippy::too_many_arguments)] // the driver's
pub(crate) fn get_info_v3(
    null: Null,
    handle: usize,
    status: Out<c_int>,
    id: Out<u64>,
    graph: Out<usize>,
    nodes: Out<*const usize>,
    edges: Out<*const u8>,
    count: Out<usize>,
) -> Result<()> {
    edges.maybe(std::ptr::null());
    get_info_v2(null, handle, status, id, graph, nodes, count)
}

/// The list of nodes is valid until the next call of the thread.
pub(crate) fn get_info_v2(
    null: Null,
    handle: usize,
    status: Out<c_int>,
    id: Out<u64>,
    graph: Out<usize>,
    nodes: Out<*const usize>,
    count: Out<usize>,
) -> Result<()> {
    let stream = stream::find(null, handle)?;
    let status = status.required()?;
    let Some(capture) = stream.capture() else {
        // To look is not to spoil.
        let ctx = stream.context()?;
        let implicit = |c: &Arc<Capture>| c.ctx == ctx.id && c.captures_blocking_stream();
        if stream.kind == Kind::Legacy && lock(&ACTIVE).iter().any(implicit) {
            return Err(Error::STREAM_CAPTURE_IMPLICIT);
        }
        return status.put(STATUS_NONE);
    };
    status.put(capture.status())?;
    if capture.status() == STATUS_ACTIVE {
        id.maybe(capture.id);
        graph.maybe(capture.graph.handle);
        let front = capture.front(&stream)?;
        count.maybe(front.len());
        if !nodes.is_null() {
            nodes.put(kept(front.into_iter().map(|node| node_handle(&capture.graph, node)).collect::<Result<_>>()?))?;
        }
    }
    Ok(())
}

/// Keeps a list for the calling thread until the next one.
fn kept(list: Vec<usize>) -> *const usize {
    thread_local! {
        static LIST: std::cell::RefCell<Vec<usize>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    LIST.with_borrow_mut(|kept| {
        *kept = list;
        kept.as_ptr()
    })
}

pub(crate) fn update_dependencies(
    null: Null,
    handle: usize,
    nodes: In<usize>,
    count: usize,
    flags: c_uint,
) -> Result<()> {
    let stream = stream::find(null, handle)?;
    let capture = stream.capture().ok_or(Error::ILLEGAL_STATE)?;
    let mut front = capture.front(&stream)?;
    // CU_STREAM_ADD_CAPTURE_DEPENDENCIES, CU_STREAM_SET_CAPTURE_DEPENDENCIES.
    match flags {
        0 => {}
        1 => front.clear(),
        _ => return Err(Error::INVALID_VALUE),
    }
    for node in if count == 0 { Vec::new() } else { nodes.list(count)? } {
        front.push(node_index(&capture.graph, node)?);
    }
    front.sort_unstable();
    front.dedup();
    capture.set_front(&stream, front);
    Ok(())
}

pub(crate) fn update_dependencies_v2(
    null: Null,
    handle: usize,
    nodes: In<usize>,
    _: In<u8>,
    count: usize,
    flags: c_uint,
) -> Result<()> {
    update_dependencies(null, handle, nodes, count, flags)
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
