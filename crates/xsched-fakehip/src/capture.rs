//! Stream capture. The driver records; here are only the handles that a program knows instead of the driver's.

use crate::edge::Null;
use crate::graph::{self, Graph};
use crate::result::{Error, Result};
use crate::runtime::{driver, runtime};
use crate::stream::{Target, capture_began, capture_ended};
use fakecuda::{In, Out};
use std::cell::RefCell;
use std::ffi::{c_int, c_uint};

/// hipStreamCaptureStatusActive.
const ACTIVE: c_int = 1;

pub(crate) fn begin(null: Null, stream: usize, mode: c_int) -> Result<()> {
    let target = Target::find(null, stream)?;
    target.with(|real| driver()?.capture_begin(real, mode))?;
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
    let (mut state, mut number, mut recorded, mut list, mut length) = (0, 0_u64, 0, std::ptr::null(), 0);
    target.with(|real| {
        driver()?.capture_info(real, &raw mut state, &raw mut number, &raw mut recorded, &raw mut list, &raw mut length)
    })?;
    status.put(state)?;
    if state != ACTIVE {
        return Ok(());
    }
    id.maybe(number);
    let known = Graph::known(recorded)?;
    graph.maybe(known.handle);
    count.maybe(length);
    if !nodes.is_null() {
        // SAFETY: the driver's list, valid until its next call.
        let real = if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(list, length) } };
        let handles: Vec<usize> = real.iter().map(|&node| graph::node_handle(&known, node)).collect::<Result<_>>()?;
        LIST.with_borrow_mut(|kept| {
            *kept = handles;
            nodes.put(kept.as_ptr())
        })?;
    }
    Ok(())
}

pub(crate) fn update(stream: usize, nodes: In<usize>, count: usize, flags: c_uint) -> Result<()> {
    let target = Target::find(Null::Legacy, stream)?;
    let real = graph::real_nodes(nodes, count)?;
    target.with(|stream| driver()?.capture_update(stream, real.as_ptr(), real.len(), flags))
}

pub(crate) fn exchange_mode(mode: Out<c_int>) -> Result<()> {
    driver()?.capture_mode(mode.required()?.address())
}

/// The graph that a program destroys may be one that a capture made.
pub(crate) fn forget(graph: usize) -> Result<()> {
    runtime()?.nodes.remove_if(|node| node.graph == graph);
    Ok(())
}
