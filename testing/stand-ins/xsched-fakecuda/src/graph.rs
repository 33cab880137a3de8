//! Graphs and their nodes. Executable graphs are in [`crate::exec`].

use crate::context;
use crate::edge::{In, Out};
use crate::graph_memory::Block;
use crate::launch::Launch;
use crate::memops;
use crate::module;
use crate::op::{Argument, HostFunction, Op};
use crate::process::known;
use crate::result::{Error, Result};
use crate::slab::Slab;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};
use xsched_sim::client::lock;

/// A graph.
pub(crate) struct Graph {
    pub(crate) handle: usize,
    nodes: Mutex<Vec<Node>>,
}

/// A node.
#[derive(Clone)]
pub(crate) struct Node {
    /// Id of the node, unique in the process.
    pub(crate) id: u64,
    /// Id of the node that this was cloned from; 0 = none.
    origin: u64,
    pub(crate) op: Op,
    /// Nodes that it depends on.
    pub(crate) after: Vec<usize>,
    /// Data of the edges with more meaning than "after", by the node that they come from. The device ignores it:
    /// "after" is stricter.
    meanings: BTreeMap<usize, EdgeData>,
    /// Handle (`CUgraphNode`), once one was requested; 0 before.
    handle: usize,
}

/// CUgraphEdgeData.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct EdgeData {
    from_port: u8,
    to_port: u8,
    kind: u8,
    reserved: [u8; 5],
}

/// Graphs by handle.
pub(crate) static GRAPHS: Slab<Graph> = Slab::new(0x56);

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// Nodes by handle.
static NODES: Slab<NodeHandle> = Slab::new(0x57);

/// Referent of a `CUgraphNode`.
pub(crate) struct NodeHandle {
    graph: Weak<Graph>,
    index: usize,
}

impl Graph {
    /// Creates a graph.
    pub(crate) fn add_new() -> Result<Arc<Self>> {
        Ok(GRAPHS.add(|handle| Arc::new(Self { handle, nodes: Mutex::default() })))
    }

    /// Adds a node after others, and returns its index.
    pub(crate) fn add(&self, op: Op, after: Vec<usize>) -> usize {
        let mut nodes = lock(&self.nodes);
        nodes.push(Node { id: next_id(), origin: 0, op, after, meanings: BTreeMap::new(), handle: 0 });
        nodes.len() - 1
    }

    /// These nodes and all their predecessors.
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

    /// Replaces a node's command by one of the same kind.
    pub(crate) fn replace(&self, index: usize, op: Op) -> Result<()> {
        let own = &mut lock(&self.nodes)[index].op;
        if kind(own) != kind(&op) {
            return Err(Error::INVALID_VALUE);
        }
        *own = op;
        Ok(())
    }

    /// A copy of the nodes.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        lock(&self.nodes).clone()
    }
}

/// Indices of nodes in an order that the edges allow. Fails if the edges form a circle.
pub(crate) fn order(nodes: &[Node]) -> Result<Vec<usize>> {
    let (mut done, mut order) = (vec![false; nodes.len()], Vec::with_capacity(nodes.len()));
    while order.len() < nodes.len() {
        let ready = |i: &usize| !done[*i] && nodes[*i].after.iter().all(|&before| done[before]);
        let next = (0..nodes.len()).find(ready).ok_or(Error::INVALID_VALUE)?;
        done[next] = true;
        order.push(next);
    }
    Ok(order)
}

pub(crate) fn find(handle: usize) -> Result<Arc<Graph>> {
    known("graph", handle, GRAPHS.get(handle))
}

/// The `CUgraphNode` of a node.
pub(crate) fn node_handle(graph: &Arc<Graph>, index: usize) -> Result<usize> {
    let mut nodes = lock(&graph.nodes);
    if nodes[index].handle == 0 {
        let (graph, mut made) = (Arc::downgrade(graph), 0);
        NODES.add(|handle| {
            made = handle;
            Arc::new(NodeHandle { graph, index })
        });
        nodes[index].handle = made;
    }
    Ok(nodes[index].handle)
}

/// Index of the node of a `CUgraphNode`, which must belong to the graph.
pub(crate) fn node_index(graph: &Arc<Graph>, handle: usize) -> Result<usize> {
    let node = known("graph node", handle, NODES.get(handle))?;
    if node.graph.as_ptr() == Arc::as_ptr(graph) { Ok(node.index) } else { Err(Error::INVALID_VALUE) }
}

pub(crate) fn find_node(handle: usize) -> Result<(Arc<Graph>, usize)> {
    let node = known("graph node", handle, NODES.get(handle))?;
    Ok((node.graph.upgrade().ok_or(Error::INVALID_HANDLE)?, node.index))
}

pub(crate) fn create(out: Out<usize>, flags: c_uint) -> Result<()> {
    if flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    out.required()?.put(Graph::add_new()?.handle)
}

