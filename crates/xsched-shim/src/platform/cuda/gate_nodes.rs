//! Gates inside a graph: makes a clone of it, with nodes that wait for the group's gate word.
//!
//! A gate is placed before a kernel node and takes over its dependencies: `a → k ← b` becomes `a → gate ← b` and `gate
//! → k`. This adds no order between other nodes, whatever the graph looks like, and cannot close a circle. A kernel
//! that may begin before its predecessor ends (programmatic dependent launch) begins after it if there is a gate
//! between the two; such a kernel must be correct then anyway. A kernel that is merely launched in order with its
//! predecessor gets no gate, since the predecessor may wait for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use xsched_core::PARTS;
use xsched_flow::tuning::UNKNOWN_INSIDE_NS;
use xsched_vendor::functions;

use super::types::*;
use crate::platform::shared::path::kernel_key;
use crate::platform::shared::search_beside;

/// CUgraphNodeType of kernels, and of the other nodes that may lie beside gates. A graph with others (child graphs,
/// memory nodes, conditions, newer types) stays as it is.
const KERNEL: c_int = 0;
const KNOWN_TYPES: [c_int; 10] = [KERNEL, 1, 2, 3, 5, 6, 7, 8, 9, 12];
/// CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, and the size of any attribute's value.
const DEVICE_UPDATABLE: c_uint = 13;
const ATTRIBUTE_WORDS: usize = 16;
/// CU_STREAM_MEM_OP_WAIT_VALUE_32, …_WRITE_VALUE_32.
const WAIT_VALUE_32: u32 = 1;
const WRITE_VALUE_32: u32 = 2;
/// CU_STREAM_WRITE_VALUE_DEFAULT. A graph has no flag for a write without a barrier.
const WRITE_DEFAULT: c_uint = 0;

/// CUstreamBatchMemOpParams, for a wait or a write.
#[repr(C)]
struct Operation {
    operation: u32,
    address: CUdeviceptr,
    value: u64,
    flags: c_uint,
    alias: CUdeviceptr,
    rest: u64,
}

impl Operation {
    fn of(operation: u32, address: CUdeviceptr, value: u32, flags: c_uint) -> Operation {
        Operation { operation, address, value: value.into(), flags, alias: 0, rest: 0 }
    }
}

/// CUDA_BATCH_MEM_OP_NODE_PARAMS.
#[repr(C)]
struct Batch {
    context: CUcontext,
    count: c_uint,
    operations: *mut Operation,
    flags: c_uint,
}

/// CUDA_KERNEL_NODE_PARAMS_v2.
#[repr(C)]
struct Kernel {
    function: CUfunction,
    shape: [c_uint; 6],
    shared_bytes: c_uint,
    parameters: *mut c_void,
    extra: *mut c_void,
    kernel: *mut c_void,
    context: CUcontext,
}

/// CUgraphEdgeData.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct EdgeData {
    from_port: u8,
    to_port: u8,
    kind: u8,
    reserved: [u8; 5],
}

/// CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER.
const LAUNCH_ORDER: u8 = 2;

/// An edge between nodes, given by their positions.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Edge {
    from: usize,
    to: usize,
    data: EdgeData,
}

const _: () = assert!(size_of::<EdgeData>() == 8);
const _: () = assert!(size_of::<Operation>() == 48 && size_of::<Batch>() == 32 && size_of::<Kernel>() == 72);

