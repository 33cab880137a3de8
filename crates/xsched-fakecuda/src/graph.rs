//! Graphs. A launch gives the nodes to its stream one after the other, in an order that their edges allow.

use crate::context::current;
use crate::edge::{In, Null, Out};
use crate::launch::{Launch, check_shape};
use crate::module::find_function;
use crate::op::{Argument, HostFunction, Op};
use crate::process::{driver, known};
use crate::result::{Error, Result};
use crate::stats::{COUNTERS, Counters};
use crate::stream;
use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, Weak};
use xsched_sim::client::lock;

/// A graph.
pub(crate) struct Graph {
    pub(crate) handle: usize,
    nodes: Mutex<Vec<Node>>,
}

#[derive(Clone)]
struct Node {
    op: Op,
    /// Nodes that it waits for.
    after: Vec<usize>,
    /// Its `CUgraphNode`, once somebody asked; 0 before.
    handle: usize,
}

/// What a `CUgraphNode` names.
pub(crate) struct NodeHandle {
    graph: Weak<Graph>,
    index: usize,
}

/// A graph made ready to be launched.
pub(crate) struct Exec {
    handle: usize,
    ops: Mutex<Vec<Op>>,
}

impl Graph {
    /// A new graph, known by its handle.
    pub(crate) fn add_new() -> Result<Arc<Self>> {
        Ok(driver()?.graphs.add(|handle| Arc::new(Self { handle, nodes: Mutex::default() })))
    }

    /// Adds a node after others.
    pub(crate) fn add(&self, op: Op, after: Vec<usize>) -> usize {
        let mut nodes = lock(&self.nodes);
        nodes.push(Node { op, after, handle: 0 });
        nodes.len() - 1
    }

    /// These nodes and all before them.
    pub(crate) fn ancestors(&self, of: &[usize]) -> BTreeSet<usize> {
        let nodes = lock(&self.nodes);
        let (mut found, mut todo) = (BTreeSet::new(), of.to_vec());
        while let Some(node) = todo.pop() {
            if found.insert(node) {
                todo.extend(&nodes[node].after);
            }
        }
        found
    }

    /// Its commands in an order that the edges allow; none if they go in a circle.
    fn ordered(&self) -> Result<Vec<Op>> {
        let nodes = lock(&self.nodes);
        let (mut done, mut order) = (vec![false; nodes.len()], Vec::with_capacity(nodes.len()));
        while order.len() < nodes.len() {
            let ready = |i: &usize| !done[*i] && nodes[*i].after.iter().all(|&before| done[before]);
            let next = (0..nodes.len()).find(ready).ok_or(Error::INVALID_VALUE)?;
            done[next] = true;
            order.push(nodes[next].op.clone());
        }
        Ok(order)
    }
}

fn find(handle: usize) -> Result<Arc<Graph>> {
    known("graph", handle, driver()?.graphs.get(handle))
}

/// The `CUgraphNode` of a node.
pub(crate) fn node_handle(graph: &Arc<Graph>, index: usize) -> Result<usize> {
    let mut nodes = lock(&graph.nodes);
    if nodes[index].handle == 0 {
        let (graph, mut made) = (Arc::downgrade(graph), 0);
        driver()?.nodes.add(|handle| {
            made = handle;
            Arc::new(NodeHandle { graph, index })
        });
        nodes[index].handle = made;
    }
    Ok(nodes[index].handle)
}

/// Which node of a graph a `CUgraphNode` is.
pub(crate) fn node_index(graph: &Arc<Graph>, handle: usize) -> Result<usize> {
    let node = known("graph node", handle, driver()?.nodes.get(handle))?;
    if node.graph.as_ptr() == Arc::as_ptr(graph) { Ok(node.index) } else { Err(Error::INVALID_VALUE) }
}

fn find_node(handle: usize) -> Result<(Arc<Graph>, usize)> {
    let node = known("graph node", handle, driver()?.nodes.get(handle))?;
    Ok((node.graph.upgrade().ok_or(Error::INVALID_HANDLE)?, node.index))
}

pub(crate) fn create(out: Out<usize>, flags: c_uint) -> Result<()> {
    if flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    out.required()?.put(Graph::add_new()?.handle)
}

pub(crate) fn destroy(handle: usize) -> Result<()> {
    let graph = known("graph", handle, driver()?.graphs.remove(handle))?;
    driver()?.nodes.remove_if(|node| node.graph.as_ptr() == Arc::as_ptr(&graph));
    Ok(())
}

