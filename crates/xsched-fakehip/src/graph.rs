//! Graphs: the driver's, by handles of this library.

use crate::edge::{Null, gave};
use crate::kernel::{self, Kernel};
use crate::launch::{Arguments, shape};
use crate::memory;
use crate::register::{self, Dim3};
use crate::result::{Error, Result};
use crate::runtime::{current, current_number, driver, lock, runtime};
use crate::stats::{self, COUNTERS};
use crate::stream::Target;
use fakecuda::{In, Out};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::{Arc, Mutex};

/// A graph.
pub(crate) struct Graph {
    pub(crate) handle: usize,
    real: usize,
    /// Kernels that stand in for others, and kinds of nodes that the driver has as something else, by its node.
    notes: Mutex<HashMap<usize, Note>>,
}

/// What this library knows of a node and the driver does not.
#[derive(Clone, Copy)]
enum Note {
    /// A kernel without code here.
    StandIn,
    /// hipGraphNodeType of a node that is a graph of one command for the driver.
    Kind(c_int),
    /// Commands of a graph within.
    Child(Work),
}

/// What a `hipGraphNode_t` names.
pub(crate) struct Node {
    /// Handle of its graph.
    pub(crate) graph: usize,
    real: usize,
}

/// Commands of a launch.
#[derive(Clone, Copy, Default)]
struct Work {
    kernels: u64,
    unknown: u64,
    copies: u64,
    sets: u64,
}

impl Work {
    fn add(&mut self, other: Self) {
        self.kernels += other.kernels;
        self.unknown += other.unknown;
        self.copies += other.copies;
        self.sets += other.sets;
    }
}

/// A graph made ready to be launched.
pub(crate) struct Exec {
    real: usize,
    pub(crate) device: usize,
    work: Mutex<Work>,
}

/// hipGraphNodeType, like the driver's.
const KERNEL: c_int = 0;
const COPY: c_int = 1;
const SET: c_int = 2;

impl Graph {
    /// The graph of a driver's handle, made known if it is new.
    pub(crate) fn known(real: usize) -> Result<Arc<Self>> {
        let graphs = &runtime()?.graphs;
        if let Some(graph) = graphs.find(|graph| graph.real == real) {
            return Ok(graph);
        }
        Ok(graphs.add(|handle| Self { handle, real, notes: Mutex::default() }))
    }

    fn find(handle: usize) -> Result<Arc<Self>> {
        match runtime()?.graphs.get(handle) {
            Some(graph) => Ok(graph),
            None if handle == 0 => Err(Error::INVALID_VALUE),
            None => stats::wrong(&format!("graph {handle:#x} does not exist"), Error::INVALID_VALUE),
        }
    }

    fn nodes(&self) -> Result<Vec<usize>> {
        let mut count = 0;
        driver()?.graph_nodes(self.real, std::ptr::null_mut(), &raw mut count)?;
        let mut nodes = vec![0; count];
        driver()?.graph_nodes(self.real, nodes.as_mut_ptr(), &raw mut count)?;
        Ok(nodes)
    }

    fn kind(&self, node: usize) -> Result<c_int> {
        if let Some(Note::Kind(kind)) = lock(&self.notes).get(&node) {
            return Ok(*kind);
        }
        let mut kind = 0;
        driver()?.graph_node_type(node, &raw mut kind)?;
        Ok(kind)
    }

    /// What a launch of it gives to the device. Kernels without code that a capture recorded count as kernels only.
    fn work(&self) -> Result<Work> {
        let mut work = Work::default();
        for node in self.nodes()? {
            let note = lock(&self.notes).get(&node).copied();
            match (self.kind(node)?, note) {
                (_, Some(Note::Child(inner))) => work.add(inner),
                (KERNEL, note) => {
                    work.kernels += 1;
                    work.unknown += u64::from(matches!(note, Some(Note::StandIn)));
                }
                (COPY, _) => work.copies += 1,
                (SET, _) => work.sets += 1,
                _ => {}
            }
        }
        Ok(work)
    }

    /// Makes the node known that the driver has made.
    fn added(self: &Arc<Self>, node: usize, note: Option<Note>, out: Out<usize>) -> Result<()> {
        if let Some(note) = note {
            lock(&self.notes).insert(node, note);
        }
        Ok(out.put(node_handle(self, node)?)?)
    }
}

/// The handle of a driver's node.
pub(crate) fn node_handle(graph: &Arc<Graph>, real: usize) -> Result<usize> {
    let nodes = &runtime()?.nodes;
    if let Some(handle) = nodes.handle_of(|node| node.graph == graph.handle && node.real == real) {
        return Ok(handle);
    }
    let mut made = 0;
    nodes.add(|handle| {
        made = handle;
        Node { graph: graph.handle, real }
    });
    Ok(made)
}

