//! Steps, one after the other, in a process of their own: a vendor's library may hang or abort, and the preload library must be in that
//! process as in any program's.

use serde::{Deserialize, Serialize};

use super::device::{Cl, Cuda, Hip, Sim};
use crate::failure::{Error, Result, print};

/// Number of bytes copied and set: more than a page, and no round number of pages.
const BYTES: usize = 100_004;
/// Value that memory is set to.
const VALUE: u8 = 0xa5;
/// Number of elements of the kernel's vectors.
const ELEMENTS: u32 = 1000;

/// A vendor's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Platform {
    /// CUDA's driver API.
    Cuda,
    /// The HIP runtime.
    Hip,
    /// OpenCL.
    Opencl,
    /// The simulated device.
    Sim,
}

impl Platform {
    /// Name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Platform::Cuda => "cuda",
            Platform::Hip => "hip",
            Platform::Opencl => "opencl",
            Platform::Sim => "sim",
        }
    }
}

/// Operations of one device of a platform that the steps need. Addresses and handles are numbers here.
pub(super) trait Device {
    fn count(&mut self) -> Result<u32>;
    fn select(&mut self) -> Result<()>;
    fn properties(&mut self) -> Result<String>;
    fn allocate(&mut self, bytes: usize) -> Result<u64>;
    fn upload(&mut self, to: u64, from: &[u8]) -> Result<()>;
    fn download(&mut self, from: u64, to: &mut [u8]) -> Result<()>;
    fn set(&mut self, at: u64, value: u8, bytes: usize) -> Result<()>;
    /// Computes `y[i] += a * x[i]` by a kernel; false = this platform has no kernel here.
    fn axpy(&mut self, n: u32, a: f32, x: u64, y: u64) -> Result<bool>;
    fn free(&mut self, at: u64) -> Result<()>;
}

/// Result of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    /// The step did what it should; with the value to compare.
    Ok(String),
    /// The step failed; with the fault.
    Failed(String),
    /// The step was not tried; with the reason.
    Skipped(String),
    /// The first step found nothing to try the others on; with the reason.
    None(String),
}

/// Line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) step: String,
    pub(super) outcome: Outcome,
}

/// Takes the steps and prints a line of JSON for each.
///
/// # Errors
/// Standard output cannot be written to.
pub fn run(platform: Platform) -> Result<()> {
    fn boxed(device: impl Device + 'static) -> Box<dyn Device> {
        Box::new(device)
    }
    let device = match platform {
        Platform::Cuda => Cuda::open().map(boxed),
        Platform::Hip => Hip::open().map(boxed),
        Platform::Opencl => Cl::open().map(boxed),
        Platform::Sim => Sim::open().map(boxed),
    };
    let mut report = |step: &str, outcome: Outcome| {
        let line = serde_json::to_string(&Step { step: step.to_owned(), outcome }).map_err(Error::environment)?;
        // Printed at once, since the next step may abort.
        print(&format!("{line}\n")).map(drop)
    };
    match device {
        Ok(mut device) => take(&mut *device, &mut report)?,
        Err(why) => report("device count", Outcome::None(why.line().to_owned()))?,
    }
    Ok(())
}

/// Takes all steps. A step that failed is reported, and those that need it are skipped.
fn take(device: &mut dyn Device, report: &mut dyn FnMut(&str, Outcome) -> Result<()>) -> Result<()> {
    let outcome = |done: Result<String>| match done {
        Ok(value) => Outcome::Ok(value),
        Err(why) => Outcome::Failed(why.line().to_owned()),
    };
    match device.count() {
        Ok(0) => return report("device count", Outcome::None("there is no device".into())),
        Ok(n) => report("device count", Outcome::Ok(n.to_string()))?,
        Err(why) => return report("device count", Outcome::None(why.line().to_owned())),
    }
    let selected = device.select();
    let usable = selected.is_ok();
    report("set device", outcome(selected.map(|()| String::new())))?;
    report("properties", outcome(device.properties()))?;
    let memory = if usable { device.allocate(BYTES) } else { Err(Error::environment("no device is set")) };
    let memory = match memory {
        Ok(at) => {
            report("malloc", Outcome::Ok(format!("{BYTES} bytes")))?;
            at
        }
        Err(why) => {
            report("malloc", Outcome::Failed(why.line().to_owned()))?;
            for step in ["memcpy, there and back", "memset", "kernel", "free"] {
                report(step, Outcome::Skipped("there is no memory".into()))?;
            }
            return Ok(());
        }
    };
    report("memcpy, there and back", outcome(copy(device, memory)))?;
    report("memset", outcome(set(device, memory)))?;
    match kernel(device) {
        Ok(None) => report("kernel", Outcome::Skipped("HIP's need its compiler: PyTorch's steps run some".into()))?,
        Ok(Some(value)) => report("kernel", Outcome::Ok(value))?,
        Err(why) => report("kernel", Outcome::Failed(why.line().to_owned()))?,
    }
    let freed = device.free(memory);
    report("free", outcome(freed.map(|()| String::new())))
}