pub(crate) fn clone(out: Out<usize>, handle: usize) -> Result<()> {
    let (out, from) = (out.required()?, find(handle)?);
    let nodes = lock(&from.nodes).iter().map(|node| Node { handle: 0, ..node.clone() }).collect();
    let graph = Graph::add_new()?;
    *lock(&graph.nodes) = nodes;
    out.put(graph.handle)
}

fn add_node(out: Out<usize>, graph: usize, after: In<usize>, count: usize, op: Op) -> Result<()> {
    let (out, graph) = (out.required()?, find(graph)?);
    let after = if count == 0 { Vec::new() } else { after.list(count)? };
    let after: Result<Vec<usize>> = after.into_iter().map(|node| node_index(&graph, node)).collect();
    let node = graph.add(op, after?);
    out.put(node_handle(&graph, node)?)
}

/// `CUDA_KERNEL_NODE_PARAMS`; the second version goes on after this.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelParams {
    function: usize,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    params: In<In<u8>>,
    extra: In<usize>,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelParamsV2 {
    first: KernelParams,
    kernel: usize,
    ctx: usize,
}

fn kernel_op(params: KernelParams, kernel: usize) -> Result<Op> {
    let KernelParams { function, grid, block, shared, params, extra } = params;
    check_shape(grid, block, shared)?;
    let function = find_function(if function == 0 { kernel } else { function })?;
    Ok(Op::Kernel(Launch::new(function.kernel, params, extra)?))
}

pub(crate) fn add_kernel(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    params: In<KernelParams>,
) -> Result<()> {
    add_node(out, graph, after, count, kernel_op(params.get()?, 0)?)
}

pub(crate) fn add_kernel_v2(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    params: In<KernelParamsV2>,
) -> Result<()> {
    let KernelParamsV2 { first, kernel, .. } = params.get()?;
    add_node(out, graph, after, count, kernel_op(first, kernel)?)
}