pub(crate) fn destroy(handle: usize) -> Result<()> {
    let graph = known("graph", handle, GRAPHS.remove(handle))?;
    NODES.remove_if(|node| node.graph.as_ptr() == Arc::as_ptr(&graph));
    Ok(())
}

pub(crate) fn clone(out: Out<usize>, handle: usize) -> Result<()> {
    let (out, from) = (out.required()?, find(handle)?.nodes());
    // By cuda.h, which does not name the error.
    if from.iter().any(|node| matches!(node.op, Op::Memory(_) | Op::Free)) {
        return Err(Error::NOT_SUPPORTED);
    }
    let cloned = |node: Node| Node { id: next_id(), origin: node.id, handle: 0, ..node };
    let graph = Graph::add_new()?;
    *lock(&graph.nodes) = from.into_iter().map(cloned).collect();
    out.put(graph.handle)
}

pub(crate) fn find_in_clone(out: Out<usize>, node: usize, clone: usize) -> Result<()> {
    let ((graph, index), clone) = (find_node(node)?, find(clone)?);
    let id = lock(&graph.nodes)[index].id;
    let found = lock(&clone.nodes).iter().position(|node| node.origin == id).ok_or(Error::INVALID_VALUE)?;
    out.put(node_handle(&clone, found)?)
}

pub(crate) fn add_node(out: Out<usize>, graph: usize, after: In<usize>, count: usize, op: Op) -> Result<()> {
    let (out, graph) = (out.required()?, find(graph)?);
    let after = if count == 0 { Vec::new() } else { after.list(count)? };
    let after = after.into_iter().map(|node| node_index(&graph, node)).collect::<Result<Vec<usize>>>()?;
    if after.iter().collect::<BTreeSet<_>>().len() != after.len() {
        return Err(Error::INVALID_VALUE);
    }
    let node = graph.add(op, after);
    out.put(node_handle(&graph, node)?)
}

/// `CUDA_KERNEL_NODE_PARAMS`; the second version has more members behind these.
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

impl KernelParams {
    pub(crate) fn op(self, kernel: usize) -> Result<Op> {
        let Self { function, grid: [gx, gy, gz], block: [bx, by, bz], shared, params, extra } = self;
        let function = if function == 0 { kernel } else { function };
        Ok(Op::Kernel(Launch::new(function, [gx, gy, gz, bx, by, bz, shared], params, extra)?))
    }
}

impl KernelParamsV2 {
    pub(crate) fn op(self) -> Result<Op> {
        self.first.op(self.kernel)
    }
}

/// Parameters of a kernel node, without the arguments, which this driver does not keep in their original form.
pub(crate) fn kernel_params_v2(node: usize, out: Out<KernelParamsV2>) -> Result<()> {
    let (graph, index) = find_node(node)?;
    let Op::Kernel(launch) = lock(&graph.nodes)[index].op else { return Err(Error::INVALID_VALUE) };
    let [gx, gy, gz, bx, by, bz, shared] = launch.shape;
    let (function, kernel) = module::function_and_kernel(launch.function)?;
    let (params, extra) = (In::NOTHING, In::NOTHING);
    let first = KernelParams { function, grid: [gx, gy, gz], block: [bx, by, bz], shared, params, extra };
    out.required()?.put(KernelParamsV2 { first, kernel, ctx: 0 })
}

pub(crate) fn add_kernel(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    params: In<KernelParams>,
) -> Result<()> {
    add_node(out, graph, after, count, params.get()?.op(0)?)
}

pub(crate) fn add_kernel_v2(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    params: In<KernelParamsV2>,
) -> Result<()> {
    add_node(out, graph, after, count, params.get()?.op()?)
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
    add_node(out, graph, after, count, params.get()?.op()?)
}

impl HostParams {
    pub(crate) fn of(function: HostFunction, Argument(argument): Argument) -> Self {
        Self { function: Some(function), argument }
    }