fn node(handle: usize) -> Result<Arc<Node>> {
    runtime()?.nodes.get(handle).ok_or(Error::INVALID_VALUE)
}

/// The driver's nodes for a list of handles.
pub(crate) fn real_nodes(list: In<usize>, count: usize) -> Result<Vec<usize>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    list.list(count)?.into_iter().map(|handle| node(handle).map(|node| node.real)).collect()
}

pub(crate) fn create(out: Out<usize>, flags: c_uint) -> Result<()> {
    let out = out.required()?;
    if flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let mut real = 0;
    driver()?.graph_create(&raw mut real, 0)?;
    Ok(out.put(Graph::known(real)?.handle)?)
}

pub(crate) fn destroy(handle: usize) -> Result<()> {
    let graph = Graph::find(handle)?;
    runtime()?.graphs.remove(handle);
    crate::capture::forget(handle)?;
    driver()?.graph_destroy(graph.real)
}

pub(crate) fn clone(out: Out<usize>, original: usize) -> Result<()> {
    let (out, original) = (out.required()?, Graph::find(original)?);
    let mut real = 0;
    driver()?.graph_clone(&raw mut real, original.real)?;
    let copy = Graph::known(real)?;
    // The nodes of both come in the same order.
    let notes = lock(&original.notes).clone();
    for (from, to) in original.nodes()?.into_iter().zip(copy.nodes()?) {
        if let Some(&note) = notes.get(&from) {
            lock(&copy.notes).insert(to, note);
        }
    }
    Ok(out.put(copy.handle)?)
}

/// `hipKernelNodeParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelParams {
    block: Dim3,
    extra: In<usize>,
    function: usize,
    grid: Dim3,
    params: In<*const c_void>,
    shared: c_uint,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[repr(C)]
pub(crate) struct DriverKernelParams {
    function: usize,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    params: *const *const c_void,
    extra: *const *const c_void,
    kernel: usize,
    context: usize,
}

/// `CUDA_HOST_NODE_PARAMS`, and `hipHostNodeParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostParams {
    function: Option<crate::driver::HostFunction>,
    data: *mut c_void,
}

pub(crate) fn add_kernel(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    params: In<KernelParams>,
) -> Result<()> {
    let (out, graph, after) = (out.required()?, Graph::find(graph)?, real_nodes(after, count)?);
    let mut node = 0;
    let has_code = with_kernel(params, |params| {
        driver()?.graph_add_kernel(&raw mut node, graph.real, after.as_ptr(), after.len(), params)
    })?;
    graph.added(node, (!has_code).then_some(Note::StandIn), out)
}

/// Tells the driver of a kernel node, in its terms. Whether there is code for the kernel.
fn with_kernel(params: In<KernelParams>, tell: impl FnOnce(*const DriverKernelParams) -> Result<()>) -> Result<bool> {
    let given = params.get()?;
    let function = register::function(given.function)?;
    let (blocks, threads) = shape(given.grid, given.block)?;
    let mut arguments = Arguments::new(function.kernel, given.params, given.extra)?;
    let (kernel, list) = arguments.for_driver(function.kernel);
    let alone = kernel == Kernel::Spin;
    let params = DriverKernelParams {
        function: kernel::on(current()?, kernel)?,
        grid: if alone { [1; 3] } else { [blocks, 1, 1] },
        block: if alone { [1; 3] } else { [threads, 1, 1] },
        shared: 0,
        params: list,
        extra: std::ptr::null(),
        kernel: 0,
        context: 0,
    };
    tell(&raw const params)?;
    Ok(function.kernel.is_some())
}

/// Other parameters for the next launches; the graph that it was made of stays as it is. A kernel without code cannot take
/// the place of one with code, nor the other way round, or the counts would be wrong.
pub(crate) fn exec_set_kernel(exec: usize, handle: usize, params: In<KernelParams>) -> Result<()> {
    let (exec, node) = (find_exec(exec)?, node(handle)?);
    let graph = Graph::find(node.graph)?;
    if graph.kind(node.real)? != KERNEL {
        return Err(Error::INVALID_VALUE);
    }
    let has_code = !matches!(lock(&graph.notes).get(&node.real), Some(Note::StandIn));
    if register::function(params.get()?.function)?.kernel.is_some() != has_code {
        return Err(Error::NOT_SUPPORTED);
    }
    with_kernel(params, |params| driver()?.graph_exec_set_kernel(exec.real, node.real, params)).map(|_| ())
}

