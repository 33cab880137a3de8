//! Load on a device: kernels of a chosen length, on CUDA, OpenCL or the simulated device.

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use xsched_vendor::cuda::{self, Cuda, Extent};
use xsched_vendor::opencl::{self, OpenCl};
use xsched_vendor::{Library, simulated};

use crate::failure::{Error, Result};

/// Devices that the demo can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Platform {
    /// The first CUDA device.
    Cuda,
    /// The first OpenCL device, a GPU if there is one.
    Opencl,
    /// The simulated device.
    Sim,
}

impl Platform {
    /// Name of the platform, as users type it.
    pub fn name(self) -> &'static str {
        match self {
            Platform::Cuda => "cuda",
            Platform::Opencl => "opencl",
            Platform::Sim => "sim",
        }
    }
}

/// Program of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Latency-critical program.
    Critical,
    /// Best-effort program.
    BestEffort,
}

/// Kernels that a program launches before it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Burst {
    /// Number of kernels.
    pub(crate) kernels: u32,
    /// Length of each kernel.
    pub(crate) length: Duration,
}

impl Burst {
    /// Burst of a program on a platform: short against the time between two requests, long against the time that the platform needs for a
    /// launch.
    pub(crate) fn of(platform: Platform, part: Part) -> Burst {
        let burst = |kernels, us| Burst { kernels, length: Duration::from_micros(us) };
        match (platform, part) {
            (Platform::Cuda, Part::Critical) => burst(20, 100),
            (Platform::Cuda, Part::BestEffort) => burst(32, 1000),
            (_, Part::Critical) => burst(5, 1000),
            (_, Part::BestEffort) => burst(64, 200),
        }
    }
}

impl std::fmt::Display for Burst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} kernels of {} ms", self.kernels, self.length.as_secs_f64() * 1e3)
    }
}

/// Calibration that the parent makes once and passes on, so that all workers run the very same kernels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Calibration {
    /// Name of the device.
    pub(crate) device: String,
    /// Loop iterations of a latency-critical kernel; unused where a kernel's length can be given as a time.
    pub(crate) critical: u32,
    /// Loop iterations of a best-effort kernel.
    pub(crate) best_effort: u32,
}

/// Source of kernels of one length.
pub(crate) enum Load {
    /// Kernel that computes for a number of iterations.
    Cuda(cuda::Spinner),
    /// Kernel that computes for a number of iterations.
    Opencl(opencl::Spinner),
    /// Kernels that take a given time.
    Sim(Sim),
}

impl Load {
    /// Opens the platform's device for the kernels of a program.
    ///
    /// # Errors
    /// Returns one line for the user.
    pub(crate) fn open(platform: Platform, part: Part, iterations: u32) -> Result<Load> {
        let (mut load, _) = open(platform, part)?;
        load.set_iterations(iterations)?;
        Ok(load)
    }

    fn set_iterations(&mut self, n: u32) -> Result<()> {
        match self {
            Load::Cuda(spinner) => spinner.set_iterations(n),
            Load::Opencl(spinner) => spinner.set_iterations(n)?,
            Load::Sim(_) => {}
        }
        Ok(())
    }

    /// Launches one kernel.
    ///
    /// # Errors
    /// Returns an error that names the failed call.
    pub(crate) fn launch(&self) -> Result<()> {
        match self {
            Load::Cuda(spinner) => spinner.launch(),
            Load::Opencl(spinner) => spinner.launch(),
            Load::Sim(sim) => sim.launch(),
        }
    }

    /// Waits for all launched kernels.
    ///
    /// # Errors
    /// Returns an error that names the failed call.
    pub(crate) fn finish(&self) -> Result<()> {
        match self {
            Load::Cuda(spinner) => spinner.finish(),
            Load::Opencl(spinner) => spinner.finish(),
            Load::Sim(sim) => sim.finish(),
        }
    }
}