    pub(crate) fn op(self) -> Result<Op> {
        Ok(Op::Host(self.function.ok_or(Error::INVALID_VALUE)?, Argument(self.argument)))
    }
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BatchParams {
    ctx: usize,
    count: c_uint,
    params: In<memops::Params>,
    flags: c_uint,
}

impl BatchParams {
    pub(crate) fn op(self) -> Result<Op> {
        let ops = memops::parse(self.count, self.params, self.flags)?;
        memops::check(&ops, &context::find(self.ctx)?)?;
        Ok(Op::MemOps(ops))
    }
}

pub(crate) fn add_batch(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    params: In<BatchParams>,
) -> Result<()> {
    add_node(out, graph, after, count, params.get()?.op()?)
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AllocParams {
    pool: [u64; 11],
    access: usize,
    access_count: usize,
    bytes: usize,
    address: u64,
}

/// Adds a node that allocates memory. The memory exists from now on, not only when the node has run.
pub(crate) fn add_alloc(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    params: Out<AllocParams>,
) -> Result<()> {
    let mut given = params.read()?;
    let block = Block::new(&context::current()?, given.bytes)?;
    given.address = block.address();
    params.put(given)?;
    add_node(out, graph, after, count, Op::Memory(block))
}

pub(crate) fn add_free(out: Out<usize>, graph: usize, after: In<usize>, count: usize, _address: u64) -> Result<()> {
    add_node(out, graph, after, count, Op::Free)
}

pub(crate) fn add_child(out: Out<usize>, graph: usize, after: In<usize>, count: usize, child: usize) -> Result<()> {
    let nodes = find(child)?.nodes();
    let ops = order(&nodes)?.into_iter().map(|place| nodes[place].op.clone()).collect();
    add_node(out, graph, after, count, Op::Child(ops))
}

pub(crate) fn add_dependencies(graph: usize, from: In<usize>, to: In<usize>, count: usize) -> Result<()> {
    add_dependencies_v2(graph, from, to, In::NOTHING, count)
}

pub(crate) fn remove_dependencies(graph: usize, from: In<usize>, to: In<usize>, count: usize) -> Result<()> {
    remove_dependencies_v2(graph, from, to, In::NOTHING, count)
}

/// Data of the edge with this index; the default, "after", without a list.
fn edge_data(list: In<EdgeData>, index: usize) -> Result<EdgeData> {
    if list.is_null() { Ok(EdgeData::default()) } else { list.at(index) }
}

pub(crate) fn remove_dependencies_v2(
    graph: usize,
    from: In<usize>,
    to: In<usize>,
    data: In<EdgeData>,
    count: usize,
) -> Result<()> {
    let graph = find(graph)?;
    for index in 0..count {
        let (from, to) = (node_index(&graph, from.at(index)?)?, node_index(&graph, to.at(index)?)?);
        let node = &mut lock(&graph.nodes)[to];
        let place = node.after.iter().position(|&node| node == from).ok_or(Error::INVALID_VALUE)?;
        if node.meanings.get(&from).copied().unwrap_or_default() != edge_data(data, index)? {
            return Err(Error::INVALID_VALUE);
        }
        node.after.remove(place);
        node.meanings.remove(&from);
    }
    Ok(())
}

pub(crate) fn add_dependencies_v2(
    graph: usize,
    from: In<usize>,
    to: In<usize>,
    data: In<EdgeData>,
    count: usize,
) -> Result<()> {
    let graph = find(graph)?;
    for index in 0..count {
        let (from, to) = (node_index(&graph, from.at(index)?)?, node_index(&graph, to.at(index)?)?);
        let data = edge_data(data, index)?;
        let nodes = &mut lock(&graph.nodes);
        if nodes[to].after.contains(&from) {
            return Err(Error::INVALID_VALUE);
        }
        nodes[to].after.push(from);
        if data != EdgeData::default() {
            nodes[to].meanings.insert(from, data);
        }
    }
    Ok(())
}

/// Lists as many nodes as there is room for; without a list, returns their number.
fn list_nodes(graph: &Arc<Graph>, indices: &[usize], nodes: Out<usize>, count: InOutCount) -> Result<()> {
    if !nodes.is_null() {
        let room = count.get()?.min(indices.len());
        let handles: Result<Vec<usize>> = indices[..room].iter().map(|&index| node_handle(graph, index)).collect();
        nodes.list(handles?);
    }
    count.put(indices.len())
}

/// A count that is both argument and result.
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
    if find(graph)?.nodes().iter().any(|node| !node.meanings.is_empty()) {
        return Err(Error::LOSSY_QUERY);
    }
    get_edges_v2(graph, from, to, Out::NOWHERE, count)
}

pub(crate) fn get_edges_v2(
    graph: usize,
    from: Out<usize>,
    to: Out<usize>,
    data: Out<EdgeData>,
    count: InOutCount,
) -> Result<()> {
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
        if !data.is_null() {
            let nodes = lock(&graph.nodes);
            let meaning = |&(from, to): &(usize, usize)| nodes[to].meanings.get(&from).copied().unwrap_or_default();
            data.list(edges[..room].iter().map(meaning));
        }
    }
    count.put(edges.len())
}

/// CUgraphNodeType.
pub(crate) fn kind(op: &Op) -> c_int {
    match op {
        Op::Kernel(_) => 0,
        Op::Copy(_) => 1,
        Op::Set(_) => 2,
        Op::Host(..) | Op::Callback(..) => 3,
        Op::Child(_) => 4,
        Op::Empty => 5,
        Op::Wait(_) => 6,
        Op::Record(_) => 7,
        Op::Memory(_) => 10,
        Op::Free => 11,
        Op::MemOps(_) => 12,
    }
}

pub(crate) fn node_type(node: usize, out: Out<c_int>) -> Result<()> {
    let (graph, index) = find_node(node)?;
    out.put(kind(&lock(&graph.nodes)[index].op))
}
