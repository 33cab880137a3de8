//! Stream capture. The driver records; this module translates between its handles and those of programs.

use crate::edge::Null;
use crate::graph::{self, Graph};
use crate::result::{Error, Result};
use crate::runtime::driver;
use crate::stream::{Target, capture_began, capture_ended};
use fakecuda::{In, Out};
use std::cell::RefCell;
use std::ffi::{c_int, c_uint};

/// hipStreamCaptureModeGlobal, ThreadLocal and Relaxed.
const MODES: std::ops::RangeInclusive<c_int> = 0..=2;
/// hipStreamCaptureStatusActive.
const ACTIVE: c_int = 1;

pub(crate) fn begin(null: Null, stream: usize, mode: c_int) -> Result<()> {
    let target = Target::find(null, stream)?;
    target.with(|real| driver()?.capture_begin(real, mode))?;
    capture_began();
    // The driver may have reused the handle of a graph that a failed capture left behind.
    if let Ok(Some((_, real, _))) = front(&target) {
        Graph::forget(real)?;
    }
    Ok(())
}

/// Begins a capture that adds its nodes to an existing graph, behind the nodes `after`.
pub(crate) fn begin_to_graph(
    stream: usize,
    graph: usize,
    after: In<usize>,
    edges: In<u8>,
    count: usize,
    mode: c_int,
) -> Result<()> {
    let (target, graph) = (Target::find(Null::Legacy, stream)?, Graph::find(graph)?);
    let after = graph::real_nodes(after, count)?;
    if !edges.is_null() {
        return Err(Error::NOT_SUPPORTED);
    }
    target.with(|stream| {
        let none = std::ptr::null();
        driver()?.capture_begin_to_graph(stream, graph.real, after.as_ptr(), none, after.len(), mode)
    })?;
    capture_began();
    Ok(())
}

pub(crate) fn end(null: Null, stream: usize, out: Out<usize>) -> Result<()> {
    let (target, out) = (Target::find(null, stream)?, out.required()?);
    out.maybe(0);
    let mut real = 0;
    let ended = target.with(|stream| driver()?.capture_end(stream, &raw mut real));
    if !matches!(
        ended,
        Err(Error::ILLEGAL_STATE | Error::STREAM_CAPTURE_UNMATCHED | Error::STREAM_CAPTURE_WRONG_THREAD)
    ) {
        capture_ended();
    }
    ended?;
    Ok(out.put(Graph::known(real)?.handle)?)
}

pub(crate) fn is_capturing(null: Null, stream: usize, out: Out<c_int>) -> Result<()> {
    let (target, out) = (Target::find(null, stream)?, out.required()?);
    let mut status = 0;
    target.with(|real| driver()?.capture_status(real, &raw mut status))?;
    Ok(out.put(status)?)
}

pub(crate) fn info(null: Null, stream: usize, status: Out<c_int>, id: Out<u64>) -> Result<()> {
    info_v2(null, stream, status, id, Out::NOWHERE, Out::NOWHERE, Out::NOWHERE)
}

/// The list of nodes is valid until the next call of the thread.
pub(crate) fn info_v2(
    null: Null,
    stream: usize,
    status: Out<c_int>,
    id: Out<u64>,
    graph: Out<usize>,
    nodes: Out<*const usize>,
    count: Out<usize>,
) -> Result<()> {
    thread_local! {
        static LIST: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    }
    let target = Target::find(null, stream)?;
    let mut state = 0;
    let standing = ask(&target, &mut state)?;
    status.put(state)?;
    let Some((number, recorded, front)) = standing else { return Ok(()) };
    id.maybe(number);
    let known = Graph::known(recorded)?;
    graph.maybe(known.handle);
    count.maybe(front.len());
    if !nodes.is_null() {
        let handles: Vec<usize> = front.iter().map(|&node| graph::node_handle(&known, node)).collect::<Result<_>>()?;
        LIST.with_borrow_mut(|kept| {
            *kept = handles;
            nodes.put(kept.as_ptr())
        })?;
    }
    Ok(())
}

/// Number and graph of a stream's capture, and the nodes that its next command will depend on, as the driver's handles.
type Standing = (u64, usize, Vec<usize>);

fn ask(target: &Target, state: &mut c_int) -> Result<Option<Standing>> {
    let (mut number, mut recorded, mut list, mut length) = (0_u64, 0, std::ptr::null(), 0);
    target.with(|real| {
        driver()?.capture_info(real, state, &raw mut number, &raw mut recorded, &raw mut list, &raw mut length)
    })?;
    if *state != ACTIVE {
        return Ok(None);
    }
    // SAFETY: the driver's list, valid until its next call.
    let front = if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(list, length) } };
    Ok(Some((number, recorded, front.to_vec())))
}

/// State of a stream's capture, if one is active on it.
pub(crate) fn front(target: &Target) -> Result<Option<Standing>> {
    ask(target, &mut 0)
}

pub(crate) fn update(stream: usize, nodes: In<usize>, count: usize, flags: c_uint) -> Result<()> {
    let target = Target::find(Null::Legacy, stream)?;
    let real = graph::real_nodes(nodes, count)?;
    target.with(|stream| driver()?.capture_update(stream, real.as_ptr(), real.len(), flags))
}

pub(crate) fn exchange_mode(mode: Out<c_int>) -> Result<()> {
    // CUDA's driver (580 on an H200) accepts any number as a mode.
    if !MODES.contains(&mode.read()?) {
        return Err(Error::INVALID_VALUE);
    }
    driver()?.capture_mode(mode.address())
}
