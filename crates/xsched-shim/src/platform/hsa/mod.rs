//! AMD below HIP.
//!
//! [`hooks`] schedules programs that create queues through AMD's runtime (HSA, ROCr) themselves. Level 3, for these and
//! for HIP, is in [`super::shared::amd`].

pub mod hooks;

use xsched_core::{Runtime, XQueue};
use xsched_proto::wire::{self, Levels};

use super::shared::amd::kfd;
pub(crate) use super::shared::amd::requests::watched as watched_ioctl;
pub use super::shared::amd::uapi;
use crate::interpose::Group;
pub(crate) use kfd::{forget_all, release};

/// All hooked functions, by class.
pub static HOOKS: &[&Group] = &[&hooks::CREATES, &hooks::DESTROYS];

/// Greatest number of a request that is watched.
pub(crate) const LAST_WATCHED: u8 = uapi::UPDATE_QUEUE;

/// The platform of programs that use AMD's runtime (ROCr) directly. They write their commands into the device's queues
/// themselves, without a call that could be held. So there is no level 1, only level 3.
///
/// Counts are of packets, of every kind, as the agent thread reads them from the queues' own indices. A group is ready
/// while packets wait to be read, and idle when none does and none has come for the grace time. The device reads a
/// packet when it begins it: a group whose last kernel is still running counts as idle.
pub struct Hsa;

impl xsched_core::Platform for Hsa {
    fn kind(&self) -> wire::Platform {
        wire::Platform::Hsa
    }

    fn levels(&self, device: &str) -> Levels {
        Levels::NONE.with_if(kfd::hindrance(device).is_none(), Levels::THREE)
    }

    /// Without commands in a driver there is nothing to flush.
    fn flusher(&self, _queue: &XQueue) -> Option<Box<dyn FnOnce()>> {
        None
    }

    fn reports_completion(&self) -> bool {
        true
    }

    fn interrupt(&self, device: &str, on: bool) -> bool {
        let done = kfd::interrupt(device, on);
        if !done {
            hooks::forget_queues();
        }
        done
    }

    fn set_priority(&self, rt: &Runtime, priority: i32) {
        kfd::set_priority(rt, priority);
    }

    fn filled(&self, queue: &XQueue) -> Option<(u64, u64)> {
        hooks::filled(queue)
    }
}
