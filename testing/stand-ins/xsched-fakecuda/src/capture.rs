//! Stream capture: commands become nodes of a graph.

use crate::edge::{In, Null, Out};
use crate::graph::{GRAPHS, Graph, node_handle, node_index};
use crate::op::Op;
use crate::result::{Error, Result};
use crate::sequence::{self, GLOBAL, RELAXED, STATUS_ACTIVE, STATUS_INVALIDATED, STATUS_NONE, Sequence, is_implicit};
use crate::stats::{COUNTERS, Counters};
use crate::stream::{self, Kind, Stream};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};
use std::sync::{Arc, Mutex};
use xsched_sim::client::lock;

/// Graph that a sequence records into.
#[derive(Clone)]
struct Recorded {
    graph: Arc<Graph>,
    /// Set if the graph is the program's own, which outlives a failed capture.
    given: bool,
}

/// Graphs by id of the sequence.
static RECORDED: Mutex<BTreeMap<u64, Recorded>> = Mutex::new(BTreeMap::new());

fn recorded(sequence: &Sequence) -> Result<Recorded> {
    lock(&RECORDED).get(&sequence.id).cloned().ok_or(Error::ILLEGAL_STATE)
}

/// Records a command of a stream.
pub(crate) fn add(sequence: &Sequence, stream: &Stream, op: Op) -> Result<()> {
    let front = sequence.front(stream.id)?;
    let node = recorded(sequence)?.graph.add(op, front);
    Counters::add(&COUNTERS.captured);
    sequence.set_front(stream.id, vec![node]);
    Ok(())
}

fn end_sequence(sequence: &Sequence) {
    sequence.end();
    lock(&RECORDED).remove(&sequence.id);
}

/// Ends the captures of a context that is gone.
pub(crate) fn end_of(ctx: u64) {
    sequence::of_context(ctx).iter().for_each(|sequence| end_sequence(sequence));
}

/// Reports whether every stream's nodes precede the end of the origin's.
fn is_joined(sequence: &Sequence, graph: &Graph) -> bool {
    let fronts = sequence.fronts();
    let Some(ends) = fronts.get(&sequence.origin) else { return false };
    let before = graph.ancestors(ends);
    fronts.values().all(|front| front.iter().all(|node| before.contains(node)))
}

pub(crate) fn begin(null: Null, handle: usize) -> Result<()> {
    begin_in_mode(null, handle, GLOBAL)
}

pub(crate) fn begin_in_mode(null: Null, handle: usize, mode: c_int) -> Result<()> {
    start(null, handle, mode, None)
}

/// Begins a capture that adds nodes to a given graph, after some of its nodes.
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
    if own.as_ref().is_some_and(|sequence| !sequence.has_ended()) {
        return Err(Error::ILLEGAL_STATE);
    }
    let given = into.is_some();
    let (graph, front) = into.map_or_else(|| Ok::<_, Error>((Graph::add_new()?, Vec::new())), Ok)?;
    let sequence = Sequence::begin(mode, ctx, stream.id, stream.member(front));
    lock(&RECORDED).insert(sequence.id, Recorded { graph, given });
    *own = Some(sequence);
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
    let Recorded { graph, given } = recorded(&capture)?;
    let (status, joined) = (capture.status(), is_joined(&capture, &graph));
    end_sequence(&capture);
    let result = match (status, joined) {
        (STATUS_INVALIDATED, _) => Err(Error::STREAM_CAPTURE_INVALIDATED),
        (_, false) => Err(Error::STREAM_CAPTURE_UNJOINED),
        (_, true) => out.put(graph.handle),
    };
    if result.is_err() && !given {
        GRAPHS.remove(graph.handle);
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

/// Information on a capture. The list of nodes is valid until the thread's next call.
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
        // A query does not invalidate the capture.
        let ctx = stream.context()?;
        if stream.kind == Kind::Legacy && is_implicit(ctx.id) {
            return Err(Error::STREAM_CAPTURE_IMPLICIT);
        }
        return status.put(STATUS_NONE);
    };
    status.put(capture.status())?;
    if capture.status() == STATUS_ACTIVE {
        id.maybe(capture.id);
        let recorded = recorded(&capture)?.graph;
        graph.maybe(recorded.handle);
        let front = capture.front(stream.id)?;
        count.maybe(front.len());
        if !nodes.is_null() {
            nodes.put(kept(front.into_iter().map(|node| node_handle(&recorded, node)).collect::<Result<_>>()?))?;
        }
    }
    Ok(())
}

/// Keeps a list for the calling thread until its next one.
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
    let (graph, mut front) = (recorded(&capture)?.graph, capture.front(stream.id)?);
    // CU_STREAM_ADD_CAPTURE_DEPENDENCIES, CU_STREAM_SET_CAPTURE_DEPENDENCIES.
    match flags {
        0 => {}
        1 => front.clear(),
        _ => return Err(Error::INVALID_VALUE),
    }
    for node in if count == 0 { Vec::new() } else { nodes.list(count)? } {
        front.push(node_index(&graph, node)?);
    }
    front.sort_unstable();
    front.dedup();
    capture.set_front(stream.id, front);
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
