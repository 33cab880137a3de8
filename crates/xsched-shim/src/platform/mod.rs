//! Vendor interfaces: one folder each, with the table of what its functions do to the device and the hooks.

pub mod cuda;
pub mod hip;
pub mod hsa;
pub mod opencl;
mod shadowed;
mod shared;
pub mod sim;
pub(crate) mod start;

use std::ffi::CStr;

use xsched_core::Platform;

pub(crate) use shared::hal;
pub(crate) use shared::late::forget_all as forget_suffix_fences;

use crate::interpose::{Class, Group, Hook};

/// Every platform, at its number.
pub static PLATFORMS: &[&dyn Platform] = &[&opencl::OpenCl, &sim::Sim, &cuda::Cuda, &hsa::Hsa, &hip::Hip];

fn groups() -> impl Iterator<Item = &'static Group> {
    [opencl::HOOKS, sim::HOOKS, cuda::HOOKS, cuda::MANAGEMENT_HOOKS, hip::HOOKS, hsa::HOOKS]
        .into_iter()
        .flatten()
        .copied()
}

/// Makes children with a copy of this process's memory find all cells empty.
fn wipe_cells() {
    groups().for_each(|group| _ = crate::wiped::wipe(group.cells));
}

/// The hooked functions of every platform.
pub fn hooks() -> impl Iterator<Item = &'static Hook> {
    groups().flat_map(|group| group.hooks).copied()
}

/// The hooked functions that launch.
pub(crate) fn launches() -> impl Iterator<Item = &'static Hook> {
    groups().filter(|group| group.class == Class::Launch).flat_map(|group| group.hooks).copied()
}

/// Names of all hooked functions.
pub fn hooked_names() -> Vec<&'static str> {
    hooks().filter_map(|hook| hook.name.to_str().ok()).collect()
}

/// Reports whether an address lies in a runtime that is scheduled itself and may be built on another platform's driver:
/// HIP's, on CUDA. Its calls of that driver were counted when they entered the runtime.
#[cold]
pub(crate) fn is_scheduled_runtime(address: usize) -> bool {
    hip::is_runtime(address)
}

/// The hook of this name, if there is one.
pub fn hook(name: &CStr) -> Option<&'static Hook> {
    let groups: &[&Group] = match name.to_bytes() {
        [b'c', b'l', ..] => opencl::HOOKS,
        [b's', b'i', b'm', ..] => sim::HOOKS,
        [b'c', b'u', ..] => cuda::HOOKS,
        [b'n', b'v', b'm', b'l', ..] => cuda::MANAGEMENT_HOOKS,
        [b'h', b's', b'a', ..] => hsa::HOOKS,
        [b'h', b'i', b'p', ..] | [b'_', b'_', b'h', b'i', b'p', ..] | [b'_', b'Z', ..] => hip::HOOKS,
        _ => return None,
    };
    groups.iter().flat_map(|group| group.hooks).copied().find(|hook| hook.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enabled::NUMBERED;
    use crate::interpose::{BINDINGS, tag};

    #[test]
    fn every_platform_stands_at_its_number() {
        assert!(PLATFORMS.iter().map(|platform| platform.kind()).eq(NUMBERED));
    }

    #[test]
    fn no_two_hooked_functions_share_a_tag() {
        let mut tags: Vec<usize> = hooked_names().into_iter().map(tag).collect();
        let all = tags.len();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), all);
        assert!(tags.iter().all(|t| t % BINDINGS == 0 && *t <= i32::MAX as usize));
    }
}