fn copy(device: &mut dyn Device, memory: u64) -> Result<String> {
    let mut seed = 1u32;
    let sent: Vec<u8> = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    })
    .take(BYTES)
    .collect();
    let mut back = vec![0; BYTES];
    device.upload(memory, &sent)?;
    device.download(memory, &mut back)?;
    same(&back, &sent)
}

fn set(device: &mut dyn Device, memory: u64) -> Result<String> {
    let mut back = vec![0; BYTES];
    device.set(memory, VALUE, BYTES)?;
    device.download(memory, &mut back)?;
    same(&back, &[VALUE; BYTES])
}

fn same(found: &[u8], expected: &[u8]) -> Result<String> {
    let wrong = found.iter().zip(expected).filter(|(found, expected)| found != expected).count();
    if wrong > 0 {
        return Err(Error::environment(format!("{wrong} of {} bytes are wrong", expected.len())));
    }
    Ok(format!("{} bytes right", expected.len()))
}

fn kernel(device: &mut dyn Device) -> Result<Option<String>> {
    let bytes = |of: fn(f32) -> f32| -> Vec<u8> { (0..ELEMENTS).flat_map(|i| of(i as f32).to_ne_bytes()).collect() };
    let (x, y) = (bytes(|i| i), bytes(|i| 1000.0 - i));
    let (on_x, on_y) = (device.allocate(x.len())?, device.allocate(y.len())?);
    device.upload(on_x, &x)?;
    device.upload(on_y, &y)?;
    let has_kernel = device.axpy(ELEMENTS, 3.0, on_x, on_y)?;
    let mut back = vec![0; y.len()];
    if has_kernel {
        device.download(on_y, &mut back)?;
    }
    device.free(on_x)?;
    device.free(on_y)?;
    if !has_kernel {
        return Ok(None);
    }
    // Whole numbers below 2^24 are exact in any order of rounding.
    same(&back, &bytes(|i| 1000.0 + 2.0 * i)).map(|_| Some(format!("{ELEMENTS} sums right")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of the host, and its faults.
    #[derive(Default)]
    struct Host {
        memory: Vec<Vec<u8>>,
        refuses_memory: bool,
        drops_a_bit: bool,
    }

    impl Device for Host {
        fn count(&mut self) -> Result<u32> {
            Ok(1)
        }
        fn select(&mut self) -> Result<()> {
            Ok(())
        }
        fn properties(&mut self) -> Result<String> {
            Ok("host".into())
        }
        fn allocate(&mut self, bytes: usize) -> Result<u64> {
            if self.refuses_memory {
                return Err(Error::environment("malloc returned 2"));
            }
            self.memory.push(vec![0; bytes]);
            Ok(self.memory.len() as u64 - 1)
        }
        fn upload(&mut self, to: u64, from: &[u8]) -> Result<()> {
            self.memory[to as usize].copy_from_slice(from);
            Ok(())
        }
        fn download(&mut self, from: u64, to: &mut [u8]) -> Result<()> {
            to.copy_from_slice(&self.memory[from as usize]);
            to[7] ^= u8::from(self.drops_a_bit);
            Ok(())
        }
        fn set(&mut self, at: u64, value: u8, _: usize) -> Result<()> {
            self.memory[at as usize].fill(value);
            Ok(())
        }
        fn axpy(&mut self, _: u32, _: f32, _: u64, _: u64) -> Result<bool> {
            Ok(false)
        }
        fn free(&mut self, _: u64) -> Result<()> {
            Ok(())
        }
    }

    fn outcomes(mut host: Host) -> Vec<Outcome> {
        let mut all = Vec::new();
        take(&mut host, &mut |_, outcome| {
            all.push(outcome);
            Ok(())
        })
        .unwrap();
        all
    }

    #[test]
    fn what_comes_back_is_verified() {
        let right = outcomes(Host::default());
        assert_eq!(right.len(), 8);
        assert_eq!(right[4], Outcome::Ok("100004 bytes right".into()));
        let wrong = outcomes(Host { drops_a_bit: true, ..Host::default() });
        for step in [4, 5] {
            assert_eq!(wrong[step], Outcome::Failed("1 of 100004 bytes are wrong".into()));
        }
    }

    #[test]
    fn what_needs_a_failed_step_is_skipped() {
        let without = outcomes(Host { refuses_memory: true, ..Host::default() });
        assert_eq!(without[3], Outcome::Failed("malloc returned 2".into()));
        assert!(without[4..].iter().all(|o| matches!(o, Outcome::Skipped(_))), "{without:?}");
    }
}
