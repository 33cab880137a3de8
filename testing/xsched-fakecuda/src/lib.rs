//! `libfakecuda.so`, to be laid out as `libcuda.so.1`: a CUDA driver for tests on machines without a GPU. It exports
//! every function of the driver API and stands on the simulated device of `xsched-sim`, so that several processes
//! really share a device, in its own virtual time.
//!
//! - [`table`]: every function, what implements it; [`edge`]: arguments as C gives them.
//! - [`process`]: what belongs to the process; [`slab`]: handles; [`stats`], [`counts`]: what was really done.
//! - [`context`], [`stream`], [`event`], [`memory`], [`module`], [`graph`]: the objects; [`books`]: what a context keeps account of;
//!   [`teardown`]: ends of contexts.
//! - [`nodes`]: parameters of a graph's nodes; [`exec`]: graphs that are launched; [`ipc`], [`shared`]: memory and events that
//!   processes share.
//! - [`op`]: a command, which is [given](given) to the device, or recorded by a [`capture`] ([`issue`]); [`launch`], [`copy`],
//!   [`memops`]: the kinds of it; [`calls`]: the functions that give them. [`sequence`]: what captures forbid.
//! - [`rm`]: channel groups and time slices, asked for by `ioctl` as a driver does.
//! - [`mps`]: contexts of several processes in one, and the two programs that this takes; [`visible`]: which devices a process sees.
//! - [`lookup`] answers `cuGetProcAddress`.
//!
//! # What is not as on hardware
//! Kernels are those of [`module::Kernel`]; a PTX text gives only their names. Kernels of one context run one at a time.
//! A graph's nodes run one after the other. Device memory can be read by the host. Not there: managed memory, arrays and
//! textures, virtual memory management, memory nodes of graphs, green contexts, multicast.
//!
//! # Counts
//! `fakeGetCounters` stores what was given to the device (the fields of [`stats::Counters`], in order). With
//! `FAKECUDA_STATS=FILE` a line of JSON is appended to that file at the end of the process: these counts, the calls of
//! each function, and calls that no correct program makes (handles that do not exist, memory that is not known).
//!
//! # Failures
//! `FAKECUDA_FAIL` lets calls fail, see [`fail`].

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
mod ipc;
mod issue;
mod launch;
mod lookup;
mod memops;
mod memory;
mod module;
mod mps;
mod nodes;
mod op;
mod process;
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

pub use edge::{In, Out, Text};
pub use fail::Failures;
pub use mps::control;
pub use result::{Error, Result};

/// The entry point of this name; null if the driver has none. For a library that has this driver built in.
pub fn entry_point(name: &str) -> *const () {
    lookup::address(name).cast()
}

/// Contexts made from now on have no channel groups: a library that has this driver built in is no CUDA program.
pub fn without_channel_groups() {
    rm::OFF.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// Stores the first `room` of the counters where `out` points, and returns how many there are.
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
