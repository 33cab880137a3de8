//! The simulated device (`libsimdev.so`), scheduled like any vendor's. Its interface is modelled on CUDA's, so this
//! folder shows what a platform with streams, device gates and interruption (level 3) needs. Its [`api`] is a
//! [`super::shared::Driver`]; the path of a command is the shared one.
//!
//! The device itself reports completion: behind a command whose completion matters, the stream writes the command's
//! number into a word of the shared segment (a completion fence).

mod api;
#[allow(non_snake_case)] // vendor names
mod hooks;

use xsched_core::XQueue;
use xsched_proto::wire::{self, Levels};

use super::shared::late::fence_suffix_of;
use crate::interpose::Group;
use api::Api;

pub(crate) use api::forget_all_registrations;

/// All hooked functions, by class.
pub static HOOKS: &[&Group] = &[
    &hooks::LAUNCHES,
    &hooks::COPIES,
    &hooks::ORDERS,
    &hooks::WAITS,
    &hooks::CREATES,
    &hooks::DESTROYS,
    &hooks::LOOKUPS,
];

/// The platform of the simulated device.
pub struct Sim;

impl xsched_core::Platform for Sim {
    fn kind(&self) -> wire::Platform {
        wire::Platform::Sim
    }

    fn levels(&self, _device: &str) -> Levels {
        Levels::ALL
    }

    /// Commands begin when they are enqueued, but the last ones may have no fence yet. So the flush places one.
    fn flusher(&self, queue: &XQueue) -> Option<Box<dyn FnOnce()>> {
        let key = queue.key();
        Some(Box::new(move || fence_suffix_of(key, Api::known)))
    }

    fn reports_completion(&self) -> bool {
        false
    }

    fn interrupt(&self, device: &str, on: bool) -> bool {
        let Some(device) = device.strip_prefix("sim:").and_then(|n| n.parse().ok()) else { return false };
        api::set_runnable(device, !on);
        true
    }
}
