//! `libfakecuda.so`, to be installed as `libcuda.so.1`: a CUDA driver for tests on machines without a GPU. It exports
//! every function of the driver API and is built on the simulated device of `xsched-sim`, so that several processes
//! really share a device, in the device's own virtual time.
//!
//! - [`table`]: all functions, with their implementations; [`edge`]: arguments as C passes them.
//! - [`process`]: state of the process; [`slab`]: handles; [`stats`], [`counts`]: counts of operations and calls.
//! - [`context`], [`stream`], [`event`], [`memory`], [`module`], [`graph`]: the objects; [`books`]: accounts of a context;
//!   [`teardown`]: ends of contexts.
//! - [`nodes`]: parameters of a graph's nodes; [`exec`]: executable graphs; [`graph_memory`]: that of their nodes; [`ipc`], [`shared`]: memory and events shared by
//!   processes.
//! - [`op`]: a command, which is [submitted](given) to the device or recorded by a [`capture`] ([`issue`]); [`launch`],
//!   [`copy`], [`memops`]: its kinds; [`calls`]: the functions that submit them. [`sequence`]: restrictions by captures.
//! - [`rm`]: channel groups and time slices, requested by `ioctl` as a driver does.
//! - [`mps`]: contexts of several processes in one, and the two programs needed for that; [`visible`]: the devices that a
//!   process sees.
//! - [`ordered`], [`pool`]: memory in the order of a stream.
//! - [`vmm`]: ranges of addresses and memory mapped in them.
//! - [`lookup`] serves `cuGetProcAddress`.
//!
//! # Differences from hardware
//! The only kernels are those of [`module::Kernel`]; a PTX text provides only their names. Kernels of one context run
//! one at a time, as do a graph's nodes. The host can read device memory. Not implemented: arrays and
//! textures, green contexts. A reserved range of addresses lies in one context and ends with it, and a
//! descriptor of exported memory alone does not keep it in use. Memory of a graph's node is in use from the creation of
//! the node on, and a free cannot be captured.
//!
//! # Counts
//! `fakeGetCounters` stores the counts of operations (the fields of [`stats::Counters`], in order). With
//! `FAKECUDA_STATS=FILE` a line of JSON is appended to that file at the end of the process: these counts, the calls of
//! each function, and calls that no correct program makes (with handles that do not exist, or unknown memory).
//!
//! # Failures
//! `FAKECUDA_FAIL` makes calls fail, see [`fail`]. With `FAKECUDA_ENDS` all do once this library's handler for the end of the process has
//! run.

mod array;
mod books;
mod calls;
mod capture;
mod context;
mod copy;
mod counts;
mod device;
mod edge;
mod event;
mod exec;
mod fail;
mod given;
mod graph;
mod graph_memory;
mod ipc;
mod issue;
mod launch;
mod lookup;
mod memops;
mod memory;
mod module;
mod mps;
mod multicast;
mod nodes;
mod op;
mod ordered;
mod pool;
mod process;
mod range;
mod result;
mod rm;
mod sequence;
mod shared;
mod slab;
mod stats;
mod stream;
mod table;
mod teardown;
mod visible;
mod vmm;

pub use edge::{In, Out, Text};
pub use fail::Failures;
pub use mps::control;
pub use result::{Error, Result};

/// The entry point of this name; null if the driver has none. For a library that contains this driver.
pub fn entry_point(name: &str) -> *const () {
    lookup::address(name).cast()
}

/// Creates contexts without channel groups from now on: a library that contains this driver is no CUDA program.
pub fn without_channel_groups() {
    rm::OFF.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// Stores the first `room` counters at `out`, and returns the number of all.
///
/// # Safety
/// `out` has room for that many.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn fakeGetCounters(out: *mut u64, room: usize) -> usize {
    let values = stats::values();
    for (index, (_, value)) in values.iter().take(room).enumerate() {
        // SAFETY: as the caller says.
        unsafe { out.add(index).write(*value) };
    }
    values.len()
}
