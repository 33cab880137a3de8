//! Graphs: instantiated with gates inside if device gates are the only means of preemption (level 2), and afterwards
//! handled as if they were the application's own.
//!
//! The executable graph is made of a clone (see [`super::gate_nodes`]) that lives as long as it does. The application
//! names nodes of its own graph, which are translated to those of the clone. A graph that the driver does not accept
//! with gates is instantiated as it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};

use xsched_core::{Group, PARTS, Runtime, thread};
use xsched_flow::admission::inside_ns;
use xsched_proto::class::Class;
use xsched_proto::variables;
use xsched_proto::wire;

use super::api::Api;
use super::gate_nodes::{Functions, Gate, Gated, Refusal, original};
use super::gated::{SOME, STREAM, accepted, of, refused, remember, take};
use super::stream::legacy_key;
use super::types::*;
use super::{memory, real, sig};
use crate::interpose::{hooks, near};
use crate::platform::shared::StreamKind::{Legacy, PerThread};
use crate::platform::shared::path::{enqueue, graph};
use crate::platform::shared::waits::lending_call;
use crate::platform::shared::{Driver, StreamKind};
use crate::process;

/// CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH.
const DEVICE_LAUNCH: u64 = 4;
/// CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, …_NODE_TYPE_CHANGED, …_NOT_SUPPORTED.
const OTHER_SHAPE: [c_int; 3] = [2, 3, 6];

/// Set once an update failed because of gates, and might have succeeded without.
static SPOILT: AtomicBool = AtomicBool::new(false);
/// CU_STREAM_PER_THREAD.
const PER_THREAD: usize = 2;
fn switched_off() -> bool {
    variables::text("XSCHED_GRAPH_GATES").is_some_and(|value| variables::flag(&value) == Some(false))
}

/// Gate for a graph that is now instantiated, and the limit between two gates in ns. `None`: the graph needs no gates.
fn wanted(rt: &'static Runtime, api: &Api) -> Option<(Gate, u64)> {
    // With several groups there are gates on the host only; a single group is the first.
    if !rt.has_one_group() || !api.has_one_context() || SPOILT.load(Relaxed) {
        return None;
    }
    let (device, platform) = rt.device_of(0)?;
    let context = api.context();
    // The daemon sets the group's level, and a program may come here right after it created its context.
    rt.find(legacy_key(context as usize))?.group(rt).await_registration(rt);
    let slot = &rt.segment().groups[0];
    let forced = rt.forced_level().is_some();
    let held = slot.level.load(Relaxed) == 2 && (forced || Class::of(rt.own_priority()).is_best_effort());
    if !held || switched_off() || platform.kind() != wire::Platform::Cuda || api.current_device_key()? != device {
        return None;
    }
    let address = api.seen(rt, slot.gate.as_ptr() as usize)?;
    // Marks before and behind so many gates would cost more than they are worth.
    let held = if forced { None } else { api.seen(rt, slot.held_inside.as_ptr() as usize) };
    Some((Gate { address, held, context: context as usize }, inside_ns(slot.budget_us.load(Relaxed), forced)))
}

fn with_gates(real: *mut c_void, graph: CUgraph, flags: u64) -> Result<Option<Gated>, Refusal> {
    if Api::is_below_another(thread::current().caller.get()) {
        return Ok(None);
    }
    let (Some(rt), Some(api)) = (process::running(), Api::beside(real)) else { return Ok(None) };
    let Some((gate, limit_ns)) = wanted(rt, api) else { return Ok(None) };
    if flags & DEVICE_LAUNCH != 0 {
        return Err("the device launches it");
    }
    Gated::of(Functions::of(real as usize)?, graph, gate, limit_ns, &|key| rt.expected_ns(key))
}

/// Instantiates a graph by `call`, with gates inside if it is to have some and the driver accepts them. `place` is
/// where the driver stores the handle.
fn instantiated(
    real: *mut c_void,
    place: *mut c_void,
    graph: CUgraph,
    flags: impl FnOnce() -> u64,
    call: impl Fn(CUgraph) -> CUresult,
) -> CUresult {
    let made = process::guarded("before a graph is made ready", || {
        with_gates(real, graph, flags()).unwrap_or_else(|why| {
            refused(why);
            None
        })
    });
    let rc = match made.flatten() {
        Some(gated) if call(gated.clone.graph()) == SUCCESS && !place.is_null() => {
            if !gated.tells()
                && let Some((rt, group)) = first_group()
            {
                group.note_untold_gates(rt);
            }
            // SAFETY: the caller's own place for the handle, which the driver just wrote.
            remember(unsafe { *place.cast() }, Some(Arc::new(gated)));
            accepted();
            return SUCCESS;
        }
        Some(gated) => {
            // So that an error refers to the application's own graph.
            drop(gated);
            refused("the driver does not make it ready with gates");
            call(graph)
        }
        None => call(graph),
    };
    if rc == SUCCESS && SOME.load(Acquire) && !place.is_null() {
        // SAFETY: as above.
        remember(unsafe { *place.cast() }, None);
    }
    rc
}

