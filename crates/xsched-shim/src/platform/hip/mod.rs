//! HIP: in-order gating of everything that enters a stream.
//!
//! - `signatures` (generated): what each function takes; `outside`: what the header lacks. Every hooked one has a row in the
//!   file that hooks it, under its class; `no_device_work.txt` has the others.
//! - [`enqueue`]: what enters a stream; [`waits`]: calls that wait for the device, or may; [`lifetime`]: devices, contexts
//!   and streams that come and go; [`lookup`]: `hipGetProcAddress`; [`capture`]: what is only recorded.
//! - [`stream`]: which XQueue a stream handle means. The way of a command into the runtime is [`super::shared`] with CUDA.
//! - [`hal`]: streams as the C API uses them.
//! - [`api`]: the few functions that we call ourselves, of each copy of the runtime in the process.
//!
//! A process may hold several copies of the runtime (a framework's own beside the system's). A call goes on into the copy
//! that it would have reached without us, and whatever we ask or place for it goes to that same copy: a stream of one is
//! unknown to another. The runtime calls some of its own exports by name, which the loader binds to us: such a call is
//! known by where it comes from, on whatever thread, and goes straight on.
//!
//! Completion is told by the device: progress fences are `hipStreamWriteValue32` into the shared segment. Where a runtime
//! lacks that (older than ROCm 4.4, or it refuses), nothing is bounded: the host's gate alone remains.
//!
//! Level 2 is off on AMD's own devices unless it is forced (`XSCHED_FORCE_LEVEL=2`): streams share hardware queues there,
//! so that a gate in one stream holds others, and one that waits is a kernel that spins. Level 3 is [`super::shared::amd`]'s.

mod api;
#[allow(non_snake_case)] // vendor names
mod capture;
#[allow(non_snake_case)] // vendor names
mod enqueue;
pub(crate) mod hal;
#[allow(non_snake_case)] // vendor names
mod lifetime;
#[allow(non_snake_case)] // vendor names
mod lookup;
mod outside;
mod signatures;
mod stream;
mod types;
#[allow(non_snake_case)] // vendor names
mod waits;

use xsched_core::XQueue;
use xsched_proto::wire::{self, Levels};

use super::shared::amd::kfd;
use super::shared::late::fence_suffix_of;
use super::shared::real;
use crate::enabled::{HIP, platform_enabled};
use crate::interpose::Group;
use crate::interpose::resolve;

/// Every hooked function, in its class.
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
];

/// Typed pointers to every function, named like it.
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

/// The name of every function in the signature list.
pub fn signature_names() -> Vec<&'static str> {
    signatures::hip_signatures!(names)
}

/// The name of every function whose signature is known from elsewhere.
pub fn outside_names() -> Vec<&'static str> {
    outside::outside_signatures!(names)
}

/// What a forked child knows of its parent's devices: nothing.
pub(crate) fn forget_all() {
    api::forget_all();
    capture::CAPTURES.forget_all();
    // CUDA's functions are among them.
    super::shared::lookup::forget_if_held();
}

/// Whether an address lies in a HIP runtime that is scheduled, whatever that runtime stands on.
#[cold]
pub(crate) fn is_runtime(address: usize) -> bool {
    let is_named_so = || {
        let file = resolve::object_of(address).map(|(_, file)| file.into_bytes());
        file.is_some_and(|file| file.rsplit(|b| *b == b'/').next().is_some_and(|name| name.starts_with(b"libamdhip64")))
    };
    platform_enabled(HIP) && (api::holds(address) || is_named_so())
}

/// The platform.
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

    /// Commands begin when they are given; but that they are complete is known of the fenced ones only.
    fn flusher(&self, queue: &XQueue) -> Option<Box<dyn FnOnce()>> {
        let key = queue.key();
        Some(Box::new(move || fence_suffix_of(key, || api::Api::of_key(key))))
    }

    fn reports_completion(&self) -> bool {
        false
    }

    fn interrupt(&self, device: &str, on: bool) -> bool {
        kfd::interrupt(device, on)
    }
}
