//! OpenCL: in-order gating of every enqueue function.
//!
//! - [`enqueue`]: the functions that enqueue; [`others`]: those that wait, create, destroy or look up. Each has its row there,
//!   under its class; `record.txt` and `no_device_work.txt` have those that are not hooked.
//! - [`path`]: what all enqueues share: fast path, slow path, fences.
//! - [`hal`]: queues as the C API uses them.
//! - [`queue`]: what a command queue is, asked once; [`api`]: the few vendor functions that we call ourselves, and
//!   [`dispatch`]: which of them the platform behind a handle implements.

mod api;
mod dispatch;
#[allow(non_snake_case)] // vendor names
mod enqueue;
pub(crate) mod hal;
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

/// In a forked child: what another thread of the parent was changing is forgotten.
pub(crate) fn forget_if_held() {
    api::forget_if_held();
    others::forget_if_held();
    path::forget_if_held();
}

/// Every hooked function, in its class.
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
];

/// Typed pointers to every function, named like it. They may unwind: what a driver calls back on the caller's stack may
/// throw through it, and a thread may be cancelled there.
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

/// The name of every function in the signature list.
pub fn signature_names() -> Vec<&'static str> {
    macro_rules! names {
        ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)*) => { vec![$(stringify!($name)),*] };
    }
    signatures::opencl_signatures!(names)
}

/// The entries of an ICD's dispatch table that are looked at, by name and index.
pub fn dispatch_entries() -> &'static [(&'static str, usize)] {
    dispatch::ENTRIES
}

/// The platform. OpenCL has no device-side gates and no control over a running command: level 1 only.
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
