//! CUDA: in-order gating of all commands for streams, on the driver API, which all of CUDA goes through.
//!
//! - `signatures` (generated): the signature of each function. Each hooked one has a row in the file that hooks it,
//!   under its class; `no_device_work.txt` lists the others.
//! - [`enqueue`]: commands for streams; [`waits`]: calls that wait for the device, or may; [`lifetime`]: creation and end
//!   of contexts and streams; [`lookup`]: `cuGetProcAddress`.
//! - [`stream`]: the XQueue that a stream handle means, and whether the stream only records; [`capture`]: begin and end of
//!   captures. The path of a command into the driver is [`super::shared`] with HIP, and [`driver`] its part for CUDA.
//! - [`graphs`]: instantiation, update and launch of graphs; [`gate_nodes`]: gates inside them; [`gated`]: those that
//!   have some.
//! - [`memory`]: memory of the process, counted and limited.
//! - [`residency`]: memory that can leave the device, behind a latch before all of these calls.
//! - [`pool`]: membership of the process in its user's pool; [`served`]: the server of one.
//! - [`hal`]: streams as the C API uses them, over [`stream_driver`].
//! - [`api`]: the few driver functions that this library calls itself.
//! - [`timeslice`]: the hardware's own time slices, set through the driver's own `ioctl` (level 3).
//!
//! The device reports completion: progress fences are stream memory operations that write a command's number into the
//! shared segment.

pub(crate) mod api;
#[allow(non_snake_case)] // vendor names
mod capture;
mod device_runtime;
mod driver;
#[allow(non_snake_case)] // vendor names
mod enqueue;
mod gate_nodes;
mod gated;
#[allow(non_snake_case)] // vendor names
pub(crate) mod graphs;
pub(crate) mod hal;
mod hot;
#[allow(non_snake_case)] // vendor names
mod lifetime;
#[allow(non_snake_case)] // vendor names
mod lookup;
pub(crate) mod memory;
#[allow(non_snake_case)] // vendor names
mod pool;
pub(crate) mod residency;
#[allow(non_snake_case)] // vendor names
pub(crate) mod served;
mod signatures;
pub(crate) mod stats;
mod stream;
mod stream_driver;
pub(crate) mod timeslice;
mod types;
#[allow(non_snake_case)] // vendor names
mod waits;

use xsched_core::XQueue;
use xsched_proto::wire::{self, Levels, Sharing};

use crate::interpose::Group;
use crate::platform::shared::late::fence_suffix_of;
use crate::platform::shared::real;
pub(crate) use timeslice::{ALLOCATE, CONTROL, watched as watched_ioctl};

/// All hooked functions, by class.
pub static HOOKS: &[&Group] = &[
    &enqueue::LAUNCHES,
    &enqueue::COPIES,
    &enqueue::ORDERS,
    &waits::LOADS,
    &waits::MAY_WAIT,
    &waits::STREAM_WAITS,
    &waits::WAITS,
    &capture::BEGINS,
    &capture::ENDS,
    &graphs::INSTANTIATES,
    &graphs::LAUNCHES,
    &graphs::NAMES_NODES,
    &graphs::GRAPHS_DESTROYED,
    &graphs::UPDATES,
    &lifetime::CONTEXTS_DESTROYED,
    &lifetime::CONTEXTS_MADE,
    &lifetime::PRIMARY_RELEASED,
    &lifetime::PRIMARY_RESET,
    &lifetime::STREAMS_DESTROYED,
    &lifetime::STREAMS_MADE,
    &lifetime::PARTITIONS_MADE,
    &lifetime::PARTITIONS_DESTROYED,
    &lookup::LOOKUPS,
    &memory::arrays::ARRAYS,
    &memory::figures::FIGURES,
    &memory::graphs::NODES,
    &memory::graphs::TRIMS,
    &memory::host::PINNED,
    &memory::plain::ALLOCATIONS,
    &memory::plain::EXPORTS,
    &memory::pools::ALLOCATIONS,
    &memory::pools::POOLS_CHANGED,
    &memory::pools::POOLS_MADE,
    &memory::virtuals::HANDLES,
    &memory::virtuals::UNMAPS,
    &pool::BEGINS,
    &residency::hooked::OPENS,
    &residency::hooked::CLOSES,
    &residency::hooked::LOOKS,
];

/// Hooked functions of NVIDIA's management library.
pub static MANAGEMENT_HOOKS: &[&Group] = &[&memory::nvml::MEMORY];

/// Function pointer types of all functions, under their names.
#[allow(non_camel_case_types, dead_code)]
mod sig {
    use super::types::*;
    macro_rules! pointers {
        ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
            $(pub(super) type $name = unsafe extern "C" fn($($ty),*) -> CUresult;)*
        };
    }
    super::signatures::cuda_signatures!(pointers);
}

/// Names of all functions in the signature list.
pub fn signature_names() -> Vec<&'static str> {
    macro_rules! names {
        ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => { vec![$(stringify!($name)),*] };
    }
    signatures::cuda_signatures!(names)
}

/// Resets all state, in a forked child.
pub(crate) fn forget_all() {
    api::forget_all();
    hot::forget_all();
    gated::forget_all();
    timeslice::forget_all();
    memory::forget_all();
    residency::forget_all();
    pool::forget();
}

/// The CUDA platform.
pub struct Cuda;

impl xsched_core::Platform for Cuda {
    fn kind(&self) -> wire::Platform {
        wire::Platform::Cuda
    }

    fn levels(&self, device: &str) -> Levels {
        let levels = api::levels(device);
        // A command that waits on the device keeps its memory there, and the moves wait for it.
        if residency::is_wanted() { levels.without(Levels::TWO) } else { levels }
    }

    fn sharing(&self, device: &str) -> Sharing {
        api::sharing(device)
    }

    /// Commands begin when they are enqueued, but only those with a fence are seen to complete. So the flush places a
    /// fence.
    fn flusher(&self, queue: &XQueue) -> Option<Box<dyn FnOnce()>> {
        let key = queue.key();
        Some(Box::new(move || fence_suffix_of::<api::Api>(key, api::Api::known)))
    }

    fn reports_completion(&self) -> bool {
        false
    }

    fn set_timeslice(&self, _device: &str, us: u64) {
        timeslice::set(us);
    }

    fn move_memory(&self, slot: u16, number: u32, order: wire::MemoryOrder) -> bool {
        residency::order(slot, number, order)
    }
}
