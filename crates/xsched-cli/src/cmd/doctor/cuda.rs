//! Facts about NVIDIA GPUs: driver, devices, Multi-Process Service, and the levels that follow.

use std::path::PathBuf;

use serde::Serialize;
use xsched_daemon::mps;
use xsched_vendor::cuda::{ComputeMode, DeviceInfo};

use super::probe::Driver;

/// Result of the examination.
#[derive(Debug, Serialize)]
pub(super) struct Cuda {
    /// Version of the kernel module.
    driver_version: Option<String>,
    /// Newest version of CUDA that the driver supports.
    cuda_version: String,
    devices: Vec<DeviceInfo>,
    mps: Mps,
    /// Levels of `run --share time` that all devices support.
    pub(super) levels_by_time: Vec<u8>,
    /// Levels of `run --share pool` and `spatial` that all devices support: under MPS all programs have the same time slice.
    levels_spatial: Vec<u8>,
    /// Reason for which there are no pools, as far as it can be seen from here.
    pool_obstacle: Option<String>,
}

/// Multi-Process Service, as a program started here would find it.
#[derive(Debug, Serialize)]
struct Mps {
    /// Pipe directory that is checked.
    pipe_directory: PathBuf,
    /// True if a control daemon answers there.
    answers: bool,
    /// Process ids of this user's control daemons, at whatever pipe directory.
    control_pids: Vec<u32>,
}

impl Cuda {
    /// Combines the facts from the driver, the kernel and the processes.
    pub(super) fn new(driver: Driver) -> Cuda {
        let pipe_directory = mps::pipe_directory();
        let answers = mps::answers(&pipe_directory);
        let levels_spatial: Vec<u8> =
            if driver.devices.iter().all(|d| d.stream_memory_ops) { vec![1, 2] } else { vec![1] };
        let mut levels_by_time = levels_spatial.clone();
        levels_by_time.extend(driver.devices.iter().all(|d| !d.mps).then_some(3));
        let version = std::fs::read_to_string("/sys/module/nvidia/version").ok();
        Cuda {
            driver_version: version.map(|v| v.trim().to_owned()),
            cuda_version: driver.cuda_version,
            devices: driver.devices,
            mps: Mps { pipe_directory, answers, control_pids: mps::control_daemons() },
            levels_by_time,
            levels_spatial,
            pool_obstacle: xsched_daemon::pool_obstacle(),
        }
    }

    /// Report as lines of text.
    pub(super) fn lines(&self) -> Vec<String> {
        let driver = self.driver_version.as_deref().unwrap_or("of an unknown version");
        let mut lines = vec![format!("driver {driver}, CUDA {}", self.cuda_version)];
        lines.extend(self.devices.iter().map(device));
        let at = self.mps.pipe_directory.display();
        let mut service = match self.mps.answers {
            true => format!("MPS: a daemon answers at {at}; "),
            false => format!("MPS: none at {at}; "),
        };
        if !self.mps.control_pids.is_empty() {
            let pids: Vec<String> = self.mps.control_pids.iter().map(u32::to_string).collect();
            service += &format!("control daemons of yours: {}; ", pids.join(", "));
        }
        let levels: Vec<String> = self.levels_spatial.iter().map(u8::to_string).collect();
        lines.push(service + &format!("levels with `run --share spatial`: {}", levels.join(", ")));
        lines.push(match &self.pool_obstacle {
            None => "pools: `run` puts low and normal programs into one".to_owned(),
            Some(why) => format!("pools: none, programs share by time: {why}"),
        });
        lines
    }
}

fn device(device: &DeviceInfo) -> String {
    let mode = match device.compute_mode {
        ComputeMode::Default => "compute mode default",
        ComputeMode::Prohibited => "compute mode prohibited: no program can use it",
        ComputeMode::ExclusiveProcess => "compute mode exclusive: one program at a time, or those of one MPS daemon",
    };
    let operations = if device.stream_memory_ops { "stream memory operations" } else { "no stream memory operations" };
    format!("{} at {}, {}, {mode}, {operations}", device.name, device.pci, device.uuid)
}
