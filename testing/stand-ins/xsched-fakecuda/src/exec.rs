//! Executable graphs. A launch submits the nodes to its stream one after the other, in an order that their edges allow.

use crate::context::current;
use crate::edge::{In, Null, Out};
use crate::graph::{BatchParams, KernelParams, KernelParamsV2, Node, find, find_node, kind, node_handle, order};
use crate::op::Op;
use crate::process::known;
use crate::result::{Error, Result};
use crate::slab::Slab;
use crate::stats::{COUNTERS, Counters};
use crate::stream;
use std::ffi::{c_char, c_int, c_uint};
use std::sync::{Arc, Mutex};
use xsched_sim::client::lock;

/// An executable graph.
pub(crate) struct Exec {
    handle: usize,
    flags: u64,
    order: Vec<usize>,
    /// Nodes, each with whether it is enabled. They keep the ids of the graph that this was instantiated from.
    nodes: Mutex<Vec<(Node, bool)>>,
}

/// Executable graphs by handle.
static EXECS: Slab<Exec> = Slab::new(0x58);

fn instantiated(out: Out<usize>, graph: usize, flags: u64) -> Result<()> {
    let out = out.required()?;
    current()?;
    let nodes = find(graph)?.nodes();
    let order = order(&nodes)?;
    let nodes = Mutex::new(nodes.into_iter().map(|node| (node, true)).collect());
    out.put(EXECS.add(|handle| Arc::new(Exec { handle, flags, order, nodes })).handle)
}

pub(crate) fn instantiate(
    out: Out<usize>,
    graph: usize,
    node: Out<usize>,
    log: Out<c_char>,
    room: usize,
) -> Result<()> {
    node.maybe(0);
    if room > 0 {
        log.maybe(0);
    }
    instantiated(out, graph, 0)
}

