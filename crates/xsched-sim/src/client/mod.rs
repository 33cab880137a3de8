//! The client side of the device, for libraries that put a vendor's interface on it (`libsimdev.so`, `libfakecuda.so`).
//!
//! The path of a command: [`Context::submit`] writes it into the ring under a short lock, and rings the device's
//! doorbell only if the device may be asleep. A thread that waits sleeps on the stream's completion word. A context has
//! two threads: one notices the end of the device; the other, started on demand, runs host functions.
//!
//! Contexts are never freed: a reset or a fork closes the old one and leaves it, since another thread may be inside.

mod account;
mod calls;
mod connect;
mod context;
mod error;
mod heap;
mod imports;
mod maps;
mod regions;
mod share;
mod spawn;
mod thread;
mod wait;

pub use account::DeviceMemory;
pub use calls::Function;
pub use context::{Context, EventSlot, Heaps, Invitation, Mark, Ordering, Slot, State};
pub use error::{Error, Result};
pub use heap::Heap;
pub use share::{Export, PAGE};
pub use thread::spawn;
pub use wait::lock;

use crate::wire::Request;

/// Number of devices. Starts the device if need be.
pub fn device_count() -> Result<u64> {
    Ok(connect::greet(Request::Count)?.reply[1])
}