/// Opens a program's source of kernels; also returns the name of the device.
fn open(platform: Platform, part: Part) -> Result<(Load, String)> {
    match platform {
        Platform::Cuda => {
            let cuda = Cuda::load()?;
            let device = cuda
                .devices()?
                .into_iter()
                .next()
                .ok_or_else(|| Error::environment("the driver finds no CUDA device"))?;
            let extent = match part {
                Part::Critical => Extent::Small,
                Part::BestEffort => Extent::Whole,
            };
            Ok((Load::Cuda(cuda::Spinner::new(cuda, &device, extent)?), device.name))
        }
        Platform::Opencl => {
            let opencl = OpenCl::load()?;
            let device =
                opencl.devices()?.into_iter().next().ok_or_else(|| Error::environment("there is no OpenCL device"))?;
            Ok((Load::Opencl(opencl::Spinner::new(opencl, &device)?), device.name))
        }
        Platform::Sim => {
            let (sim, device) = Sim::open(Burst::of(platform, part).length)?;
            Ok((Load::Sim(sim), device))
        }
    }
}

/// Finds the device and how fast it is.
///
/// # Errors
/// Returns one line for the user.
pub(crate) fn calibrate(platform: Platform) -> Result<Calibration> {
    let iterations = |part| {
        let (mut load, device) = open(platform, part)?;
        let per_ms = if let Load::Sim(_) = load { 0.0 } else { iterations_per_ms(&mut load)? };
        let length_ms = Burst::of(platform, part).length.as_secs_f64() * 1e3;
        Ok::<_, Error>(((per_ms * length_ms).max(1.0) as u32, device))
    };
    let (critical, device) = iterations(Part::Critical)?;
    let (best_effort, _) = iterations(Part::BestEffort)?;
    Ok(Calibration { device, critical, best_effort })
}

/// Doubles a kernel's length until it can be timed well, then takes the shortest of a few times: other activity on the machine can only
/// lengthen them.
fn iterations_per_ms(load: &mut Load) -> Result<f64> {
    let mut time = |n: u32| -> Result<f64> {
        load.set_iterations(n)?;
        let begin = Instant::now();
        load.launch()?;
        load.finish()?;
        Ok(begin.elapsed().as_secs_f64() * 1e3)
    };
    let mut n = 1000;
    while n < 1 << 30 && time(n)? < 10.0 {
        n *= 2;
    }
    let times = (0..15).map(|_| time(n)).collect::<Result<Vec<_>>>()?;
    Ok(f64::from(n) / times.into_iter().fold(f64::MAX, f64::min))
}

/// `simKernel` of simdev.h.
#[repr(C)]
struct SimKernel {
    op: u32,
    count: u32,
    duration_ns: u64,
    x: *mut f32,
    y: *mut f32,
    a: f32,
}

type SimLaunch = unsafe extern "C" fn(*const SimKernel, *mut c_void) -> c_int;
type SimSync = unsafe extern "C" fn() -> c_int;
type SimName = unsafe extern "C" fn(*mut libc::c_char, c_int, c_int) -> c_int;

/// Default stream of the simulated device.
pub(crate) struct Sim {
    kernel: SimKernel,
    launch: SimLaunch,
    sync: SimSync,
}

impl Sim {
    fn open(length: Duration) -> Result<(Sim, String)> {
        let library = Library::open(simulated::library())?;
        // SAFETY: the types are those of simdev.h.
        let (launch, sync, name) = unsafe {
            (
                library.function::<SimLaunch>(c"simLaunchKernel")?,
                library.function::<SimSync>(c"simDeviceSynchronize")?,
                library.function::<SimName>(c"simDeviceGetName")?,
            )
        };
        let mut bytes = [0u8; 256];
        // SAFETY: `bytes` has the length said.
        sim_check(unsafe { name(bytes.as_mut_ptr().cast(), bytes.len() as c_int, 0) }, "simDeviceGetName")?;
        let device = std::ffi::CStr::from_bytes_until_nul(&bytes).map(|c| c.to_string_lossy().into_owned());
        let null = std::ptr::null_mut();
        let kernel = SimKernel { op: 0, count: 0, duration_ns: length.as_nanos() as u64, x: null, y: null, a: 0.0 };
        Ok((Sim { kernel, launch, sync }, device.unwrap_or_default()))
    }

    fn launch(&self) -> Result<()> {
        // SAFETY: the kernel is a live struct of the header's layout; null is the default stream.
        sim_check(unsafe { (self.launch)(&self.kernel, std::ptr::null_mut()) }, "simLaunchKernel")
    }

    fn finish(&self) -> Result<()> {
        // SAFETY: no argument.
        sim_check(unsafe { (self.sync)() }, "simDeviceSynchronize")
    }
}

fn sim_check(status: c_int, what: &str) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(Error::environment(format!("{what} returned {status}"))) }
}
