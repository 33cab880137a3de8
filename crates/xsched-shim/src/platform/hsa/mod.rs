//! AMD below HIP.
//!
//! [`hooks`] takes programs that make queues through AMD's runtime (HSA, ROCr) themselves. Level 3, theirs and HIP's, is
//! [`super::shared::amd`].

pub mod hooks;

use xsched_core::{Runtime, XQueue};
use xsched_proto::wire::{self, Levels};

use super::shared::amd::kfd;
pub use super::shared::amd::uapi;
use crate::interpose::Group;
pub(crate) use kfd::{forget_all, release, watched as watched_ioctl};

/// Every hooked function, in its class.
pub static HOOKS: &[&Group] = &[&hooks::CREATES, &hooks::DESTROYS];

/// Requests with greater numbers are not looked at.
pub(crate) const LAST_WATCHED: u8 = uapi::UPDATE_QUEUE;

/// The platform of programs that use AMD's runtime (ROCr) directly. They write their commands into the device's queues
/// themselves, where no call of theirs could be held: there is no level 1, and level 3 is all there is.
///
/// What is counted are packets, of every kind, as the agent thread finds them in the queues' own indices. A group is ready
/// while packets wait to be taken, and idle when none does and none came for the grace time. The device takes a packet
/// when it begins it: a group whose last kernel still runs counts as idle.
pub struct Hsa;

impl xsched_core::Platform for Hsa {
    fn kind(&self) -> wire::Platform {
        wire::Platform::Hsa
    }

    fn levels(&self, device: &str) -> Levels {
        Levels::NONE.with_if(kfd::hindrance(device).is_none(), Levels::THREE)
    }

    /// Nothing is handed to a driver.
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