/// A node of one command: the driver gets it as a graph of its own, recorded from a stream.
fn add_recorded(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    kind: c_int,
    record: impl FnOnce(usize) -> Result<()>,
) -> Result<()> {
    const RELAXED: c_int = 2;
    let (out, graph, after, driver) = (out.required()?, Graph::find(graph)?, real_nodes(after, count)?, driver()?);
    let (mut stream, mut inner, mut node) = (0, 0, 0);
    driver.stream_create(&raw mut stream, 1, 0)?;
    let recorded = driver.capture_begin(stream, RELAXED).and_then(|()| {
        let given = record(stream);
        driver.capture_end(stream, &raw mut inner).and(given)
    });
    driver.stream_destroy(stream)?;
    recorded?;
    let added = driver.graph_add_child(&raw mut node, graph.real, after.as_ptr(), after.len(), inner);
    driver.graph_destroy(inner)?;
    added?;
    graph.added(node, Some(Note::Kind(kind)), out)
}

#[allow(clippy::too_many_arguments)] // the runtime's
pub(crate) fn add_copy(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    dst: u64,
    src: u64,
    bytes: usize,
    kind: c_int,
) -> Result<()> {
    if dst == 0 || src == 0 || bytes == 0 {
        return Err(Error::INVALID_VALUE);
    }
    if !(0..=4).contains(&kind) {
        return Err(Error::INVALID_MEMCPY_DIRECTION);
    }
    add_recorded(out, graph, after, count, COPY, |stream| driver()?.copy_async(dst, src, bytes, stream))
}

/// `hipMemsetParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SetParams {
    dst: u64,
    unit: c_uint,
    height: usize,
    pitch: usize,
    value: c_uint,
    width: usize,
}

pub(crate) fn add_set(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    params: In<SetParams>,
) -> Result<()> {
    let SetParams { dst, unit, height, pitch, value, width } = params.get()?;
    if memory::range_of(dst).is_none() || width == 0 || height == 0 {
        return Err(Error::INVALID_VALUE);
    }
    add_recorded(out, graph, after, count, SET, |stream| {
        let driver = driver()?;
        match (unit, height) {
            (1, 1) => driver.set_8(dst, value as u8, width, stream),
            (2, 1) => driver.set_16(dst, value as u16, width, stream),
            (4, 1) => driver.set_32(dst, value, width, stream),
            (1, _) => driver.set_2d_8(dst, pitch, value as u8, width, height, stream),
            (2, _) => driver.set_2d_16(dst, pitch, value as u16, width, height, stream),
            (4, _) => driver.set_2d_32(dst, pitch, value, width, height, stream),
            _ => Err(Error::INVALID_VALUE),
        }
    })
}

pub(crate) fn add_empty(out: Out<usize>, graph: usize, after: In<usize>, count: usize) -> Result<()> {
    let (out, graph, after) = (out.required()?, Graph::find(graph)?, real_nodes(after, count)?);
    let mut node = 0;
    driver()?.graph_add_empty(&raw mut node, graph.real, after.as_ptr(), after.len())?;
    graph.added(node, None, out)
}

pub(crate) fn add_host(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    params: In<HostParams>,
) -> Result<()> {
    let (out, graph, after, params) = (out.required()?, Graph::find(graph)?, real_nodes(after, count)?, params.get()?);
    if params.function.is_none() {
        return Err(Error::INVALID_VALUE);
    }
    let mut node = 0;
    driver()?.graph_add_host(&raw mut node, graph.real, after.as_ptr(), after.len(), &raw const params)?;
    graph.added(node, None, out)
}

pub(crate) fn add_child(out: Out<usize>, graph: usize, after: In<usize>, count: usize, child: usize) -> Result<()> {
    let (out, graph, after) = (out.required()?, Graph::find(graph)?, real_nodes(after, count)?);
    let (child, mut node) = (Graph::find(child)?, 0);
    let work = child.work()?;
    driver()?.graph_add_child(&raw mut node, graph.real, after.as_ptr(), after.len(), child.real)?;
    graph.added(node, Some(Note::Child(work)), out)
}

pub(crate) fn add_dependencies(graph: usize, from: In<usize>, to: In<usize>, count: usize) -> Result<()> {
    let (graph, from, to) = (Graph::find(graph)?, real_nodes(from, count)?, real_nodes(to, count)?);
    driver()?.graph_add_dependencies(graph.real, from.as_ptr(), to.as_ptr(), count)
}

fn list_nodes(graph: &Arc<Graph>, real: &[usize], nodes: Out<usize>, count: Out<usize>) -> Result<()> {
    if nodes.is_null() {
        return Ok(count.put(real.len())?);
    }
    let room = count.read()?;
    let handles: Vec<usize> = real.iter().take(room).map(|&node| node_handle(graph, node)).collect::<Result<_>>()?;
    count.put(handles.len())?;
    nodes.list(handles);
    Ok(())
}