pub(crate) fn add_empty(out: Out<usize>, graph: usize, after: In<usize>, count: usize) -> Result<()> {
    add_node(out, graph, after, count, Op::Empty)
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostParams {
    function: Option<HostFunction>,
    argument: *mut c_void,
}

pub(crate) fn add_host(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    params: In<HostParams>,
) -> Result<()> {
    let HostParams { function, argument } = params.get()?;
    let op = Op::Host(function.ok_or(Error::INVALID_VALUE)?, Argument(argument));
    add_node(out, graph, after, count, op)
}

pub(crate) fn add_child(out: Out<usize>, graph: usize, after: In<usize>, count: usize, child: usize) -> Result<()> {
    add_node(out, graph, after, count, Op::Child(find(child)?.ordered()?))
}

pub(crate) fn add_dependencies(graph: usize, from: In<usize>, to: In<usize>, count: usize) -> Result<()> {
    let graph = find(graph)?;
    for index in 0..count {
        let (from, to) = (node_index(&graph, from.at(index)?)?, node_index(&graph, to.at(index)?)?);
        lock(&graph.nodes)[to].after.push(from);
    }
    Ok(())
}

pub(crate) fn add_dependencies_v2(graph: usize, from: In<usize>, to: In<usize>, _: In<u8>, count: usize) -> Result<()> {
    add_dependencies(graph, from, to, count)
}

/// Lists nodes: all that there are room for, or, without a list, how many there are.
fn list_nodes(graph: &Arc<Graph>, indices: &[usize], nodes: Out<usize>, count: InOutCount) -> Result<()> {
    if !nodes.is_null() {
        let room = count.get()?.min(indices.len());
        let handles: Result<Vec<usize>> = indices[..room].iter().map(|&index| node_handle(graph, index)).collect();
        nodes.list(handles?);
    }
    count.put(indices.len())
}

/// Where a count is and goes.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct InOutCount(In<usize>);

impl InOutCount {
    fn get(self) -> Result<usize> {
        self.0.get()
    }

    fn put(self, value: usize) -> Result<()> {
        // SAFETY: both are an address alone; C gave it for both.
        unsafe { std::mem::transmute::<In<usize>, Out<usize>>(self.0) }.put(value)
    }
}

pub(crate) fn get_nodes(graph: usize, nodes: Out<usize>, count: InOutCount) -> Result<()> {
    let graph = find(graph)?;
    let all: Vec<usize> = (0..lock(&graph.nodes).len()).collect();
    list_nodes(&graph, &all, nodes, count)
}

pub(crate) fn get_root_nodes(graph: usize, nodes: Out<usize>, count: InOutCount) -> Result<()> {
    let graph = find(graph)?;
    let roots: Vec<usize> =
        lock(&graph.nodes).iter().enumerate().filter(|(_, node)| node.after.is_empty()).map(|(i, _)| i).collect();
    list_nodes(&graph, &roots, nodes, count)
}

pub(crate) fn get_edges(graph: usize, from: Out<usize>, to: Out<usize>, count: InOutCount) -> Result<()> {
    let graph = find(graph)?;
    let edges: Vec<(usize, usize)> = lock(&graph.nodes)
        .iter()
        .enumerate()
        .flat_map(|(to, node)| node.after.iter().map(move |&from| (from, to)))
        .collect();
    if !from.is_null() && !to.is_null() {
        let room = count.get()?.min(edges.len());
        let handles = |end: fn(&(usize, usize)) -> usize| {
            edges[..room].iter().map(|edge| node_handle(&graph, end(edge))).collect::<Result<Vec<usize>>>()
        };
        from.list(handles(|edge| edge.0)?);
        to.list(handles(|edge| edge.1)?);
    }
    count.put(edges.len())
}

pub(crate) fn get_edges_v2(
    graph: usize,
    from: Out<usize>,
    to: Out<usize>,
    _: Out<u8>,
    count: InOutCount,
) -> Result<()> {
    get_edges(graph, from, to, count)
}

/// CUgraphNodeType.
pub(crate) fn node_type(node: usize, out: Out<c_int>) -> Result<()> {
    let (graph, index) = find_node(node)?;
    let kind = match lock(&graph.nodes)[index].op {
        Op::Kernel(_) => 0,
        Op::Copy(_) => 1,
        Op::Set(_) => 2,
        Op::Host(..) | Op::Callback(..) => 3,
        Op::Child(_) => 4,
        Op::Empty => 5,
        Op::Wait(_) => 6,
        Op::Record(_) => 7,
        Op::MemOps(_) => 12,
    };
    out.put(kind)
}

fn instantiated(out: Out<usize>, graph: usize) -> Result<()> {
    let out = out.required()?;
    current()?;
    let ops = Mutex::new(find(graph)?.ordered()?);
    out.put(driver()?.execs.add(|handle| Arc::new(Exec { handle, ops })).handle)
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
    instantiated(out, graph)
}

pub(crate) fn instantiate_with_flags(out: Out<usize>, graph: usize, _: u64) -> Result<()> {
    instantiated(out, graph)
}

pub(crate) fn exec_destroy(handle: usize) -> Result<()> {
    known("executable graph", handle, driver()?.execs.remove(handle)).map(drop)
}

fn find_exec(handle: usize) -> Result<Arc<Exec>> {
    known("executable graph", handle, driver()?.execs.get(handle))
}

pub(crate) fn launch(null: Null, exec: usize, stream: usize) -> Result<()> {
    let (exec, stream) = (find_exec(exec)?, stream::find(null, stream)?);
    let ops = lock(&exec.ops).clone();
    // So driver 580 answers.
    if let Some(capture) = stream.capture() {
        capture.invalidate();
        return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
    }
    stream.issue_all(&ops)?;
    Counters::add(&COUNTERS.graph_launches);
    Ok(())
}

/// Nothing has to go to the device before the launch.
pub(crate) fn upload(null: Null, exec: usize, stream: usize) -> Result<()> {
    find_exec(exec)?;
    stream::find(null, stream).map(drop)
}

/// Takes over another graph's parameters if it has the same nodes.
fn update(exec: usize, graph: usize) -> Result<()> {
    let (exec, ops) = (find_exec(exec)?, find(graph)?.ordered()?);
    let mut own = lock(&exec.ops);
    let same = own.len() == ops.len()
        && own.iter().zip(&ops).all(|(a, b)| std::mem::discriminant(a) == std::mem::discriminant(b));
    if !same {
        // CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
        return Err(Error(910));
    }
    *own = ops;
    Ok(())
}

pub(crate) fn exec_update(exec: usize, graph: usize, node: Out<usize>, result: Out<c_int>) -> Result<()> {
    node.maybe(0);
    let updated = update(exec, graph);
    // CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED
    result.maybe(if updated.is_ok() { 0 } else { 2 });
    updated
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UpdateResult {
    result: c_int,
    node: usize,
    from: usize,
}

pub(crate) fn exec_update_v2(exec: usize, graph: usize, info: Out<UpdateResult>) -> Result<()> {
    let updated = update(exec, graph);
    info.maybe(UpdateResult { result: if updated.is_ok() { 0 } else { 2 }, node: 0, from: 0 });
    updated
}
