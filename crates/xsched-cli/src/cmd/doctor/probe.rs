//! Examination of one vendor's library, in a process of its own: such libraries may hang or abort.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use xsched_vendor::cuda::{self, Cuda, DeviceInfo};
use xsched_vendor::opencl::OpenCl;
use xsched_vendor::{Library, hip, simulated};

use super::process::{self, Mapping};
use crate::client;
use crate::failure::{Error, Result, print};

/// Longest time that a vendor library may take to name its devices.
const PATIENCE: Duration = Duration::from_secs(20);

/// Library to examine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum What {
    /// NVIDIA CUDA.
    Cuda,
    /// AMD HIP.
    Hip,
    /// OpenCL.
    Opencl,
    /// The simulated device.
    Sim,
    /// The preload library: is it loaded?
    Preload,
    /// Source of the states of devices: memory, activity, heat.
    State,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            What::Cuda => "cuda",
            What::Hip => "hip",
            What::Opencl => "opencl",
            What::Sim => "sim",
            What::Preload => "preload",
            What::State => "state",
        }
    }
}

/// Look at one vendor library
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Library to look at
    #[arg(value_name = "WHAT")]
    what: What,
}

/// Result of the examination.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Found {
    /// Names of devices; for the preload library, the path that it is mapped from.
    pub(super) names: Vec<String>,
    /// Reason for which there are none.
    pub(super) why: Option<String>,
    /// Facts from CUDA's driver.
    pub(super) cuda: Option<Driver>,
    /// Preemption levels, if only the probe can find them out.
    pub(super) levels: Option<Vec<u8>>,
}

/// Facts about CUDA's driver.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Driver {
    /// Newest version of CUDA that the driver supports.
    pub(super) cuda_version: String,
    /// Devices that programs see.
    pub(super) devices: Vec<DeviceInfo>,
}

/// Examines the library and prints JSON.
pub(crate) fn main(args: Args) -> Result {
    let names = |names: Result<Vec<String>>| match names {
        Ok(names) => Found { names, why: None, cuda: None, levels: None },
        Err(why) => Found { names: Vec::new(), why: Some(why.to_string()), cuda: None, levels: None },
    };
    let found = match args.what {
        What::Cuda => match cuda() {
            Ok(driver) => {
                let names = driver.devices.iter().map(|d| d.name.clone()).collect();
                Found { names, why: None, cuda: Some(driver), levels: None }
            }
            Err(why) => names(Err(why)),
        },
        What::Hip => match hip::look() {
            Ok(hip) => Found { names: hip.devices, why: None, cuda: None, levels: Some(hip.levels) },
            Err(why) => names(Err(why)),
        },
        What::Opencl => names(opencl()),
        What::Sim => names(Library::open(simulated::library()).map(|_| vec!["simulated device".to_owned()])),
        What::State => names(Ok(xsched_daemon::device_state_sources())),
        What::Preload => names(mapped(std::process::id()).map(|path| path.into_iter().collect())),
    };
    print(&format!("{}\n", serde_json::json!(found)))?;
    // The process ends without the vendor libraries' own clean-up, which may fail.
    Ok(ExitCode::SUCCESS)
}

/// Path of libxsched.so in a process, if it is mapped there.
fn mapped(pid: u32) -> Result<Option<String>> {
    let mappings = process::mappings(pid).map_err(|e| Error::environment(format!("cannot read its maps: {e}")))?;
    Ok(mapped_in(&mappings).map(|path| path.display().to_string()))
}

/// Path of the library among the mappings of a process.
pub(super) fn mapped_in(mappings: &[Mapping]) -> Option<&Path> {
    let is_it = |path: &&Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libxsched") && name.contains(".so")
    };
    mappings.iter().filter_map(|m| m.file.as_deref()).find(is_it)
}

fn opencl() -> Result<Vec<String>> {
    let devices = OpenCl::load()?.devices()?;
    Ok(devices.into_iter().map(|d| format!("{} ({})", d.name, d.platform)).collect())
}

fn cuda() -> Result<Driver> {
    let cuda = Cuda::load()?;
    Ok(Driver { cuda_version: cuda::version_text(cuda.version), devices: cuda.devices()? })
}

/// Runs a probe as a child, with additional variables if necessary; the error says how it failed.
pub(super) fn run(what: What, environment: &[(&str, &std::ffi::OsStr)]) -> Result<Found> {
    let exe = std::env::current_exe().map_err(Error::environment)?;
    let mut command = Command::new(exe);
    command.args(["probe", what.name()]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if what != What::Preload {
        command.env("XSCHED_DISABLE", "1");
    }
    command.envs(environment.iter().copied());
    let mut child = command.spawn().map_err(|e| Error::environment(format!("cannot start a probe: {e}")))?;
    let pidfd = rustix::process::Pid::from_raw(child.id() as i32)
        .ok_or(rustix::io::Errno::SRCH)
        .and_then(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()))
        .map_err(Error::environment)?;
    if !client::readable(&pidfd, PATIENCE).map_err(Error::environment)? {
        let _ = child.kill();
        let _ = child.wait();
        return Err(Error::environment(format!("it hung for {} s", PATIENCE.as_secs())));
    }
    let output = child.wait_with_output().map_err(Error::environment)?;
    let complaint = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    match serde_json::from_slice::<Found>(&output.stdout) {
        // If the loader cannot preload the library, it prints a warning and continues.
        Ok(found) if what == What::Preload && found.names.is_empty() => Err(Error::environment(complaint)),
        Ok(found) => Ok(found),
        Err(_) => Err(Error::environment(format!("it died ({}) {complaint}", output.status))),
    }
}
