//! Search for the kernel's devices that belong to a device key.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use xsched_proto::variables;

/// Devices found so far: key, and the kernel's numbers for it. There are several if a device is partitioned and the
/// parts share an address.
static FOUND: Mutex<Vec<(String, Vec<u32>)>> = Mutex::new(Vec::new());

/// Root of sysfs, in which the kernel lists its devices.
fn sysfs() -> PathBuf {
    variables::get("XSCHED_SYSFS").map_or_else(|| "/sys".into(), PathBuf::from)
}

/// The kernel's numbers of a device; empty if the kernel does not drive it.
pub(super) fn gpus_of(device: &str) -> Vec<u32> {
    // The cache is not worth waiting for, and in a forked child no thread may be left to release it.
    let mut found = FOUND.try_lock().ok();
    if let Some((_, gpus)) = found.iter().flat_map(|f| f.iter()).find(|(key, _)| key == device) {
        return gpus.clone();
    }
    let gpus = gpus_below(&sysfs().join("class/kfd/kfd/topology/nodes"), device);
    if let Some(found) = found.as_mut().filter(|_| !gpus.is_empty()) {
        found.push((device.to_owned(), gpus.clone()));
    }
    gpus
}

fn gpus_below(nodes: &Path, device: &str) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(nodes) else { return Vec::new() };
    let mut gpus: Vec<u32> = entries.flatten().filter_map(|node| gpu_at(&node.path(), device)).collect();
    gpus.sort_unstable();
    gpus
}

/// The `gpu_id` of a node if it is this device.
fn gpu_at(node: &Path, device: &str) -> Option<u32> {
    let id: u32 = std::fs::read_to_string(node.join("gpu_id")).ok()?.trim().parse().ok()?;
    let properties = std::fs::read_to_string(node.join("properties")).ok()?;
    let value = |name: &str| -> Option<u32> {
        let mut lines = properties.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(n, _)| *n == name)?.1.trim().parse().ok()
    };
    // The number 0 is a node without a GPU.
    (id != 0 && key_of(value("domain").unwrap_or(0), value("location_id")?) == device).then_some(id)
}

/// Key of a device from its PCI domain and location: eight bits of bus, five of device, three of function.
pub(crate) fn key_of(domain: u32, location: u32) -> String {
    format!("pci:{domain:04x}:{:02x}:{:02x}.{:x}", location >> 8 & 0xff, location >> 3 & 0x1f, location & 7)
}

/// Reports whether the kernel is configured not to save the state of interrupted work (CWSR off). Work then cannot be
/// interrupted.
pub(super) fn saving_is_off() -> bool {
    let parameter = sysfs().join("module/amdgpu/parameters/cwsr_enable");
    std::fs::read_to_string(parameter).is_ok_and(|text| text.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_bus_device_and_function() {
        assert_eq!(key_of(0, 0x4100), "pci:0000:41:00.0");
        assert_eq!(key_of(0x10001, 0xc3 << 8 | 0x1f << 3 | 7), "pci:10001:c3:1f.7");
    }
}
