//! Graphs: the driver's graphs under handles of this library.

use crate::driver::params::UpdateResult;
use crate::edge::{Null, gave};
use crate::note::{Note, Work};
use crate::registry::Registry;
use crate::result::{Error, Result};
use crate::runtime::{current_number, driver, lock, runtime};
use crate::stats::{self, COUNTERS};
use crate::stream::Target;
use fakecuda::{In, Out};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint};
use std::sync::{Arc, LazyLock, Mutex};

/// A graph under a handle of this library.
pub(crate) struct Graph {
    pub(crate) handle: usize,
    pub(crate) real: usize,
    /// Parameters of nodes, by the driver's handle of the node.
    notes: Mutex<HashMap<usize, Note>>,
}

/// A node: the object behind a `hipGraphNode_t`.
pub(crate) struct Node {
    /// Handle of its graph.
    pub(crate) graph: usize,
    pub(crate) real: usize,
}

/// A node of an executable graph.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    /// The driver's handle of the node in the graph that was instantiated.
    node: usize,
    pub(crate) work: Work,
    pub(crate) enabled: bool,
}

/// The nodes of an executable graph, and the sum of their work in a launch.
pub(crate) struct Parts {
    list: Vec<Part>,
    total: Work,
}

impl Parts {
    fn new(list: Vec<Part>) -> Self {
        let mut total = Work::default();
        list.iter().filter(|part| part.enabled).for_each(|part| total.add(part.work));
        Self { list, total }
    }

    /// Changes the part of a node, and updates the sum.
    pub(crate) fn change(&mut self, node: usize, how: impl FnOnce(&mut Part)) {
        self.list.iter_mut().find(|part| part.node == node).map(how);
        *self = Self::new(std::mem::take(&mut self.list));
    }
}

/// An executable graph.
pub(crate) struct Exec {
    pub(crate) real: usize,
    pub(crate) device: usize,
    pub(crate) parts: Mutex<Parts>,
}

static GRAPHS: LazyLock<Registry<Graph>> = LazyLock::new(Registry::new);

/// Graphs by handle.
pub(crate) fn graphs() -> Result<&'static Registry<Graph>> {
    runtime().map(|_| &*GRAPHS)
}

static NODES: LazyLock<Registry<Node>> = LazyLock::new(Registry::new);

/// Nodes by handle.
pub(crate) fn nodes() -> Result<&'static Registry<Node>> {
    runtime().map(|_| &*NODES)
}

static EXECS: LazyLock<Registry<Exec>> = LazyLock::new(Registry::new);

/// Executable graphs by handle.
pub(crate) fn execs() -> Result<&'static Registry<Exec>> {
    runtime().map(|_| &*EXECS)
}

impl Graph {
    /// The graph with this handle of the driver. It is added if it is new.
    pub(crate) fn known(real: usize) -> Result<Arc<Self>> {
        let graphs = graphs()?;
        if let Some(graph) = graphs.find(|graph| graph.real == real) {
            return Ok(graph);
        }
        Ok(graphs.add(|handle| Self { handle, real, notes: Mutex::default() }))
    }

    /// Removes the graph with this handle of the driver, which has reused it for a new graph.
    pub(crate) fn forget(real: usize) -> Result<()> {
        if let Some(old) = graphs()?.find(|graph| graph.real == real) {
            graphs()?.remove(old.handle);
            nodes()?.remove_if(|node| node.graph == old.handle);
        }
        Ok(())
    }