functions! {
    /// Functions of the driver, with signatures as in cuda.h. The newest is of CUDA 12.0.
    struct Plain -> CUresult;
    needed {
        clone: c"cuGraphClone" (*mut CUgraph, CUgraph);
        destroy: c"cuGraphDestroy" (CUgraph);
        find_in_clone: c"cuGraphNodeFindInClone" (*mut CUgraphNode, CUgraphNode, CUgraph);
        get_nodes: c"cuGraphGetNodes" (CUgraph, *mut CUgraphNode, *mut usize);
        get_edges: c"cuGraphGetEdges" (CUgraph, *mut CUgraphNode, *mut CUgraphNode, *mut usize);
        node_type: c"cuGraphNodeGetType" (CUgraphNode, *mut c_int);
        kernel_parameters: c"cuGraphKernelNodeGetParams_v2" (CUgraphNode, *mut Kernel);
        kernel_attribute: c"cuGraphKernelNodeGetAttribute" (CUgraphNode, c_uint, *mut [u32; ATTRIBUTE_WORDS]);
        remove_edges: c"cuGraphRemoveDependencies" (CUgraph, *const CUgraphNode, *const CUgraphNode, usize);
        add_edges: c"cuGraphAddDependencies" (CUgraph, *const CUgraphNode, *const CUgraphNode, usize);
        add_batch: c"cuGraphAddBatchMemOpNode" (*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const Batch);
    }
}

functions! {
    /// Functions of CUDA 12.3 that handle edges with data.
    struct WithData -> CUresult;
    needed {
        get_edges: c"cuGraphGetEdges_v2" (CUgraph, *mut CUgraphNode, *mut CUgraphNode, *mut EdgeData, *mut usize);
        remove_edges: c"cuGraphRemoveDependencies_v2"
            (CUgraph, *const CUgraphNode, *const CUgraphNode, *const EdgeData, usize);
    }
}

/// Functions of the driver.
pub(super) struct Functions {
    plain: Plain,
    with_data: Option<WithData>,
}

/// Reason why a graph stays as it is.
pub(super) type Refusal = &'static str;

fn check(rc: CUresult, otherwise: Refusal) -> Result<(), Refusal> {
    if rc == SUCCESS { Ok(()) } else { Err(otherwise) }
}

