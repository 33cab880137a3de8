//! Memory of graphs: the driver tells what a device's graphs hold. It is asked where that may change, but not at
//! launches, and only if a program has graphs with memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use xsched_proto::account::MEMORY_SLOTS;

use super::super::types::*;
use super::super::{real, sig};
use super::calls::{OUT_OF_MEMORY, lend, memory_calls};
use super::keeper::Cuda;
use super::{device, driver};
use crate::interpose::hooks;
use crate::lock::Lock;
use crate::platform::shared::memory::{Claim, Part, account, claims};
use crate::process;

/// Set once the program has made a node that allocates.
static SOME: AtomicBool = AtomicBool::new(false);
/// Memory by which the graphs of each slot's device are counted.
static COUNTED: [AtomicU64; MEMORY_SLOTS] = [const { AtomicU64::new(0) }; MEMORY_SLOTS];
/// Held while a count changes.
static CHANGING: Lock<()> = Lock::new();

/// Counts what the graphs of a device hold.
pub(super) fn refresh(slot: u16) {
    if !SOME.load(Relaxed) {
        return;
    }
    let Some(counted) = COUNTED.get(usize::from(slot)) else { return };
    let _changing = CHANGING.lock();
    if let Some(now) = device::number(slot).and_then(driver::graphs) {
        account::measured(slot, Part::Graph, counted.swap(now, Relaxed), now);
    }
}

/// Counts what all graphs hold.
pub(super) fn refresh_all() {
    if SOME.load(Relaxed) {
        (0..MEMORY_SLOTS as u16).for_each(refresh);
    }
}

/// Makes the graphs of a device release what is not in use, and counts the rest.
pub(super) fn trim(slot: u16) {
    if SOME.load(Relaxed)
        && let Some(device) = device::number(slot)
    {
        driver::trim_graphs(device);
        refresh(slot);
    }
}

/// Reports whether there is room for a node that allocates. Its memory is counted when the driver tells it.
pub(super) fn claim(slot: u16, bytes: u64) -> Claim {
    SOME.store(true, Relaxed);
    let claim = claims::claim::<Cuda>(slot, bytes);
    if matches!(claim, Claim::Counted | Claim::OnHost) {
        account::unclaim(slot, bytes);
    }
    // The driver allocates a graph's memory, and knows only the device's.
    if claim == Claim::OnHost { Claim::Refused } else { claim }
}

/// CUDA_MEM_ALLOC_NODE_PARAMS of cuda.h, as far as it is read.
#[repr(C)]
struct Parameters {
    properties: [u64; 11],
    access: [u64; 2],
    bytes: usize,
    address: CUdeviceptr,
}

/// CUgraphNodeParams of cuda.h: the type of the node, and behind 16 bytes its parameters.
#[repr(C)]
struct NodeParameters {
    kind: c_int,
    reserved: [c_int; 3],
    parameters: Parameters,
}

/// CU_GRAPH_NODE_TYPE_MEM_ALLOC.
const ALLOCATES: c_int = 10;

fn with_room(real: *mut c_void, bytes: usize, call: impl FnOnce() -> CUresult) -> CUresult {
    let asked = process::guarded("before a node is made", || {
        let here = device::current(real)?;
        Some((here.slot, claim(here.slot, bytes as u64)))
    });
    let Some((slot, claim)) = asked.flatten() else { return call() };
    if claim == Claim::Refused {
        return OUT_OF_MEMORY;
    }
    let rc = call();
    process::guarded("after a node was made", || refresh(slot));
    rc
}

fn node_made(real: *mut c_void, parameters: *mut c_void, call: impl FnOnce() -> CUresult) -> CUresult {
    // SAFETY: null, or the caller's own parameters, which the driver reads too.
    match unsafe { parameters.cast::<Parameters>().as_ref() } {
        Some(parameters) => with_room(real, parameters.bytes, call),
        None => call(),
    }
}

fn any_node_made(real: *mut c_void, parameters: *mut c_void, call: impl FnOnce() -> CUresult) -> CUresult {
    // SAFETY: as above; the type decides whether there are more parameters.
    match unsafe { parameters.cast::<c_int>().as_ref() } {
        // SAFETY: a node of this type has them.
        Some(&ALLOCATES) => with_room(real, unsafe { (*parameters.cast::<NodeParameters>()).parameters.bytes }, call),
        Some(_) | None => call(),
    }
}

/// Counts what graphs hold, after a call that may have changed it.
pub(in super::super) fn recount() {
    if SOME.load(Relaxed) {
        process::guarded("after graphs have changed", refresh_all);
    }
}

fn changed(_: *mut c_void, call: impl FnOnce() -> CUresult) -> CUresult {
    let rc = call();
    recount();
    rc
}

fn trimmed(real: *mut c_void, call: impl FnOnce() -> CUresult) -> CUresult {
    changed(real, || lend(real, call))
}

memory_calls! {
    NODES: Recorded;
    fn cuGraphAddMemAllocNode(phGraphNode: *mut c_void, hGraph: CUgraph, dependencies: *mut c_void, numDependencies: usize, nodeParams: *mut c_void) [node_made(nodeParams)];
    fn cuGraphAddNode(phGraphNode: *mut c_void, hGraph: CUgraph, dependencies: *mut c_void, numDependencies: usize, nodeParams: *mut c_void) [any_node_made(nodeParams)];
    fn cuGraphAddNode_v2(phGraphNode: *mut c_void, hGraph: CUgraph, dependencies: *mut c_void, dependencyData: *mut c_void, numDependencies: usize, nodeParams: *mut c_void) [any_node_made(nodeParams)];
    fn cuGraphAddNode_v3(phGraphNode: *mut c_void, hGraph: CUgraph, dependencies: *mut c_void, dependencyData: *mut c_void, numDependencies: usize, nodeParams: *mut c_void) [any_node_made(nodeParams)];
    fn cuGraphDestroy(hGraph: CUgraph) [changed()];
}

memory_calls! {
    TRIMS: Sync;
    fn cuDeviceGraphMemTrim(device: CUdevice) [trimmed()];
}

/// Resets the state, in a forked child.
pub(super) fn forget_all() {
    SOME.store(false, Relaxed);
    CHANGING.forget();
    COUNTED.iter().for_each(|counted| counted.store(0, Relaxed));
}

const _: () =
    assert!(std::mem::offset_of!(Parameters, bytes) == 104 && std::mem::offset_of!(NodeParameters, parameters) == 16);
