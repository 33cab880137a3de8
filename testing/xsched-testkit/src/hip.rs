//! A place with a HIP device: the software runtime of `xsched-fakehip` as `libamdhip64`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::{Place, Process, beside};

/// Place with a HIP device, for programs that load the software runtime.
pub struct HipGpu {
    /// Place with its sockets.
    pub place: Place,
    /// Folder that holds the runtimes.
    pub runtime: PathBuf,
    /// Variables of programs, beside those that the runtime needs.
    pub environment: Vec<(&'static str, String)>,
}

/// Finds the folder that `cargo xtask hip-runtime` laid out.
fn runtime() -> PathBuf {
    let target = beside("libxsched.so").ancestors().nth(2).expect("a target folder").to_owned();
    let folder = target.join("hip-runtime");
    let there = folder.join("libamdhip64.so.5").is_file();
    assert!(there, "{0} is missing: run `cargo xtask hip-runtime {0}` first", folder.display());
    folder
}

impl HipGpu {
    /// Makes a place with one simulated device.
    #[allow(clippy::new_without_default)]
    pub fn new() -> HipGpu {
        let place = Place::new();
        place.device();
        HipGpu { place, runtime: runtime(), environment: Vec::new() }
    }

    /// Path of the runtime library of a major version.
    pub fn library(&self, major: u32) -> PathBuf {
        self.runtime.join(format!("libamdhip64.so.{major}"))
    }

    /// Compiles a program of `testing/programs/hip`, linked against the runtime of a major version.
    pub fn program(&self, name: &str, major: u32) -> PathBuf {
        let library = self.library(major);
        let library = library.to_str().expect("text");
        self.place.compile(&format!("programs/hip/{name}.c"), &[library, "-lpthread", "-lm", "-ldl"])
    }

    /// Starts a command whose environment leads it to the runtime.
    pub fn with_runtime(&self, mut command: Command) -> Process {
        command.env("LD_LIBRARY_PATH", &self.runtime).env("FAKEHIP_STATS", self.place.join("runtime-stats"));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Process::start(command)
    }

    /// Starts a program without the scheduler.
    pub fn bare(&self, program: &Path, args: &[&str]) -> Process {
        self.with_runtime(self.place.command(program, args))
    }

    /// Starts a program under `xsched run`.
    pub fn run(&self, options: &[&str], program: &Path, args: &[&str]) -> Process {
        self.with_runtime(self.place.run_command(options, program, args))
    }

    /// Counts of each copy of the runtime in a process.
    pub fn copies_stats(&self, pid: u32) -> Vec<Value> {
        let text = std::fs::read_to_string(self.place.join("runtime-stats")).expect("the runtime's counts");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.filter(|line| line["pid"] == pid).collect()
    }

    /// Counts of the runtime in a process that has one copy.
    #[track_caller]
    pub fn runtime_stats(&self, pid: u32) -> Value {
        let [one] = &self.copies_stats(pid)[..] else { panic!("not one line for {pid}") };
        one.clone()
    }

    /// Checks that the scheduler counts as many launches as the runtime, whose count is of the launch, copy and set functions that gave the
    /// device work, and that no launch went past the scheduler.
    #[track_caller]
    pub fn assert_counts(&self, pid: u32) {
        let (counted, runtime) = (self.place.stats_of(pid), self.copies_stats(pid));
        let commands: u64 = runtime.iter().map(|copy| copy["commands"].as_u64().expect("a number")).sum();
        assert_eq!(counted["launches"], commands, "{counted} {runtime:?}");
        assert_eq!(counted["unscheduled"], json!({"attach": 0, "passthrough": 0, "error": 0}), "{counted}");
    }

    /// Ends a program `steady`, and checks its result and counts.
    #[track_caller]
    pub fn end(&self, program: Process) {
        self.assert_counts(program.end_steady());
    }
}
