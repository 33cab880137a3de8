//! A device that runs kernels of a chosen length: OpenCL or the simulated one.

use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::dl::Library;
use crate::opencl::{OpenCl, Spinner};

/// Where the demo can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Platform {
    /// The first OpenCL device, a GPU if there is one.
    Opencl,
    /// The simulated device.
    Sim,
}

impl Platform {
    /// As it is typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Platform::Opencl => "opencl",
            Platform::Sim => "sim",
        }
    }
}

/// What the parent finds out once and passes on, so that all workers run the very same kernels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Calibration {
    /// The device's name.
    pub(crate) device: String,
    /// Loop iterations that take 1 ms; unused where a kernel's length is simply said.
    pub(crate) iterations_per_ms: f64,
}

/// Kernels of one length.
pub(crate) enum Load {
    /// Spins for a number of iterations.
    Opencl(Spinner),
    /// Takes as long as it says.
    Sim(Sim),
}

impl Load {
    /// Opens the platform's device for kernels of `length`.
    ///
    /// # Errors
    /// One line.
    pub(crate) fn open(platform: Platform, length: Duration, iterations_per_ms: f64) -> Result<Load, String> {
        match platform {
            Platform::Opencl => {
                let (spinner, _) = open_opencl()?;
                spinner.set_iterations((iterations_per_ms * length.as_secs_f64() * 1e3).max(1.0) as u32)?;
                Ok(Load::Opencl(spinner))
            }
            Platform::Sim => Sim::open(length).map(|(sim, _)| Load::Sim(sim)),
        }
    }

    /// Launches one kernel.
    ///
    /// # Errors
    /// Names the call that failed.
    pub(crate) fn launch(&self) -> Result<(), String> {
        match self {
            Load::Opencl(spinner) => spinner.launch(),
            Load::Sim(sim) => sim.launch(),
        }
    }

    /// Waits for all of them.
    ///
    /// # Errors
    /// Names the call that failed.
    pub(crate) fn finish(&self) -> Result<(), String> {
        match self {
            Load::Opencl(spinner) => spinner.finish(),
            Load::Sim(sim) => sim.finish(),
        }
    }
}

fn open_opencl() -> Result<(Spinner, String), String> {
    let opencl = OpenCl::load()?;
    let device = opencl.devices()?.into_iter().next().ok_or("there is no OpenCL device")?;
    Ok((Spinner::new(opencl, &device)?, device.name))
}

/// Finds the device and how fast it is.
///
/// # Errors
/// One line.
pub(crate) fn calibrate(platform: Platform) -> Result<Calibration, String> {
    match platform {
        Platform::Sim => Ok(Calibration { device: Sim::open(Duration::from_millis(1))?.1, iterations_per_ms: 0.0 }),
        Platform::Opencl => {
            let (spinner, device) = open_opencl()?;
            Ok(Calibration { device, iterations_per_ms: iterations_per_ms(&spinner)? })
        }
    }
}

/// Doubles a kernel's length until it can be timed well, then takes the shortest of a few: whatever else runs here can
/// only lengthen them.
fn iterations_per_ms(spinner: &Spinner) -> Result<f64, String> {
    let time = |n: u32| -> Result<f64, String> {
        spinner.set_iterations(n)?;
        let begin = Instant::now();
        spinner.launch()?;
        spinner.finish()?;
        Ok(begin.elapsed().as_secs_f64() * 1e3)
    };
    let mut n = 1000;
    while n < 1 << 30 && time(n)? < 10.0 {
        n *= 2;
    }
    let times = (0..15).map(|_| time(n)).collect::<Result<Vec<_>, _>>()?;
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

/// The simulated device's default stream.
pub(crate) struct Sim {
    kernel: SimKernel,
    launch: SimLaunch,
    sync: SimSync,
}

/// libsimdev.so, beside this program.
pub(crate) fn simdev_path() -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name("libsimdev.so")
}

impl Sim {
    fn open(length: Duration) -> Result<(Sim, String), String> {
        let library = Library::open(simdev_path())?;
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

    fn launch(&self) -> Result<(), String> {
        // SAFETY: the kernel is a live struct of the header's layout; null is the default stream.
        sim_check(unsafe { (self.launch)(&self.kernel, std::ptr::null_mut()) }, "simLaunchKernel")
    }

    fn finish(&self) -> Result<(), String> {
        // SAFETY: no argument.
        sim_check(unsafe { (self.sync)() }, "simDeviceSynchronize")
    }
}

fn sim_check(status: c_int, what: &str) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("{what} returned {status}")) }
}
