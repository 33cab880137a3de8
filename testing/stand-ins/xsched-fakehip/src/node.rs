//! Nodes of graphs: adding them, reading their parameters, and changing these.
//!
//! Parameters that a program passed are kept as they were. For copies and sets that a capture recorded, they are read
//! from the driver.

use crate::arguments::{Arguments, shape};
use crate::copy;
use crate::driver::params::{DriverCopy3d, DriverKernelParams, DriverSetParams, HostParams};
use crate::graph::{self, Exec, Graph, find_exec, node, real_nodes};
use crate::kernel::{self, Kernel};
use crate::module::functions;
use crate::note::{COPY, KERNEL, Launch, Note, SET, SetParams, Work};
use crate::register::{self, Dim3};
use crate::result::{Error, Result};
use crate::runtime::{current, driver, lock};
use crate::stream::Target;
use crate::volume::Copy3d;
use fakecuda::{In, Out};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

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

impl SetParams {
    fn for_driver(self) -> Result<DriverSetParams> {
        let Self { dst, unit, height, pitch, value, width } = self;
        if ![1, 2, 4].contains(&unit) || width == 0 || height == 0 || !dst.is_multiple_of(unit.into()) {
            return Err(Error::INVALID_VALUE);
        }
        let row = width.checked_mul(unit as usize).ok_or(Error::INVALID_VALUE)?;
        if height > 1 && pitch < row {
            return Err(Error::INVALID_VALUE);
        }
        let before = (height - 1).checked_mul(pitch).and_then(|bytes| bytes.checked_add(row));
        copy::in_memory(dst, before.ok_or(Error::INVALID_VALUE)?)?;
        // The low bytes of the value, as many as an element has.
        let value = value & (u32::MAX >> (32 - 8 * unit));
        Ok(DriverSetParams { dst, pitch, value, unit, width, height })
    }
}

/// The driver's context of this thread's device, for nodes that copy and set.
fn context() -> Result<usize> {
    Ok(current()?.context()?.handle)
}

/// The kernel of a node, named by a host address or by a module's function.
fn kernel_of(function: usize) -> Result<Option<Kernel>> {
    if function == 0 {
        return Err(Error::INVALID_VALUE);
    }
    match functions()?.get(function) {
        Some(known) => Ok(known.kernel),
        None => Ok(register::function(function)?.kernel),
    }
}

/// Translates the parameters of a kernel node and passes them to the driver by `tell`.
fn with_kernel(params: In<KernelParams>, tell: impl FnOnce(*const DriverKernelParams) -> Result<()>) -> Result<Launch> {
    let given = params.get()?;
    let wanted = kernel_of(given.function)?;
    let (blocks, threads) = shape(given.grid, given.block)?;
    let mut arguments = Arguments::new(wanted, given.params, given.extra)?;
    let note = Launch::new(given.function, wanted, (given.grid, given.block, given.shared), &arguments);
    let (kernel, list) = arguments.for_driver(wanted);
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
    Ok(note)
}

/// Keeps the arguments of a launch that a capture has recorded, at the node that its stream depends on now.
pub(crate) fn recorded(target: &Target, launch: Launch) -> Result<()> {
    if let Some((_, graph, front)) = crate::capture::front(target)?
        && let [node] = front[..]
    {
        Graph::known(graph)?.note(node, Note::Kernel(Arc::new(launch)));
    }
    Ok(())
}

/// A node that must be of this kind: its graph and the driver's handle.
fn of_kind(handle: usize, kind: c_int) -> Result<(Arc<Graph>, usize)> {
    let node = node(handle)?;
    let graph = Graph::find(node.graph)?;
    if graph::kind(node.real)? == kind { Ok((graph, node.real)) } else { Err(Error::INVALID_VALUE) }
}

fn exec_of_kind(exec: usize, handle: usize, kind: c_int) -> Result<(Arc<Exec>, usize)> {
    Ok((find_exec(exec)?, of_kind(handle, kind)?.1))
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
    let note = with_kernel(params, |params| {
        driver()?.graph_add_kernel(&raw mut node, graph.real, after.as_ptr(), after.len(), params)
    })?;
    graph.added(node, Some(Note::Kernel(Arc::new(note))), out)
}

/// The addresses of the arguments are valid until the node's parameters are changed, or the node is destroyed.
pub(crate) fn get_kernel(handle: usize, out: Out<KernelParams>) -> Result<()> {
    let (out, (graph, node)) = (out.required()?, of_kind(handle, KERNEL)?);
    let Some(Note::Kernel(launch)) = graph.note_of(node) else { return Err(Error::NOT_SUPPORTED) };
    let params = match &launch.addresses[..] {
        [] => In::NOTHING,
        list => In::from_address(list.as_ptr().expose_provenance()),
    };
    let Launch { function, grid, block, shared, .. } = *launch;
    Ok(out.put(KernelParams { block, extra: In::NOTHING, function, grid, params, shared })?)
}

