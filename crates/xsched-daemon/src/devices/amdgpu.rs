//! State from the files of AMD's kernel driver below `/sys`. No library of AMD's is loaded; the kernel answers each read.
//!
//! Tested on trees that tests write only, on no AMD GPU yet.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use xsched_proto::device::{DeviceState, Source};

use super::driver::{DeviceLabel, Driver, Look};
use crate::server::clock::now_ns;

/// AMD's id as a vendor of PCI devices.
const VENDOR: &str = "0x1002";

struct Amdgpu {
    /// Folders by device key.
    devices: BTreeMap<String, PathBuf>,
}

/// Finds the GPUs of this driver.
pub(super) fn open() -> Option<Box<dyn Driver>> {
    let devices: BTreeMap<_, _> =
        folders(&root()).map(|(address, folder)| (format!("pci:{address}"), folder)).collect();
    (!devices.is_empty()).then(|| Box::new(Amdgpu { devices }) as Box<dyn Driver>)
}

/// PCI addresses of these GPUs.
pub(super) fn addresses() -> Vec<String> {
    folders(&root()).map(|(address, _)| address).collect()
}

/// Path of `/sys`, or of a tree that a test has written: the preload library uses the same one.
fn root() -> PathBuf {
    std::env::var_os("XSCHED_SYSFS").map_or_else(|| "/sys".into(), PathBuf::from)
}

fn folders(root: &Path) -> impl Iterator<Item = (String, PathBuf)> + use<> {
    let entries = std::fs::read_dir(root.join("bus/pci/devices")).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let folder = entry.path();
        let is = text(&folder, "vendor")? == VENDOR && folder.join("mem_info_vram_total").exists();
        is.then(|| (entry.file_name().to_string_lossy().to_ascii_lowercase(), folder))
    })
}

impl Driver for Amdgpu {
    fn look(&mut self, wanted: &BTreeSet<String>) -> Vec<Look> {
        let known = self.devices.iter().filter(|(key, _)| wanted.contains(*key));
        known.map(|(key, folder)| look(key, folder)).collect()
    }
}

fn look(key: &str, folder: &Path) -> Look {
    let at_ns = now_ns();
    let sensors = std::fs::read_dir(folder.join("hwmon")).into_iter().flatten().flatten().next().map(|e| e.path());
    let sensor = |name: &str| number::<i64>(sensors.as_deref()?, name);
    // The first sensor is at the chip's edge; newer chips have only the second, at the hottest spot.
    let heat = ["temp1", "temp2"].into_iter().find(|name| sensor(&format!("{name}_input")).is_some());
    let degrees = |what: &str| i32::try_from(sensor(&format!("{}_{what}", heat?))? / 1_000).ok();
    let watts = |name: &str| u32::try_from(sensor(name)? / 1_000_000).ok();
    let state = DeviceState {
        memory_used_bytes: number(folder, "mem_info_vram_used"),
        memory_total_bytes: number(folder, "mem_info_vram_total"),
        active_percent: number(folder, "gpu_busy_percent"),
        memory_active_percent: number(folder, "mem_busy_percent"),
        temperature_c: degrees("input"),
        temperature_limit_c: degrees("crit"),
        power_w: watts("power1_average").or_else(|| watts("power1_input")),
        power_limit_w: watts("power1_cap"),
        sm_clock_mhz: watts("freq1_input"),
        ..DeviceState::default()
    };
    let name = text(folder, "product_name").filter(|name| !name.is_empty());
    Look {
        at_ns,
        device: key.to_owned(),
        source: Source::Amdgpu,
        name,
        label: DeviceLabel::default(),
        state,
        processes: None,
    }
}

fn text(folder: &Path, name: &str) -> Option<String> {
    Some(std::fs::read_to_string(folder.join(name)).ok()?.trim().to_owned())
}

fn number<T: std::str::FromStr>(folder: &Path, name: &str) -> Option<T> {
    text(folder, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_read_and_other_devices_are_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = root.path().join("bus/pci/devices").join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
        };
        write("0000:01:00.0/vendor", "0x10de");
        write("0000:01:00.0/mem_info_vram_total", "1");
        // Another function of the same card, which is no GPU.
        write("0000:c1:00.1/vendor", "0x1002");
        for (file, text) in [
            ("vendor", "0x1002"),
            ("product_name", "AMD Instinct MI300X"),
            ("mem_info_vram_total", "206141652992"),
            ("mem_info_vram_used", "1073741824"),
            ("gpu_busy_percent", "87"),
            ("hwmon/hwmon3/temp2_input", "61000"),
            ("hwmon/hwmon3/temp2_crit", "100000"),
            ("hwmon/hwmon3/power1_input", "310000000"),
            ("hwmon/hwmon3/power1_cap", "750000000"),
            ("hwmon/hwmon3/freq1_input", "2100000000"),
        ] {
            write(&format!("0000:C1:00.0/{file}"), text);
        }
        let devices: Vec<_> = folders(root.path()).collect();
        let [(address, folder)] = devices.as_slice() else { panic!("{devices:?}") };
        assert_eq!(address, "0000:c1:00.0");
        let look = look("pci:0000:c1:00.0", folder);
        let expected = DeviceState {
            memory_used_bytes: Some(1 << 30),
            memory_total_bytes: Some(206_141_652_992),
            active_percent: Some(87),
            temperature_c: Some(61),
            temperature_limit_c: Some(100),
            power_w: Some(310),
            power_limit_w: Some(750),
            sm_clock_mhz: Some(2_100),
            ..DeviceState::default()
        };
        assert_eq!((look.state, look.name.as_deref()), (expected, Some("AMD Instinct MI300X")));
    }
}