    pub(crate) fn find(handle: usize) -> Result<Arc<Self>> {
        match graphs()?.get(handle) {
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

    /// Parameters that are kept for a node.
    pub(crate) fn note_of(&self, node: usize) -> Option<Note> {
        lock(&self.notes).get(&node).cloned()
    }

    pub(crate) fn note(&self, node: usize, note: Note) {
        lock(&self.notes).insert(node, note);
    }

    fn parts(&self) -> Result<Vec<Part>> {
        let part = |node| {
            let work = Work::of(kind(node)?, self.note_of(node).as_ref());
            Ok(Part { node, work, enabled: true })
        };
        self.nodes()?.into_iter().map(part).collect()
    }

    /// Adds a node that the driver has created, and stores its handle.
    pub(crate) fn added(self: &Arc<Self>, node: usize, note: Option<Note>, out: Out<usize>) -> Result<()> {
        if let Some(note) = note {
            self.note(node, note);
        }
        Ok(out.put(node_handle(self, node)?)?)
    }
}

/// Handle for a driver's node. It is added if it is new.
pub(crate) fn node_handle(graph: &Arc<Graph>, real: usize) -> Result<usize> {
    let nodes = nodes()?;
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

pub(crate) fn node(handle: usize) -> Result<Arc<Node>> {
    nodes()?.get(handle).ok_or(Error::INVALID_VALUE)
}

/// hipGraphNodeType of a driver's node: the driver uses the same numbers.
pub(crate) fn kind(node: usize) -> Result<c_int> {
    let mut kind = 0;
    driver()?.graph_node_type(node, &raw mut kind)?;
    Ok(kind)
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
    graphs()?.remove(handle);
    nodes()?.remove_if(|node| node.graph == handle);
    driver()?.graph_destroy(graph.real)
}

pub(crate) fn clone(out: Out<usize>, original: usize) -> Result<()> {
    let (out, original) = (out.required()?, Graph::find(original)?);
    let mut real = 0;
    driver()?.graph_clone(&raw mut real, original.real)?;
    let copy = Graph::known(real)?;
    // The driver lists the nodes of a graph and of its clone in the same order.
    let notes = lock(&original.notes).clone();
    for (from, to) in original.nodes()?.into_iter().zip(copy.nodes()?) {
        if let Some(note) = notes.get(&from) {
            copy.note(to, note.clone());
        }
    }
    Ok(out.put(copy.handle)?)
}

pub(crate) fn add_empty(out: Out<usize>, graph: usize, after: In<usize>, count: usize) -> Result<()> {
    let (out, graph, after) = (out.required()?, Graph::find(graph)?, real_nodes(after, count)?);
    let mut node = 0;
    driver()?.graph_add_empty(&raw mut node, graph.real, after.as_ptr(), after.len())?;
    graph.added(node, None, out)
}

pub(crate) fn add_child(out: Out<usize>, graph: usize, after: In<usize>, count: usize, child: usize) -> Result<()> {
    let (out, graph, after) = (out.required()?, Graph::find(graph)?, real_nodes(after, count)?);
    let (child, mut node) = (Graph::find(child)?, 0);
    let work = Parts::new(child.parts()?).total;
    driver()?.graph_add_child(&raw mut node, graph.real, after.as_ptr(), after.len(), child.real)?;
    graph.added(node, Some(Note::Child(work)), out)
}

pub(crate) fn add_dependencies(graph: usize, from: In<usize>, to: In<usize>, count: usize) -> Result<()> {
    let (graph, from, to) = (Graph::find(graph)?, real_nodes(from, count)?, real_nodes(to, count)?);
    driver()?.graph_add_dependencies(graph.real, from.as_ptr(), to.as_ptr(), count)
}

pub(crate) fn remove_dependencies(graph: usize, from: In<usize>, to: In<usize>, count: usize) -> Result<()> {
    let (graph, from, to) = (Graph::find(graph)?, real_nodes(from, count)?, real_nodes(to, count)?);
    driver()?.graph_remove_dependencies(graph.real, from.as_ptr(), to.as_ptr(), count)
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

/// The driver's nodes at the beginnings, and at the ends, of all edges.
fn edges(graph: &Graph) -> Result<(Vec<usize>, Vec<usize>)> {
    let mut length = 0;
    driver()?.graph_edges(graph.real, std::ptr::null_mut(), std::ptr::null_mut(), &raw mut length)?;
    let (mut froms, mut tos) = (vec![0; length], vec![0; length]);
    driver()?.graph_edges(graph.real, froms.as_mut_ptr(), tos.as_mut_ptr(), &raw mut length)?;
    Ok((froms, tos))
}

/// Lists the nodes on which a node depends.
pub(crate) fn get_dependencies(handle: usize, nodes: Out<usize>, count: Out<usize>) -> Result<()> {
    let node = node(handle)?;
    let graph = Graph::find(node.graph)?;
    let (froms, tos) = edges(&graph)?;
    let before: Vec<usize> = froms.into_iter().zip(tos).filter(|edge| edge.1 == node.real).map(|edge| edge.0).collect();
    list_nodes(&graph, &before, nodes, count.required()?)
}

/// Lists the nodes that depend on a node.
pub(crate) fn get_dependent_nodes(handle: usize, nodes: Out<usize>, count: Out<usize>) -> Result<()> {
    let node = node(handle)?;
    let graph = Graph::find(node.graph)?;
    let (froms, tos) = edges(&graph)?;
    let behind: Vec<usize> = froms.into_iter().zip(tos).filter(|edge| edge.0 == node.real).map(|edge| edge.1).collect();
    list_nodes(&graph, &behind, nodes, count.required()?)
}

pub(crate) fn find_in_clone(out: Out<usize>, handle: usize, clone: usize) -> Result<()> {
    let (out, node, clone) = (out.required()?, node(handle)?, Graph::find(clone)?);
    let mut found = 0;
    driver()?.graph_find_in_clone(&raw mut found, node.real, clone.real)?;
    Ok(out.put(node_handle(&clone, found)?)?)
}

pub(crate) fn get_edges(graph: usize, from: Out<usize>, to: Out<usize>, count: Out<usize>) -> Result<()> {
    let (graph, count) = (Graph::find(graph)?, count.required()?);
    let (froms, tos) = edges(&graph)?;
    let length = froms.len();
    if from.is_null() || to.is_null() {
        return Ok(count.put(length)?);
    }
    let room = count.read()?.min(length);
    let known =
        |real: &[usize]| -> Result<Vec<usize>> { real[..room].iter().map(|&node| node_handle(&graph, node)).collect() };
    from.list(known(&froms)?);
    to.list(known(&tos)?);
    Ok(count.put(room)?)
}

pub(crate) fn node_type(handle: usize, out: Out<c_int>) -> Result<()> {
    Ok(out.put(kind(node(handle)?.real)?)?)
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

/// Instantiates a graph. The flags AutoFreeOnLaunch (1) and UseNodePriority (8) are accepted and have no effect here.
pub(crate) fn instantiate_with_flags(out: Out<usize>, graph: usize, flags: u64) -> Result<()> {
    let (out, graph) = (out.required()?, Graph::find(graph)?);
    if flags & !9 != 0 {
        return Err(Error::NOT_SUPPORTED);
    }
    let (mut real, mut handle) = (0, 0);
    driver()?.graph_instantiate(&raw mut real, graph.real, 0)?;
    let (device, parts) = (current_number(), Mutex::new(Parts::new(graph.parts()?)));
    execs()?.add(|made| {
        handle = made;
        Exec { real, device, parts }
    });
    Ok(out.put(handle)?)
}

pub(crate) fn find_exec(handle: usize) -> Result<Arc<Exec>> {
    match execs()?.get(handle) {
        Some(exec) => Ok(exec),
        None if handle == 0 => Err(Error::INVALID_VALUE),
        None => stats::wrong(&format!("executable graph {handle:#x} does not exist"), Error::INVALID_VALUE),
    }
}

pub(crate) fn exec_destroy(handle: usize) -> Result<()> {
    let exec = find_exec(handle)?;
    execs()?.remove(handle);
    driver()?.graph_exec_destroy(exec.real)
}

pub(crate) fn exec_update(exec: usize, graph: usize, node: Out<usize>, result: Out<c_int>) -> Result<()> {
    let (exec, graph) = (find_exec(exec)?, Graph::find(graph)?);
    let mut info = UpdateResult::default();
    let updated = driver()?.graph_exec_update(exec.real, graph.real, &raw mut info);
    node.maybe(if info.node == 0 { 0 } else { node_handle(&graph, info.node)? });
    result.maybe(info.result);
    updated?;
    let parts = &mut lock(&exec.parts);
    let same = parts.list.iter().zip(graph.parts()?);
    let list = same.map(|(old, new)| Part { work: new.work, ..*old }).collect();
    **parts = Parts::new(list);
    Ok(())
}

pub(crate) fn launch(null: Null, exec: usize, stream: usize) -> Result<()> {
    let (exec, target) = (find_exec(exec)?, Target::find(null, stream)?);
    let work = lock(&exec.parts).total;
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