impl Functions {
    /// Functions of the driver that has a function at `address`; a process has one driver.
    pub(super) fn of(address: usize) -> Result<&'static Functions, Refusal> {
        static FOUND: AtomicPtr<Functions> = AtomicPtr::new(std::ptr::null_mut());
        if FOUND.load(Acquire).is_null() {
            // Without a lock, so that no thread waits while another calls the loader; two threads may do the same work.
            // SAFETY: the driver's functions have cuda.h's signatures.
            let plain =
                unsafe { Plain::load(search_beside(address)) }.map_err(|_| "the driver is older than CUDA 12.0")?;
            // SAFETY: as above.
            let with_data = unsafe { WithData::load(search_beside(address)) }.ok();
            let found = Functions { plain, with_data };
            FOUND.store(Box::into_raw(Box::new(found)), Release);
        }
        // SAFETY: leaked when stored, never freed.
        Ok(unsafe { &*FOUND.load(Acquire) })
    }

    fn nodes(&self, graph: CUgraph) -> Result<Vec<CUgraphNode>, Refusal> {
        let mut count = 0;
        // SAFETY: a null list asks for the number alone; then the list has room for that many.
        unsafe {
            check((self.plain.get_nodes)(graph, std::ptr::null_mut(), &mut count), "its nodes are not told")?;
            let mut nodes = vec![std::ptr::null_mut(); count];
            check((self.plain.get_nodes)(graph, nodes.as_mut_ptr(), &mut count), "its nodes are not told")?;
            nodes.truncate(count);
            Ok(nodes)
        }
    }

    /// Edges between nodes, by their positions in `nodes`. A driver without edge data reports no edges that have some.
    fn edges(&self, graph: CUgraph, nodes: &[CUgraphNode]) -> Result<Vec<Edge>, Refusal> {
        const REFUSED: Refusal = "its edges are not told, or mean something that this driver does not tell";
        let get = |from: *mut CUgraphNode, to: *mut CUgraphNode, data: *mut EdgeData, count: &mut usize| {
            // SAFETY: null lists ask for the number alone; others have room for as many as `count` says.
            let rc = unsafe {
                match &self.with_data {
                    Some(functions) => (functions.get_edges)(graph, from, to, data, count),
                    None => (self.plain.get_edges)(graph, from, to, count),
                }
            };
            check(rc, REFUSED)
        };
        let (mut count, none) = (0, std::ptr::null_mut());
        get(none, none, std::ptr::null_mut(), &mut count)?;
        let mut from: Vec<CUgraphNode> = vec![std::ptr::null_mut(); count];
        let (mut to, mut data) = (from.clone(), vec![EdgeData::default(); count]);
        get(from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr(), &mut count)?;
        let places: HashMap<CUgraphNode, usize> = nodes.iter().enumerate().map(|(i, node)| (*node, i)).collect();
        let edges = from.iter().zip(&to).zip(data).take(count);
        let place = |node: &CUgraphNode| places.get(node).copied().ok_or(REFUSED);
        edges.map(|((from, to), data)| Ok(Edge { from: place(from)?, to: place(to)?, data })).collect()
    }

    /// Expected length of a kernel node, in ns; `None` for another kind of node.
    fn weight(&self, node: CUgraphNode, expected_ns: &dyn Fn(u64) -> Option<u64>) -> Result<Option<u64>, Refusal> {
        let mut kind = -1;
        // SAFETY: a node of the application's graph; pointer to a local.
        check(unsafe { (self.plain.node_type)(node, &mut kind) }, "its nodes are not told")?;
        if !KNOWN_TYPES.contains(&kind) {
            return Err("it has graphs, memory or conditions in it");
        }
        if kind != KERNEL {
            return Ok(None);
        }
        let mut value = [0; ATTRIBUTE_WORDS];
        // SAFETY: room for any attribute. A driver that does not know this one has no such nodes.
        let asked = unsafe { (self.plain.kernel_attribute)(node, DEVICE_UPDATABLE, &mut value) };
        if asked == SUCCESS && value[0] != 0 {
            return Err("the device itself changes it");
        }
        // SAFETY: all zeros is a value of this structure.
        let mut found: Kernel = unsafe { std::mem::zeroed() };
        // SAFETY: a kernel node; pointer to a local.
        check(unsafe { (self.plain.kernel_parameters)(node, &mut found) }, "its kernels are not told")?;
        // CUDA's runtime launches kernels of libraries, not functions of contexts. The driver returns both handles, and
        // the expected duration is stored under the one that was launched.
        let lengths = [found.kernel, found.function].map(|handle| expected_ns(kernel_key(handle, &found.shape)));
        Ok(Some(lengths.into_iter().flatten().next().unwrap_or(UNKNOWN_INSIDE_NS)))
    }

    fn found_in(&self, node: CUgraphNode, clone: &GraphClone) -> Result<CUgraphNode, Refusal> {
        let mut found = std::ptr::null_mut();
        // SAFETY: a node of a graph, and a clone of that graph; pointer to a local.
        check(unsafe { (self.plain.find_in_clone)(&mut found, node, clone.graph()) }, "its clone has other nodes")?;
        Ok(found)
    }
}

/// Location of a gate's word: device address and context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gate {
    pub(super) address: CUdeviceptr,
    /// Device address of a word that is 1 while the device waits at the gate, if that is to be reported.
    pub(super) held: Option<CUdeviceptr>,
    pub(super) context: usize,
}

/// A clone of an application's graph, destroyed on drop.
pub(super) struct GraphClone {
    graph: usize,
    functions: &'static Functions,
}

impl GraphClone {
    fn of(graph: CUgraph, functions: &'static Functions) -> Result<GraphClone, Refusal> {
        let mut clone = std::ptr::null_mut();
        // SAFETY: the application's graph; pointer to a local.
        check(unsafe { (functions.plain.clone)(&mut clone, graph) }, "it cannot be cloned")?;
        Ok(GraphClone { graph: clone as usize, functions })
    }

    pub(super) fn graph(&self) -> CUgraph {
        self.graph as CUgraph
    }