/// Flags of CUDA_GRAPH_INSTANTIATE_PARAMS, its first member.
fn flags_of(parameters: *mut c_void) -> u64 {
    // SAFETY: null, or the caller's own structure, whose first member this is.
    unsafe { parameters.cast::<u64>().as_ref() }.map_or(0, |flags| *flags)
}

macro_rules! instantiates {
    ($list:ident: $class:ident; $(fn $name:ident($graph:ident $(, $arg:ident: $ty:ty)*) [$flags:expr];)*) => {
        $(
            unsafe extern "C" fn $name(place: *mut c_void, $graph: CUgraph $(, $arg: $ty)*) -> CUresult {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments, or a clone of its graph.
                let call = |graph| unsafe { function(place, graph $(, $arg)*) };
                let rc = lending_call::<Api, _>(real, || instantiated(real, place, $graph, || $flags, call));
                memory::graphs::recount();
                rc
            }
        )*
        hooks! { CUDA, $list: $class; $($name)* }
    };
}

instantiates! {
    INSTANTIATES: Sync;
    fn cuGraphInstantiate(graph, error: *mut c_void, log: *mut c_void, room: usize) [0];
    fn cuGraphInstantiate_v2(graph, error: *mut c_void, log: *mut c_void, room: usize) [0];
    fn cuGraphInstantiateWithFlags(graph, flags: u64) [flags];
    fn cuGraphInstantiateWithParams(graph, parameters: *mut c_void) [flags_of(parameters)];
    fn cuGraphInstantiateWithParams_ptsz(graph, parameters: *mut c_void) [flags_of(parameters)];
}

unsafe extern "C" fn cuGraphExecDestroy(exec: CUgraphExec) -> CUresult {
    let (real, function) = real!(cuGraphExecDestroy);
    // Before the driver can reuse the handle.
    let gated = take(exec);
    // SAFETY: the caller's own argument.
    let rc = lending_call::<Api, _>(real, || unsafe { function(exec) });
    drop(gated);
    memory::graphs::recount();
    rc
}

hooks! { CUDA, GRAPHS_DESTROYED: Sync; cuGraphExecDestroy }

/// The group whose gate word gates inside graphs wait for, see [`wanted`].
fn first_group() -> Option<(&'static Runtime, &'static Group)> {
    let rt = process::running()?;
    Some((rt, rt.groups().next()?))
}

/// Prepares gates inside graphs, before a graph is launched.
#[inline(always)]
fn before_launch(stream: CUstream, mode: StreamKind) {
    if near!(SOME).load(Relaxed) {
        set_gates(stream, mode);
    }
}

#[cold]
#[inline(never)]
fn set_gates(stream: CUstream, mode: StreamKind) {
    let Some((rt, group)) = first_group() else { return };
    group.hold_inside(rt);
    // Graphs that run at the same time would write the same word.
    let one_each_thread = stream as usize == PER_THREAD || (stream.is_null() && matches!(mode, PerThread));
    let key = stream as usize + 1;
    let other = STREAM.compare_exchange(0, key, Relaxed, Relaxed).is_err_and(|before| before != key);
    if one_each_thread || other {
        group.note_untold_gates(rt);
    }
}

/// Longest part of a graph without a gate. Once some graphs have gates, that of a graph without any is the whole: its
/// handle may have been that of a graph with gates.
fn part(exec: CUgraphExec) -> u16 {
    if !near!(SOME).load(Acquire) {
        return 0;
    }
    of(exec).map_or(PARTS, |gated| gated.part)
}

macro_rules! launches {
    ($list:ident: $class:ident; $(fn $name:ident [$mode:ident];)*) => {
        $(
            unsafe extern "C" fn $name(exec: CUgraphExec, stream: CUstream) -> CUresult {
                let (real, function) = real!($name);
                before_launch(stream, $mode);
                // If there is no room for the graph, the call waits until an earlier one is done, which may be held
                // half-way.
                // SAFETY: the caller's own arguments.
                let enter = move || process::waiting(|| unsafe { function(exec, stream) });
                enqueue::<Api>(real, stream, $mode, || graph(exec, part(exec)), enter)
            }
        )*
        hooks! { CUDA, $list: $class; $($name)* }
    };
}

launches! {
    LAUNCHES: Launch;
    fn cuGraphLaunch [Legacy];
    fn cuGraphLaunch_ptsz [PerThread];
}

/// CUgraphExecUpdateResultInfo.
#[repr(C)]
#[derive(Clone, Copy)]
struct Outcome {
    result: c_int,
    node: CUgraphNode,
    from: CUgraphNode,
}