pub(crate) fn set_kernel(handle: usize, params: In<KernelParams>) -> Result<()> {
    let (graph, node) = of_kind(handle, KERNEL)?;
    let note = with_kernel(params, |params| driver()?.graph_set_kernel(node, params))?;
    graph.note(node, Note::Kernel(Arc::new(note)));
    Ok(())
}

/// Changes a kernel node for the next launches. The graph that `exec` was instantiated from is unchanged.
pub(crate) fn exec_set_kernel(exec: usize, handle: usize, params: In<KernelParams>) -> Result<()> {
    let (exec, node) = exec_of_kind(exec, handle, KERNEL)?;
    let note = with_kernel(params, |params| driver()?.graph_exec_set_kernel(exec.real, node, params))?;
    lock(&exec.parts).change(node, |part| part.work = Work::kernel(note.kernel.is_some()));
    Ok(())
}

fn added_copy(out: Out<usize>, graph: usize, after: In<usize>, count: usize, copy: Copy3d) -> Result<()> {
    let (out, graph, after) = (out.required()?, Graph::find(graph)?, real_nodes(after, count)?);
    let (params, mut node) = (copy.for_driver()?, 0);
    driver()?.graph_add_copy(&raw mut node, graph.real, after.as_ptr(), after.len(), &raw const params, context()?)?;
    graph.added(node, Some(Note::Copy(copy)), out)
}

fn changed_copy(handle: usize, copy: Copy3d) -> Result<()> {
    let (graph, node) = of_kind(handle, COPY)?;
    let params = copy.for_driver()?;
    driver()?.graph_set_copy(node, &raw const params)?;
    graph.note(node, Note::Copy(copy));
    Ok(())
}

fn changed_exec_copy(exec: usize, handle: usize, copy: Copy3d) -> Result<()> {
    let (exec, node) = exec_of_kind(exec, handle, COPY)?;
    let params = copy.for_driver()?;
    driver()?.graph_exec_set_copy(exec.real, node, &raw const params, context()?)
}

pub(crate) fn add_copy(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    params: In<Copy3d>,
) -> Result<()> {
    added_copy(out, graph, after, count, params.get()?)
}

pub(crate) fn get_copy(handle: usize, out: Out<Copy3d>) -> Result<()> {
    let (out, (graph, node)) = (out.required()?, of_kind(handle, COPY)?);
    if let Some(Note::Copy(copy)) = graph.note_of(node) {
        return Ok(out.put(copy)?);
    }
    let mut params = DriverCopy3d::default();
    driver()?.graph_get_copy(node, &raw mut params)?;
    Ok(out.put(Copy3d::from_driver(&params)?)?)
}

pub(crate) fn set_copy(handle: usize, params: In<Copy3d>) -> Result<()> {
    changed_copy(handle, params.get()?)
}

pub(crate) fn exec_set_copy(exec: usize, handle: usize, params: In<Copy3d>) -> Result<()> {
    changed_exec_copy(exec, handle, params.get()?)
}

#[allow(clippy::too_many_arguments)] // the runtime's
pub(crate) fn add_copy_1d(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    dst: u64,
    src: u64,
    bytes: usize,
    kind: c_int,
) -> Result<()> {
    added_copy(out, graph, after, count, Copy3d::line(dst, src, bytes, kind))
}

pub(crate) fn set_copy_1d(handle: usize, dst: u64, src: u64, bytes: usize, kind: c_int) -> Result<()> {
    changed_copy(handle, Copy3d::line(dst, src, bytes, kind))
}

pub(crate) fn exec_set_copy_1d(
    exec: usize,
    handle: usize,
    dst: u64,
    src: u64,
    bytes: usize,
    kind: c_int,
) -> Result<()> {
    changed_exec_copy(exec, handle, Copy3d::line(dst, src, bytes, kind))
}

fn from_symbol(dst: u64, symbol: usize, bytes: usize, offset: usize, kind: c_int) -> Result<Copy3d> {
    Ok(Copy3d::line(dst, copy::in_symbol(symbol, bytes, offset)?, bytes, kind))
}

fn to_symbol(symbol: usize, src: u64, bytes: usize, offset: usize, kind: c_int) -> Result<Copy3d> {
    Ok(Copy3d::line(copy::in_symbol(symbol, bytes, offset)?, src, bytes, kind))
}

