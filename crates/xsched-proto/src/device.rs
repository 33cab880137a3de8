//! State of a device, as its driver reports it: pure data, for `ps`, for policies and for an operator's own scheduler.

use serde::{Deserialize, Serialize};

/// Result of one poll of a device. A value that its driver does not report is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceState {
    /// Time since its driver was asked, in ms.
    pub age_ms: u64,
    /// Device memory in use by all programs, in bytes.
    pub memory_used_bytes: Option<u64>,
    /// Total device memory, in bytes.
    pub memory_total_bytes: Option<u64>,
    /// Part of the driver's last period (1/6 to 1 s) in which some kernel ran, in %. It does not say how many SMs were busy.
    pub active_percent: Option<u32>,
    /// Part of that period in which device memory was read or written, in %.
    pub memory_active_percent: Option<u32>,
    /// Temperature, in °C.
    pub temperature_c: Option<i32>,
    /// Temperature at which the device begins to slow down, in °C; on AMD's devices the critical temperature.
    pub temperature_limit_c: Option<i32>,
    /// Power drawn, in W.
    pub power_w: Option<u32>,
    /// Largest power that the device may draw, in W.
    pub power_limit_w: Option<u32>,
    /// Clock of the SMs (compute units), in MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Reasons for a clock that is lower than it could be; empty = it is not.
    pub throttle: Option<Vec<Throttle>>,
    /// Number of processes that use the device without being attached; none = the driver names no processes.
    pub outside: Option<u32>,
}

impl DeviceState {
    /// Reports whether the device is slowed down by heat.
    pub fn is_hot(&self) -> bool {
        let reasons = self.throttle.iter().flatten();
        reasons.into_iter().any(|reason| matches!(reason, Throttle::SwThermal | Throttle::HwThermal))
    }
}

/// Reason for a device's clock to be lower than it could be. A clock limit set by an administrator is not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// The device is at its power limit.
    PowerCap,
    /// The device is too hot by the driver's measure.
    SwThermal,
    /// The device is too hot by the hardware's own measure.
    HwThermal,
    /// The power supply asks for a lower clock.
    PowerBrake,
    /// The hardware slows itself down, for one of the last two reasons or another.
    HwSlowdown,
}

impl Throttle {
    /// All reasons, in the order of the bits of `XSchedDeviceState.throttle`.
    pub const ALL: [Throttle; 5] =
        [Throttle::PowerCap, Throttle::SwThermal, Throttle::HwThermal, Throttle::PowerBrake, Throttle::HwSlowdown];

    /// Reason in words, for output.
    pub fn text(self) -> &'static str {
        match self {
            Throttle::PowerCap => "power limit",
            Throttle::SwThermal | Throttle::HwThermal => "heat",
            Throttle::PowerBrake => "power supply",
            Throttle::HwSlowdown => "hardware",
        }
    }
}

/// Process that uses a device, according to the device's driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceProcess {
    /// Process id from the driver.
    pub pid: u32,
    /// Name of the process (`/proc/PID/comm`); none = the daemon cannot see the process.
    pub name: Option<String>,
    /// Device memory that the process uses, in bytes; none = the driver does not report it.
    pub memory_bytes: Option<u64>,
    /// True if the process uses the device without being attached. Never true for one without a name, nor for an MPS server.
    pub outside: bool,
}

/// Origin of a device's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// NVIDIA's management library, NVML.
    Nvml,
    /// Files of AMD's kernel driver, amdgpu.
    Amdgpu,
}

/// Device whose state is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Device key.
    pub device: String,
    /// Name of the device, from its driver.
    pub name: Option<String>,
    /// Origin of the device's state.
    pub source: Source,
    /// True if the last poll is too long ago to represent the present state.
    pub stale: bool,
    /// Result of the last poll.
    pub latest: DeviceState,
    /// Processes that used the device at the last poll; none = its driver names none.
    pub processes: Option<Vec<DeviceProcess>>,
    /// Results of the last polls, about one a second while programs are attached, the oldest first.
    pub history: Vec<DeviceState>,
}
