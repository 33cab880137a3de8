//! The client side of the device, for libraries that put a vendor's face on it (`libsimdev.so`, `libfakecuda.so`).
//!
//! How one command flows: [`Context::submit`] writes it into the ring under a short lock and rings the device's
//! doorbell only if it may sleep without knowing; a thread that waits sleeps on the stream's completion word. Of a context's
//! two threads, one notices the end of the device and the other, made on demand, runs host functions.
//!
//! Contexts are never freed: a reset or a fork leaves the old one behind, closed, since another thread may be inside.

mod calls;
mod connect;
mod context;
mod error;
mod heap;
mod maps;
mod regions;
mod share;
mod spawn;

pub use calls::{Function, spawn};
pub use context::{Context, EventSlot, Heaps, Invitation, Mark, Ordering, Slot, State, lock};
pub use error::{Error, Result};
pub use heap::Heap;
pub use share::{Export, PAGE};

use crate::wire::Request;

/// How many devices there are. Starts the device if need be.
pub fn device_count() -> Result<u64> {
    Ok(connect::greet(Request::Count)?.reply[1])
}
