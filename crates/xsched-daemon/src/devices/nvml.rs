//! The state of NVIDIA's devices, as the management library tells it.

use std::collections::BTreeSet;

use xsched_proto::device::{DeviceProcess, DeviceState, Source, Throttle};
use xsched_vendor::nvml::{self, Nvml};

use super::driver::{DeviceLabel, Driver, Look};
use crate::server::clock::now_ns;

/// Bits of `nvmlClocksEventReasons`.
const REASONS: [(u64, Throttle); 5] = [
    (0x4, Throttle::PowerCap),
    (0x20, Throttle::SwThermal),
    (0x40, Throttle::HwThermal),
    (0x80, Throttle::PowerBrake),
    (0x8, Throttle::HwSlowdown),
];

/// Device that the library knows.
struct Device {
    key: String,
    own: nvml::Device,
    /// The GPU that it is a part of, which has the sensors; none where it is no part.
    board: Option<nvml::Device>,
}

/// The library in use, and the devices that it has.
struct Devices {
    nvml: Nvml,
    found: Vec<Device>,
    /// Keys that were wanted when `found` was looked for.
    found_for: BTreeSet<String>,
}

/// Opens the library for use. While it is in use the driver cannot be unloaded; dropping this ends the use.
pub(super) fn open() -> Option<Box<dyn Driver>> {
    let nvml = Nvml::open().ok()?;
    Some(Box::new(Devices { nvml, found: Vec::new(), found_for: BTreeSet::new() }))
}

/// Version of the driver; none = there is no library, or it does not work here.
pub(super) fn version() -> Option<String> {
    Nvml::open().ok()?.version()
}

impl Devices {
    fn find(&mut self) {
        self.found.clear();
        for board in (0..self.nvml.count().unwrap_or(0)).filter_map(|index| self.nvml.board(index)) {
            let key = board.address().map(|address| format!("pci:{address}"));
            self.found.extend(key.map(|key| Device { key, own: board.clone(), board: None }));
            for part in board.parts().unwrap_or_default() {
                self.found.extend(key_of_part(&part).map(|key| Device { key, own: part, board: Some(board.clone()) }));
            }
        }
    }
}

fn key_of_part(part: &nvml::Device) -> Option<String> {
    Some(format!("mig:{}", part.uuid()?.strip_prefix("MIG-")?.to_ascii_lowercase()))
}

/// Reads the state of a device; none where the device is gone.
fn read(device: &Device) -> Option<Look> {
    let at_ns = now_ns();
    let own = &device.own;
    let board = device.board.as_ref().unwrap_or(own);
    let memory = own.memory()?;
    let utilization = own.utilization();
    let state = DeviceState {
        memory_used_bytes: memory.used,
        memory_total_bytes: memory.total,
        active_percent: utilization.map(|u| u.gpu),
        memory_active_percent: utilization.map(|u| u.memory),
        temperature_c: board.temperature().map(u32::cast_signed),
        temperature_limit_c: board.temperature_limit().map(u32::cast_signed),
        power_w: board.power().map(|mw| mw / 1_000),
        power_limit_w: board.power_limit().map(|mw| mw / 1_000),
        sm_clock_mhz: board.clock(),
        throttle: board.clock_reasons().map(throttle),
        ..DeviceState::default()
    };
    let label = DeviceLabel { uuid: board.uuid(), instance: device.board.as_ref().and_then(|_| own.instance()) };
    let processes = own.processes().map(|processes| processes.into_iter().map(process).collect());
    Some(Look { at_ns, device: device.key.clone(), source: Source::Nvml, name: own.name(), label, state, processes })
}

fn throttle(bits: u64) -> Vec<Throttle> {
    REASONS.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, reason)| reason).collect()
}

fn process(process: nvml::Process) -> DeviceProcess {
    DeviceProcess { pid: process.pid, name: name_of(process.pid), memory_bytes: process.memory, outside: false }
}

impl Driver for Devices {
    fn look(&mut self, wanted: &BTreeSet<String>) -> Vec<Look> {
        if *wanted != self.found_for {
            self.find();
            self.found_for.clone_from(wanted);
        }
        let devices = || self.found.iter().filter(|device| wanted.contains(&device.key));
        let looks: Vec<Look> = devices().filter_map(read).collect();
        if looks.len() < devices().count() {
            // A device is gone, or MIG was set up anew: the devices are searched again at the next poll.
            self.found_for.clear();
        }
        looks
    }
}

fn name_of(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}
