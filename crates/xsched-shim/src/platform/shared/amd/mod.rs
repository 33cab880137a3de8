//! AMD's compute driver, below both of AMD's runtimes: level 3 for any program on it, whatever its runtime.
//!
//! - [`requests`]: interception of the runtimes' requests to the driver; [`kfd`]: requests of our own; [`queues`]: state of
//!   the queues, [`topology`]: the devices that they are on; [`uapi`]: the kernel's layouts.

pub(crate) mod kfd;
mod queues;
pub(crate) mod requests;
pub(crate) mod topology;
pub mod uapi;
