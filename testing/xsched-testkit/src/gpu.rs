//! A place with a CUDA device: the software driver of `xsched-fakecuda` as `libcuda.so.1`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::files::{beside, put};
use crate::{Place, Process};

/// Place with a CUDA device, for programs that load the software driver.
pub struct Gpu {
    /// Place with its sockets.
    pub place: Place,
    driver: PathBuf,
    /// Library to be preloaded, which answers the `ioctl` calls that go to the driver's resource manager.
    manager: PathBuf,
}

impl Gpu {
    /// Makes a place with one device.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Gpu {
        Gpu::with_devices(1)
    }

    /// Makes this many devices.
    pub fn with_devices(count: u32) -> Gpu {
        Gpu::with(count, &[])
    }

    /// Makes this many devices, with these variables of the simulated device.
    pub fn with(count: u32, variables: &[(&str, &str)]) -> Gpu {
        let place = Place::new();
        place.devices_with(count, variables);
        let driver = place.join("driver");
        std::fs::create_dir(&driver).unwrap();
        put(&beside("libfakecuda.so"), &driver.join("libcuda.so.1"));
        let manager = place.compile("programs/cuda/fakerm.c", &["-shared", "-fPIC"]);
        Gpu { place, driver, manager }
    }

    /// Path of the library that answers for the driver's resource manager: for programs that ask it directly.
    pub fn manager(&self) -> &Path {
        &self.manager
    }

    /// Folder that holds the driver.
    pub fn driver(&self) -> &Path {
        &self.driver
    }

    /// Compiles a program of `testing/programs/cuda`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.place.compile(&format!("programs/cuda/{name}.c"), &["-lpthread", "-lm"])
    }

    /// Starts a command whose environment leads it to the driver.
    pub fn with_driver(&self, mut command: Command) -> Process {
        command.env("LD_LIBRARY_PATH", &self.driver).env("LD_PRELOAD", &self.manager);
        command.env("FAKECUDA_STATS", self.place.join("driver-stats"));
        Process::start(command)
    }

    /// Starts a program without the scheduler.
    pub fn bare(&self, program: &Path, args: &[&str]) -> Process {
        self.with_driver(self.place.command(program, args))
    }

    /// Starts a program under `xsched run`.
    pub fn run(&self, options: &[&str], program: &Path, args: &[&str]) -> Process {
        self.with_driver(self.place.run_command(options, program, args))
    }

    /// Ends a program `steady`, and checks its result and counts.
    #[track_caller]
    pub fn end(&self, program: Process) {
        self.assert_counts(program.end_steady());
    }

    /// Counts of the driver for a process.
    pub fn driver_stats(&self, pid: u32) -> Value {
        let text = std::fs::read_to_string(self.place.join("driver-stats")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.into_iter().find(|line| line["pid"] == pid).expect("the driver's counts")
    }

    /// Checks that the scheduler counts as many launches as the driver: single kernels, copies and sets, and graphs.
    #[track_caller]
    pub fn assert_counts(&self, pid: u32) {
        let (counted, driver) = (self.place.stats_of(pid), self.driver_stats(pid));
        let n = |name: &str| driver[name].as_u64().unwrap();
        let single = n("kernels") + n("copies") + n("sets") - n("graph_kernels") - n("graph_copies") - n("graph_sets");
        assert_eq!(counted["launches"], single + n("graph_launches"), "{counted} {driver}");
        assert_eq!(counted["unscheduled"], json!({"attach": 0, "passthrough": 0, "error": 0}), "{counted}");
    }
}