    /// Node of the clone that corresponds to a node of the original; the node itself if there is none.
    pub(super) fn translated(&self, node: CUgraphNode) -> CUgraphNode {
        self.functions.found_in(node, self).unwrap_or(node)
    }
}

impl Drop for GraphClone {
    fn drop(&mut self) {
        // SAFETY: made by us, and not used elsewhere.
        unsafe { (self.functions.plain.destroy)(self.graph()) };
    }
}

/// A clone of a graph, with gates.
pub(super) struct Gated {
    pub(super) clone: GraphClone,
    /// Number of nodes of the original, and the positions of those with gates, in the order in which the driver lists
    /// them.
    nodes: usize,
    places: Vec<usize>,
    gate: Gate,
    /// Longest part without a gate, as a fraction of the longest path in units of 1/[`PARTS`].
    pub(super) part: u16,
}

impl Gated {
    /// Clones a graph and places gates in the clone, so that no path has more than `limit_ns` of kernels (or a single
    /// longer kernel) without a gate. `None`: the graph needs none.
    pub(super) fn of(
        functions: &'static Functions,
        graph: CUgraph,
        gate: Gate,
        limit_ns: u64,
        expected_ns: &dyn Fn(u64) -> Option<u64>,
    ) -> Result<Option<Gated>, Refusal> {
        let nodes = functions.nodes(graph)?;
        let weights: Vec<Option<u64>> =
            nodes.iter().map(|node| functions.weight(*node, expected_ns)).collect::<Result<_, _>>()?;
        let edges = functions.edges(graph, &nodes)?;
        let (places, longest) = gated_places(&weights, &edges, limit_ns).ok_or("its edges go in a circle")?;
        if places.is_empty() {
            return Ok(None);
        }
        let whole = gated_places(&weights, &edges, u64::MAX).map_or(1, |(_, whole)| whole.max(1));
        let part = (longest.saturating_mul(PARTS.into()) / whole).clamp(1, PARTS.into()) as u16;
        // With several branches, one may be held while another runs.
        let held = gate.held.filter(|_| is_chain(nodes.len(), &edges));
        let with = |gate: Gate| {
            let clone = GraphClone::of(graph, functions)?;
            put(&clone, &nodes, &edges, &places, gate)?;
            Ok((clone, gate))
        };
        let made = with(Gate { held, ..gate });
        let (clone, gate) = if made.is_err() && held.is_some() { with(Gate { held: None, ..gate })? } else { made? };
        Ok(Some(Gated { clone, nodes: nodes.len(), places, gate, part }))
    }

    /// Reports whether a word shows that the graph is held at one of its gates.
    pub(super) fn tells(&self) -> bool {
        self.gate.held.is_some()
    }

    /// Clones another version of the graph, and places gates before the same nodes.
    pub(super) fn like(&self, graph: CUgraph) -> Result<Gated, Refusal> {
        const OTHER: Refusal = "it is another graph";
        let functions = self.clone.functions;
        let nodes = functions.nodes(graph)?;
        if nodes.len() != self.nodes {
            return Err(OTHER);
        }
        let edges = functions.edges(graph, &nodes)?;
        let clone = GraphClone::of(graph, functions)?;
        put(&clone, &nodes, &edges, &self.places, self.gate)?;
        Ok(Gated { clone, nodes: nodes.len(), places: self.places.clone(), gate: self.gate, part: self.part })
    }
}

/// Original of a node of the clone; null if it is a gate.
pub(super) fn original(gated: &Gated, graph: CUgraph, node: CUgraphNode) -> CUgraphNode {
    let functions = gated.clone.functions;
    let mut nodes = functions.nodes(graph).unwrap_or_default().into_iter();
    nodes.find(|n| functions.found_in(*n, &gated.clone) == Ok(node)).unwrap_or(std::ptr::null_mut())
}