pub(crate) fn instantiate_with_flags(out: Out<usize>, graph: usize, flags: u64) -> Result<()> {
    instantiated(out, graph, flags)
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Params {
    flags: u64,
    upload: usize,
    node: usize,
    result: c_int,
}

pub(crate) fn instantiate_with_params(_: Null, out: Out<usize>, graph: usize, params: Out<Params>) -> Result<()> {
    let given = params.read()?;
    let made = instantiated(out, graph, given.flags);
    // CUDA_GRAPH_INSTANTIATE_ERROR
    params.put(Params { node: 0, result: c_int::from(made.is_err()), ..given })?;
    made
}

pub(crate) fn destroy(handle: usize) -> Result<()> {
    known("executable graph", handle, EXECS.remove(handle)).map(drop)
}

fn find_exec(handle: usize) -> Result<Arc<Exec>> {
    known("executable graph", handle, EXECS.get(handle))
}

pub(crate) fn launch(null: Null, exec: usize, stream: usize) -> Result<()> {
    let (exec, stream) = (find_exec(exec)?, stream::find(null, stream)?);
    let ops: Vec<Op> = {
        let nodes = lock(&exec.nodes);
        let enabled = |place: &usize| nodes[*place].1.then(|| nodes[*place].0.op.clone());
        exec.order.iter().filter_map(enabled).collect()
    };
    // As driver 580 does.
    if let Some(capture) = stream.capture() {
        capture.invalidate();
        return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
    }
    stream.issue_all(&ops)?;
    let end = stream.context()?.sim.end(stream.slot)?;
    ops.iter().for_each(|op| op.used_until(end));
    Counters::add(&COUNTERS.graph_launches);
    Ok(())
}

/// Nothing has to be copied to the device before a launch here. Counts as a copy, as it is one on hardware.
pub(crate) fn upload(null: Null, exec: usize, stream: usize) -> Result<()> {
    find_exec(exec)?;
    stream::find(null, stream)?;
    Counters::add(&COUNTERS.copies);
    Ok(())
}

pub(crate) fn get_flags(exec: usize, out: Out<u64>) -> Result<()> {
    out.put(find_exec(exec)?.flags)
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Outcome {
    result: c_int,
    node: usize,
    from: usize,
}

/// CU_GRAPH_EXEC_UPDATE_ERROR_...
const TOPOLOGY_CHANGED: c_int = 2;
const NODE_TYPE_CHANGED: c_int = 3;
const PARAMETERS_CHANGED: c_int = 5;

/// Reason why an executable graph cannot take over another graph's parameters: it must have the same nodes with the
/// same edges, created in the same order. (Real drivers pair nodes by their edges, so they accept a few more graphs.)
fn refusal(own: &[(Node, bool)], other: &[Node]) -> Option<(c_int, Option<usize>, Option<usize>)> {
    if own.len() != other.len() {
        return Some((TOPOLOGY_CHANGED, None, None));
    }
    for (place, ((a, _), b)) in own.iter().zip(other).enumerate() {
        if a.after.len() != b.after.len() {
            return Some((TOPOLOGY_CHANGED, Some(place), None));
        }
        if let Some((_, &from)) = a.after.iter().zip(&b.after).find(|(a, b)| a != b) {
            return Some((TOPOLOGY_CHANGED, Some(place), Some(from)));
        }
        if kind(&a.op) != kind(&b.op) {
            return Some((NODE_TYPE_CHANGED, Some(place), None));
        }
        let same = match (&a.op, &b.op) {
            (Op::MemOps(a), Op::MemOps(b)) => a.len() == b.len(),
            (Op::Child(a), Op::Child(b)) => a.len() == b.len(),
            _ => true,
        };
        if !same {
            return Some((PARAMETERS_CHANGED, Some(place), None));
        }
    }
    None
}

/// Takes over another graph's parameters.
fn update(exec: usize, graph: usize) -> Result<Outcome> {
    let (exec, graph) = (find_exec(exec)?, find(graph)?);
    let other = graph.nodes();
    let mut own = lock(&exec.nodes);
    if let Some((result, node, from)) = refusal(&own, &other) {
        let handle = |place: Option<usize>| place.map_or(Ok(0), |place| node_handle(&graph, place));
        return Ok(Outcome { result, node: handle(node)?, from: handle(from)? });
    }
    for ((node, _), other) in own.iter_mut().zip(other) {
        node.op = other.op;
    }
    Ok(Outcome::default())
}

fn told(outcome: Outcome) -> Result<()> {
    if outcome.result == 0 { Ok(()) } else { Err(Error::GRAPH_EXEC_UPDATE_FAILURE) }
}

pub(crate) fn exec_update(exec: usize, graph: usize, node: Out<usize>, result: Out<c_int>) -> Result<()> {
    let outcome = update(exec, graph)?;
    node.maybe(outcome.node);
    result.maybe(outcome.result);
    told(outcome)
}

pub(crate) fn exec_update_v2(exec: usize, graph: usize, info: Out<Outcome>) -> Result<()> {
    let outcome = update(exec, graph)?;
    info.maybe(outcome);
    told(outcome)
}

/// Calls `body` with the node of an executable graph that corresponds to a node of its graph.
fn with_node<T>(exec: usize, node: usize, body: impl FnOnce(&mut (Node, bool)) -> Result<T>) -> Result<T> {
    let (exec, (graph, index)) = (find_exec(exec)?, find_node(node)?);
    let id = graph.nodes()[index].id;
    let mut nodes = lock(&exec.nodes);
    body(nodes.iter_mut().find(|(node, _)| node.id == id).ok_or(Error::INVALID_VALUE)?)
}

/// Replaces a node's command, if `may` allows that for the current one.
pub(crate) fn replace(exec: usize, node: usize, op: Op, may: impl FnOnce(&Op) -> bool) -> Result<()> {
    with_node(exec, node, |(node, _)| {
        if !may(&node.op) {
            return Err(Error::INVALID_VALUE);
        }
        node.op = op;
        Ok(())
    })
}

fn set(exec: usize, node: usize, op: Op) -> Result<()> {
    let wanted = kind(&op);
    replace(exec, node, op, |old| kind(old) == wanted)
}

pub(crate) fn set_kernel(exec: usize, node: usize, params: In<KernelParams>) -> Result<()> {
    set(exec, node, params.get()?.op(0)?)
}

pub(crate) fn set_kernel_v2(exec: usize, node: usize, params: In<KernelParamsV2>) -> Result<()> {
    set(exec, node, params.get()?.op()?)
}

pub(crate) fn set_batch(exec: usize, node: usize, params: In<BatchParams>) -> Result<()> {
    set(exec, node, params.get()?.op()?)
}

/// Checks that a node may be disabled: kernels, copies and sets may.
fn can_rest(node: &Node) -> Result<()> {
    if kind(&node.op) <= 2 { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

pub(crate) fn set_enabled(exec: usize, node: usize, enabled: c_uint) -> Result<()> {
    with_node(exec, node, |(node, is_enabled)| {
        can_rest(node)?;
        *is_enabled = enabled != 0;
        Ok(())
    })
}

pub(crate) fn get_enabled(exec: usize, node: usize, out: Out<c_uint>) -> Result<()> {
    let enabled = with_node(exec, node, |(node, is_enabled)| can_rest(node).map(|()| *is_enabled))?;
    out.put(enabled.into())
}
