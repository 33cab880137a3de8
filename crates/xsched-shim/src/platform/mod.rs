//! Vendor interfaces: one folder each, with the table of what its functions do to the device and the hooks.

pub mod cuda;
pub mod hip;
pub mod hsa;
pub mod opencl;
mod shared;
pub mod sim;

use std::ffi::CStr;

use xsched_core::Platform;

pub(crate) use shared::late::forget_all as forget_suffix_fences;

use crate::interpose::Hook;

/// Index of the OpenCL platform in [`PLATFORMS`].
pub const OPENCL: u8 = 0;
/// Index of the simulated device's platform in [`PLATFORMS`].
pub const SIM: u8 = 1;

/// Index of the CUDA platform in [`PLATFORMS`].
pub const CUDA: u8 = 2;

/// Index of the platform of AMD's runtime below HIP in [`PLATFORMS`].
pub const HSA: u8 = 3;

/// Index of the HIP platform in [`PLATFORMS`].
pub const HIP: u8 = 4;

/// Every platform.
pub static PLATFORMS: &[&dyn Platform] = &[&opencl::OpenCl, &sim::Sim, &cuda::Cuda, &hsa::Hsa, &hip::Hip];

/// What a hooked function does, as far as scheduling goes. Every function that a vendor's library exports is in exactly one
/// class, or not hooked and in the platform's `no_device_work.txt`, or `record.txt` if it records a command that is
/// scheduled when the recording is enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Enqueues a kernel.
    Launch,
    /// Enqueues a copy, a fill, a map or another transfer.
    Copy,
    /// Enqueues something that orders other commands: barriers, markers, waits, signals.
    Order,
    /// Waits on the host for the device.
    Sync,
    /// Begins or ends the recording of commands that would otherwise be enqueued.
    Capture,
    /// Changes what was recorded, or asks about it.
    Recorded,
    /// Makes a queue or a context.
    Create,
    /// Destroys a queue or a context, or decides when it will be.
    Destroy,
    /// Provides or resolves what a queue may wait for from the host.
    HostEvent,
    /// Hands out functions.
    Lookup,
}

/// Hooked functions of one class, declared by one `hooks!`.
pub struct Group {
    /// Their class.
    pub class: Class,
    /// They themselves.
    pub hooks: &'static [&'static Hook],
}

/// The hooked functions of every platform.
pub fn hooks() -> impl Iterator<Item = &'static Hook> {
    let platforms = [opencl::HOOKS, sim::HOOKS, cuda::HOOKS, hip::HOOKS, hsa::HOOKS];
    platforms.into_iter().flatten().flat_map(|group| group.hooks).copied()
}

/// Their names.
pub fn hooked_names() -> Vec<&'static str> {
    hooks().filter_map(|hook| hook.name.to_str().ok()).collect()
}

/// Whether an address lies in a runtime that is scheduled itself and may stand on another platform's driver: HIP's, on
/// CUDA. What it calls there was counted when it entered the runtime.
#[cold]
pub(crate) fn is_scheduled_runtime(address: usize) -> bool {
    hip::is_runtime(address)
}

/// The hook of this name.
pub fn hook(name: &CStr) -> Option<&'static Hook> {
    let groups: &[&Group] = match name.to_bytes() {
        [b'c', b'l', ..] => opencl::HOOKS,
        [b's', b'i', b'm', ..] => sim::HOOKS,
        [b'c', b'u', ..] => cuda::HOOKS,
        [b'h', b's', b'a', ..] => hsa::HOOKS,
        [b'h', b'i', b'p', ..] | [b'_', b'_', b'h', b'i', b'p', ..] | [b'_', b'Z', ..] => hip::HOOKS,
        _ => return None,
    };
    groups.iter().flat_map(|group| group.hooks).copied().find(|hook| hook.name == name)
}