/// Places a gate before each node at `places`.
fn put(clone: &GraphClone, nodes: &[CUgraphNode], edges: &[Edge], places: &[usize], gate: Gate) -> Result<(), Refusal> {
    const REFUSED: Refusal = "the driver takes no gates in it";
    let mut ahead = vec![Vec::new(); nodes.len()];
    for edge in edges {
        ahead[edge.to].push(edge);
    }
    let (functions, graph) = (clone.functions, clone.graph());
    let twin = |place: usize| functions.found_in(nodes[place], clone);
    let (mut gates, mut behind) = (Vec::new(), Vec::new());
    for &place in places {
        let node = twin(place)?;
        let before: Vec<CUgraphNode> = ahead[place].iter().map(|edge| twin(edge.from)).collect::<Result<_, _>>()?;
        let data: Vec<EdgeData> = ahead[place].iter().map(|edge| edge.data).collect();
        if before.is_empty() {
            return Err("nothing comes before a node that is to have a gate");
        }
        let open = xsched_proto::gate::Gate::DEVICE_OPEN.bits();
        let mark = |value| gate.held.map(|held| Operation::of(WRITE_VALUE_32, held, value, WRITE_DEFAULT));
        let wait = Operation::of(WAIT_VALUE_32, gate.address, open, WAIT_AND);
        let mut operations: Vec<Operation> = mark(1).into_iter().chain([wait]).chain(mark(0)).collect();
        let (count, list) = (operations.len() as c_uint, operations.as_mut_ptr());
        let batch = Batch { context: gate.context as CUcontext, count, operations: list, flags: 0 };
        let mut made = std::ptr::null_mut();
        // SAFETY: nodes of our clone, in lists of the lengths passed; the driver copies the operations.
        unsafe {
            let to = vec![node; before.len()];
            let removed = match &functions.with_data {
                Some(f) => (f.remove_edges)(graph, before.as_ptr(), to.as_ptr(), data.as_ptr(), before.len()),
                None => (functions.plain.remove_edges)(graph, before.as_ptr(), to.as_ptr(), before.len()),
            };
            check(removed, REFUSED)?;
            check((functions.plain.add_batch)(&mut made, graph, before.as_ptr(), before.len(), &batch), REFUSED)?;
        }
        gates.push(made);
        behind.push(node);
    }
    // SAFETY: as above.
    check(unsafe { (functions.plain.add_edges)(graph, gates.as_ptr(), behind.as_ptr(), gates.len()) }, REFUSED)
}

/// Reports whether the nodes form a chain, given edges without circles.
fn is_chain(nodes: usize, edges: &[Edge]) -> bool {
    let mut ends = vec![(0, 0); nodes];
    for edge in edges {
        ends[edge.from].0 += 1;
        ends[edge.to].1 += 1;
    }
    edges.len() + 1 == nodes && ends.iter().all(|(after, before)| *after <= 1 && *before <= 1)
}

/// Chooses the nodes that get a gate. A path has at most `limit` between two gates, unless a single kernel is longer,
/// or kernels that are launched in order are. Only kernels (nodes with a weight) that have a predecessor get gates.
/// Returns their positions, and the length of the longest part without a gate; `None` if the edges form a circle.
fn gated_places(weights: &[Option<u64>], edges: &[Edge], limit: u64) -> Option<(Vec<usize>, u64)> {
    let mut after = vec![Vec::new(); weights.len()];
    let mut missing = vec![0usize; weights.len()];
    let mut joined = vec![false; weights.len()];
    for &Edge { from, to, data } in edges {
        after[from].push(to);
        missing[to] += 1;
        joined[to] |= data.from_port == LAUNCH_ORDER;
    }
    // Length of the longest path since the last gate before each node, and whether the node has a predecessor.
    let (mut ungated, mut inner) = (vec![0u64; weights.len()], vec![false; weights.len()]);
    let mut ready: Vec<usize> = (0..weights.len()).filter(|node| missing[*node] == 0).collect();
    let (mut found, mut seen, mut longest) = (Vec::new(), 0, 0);
    while let Some(node) = ready.pop() {
        seen += 1;
        let mut sum = ungated[node];
        if let Some(weight) = weights[node] {
            if inner[node] && !joined[node] && sum > 0 && sum + weight > limit {
                found.push(node);
                sum = 0;
            }
            sum += weight.max(1);
            longest = longest.max(sum);
        }
        for &next in &after[node] {
            ungated[next] = ungated[next].max(sum);
            inner[next] = true;
            missing[next] -= 1;
            if missing[next] == 0 {
                ready.push(next);
            }
        }
    }
    found.sort_unstable();
    (seen == weights.len()).then_some((found, longest))
}

