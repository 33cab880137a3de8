//! AMD's compute driver, which both of AMD's runtimes stand on: level 3 for every program there, whatever runtime it uses.
//!
//! - [`kfd`]: what the runtimes ask of the driver, followed on its way; [`queues`]: what is known of their queues,
//!   [`topology`]: which device they are on; [`uapi`]: the kernel's layouts.

pub(crate) mod kfd;
mod queues;
pub(crate) mod topology;
pub mod uapi;
