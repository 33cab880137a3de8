//! The state of a device, as its driver tells it: pure data, for `ps`, for policies and for an operator's own scheduler.

use serde::{Deserialize, Serialize};

/// One look at a device. A value that its driver does not tell is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceState {
    /// How long ago its driver was asked, in ms.
    pub age_ms: u64,
    /// Device memory in use by all programs, in bytes.
    pub memory_used_bytes: Option<u64>,
    /// Device memory that there is, in bytes.
    pub memory_total_bytes: Option<u64>,
    /// Part of the driver's last period (1/6 to 1 s) in which some kernel ran, in %. It does not tell how many SMs that took.
    pub active_percent: Option<u32>,
    /// Part of the same period in which device memory was read or written, in %.
    pub memory_active_percent: Option<u32>,
    /// Temperature, in °C.
    pub temperature_c: Option<i32>,
    /// Temperature from which the device slows itself down, in °C; on AMD's devices the critical one.
    pub temperature_limit_c: Option<i32>,
    /// Power drawn, in W.
    pub power_w: Option<u32>,
    /// Power that it may draw, in W.
    pub power_limit_w: Option<u32>,
    /// Clock of its SMs (compute units), in MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Why its clock is lower than it could be; empty = it is not.
    pub throttle: Option<Vec<Throttle>>,
    /// Processes that use it without being attached; none = its driver names no processes.
    pub outside: Option<u32>,
}

impl DeviceState {
    /// Whether it is slowed down by heat.
    pub fn is_hot(&self) -> bool {
        let reasons = self.throttle.iter().flatten();
        reasons.into_iter().any(|reason| matches!(reason, Throttle::SwThermal | Throttle::HwThermal))
    }
}

/// Why a device's clock is lower than it could be. A clock that an administrator has set is none of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// Its power limit.
    PowerCap,
    /// Heat, as its driver sees it.
    SwThermal,
    /// Heat, as the hardware itself sees it.
    HwThermal,
    /// The power supply asked for it.
    PowerBrake,
    /// The hardware, for one of the last two reasons or another.
    HwSlowdown,
}

impl Throttle {
    /// All of them, in the order of the bits of `XSchedDeviceState.throttle`.
    pub const ALL: [Throttle; 5] =
        [Throttle::PowerCap, Throttle::SwThermal, Throttle::HwThermal, Throttle::PowerBrake, Throttle::HwSlowdown];

    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Throttle::PowerCap => "power limit",
            Throttle::SwThermal | Throttle::HwThermal => "heat",
            Throttle::PowerBrake => "power supply",
            Throttle::HwSlowdown => "hardware",
        }
    }
}

/// A process that uses a device, as the device's driver tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceProcess {
    /// Process id, as the driver tells it.
    pub pid: u32,
    /// Name of the process (`/proc/PID/comm`); none = the daemon sees no such process.
    pub name: Option<String>,
    /// Device memory that it uses, in bytes; none = the driver does not tell.
    pub memory_bytes: Option<u64>,
    /// It uses the device without being attached. Not said of one without a name, nor of an MPS server.
    pub outside: bool,
}

/// Where the state of a device comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// NVIDIA's management library.
    Nvml,
    /// The files of AMD's kernel driver.
    Amdgpu,
}

/// A device whose state is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Device key.
    pub device: String,
    /// Its name, as its driver tells it.
    pub name: Option<String>,
    /// Where its state comes from.
    pub source: Source,
    /// The last look is too long ago to tell how it is now.
    pub stale: bool,
    /// The last look.
    pub latest: DeviceState,
    /// Processes that used it then; none = its driver names none.
    pub processes: Option<Vec<DeviceProcess>>,
    /// The last looks, about one a second while programs are attached, the oldest first.
    pub history: Vec<DeviceState>,
}