/// Updates an executable graph with gates to another graph by `call`, which is given the clone to take instead, and
/// returns the outcome. If the graph is too different, the driver is given the graph itself, and refuses it.
fn updated(gated: &Gated, graph: CUgraph, call: impl Fn(CUgraph) -> (CUresult, Outcome)) -> (CUresult, Outcome) {
    let next = process::guarded("before a graph is updated", || gated.like(graph));
    let Some(Ok(next)) = next else { return call(graph) };
    let (rc, mut outcome) = call(next.clone.graph());
    if rc != SUCCESS {
        if OTHER_SHAPE.contains(&outcome.result) {
            // The number of nodes is the same, so the gates alone may be in the way. The application will instantiate
            // the graph afresh, and should not fail every time.
            SPOILT.store(true, Relaxed);
        }
        process::guarded("after a graph was not updated", || {
            for node in [&mut outcome.node, &mut outcome.from].into_iter().filter(|node| !node.is_null()) {
                *node = original(&next, graph, *node);
            }
        });
    }
    (rc, outcome)
}

/// Outcome before any call.
const NO_OUTCOME: Outcome = Outcome { result: 0, node: std::ptr::null_mut(), from: std::ptr::null_mut() };

unsafe extern "C" fn cuGraphExecUpdate(
    exec: CUgraphExec,
    graph: CUgraph,
    node: *mut c_void,
    result: *mut c_void,
) -> CUresult {
    let (_, function) = real!(cuGraphExecUpdate);
    let Some(gated) = of(exec).filter(|_| !node.is_null() && !result.is_null()) else {
        // SAFETY: the caller's own arguments.
        return unsafe { function(exec, graph, node, result) };
    };
    let (rc, outcome) = updated(&gated, graph, |graph| {
        let mut outcome = NO_OUTCOME;
        let (node, result) = (std::ptr::from_mut(&mut outcome.node), std::ptr::from_mut(&mut outcome.result));
        // SAFETY: the caller's executable graph, and its graph or a clone; pointers to locals.
        (unsafe { function(exec, graph, node.cast(), result.cast()) }, outcome)
    });
    // SAFETY: the caller's own places.
    unsafe {
        *node.cast::<CUgraphNode>() = outcome.node;
        *result.cast::<c_int>() = outcome.result;
    }
    rc
}

unsafe extern "C" fn cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, info: *mut c_void) -> CUresult {
    let (_, function) = real!(cuGraphExecUpdate_v2);
    let Some(gated) = of(exec).filter(|_| !info.is_null()) else {
        // SAFETY: the caller's own arguments.
        return unsafe { function(exec, graph, info) };
    };
    let (rc, outcome) = updated(&gated, graph, |graph| {
        let mut outcome = NO_OUTCOME;
        // SAFETY: the caller's executable graph, and its graph or a clone; pointer to a local.
        (unsafe { function(exec, graph, std::ptr::from_mut(&mut outcome).cast()) }, outcome)
    });
    // SAFETY: the caller's own place.
    unsafe { *info.cast::<Outcome>() = outcome };
    rc
}

hooks! { CUDA, UPDATES: Recorded; cuGraphExecUpdate cuGraphExecUpdate_v2 }

/// Node to name to the driver for a node of the application's graph.
#[inline]
fn node_in(exec: CUgraphExec, node: *mut c_void) -> *mut c_void {
    let Some(gated) = of(exec) else { return node };
    process::guarded("before a node is named", || gated.clone.translated(node)).unwrap_or(node)
}

macro_rules! names_nodes {
    ($list:ident: $class:ident; $(fn $name:ident($($arg:ident: $ty:ty),*);)*) => {
        $(
            unsafe extern "C" fn $name(exec: CUgraphExec, node: *mut c_void, $($arg: $ty),*) -> CUresult {
                let (_, function) = real!($name);
                // SAFETY: the caller's own arguments; its node may be replaced by the same node in our clone.
                unsafe { function(exec, node_in(exec, node), $($arg),*) }
            }
        )*
        hooks! { CUDA, $list: $class; $($name)* }
    };
}

names_nodes! {
    NAMES_NODES: Recorded;
    fn cuGraphExecBatchMemOpNodeSetParams(parameters: *mut c_void);
    fn cuGraphExecChildGraphNodeSetParams(child: CUgraph);
    fn cuGraphExecEventRecordNodeSetEvent(event: CUevent);
    fn cuGraphExecEventWaitNodeSetEvent(event: CUevent);
    fn cuGraphExecExternalSemaphoresSignalNodeSetParams(parameters: *mut c_void);
    fn cuGraphExecExternalSemaphoresWaitNodeSetParams(parameters: *mut c_void);
    fn cuGraphExecHostNodeSetParams(parameters: *mut c_void);
    fn cuGraphExecKernelNodeSetParams(parameters: *mut c_void);
    fn cuGraphExecKernelNodeSetParams_v2(parameters: *mut c_void);
    fn cuGraphExecMemcpyNodeSetParams(parameters: *mut c_void, context: CUcontext);
    fn cuGraphExecMemsetNodeSetParams(parameters: *mut c_void, context: CUcontext);
    fn cuGraphExecNodeSetParams(parameters: *mut c_void);
    fn cuGraphNodeGetEnabled(enabled: *mut c_void);
    fn cuGraphNodeSetEnabled(enabled: c_uint);
}