#[cfg(test)]
mod tests {
    use super::{Edge, EdgeData, LAUNCH_ORDER, gated_places, is_chain};

    fn places(weights: &[Option<u64>], edges: &[Edge], limit: u64) -> Option<Vec<usize>> {
        gated_places(weights, edges, limit).map(|(places, _)| places)
    }

    fn edges(ends: &[(usize, usize)]) -> Vec<Edge> {
        ends.iter().map(|&(from, to)| Edge { from, to, data: EdgeData::default() }).collect()
    }

    fn chain(n: usize) -> Vec<Edge> {
        edges(&(1..n).map(|i| (i - 1, i)).collect::<Vec<_>>())
    }

    #[test]
    fn a_chain_has_a_gate_for_each_limits_worth() {
        let weights = vec![Some(100); 10];
        assert_eq!(places(&weights, &chain(10), 300), Some(vec![3, 6, 9]));
        assert_eq!(places(&weights, &chain(10), 0), Some((1..10).collect()), "before each but the first");
        assert_eq!(places(&weights, &chain(10), 1000), Some(vec![]));
        assert_eq!(places(&[Some(900); 3], &chain(3), 300), Some(vec![1, 2]), "long ones each");
    }

    #[test]
    fn what_is_no_kernel_neither_counts_nor_gets_one() {
        let weights = [None, Some(200), None, Some(200), None];
        assert_eq!(places(&weights, &chain(5), 300), Some(vec![3]));
        assert_eq!(places(&[None, Some(200)], &chain(2), 0), Some(vec![]), "no kernel comes before");
    }

    #[test]
    fn every_path_counts_for_itself() {
        // A long and a short branch from one fork to one join.
        let edges = edges(&[(0, 1), (1, 2), (2, 5), (0, 3), (3, 5), (5, 4)]);
        let weights = [Some(100), Some(150), Some(150), Some(10), Some(100), Some(100)];
        assert_eq!(places(&weights, &edges, 250), Some(vec![2, 4]));
    }

    #[test]
    fn the_longest_part_lies_between_two_gates_or_is_a_single_kernel() {
        let longest = |weights: &[Option<u64>], limit| gated_places(weights, &chain(weights.len()), limit).unwrap().1;
        assert_eq!(longest(&[Some(100); 10], 300), 300);
        assert_eq!(longest(&[Some(100); 10], u64::MAX), 1000, "all of it");
        assert_eq!(longest(&[Some(100), Some(900), Some(100)], 300), 900);
    }

    #[test]
    fn branches_are_no_chain() {
        assert!(is_chain(1, &[]) && is_chain(3, &chain(3)) && is_chain(3, &edges(&[(2, 0), (0, 1)])));
        assert!(!is_chain(3, &edges(&[(0, 1), (0, 2)])) && !is_chain(3, &edges(&[(0, 2), (1, 2)])));
        assert!(!is_chain(4, &edges(&[(0, 1), (2, 3)])));
    }

    #[test]
    fn a_circle_is_none_of_ours() {
        assert_eq!(places(&[Some(1), Some(1)], &edges(&[(0, 1), (1, 0)]), 0), None);
    }

    #[test]
    fn what_is_launched_together_is_not_parted() {
        let mut together = chain(4);
        together[1].data.from_port = LAUNCH_ORDER;
        assert_eq!(places(&[Some(100); 4], &together, 0), Some(vec![1, 3]));
    }
}