#[allow(clippy::too_many_arguments)] // the runtime's
pub(crate) fn add_copy_from_symbol(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    dst: u64,
    symbol: usize,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> Result<()> {
    added_copy(out, graph, after, count, from_symbol(dst, symbol, bytes, offset, kind)?)
}

#[allow(clippy::too_many_arguments)] // the runtime's
pub(crate) fn add_copy_to_symbol(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    symbol: usize,
    src: u64,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> Result<()> {
    added_copy(out, graph, after, count, to_symbol(symbol, src, bytes, offset, kind)?)
}

pub(crate) fn set_copy_from_symbol(
    handle: usize,
    dst: u64,
    symbol: usize,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> Result<()> {
    changed_copy(handle, from_symbol(dst, symbol, bytes, offset, kind)?)
}

pub(crate) fn set_copy_to_symbol(
    handle: usize,
    symbol: usize,
    src: u64,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> Result<()> {
    changed_copy(handle, to_symbol(symbol, src, bytes, offset, kind)?)
}

#[allow(clippy::too_many_arguments)] // the runtime's
pub(crate) fn exec_set_copy_from_symbol(
    exec: usize,
    handle: usize,
    dst: u64,
    symbol: usize,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> Result<()> {
    changed_exec_copy(exec, handle, from_symbol(dst, symbol, bytes, offset, kind)?)
}

#[allow(clippy::too_many_arguments)] // the runtime's
pub(crate) fn exec_set_copy_to_symbol(
    exec: usize,
    handle: usize,
    symbol: usize,
    src: u64,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> Result<()> {
    changed_exec_copy(exec, handle, to_symbol(symbol, src, bytes, offset, kind)?)
}

pub(crate) fn add_set(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    params: In<SetParams>,
) -> Result<()> {
    let (out, graph, after) = (out.required()?, Graph::find(graph)?, real_nodes(after, count)?);
    let (given, mut node) = (params.get()?, 0);
    let params = given.for_driver()?;
    driver()?.graph_add_set(&raw mut node, graph.real, after.as_ptr(), after.len(), &raw const params, context()?)?;
    graph.added(node, Some(Note::Set(given)), out)
}

pub(crate) fn get_set(handle: usize, out: Out<SetParams>) -> Result<()> {
    let (out, (graph, node)) = (out.required()?, of_kind(handle, SET)?);
    if let Some(Note::Set(params)) = graph.note_of(node) {
        return Ok(out.put(params)?);
    }
    let mut params = DriverSetParams::default();
    driver()?.graph_get_set(node, &raw mut params)?;
    let DriverSetParams { dst, pitch, value, unit, width, height } = params;
    Ok(out.put(SetParams { dst, unit, height, pitch, value, width })?)
}

pub(crate) fn set_set(handle: usize, params: In<SetParams>) -> Result<()> {
    let ((graph, node), given) = (of_kind(handle, SET)?, params.get()?);
    let params = given.for_driver()?;
    driver()?.graph_set_set(node, &raw const params)?;
    graph.note(node, Note::Set(given));
    Ok(())
}

pub(crate) fn exec_set_set(exec: usize, handle: usize, params: In<SetParams>) -> Result<()> {
    let (exec, node) = exec_of_kind(exec, handle, SET)?;
    let params = params.get()?.for_driver()?;
    driver()?.graph_exec_set_set(exec.real, node, &raw const params, context()?)
}

/// hipGraphNodeTypeHost.
const HOST: c_int = 3;

fn host(params: In<HostParams>) -> Result<HostParams> {
    let params = params.get()?;
    if params.function.is_some() { Ok(params) } else { Err(Error::INVALID_VALUE) }
}

pub(crate) fn add_host(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    params: In<HostParams>,
) -> Result<()> {
    let (out, graph, after) = (out.required()?, Graph::find(graph)?, real_nodes(after, count)?);
    let (params, mut node) = (host(params)?, 0);
    driver()?.graph_add_host(&raw mut node, graph.real, after.as_ptr(), after.len(), &raw const params)?;
    graph.added(node, None, out)
}

pub(crate) fn get_host(handle: usize, out: Out<HostParams>) -> Result<()> {
    let (out, (_, node)) = (out.required()?, of_kind(handle, HOST)?);
    driver()?.graph_get_host(node, out.address())
}

pub(crate) fn set_host(handle: usize, params: In<HostParams>) -> Result<()> {
    let ((_, node), params) = (of_kind(handle, HOST)?, host(params)?);
    driver()?.graph_set_host(node, &raw const params)
}

pub(crate) fn exec_set_host(exec: usize, handle: usize, params: In<HostParams>) -> Result<()> {
    let ((exec, node), params) = (exec_of_kind(exec, handle, HOST)?, host(params)?);
    driver()?.graph_exec_set_host(exec.real, node, &raw const params)
}

/// Includes a kernel, copy or set in the next launches, or leaves it out.
pub(crate) fn set_enabled(exec: usize, handle: usize, enabled: c_uint) -> Result<()> {
    let (exec, node) = (find_exec(exec)?, node(handle)?);
    driver()?.graph_set_enabled(exec.real, node.real, enabled)?;
    lock(&exec.parts).change(node.real, |part| part.enabled = enabled != 0);
    Ok(())
}

pub(crate) fn get_enabled(exec: usize, handle: usize, out: Out<c_uint>) -> Result<()> {
    let (exec, node, out) = (find_exec(exec)?, node(handle)?, out.required()?);
    driver()?.graph_get_enabled(exec.real, node.real, out.address())
}
