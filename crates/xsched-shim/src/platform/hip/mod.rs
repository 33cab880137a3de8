//! HIP: in-order gating of all commands for streams.
//!
//! - `signatures` (generated): the signature of each function; `outside`: those that the header lacks. Each hooked one
//!   has a row in the file that hooks it, under its class; `no_device_work.txt` lists the others.
//! - [`enqueue`]: commands for streams; [`waits`]: calls that wait for the device, or may; [`lifetime`]: first use of
//!   devices, creation and end of contexts and streams; [`lookup`]: `hipGetProcAddress`; [`capture`]: begin and end of
//!   captures.
//! - [`stream`]: the XQueue that a stream handle means, and whether the stream only records. The path of a command into
//!   the runtime is [`super::shared`] with CUDA, and [`driver`] its part for HIP.
//! - [`memory`]: memory of devices, counted and limited.
//! - [`hal`]: streams as the C API uses them, over [`stream_driver`].
//! - [`api`]: the few functions that this library calls itself, of each copy of the runtime in the process.
//!
//! A process may have several copies of the runtime (a framework's own and the system's). A call goes on into the copy
//! that it would have reached without this library, and all further calls and commands that it causes go to that same
//! copy: a stream of one copy is unknown to another. The runtime calls some of its own exports by name, which the
//! loader binds to our stubs; such a call is recognised by its return address, on any thread, and goes straight on.
//!
//! The device reports completion: progress fences are `hipStreamWriteValue32` into the shared segment. If a runtime
//! lacks that function (older than ROCm 4.4) or refuses, no budget can be enforced, and only the host gate remains.
//!
//! Level 2 is off on AMD's own devices unless forced (`XSCHED_FORCE_LEVEL=2`): streams share hardware queues there, so
//! a gate in one stream holds others too, and a waiting gate is a kernel that spins. Level 3 is in
//! [`super::shared::amd`].

mod api;
#[allow(non_snake_case)] // vendor names
mod capture;
mod driver;
#[allow(non_snake_case)] // vendor names
mod enqueue;
pub(crate) mod hal;
#[allow(non_snake_case)] // vendor names
mod lifetime;
#[allow(non_snake_case)] // vendor names
mod lookup;
#[allow(non_snake_case)] // vendor names
mod memory;
mod outside;
mod signatures;
mod stream;
mod stream_driver;
mod types;
#[allow(non_snake_case)] // vendor names
mod waits;

use xsched_core::XQueue;
use xsched_proto::wire::{self, Levels};

use super::shared::amd::kfd;
use super::shared::late::fence_suffix_of;
use super::shared::real;
use crate::interpose::Group;

pub(crate) use api::is_runtime;

/// All hooked functions, by class.
pub static HOOKS: &[&Group] = &[
    &enqueue::LAUNCHES,
    &enqueue::COPIES,
    &enqueue::ORDERS,
    &enqueue::OLD_LAUNCHES,
    &waits::DEVICE_WAITS,
    &waits::LENDS,
    &waits::MAKES,
    &waits::STREAM_WAITS,
    &waits::WAITS,
    &capture::BEGINS,
    &capture::ENDS,
    &lifetime::ENDS,
    &lifetime::STREAMS_MADE,
    &lifetime::STREAMS_DESTROYED,
    &lookup::LOOKUPS,
    &memory::ALLOCATIONS,
    &memory::FIGURES,
    &memory::FREES,
    &memory::ORDERED,
];

/// Function pointer types of all functions, under their names.
#[allow(non_camel_case_types, dead_code)]
mod sig {
    use super::types::*;
    macro_rules! pointers {
        ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $result:ty)?;)*) => {
            $(pub(super) type $name = unsafe extern "C" fn($($ty),*) -> returns!($($result)?);)*
        };
    }
    macro_rules! returns {
        () => {
            hipError_t
        };
        ($result:ty) => {
            $result
        };
    }
    super::signatures::hip_signatures!(pointers);
    super::outside::outside_signatures!(pointers);
}

macro_rules! names {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $result:ty)?;)*) => { vec![$(stringify!($name)),*] };
}

/// Names of all functions in the signature list.
pub fn signature_names() -> Vec<&'static str> {
    signatures::hip_signatures!(names)
}

/// Names of all functions whose signatures the header lacks.
pub fn outside_names() -> Vec<&'static str> {
    outside::outside_signatures!(names)
}

/// Resets all state, in a forked child.
pub(crate) fn forget_all() {
    api::forget_all();
    memory::forget_all();
    stream::CAPTURES.forget_all();
    // This table includes CUDA's functions.
    super::shared::lookup::forget_if_held();
}

/// The HIP platform.
pub struct Hip;

impl xsched_core::Platform for Hip {
    fn kind(&self) -> wire::Platform {
        wire::Platform::Hip
    }

    fn levels(&self, device: &str) -> Levels {
        let gates = match api::gates_are_safe(device) {
            Some(safe) => safe || api::gates_are_forced(),
            None => false,
        };
        let interrupts = kfd::hindrance(device).is_none();
        Levels::ONE.with_if(gates, Levels::TWO).with_if(interrupts, Levels::THREE)
    }

    /// Commands begin when they are enqueued, but only those with a fence are seen to complete. So the flush places a
    /// fence.
    fn flusher(&self, queue: &XQueue) -> Option<Box<dyn FnOnce()>> {
        let key = queue.key();
        Some(Box::new(move || fence_suffix_of(key, || stream::copy_of(key))))
    }

    fn reports_completion(&self) -> bool {
        false
    }

    fn interrupt(&self, device: &str, on: bool) -> bool {
        kfd::interrupt(device, on)
    }
}