pub(crate) fn get_nodes(graph: usize, nodes: Out<usize>, count: Out<usize>) -> Result<()> {
    let graph = Graph::find(graph)?;
    list_nodes(&graph, &graph.nodes()?, nodes, count.required()?)
}

pub(crate) fn get_root_nodes(graph: usize, nodes: Out<usize>, count: Out<usize>) -> Result<()> {
    let graph = Graph::find(graph)?;
    let mut length = graph.nodes()?.len();
    let mut real = vec![0; length];
    driver()?.graph_root_nodes(graph.real, real.as_mut_ptr(), &raw mut length)?;
    list_nodes(&graph, &real[..length.min(real.len())], nodes, count.required()?)
}

pub(crate) fn get_edges(graph: usize, from: Out<usize>, to: Out<usize>, count: Out<usize>) -> Result<()> {
    let (graph, count) = (Graph::find(graph)?, count.required()?);
    let mut length = 0;
    driver()?.graph_edges(graph.real, std::ptr::null_mut(), std::ptr::null_mut(), &raw mut length)?;
    if from.is_null() || to.is_null() {
        return Ok(count.put(length)?);
    }
    let (mut froms, mut tos) = (vec![0; length], vec![0; length]);
    driver()?.graph_edges(graph.real, froms.as_mut_ptr(), tos.as_mut_ptr(), &raw mut length)?;
    let room = count.read()?.min(length);
    let known =
        |real: &[usize]| -> Result<Vec<usize>> { real[..room].iter().map(|&node| node_handle(&graph, node)).collect() };
    from.list(known(&froms)?);
    to.list(known(&tos)?);
    Ok(count.put(room)?)
}

pub(crate) fn node_type(handle: usize, out: Out<c_int>) -> Result<()> {
    let node = node(handle)?;
    Ok(out.put(Graph::find(node.graph)?.kind(node.real)?)?)
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
    instantiate_with_flags(out, graph, 0)
}

/// AutoFreeOnLaunch (1) and use of node priorities (8) are nothing here.
pub(crate) fn instantiate_with_flags(out: Out<usize>, graph: usize, flags: u64) -> Result<()> {
    let (out, graph) = (out.required()?, Graph::find(graph)?);
    if flags & !9 != 0 {
        return Err(Error::NOT_SUPPORTED);
    }
    let (mut real, mut handle) = (0, 0);
    driver()?.graph_instantiate(&raw mut real, graph.real, 0)?;
    let (device, work) = (current_number(), Mutex::new(graph.work()?));
    runtime()?.execs.add(|made| {
        handle = made;
        Exec { real, device, work }
    });
    Ok(out.put(handle)?)
}

fn find_exec(handle: usize) -> Result<Arc<Exec>> {
    match runtime()?.execs.get(handle) {
        Some(exec) => Ok(exec),
        None if handle == 0 => Err(Error::INVALID_VALUE),
        None => stats::wrong(&format!("executable graph {handle:#x} does not exist"), Error::INVALID_VALUE),
    }
}

pub(crate) fn exec_destroy(handle: usize) -> Result<()> {
    let exec = find_exec(handle)?;
    runtime()?.execs.remove(handle);
    driver()?.graph_exec_destroy(exec.real)
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct UpdateResult {
    result: c_int,
    node: usize,
    from: usize,
}

pub(crate) fn exec_update(exec: usize, graph: usize, node: Out<usize>, result: Out<c_int>) -> Result<()> {
    let (exec, graph) = (find_exec(exec)?, Graph::find(graph)?);
    let mut info = UpdateResult::default();
    let updated = driver()?.graph_exec_update(exec.real, graph.real, &raw mut info);
    node.maybe(0);
    result.maybe(info.result);
    updated?;
    *lock(&exec.work) = graph.work()?;
    Ok(())
}

pub(crate) fn launch(null: Null, exec: usize, stream: usize) -> Result<()> {
    let (exec, target) = (find_exec(exec)?, Target::find(null, stream)?);
    let work = *lock(&exec.work);
    let count = || {
        stats::add(&COUNTERS.graph_launches);
        stats::add_all(&COUNTERS.kernels, work.kernels);
        stats::add_all(&COUNTERS.unknown_kernels, work.unknown);
        stats::add_all(&COUNTERS.copies, work.copies);
        stats::add_all(&COUNTERS.sets, work.sets);
    };
    target.issue(count, |real| driver()?.graph_launch(exec.real, real))
}

pub(crate) fn upload(exec: usize, stream: usize) -> Result<()> {
    let (exec, target) = (find_exec(exec)?, Target::find(Null::Legacy, stream)?);
    target.with(|real| driver()?.graph_upload(exec.real, real))?;
    gave();
    Ok(())
}
