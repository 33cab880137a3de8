//! OpenCL: in-order gating of every enqueue function.
//!
//! - [`enqueue`]: the functions that enqueue; [`others`]: functions that wait, create, destroy or look up. Each has its
//!   row there, under its class; `record.txt` and `no_device_work.txt` list the functions that are not hooked.
//! - [`memory`]: memory of devices, counted and limited.
//! - [`path`]: the common part of all enqueues: fast path, slow path, fences.
//! - [`hal`]: queues as the C API uses them.
//! - [`queue`]: description of a command queue, read once; [`api`]: the few vendor functions that this library calls
//!   itself, and [`dispatch`]: which of them the platform behind a handle implements.

mod api;
mod dispatch;
#[allow(non_snake_case)] // vendor names
mod enqueue;
pub(crate) mod hal;
#[allow(non_snake_case)] // vendor names
mod memory;
#[allow(non_snake_case)] // vendor names
mod others;
mod path;
mod queue;
mod signatures;
#[allow(clippy::upper_case_acronyms, clippy::type_complexity, unreachable_pub, missing_docs)]
#[allow(non_upper_case_globals)]
mod types;

use xsched_core::XQueue;
use xsched_proto::wire::{self, Levels};

use crate::interpose::Group;

/// Drops tables that another thread of the parent was changing, in a forked child.
pub(crate) fn forget_if_held() {
    api::forget_if_held();
    memory::forget_all();
    others::forget_if_held();
    path::forget_if_held();
}

/// All hooked functions, by class.
pub static HOOKS: &[&Group] = &[
    &enqueue::KERNELS,
    &enqueue::MAPS,
    &enqueue::REGULAR_LAUNCHES,
    &enqueue::REGULAR_COPIES,
    &enqueue::REGULAR_ORDERS,
    &enqueue::LAUNCHES,
    &enqueue::ORDERS,
    &others::WAITS,
    &others::CREATES,
    &others::DESTROYS,
    &others::HOST_EVENTS,
    &others::LOOKUPS,
    &memory::ALLOCATIONS,
    &memory::FIGURES,
];

/// Function pointer types of all functions, under their names. They may unwind: a driver's callback on the caller's
/// stack may throw through the function, and a thread may be cancelled there.
#[allow(non_camel_case_types, dead_code, clippy::type_complexity)]
mod sig {
    use super::types::*;
    macro_rules! pointers {
        ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)*) => {
            $(pub(super) type $name = unsafe extern "C-unwind" fn($($ty),*) $(-> $ret)?;)*
        };
    }
    super::signatures::opencl_signatures!(pointers);
}

/// Names of all functions in the signature list.
pub fn signature_names() -> Vec<&'static str> {
    macro_rules! names {
        ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)*) => { vec![$(stringify!($name)),*] };
    }
    signatures::opencl_signatures!(names)
}

/// The entries of an ICD's dispatch table that this library reads, by name and index.
pub fn dispatch_entries() -> &'static [(&'static str, usize)] {
    dispatch::ENTRIES
}

/// The OpenCL platform, which has no device-side gates and no control over a running command: level 1 only.
pub struct OpenCl;

impl xsched_core::Platform for OpenCl {
    fn kind(&self) -> wire::Platform {
        wire::Platform::Opencl
    }

    fn levels(&self, _device: &str) -> Levels {
        Levels::ONE
    }

    fn flusher(&self, queue: &XQueue) -> Option<Box<dyn FnOnce()>> {
        let pinned = api::of(queue)?.pin(queue)?;
        Some(Box::new(move || pinned.flush()))
    }

    fn reports_completion(&self) -> bool {
        true
    }
}
