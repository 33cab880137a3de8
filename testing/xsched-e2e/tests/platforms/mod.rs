//! Platforms of the suite, and a device of each.

use std::path::PathBuf;
use std::process::Command;

use xsched_e2e::{Gpu, HipGpu, Place, Process, beside};

/// Platform of the suite.
pub(crate) struct Platform {
    /// Name of its header in `testing/programs/suite`, and of its tests' module.
    pub(crate) name: &'static str,
    /// Levels that it supports here.
    pub(crate) levels: &'static [&'static str],
    /// Opens a device of its own, or returns the reason for which there is none.
    pub(crate) open: fn() -> Result<Kind, String>,
    /// Linker options of its workload.
    pub(crate) libraries: &'static [&'static str],
}

/// Environment of its programs: a place with the libraries that they need.
pub(crate) enum Kind {
    /// Everything that the library needs is installed, or the place's own.
    Plain(Place),
    /// CUDA, on the software driver.
    Cuda(Gpu),
    /// HIP, on the software runtime.
    Hip(HipGpu),
}

/// All platforms.
pub(crate) const PLATFORMS: &[Platform] = &[
    Platform { name: "sim", levels: &["1", "2", "3"], open: sim, libraries: &["-lsimdev"] },
    Platform { name: "opencl", levels: &["1"], open: opencl, libraries: &["-lOpenCL"] },
    Platform { name: "cuda", levels: &["1", "2", "3"], open: || Ok(Kind::Cuda(Gpu::new())), libraries: &["-ldl"] },
    Platform { name: "hip", levels: &["1"], open: hip, libraries: &["-ldl"] },
];

fn sim() -> Result<Kind, String> {
    let place = Place::new();
    place.device();
    Ok(Kind::Plain(place))
}

fn opencl() -> Result<Kind, String> {
    let place = Place::new();
    let probe = place.join("probe");
    std::fs::write(
        place.join("probe.c"),
        "#define CL_TARGET_OPENCL_VERSION 120\n#include <CL/cl.h>\nint main(void) { cl_uint n = 0; return \
         clGetPlatformIDs(0, 0, &n) || !n; }\n",
    )
    .expect("a writable place");
    let built = Command::new("cc").arg(place.join("probe.c")).arg("-o").arg(&probe).arg("-lOpenCL").output();
    if !built.is_ok_and(|done| done.status.success()) {
        return Err("no OpenCL headers or loader".into());
    }
    match place.command(&probe, &[]).status() {
        Ok(status) if status.success() => Ok(Kind::Plain(place)),
        _ => Err("no OpenCL platform".into()),
    }
}

fn hip() -> Result<Kind, String> {
    let target = beside("libxsched.so").ancestors().nth(2).expect("a target folder").to_owned();
    let runtime = target.join("hip-runtime");
    if runtime.join("libamdhip64.so.6").is_file() {
        Ok(Kind::Hip(HipGpu::new()))
    } else {
        Err(format!("no {0}: `cargo xtask hip-runtime {0}` lays it out", runtime.display()))
    }
}

/// Device of a platform, and the workload built for it.
pub(crate) struct Device {
    kind: Kind,
    levels: &'static [&'static str],
    program: PathBuf,
}

impl Device {
    /// Opens the platform; an error gives the reason for which there is no device.
    pub(crate) fn new(platform: &Platform) -> Result<Device, String> {
        Device::with(platform, "programs/suite/work.c", &[])
    }

    /// Opens a platform with another program of `testing`, compiled with these options.
    pub(crate) fn with(platform: &Platform, program: &str, more: &[&str]) -> Result<Device, String> {
        let kind = (platform.open)()?;
        let header = format!("-DPLATFORM=\"{}.h\"", platform.name);
        let runtime = match &kind {
            Kind::Hip(gpu) => vec![gpu.library(6).to_str().expect("text").to_owned()],
            _ => vec![],
        };
        let mut flags = vec![header.as_str(), "-lpthread", "-lm"];
        flags.extend(platform.libraries);
        flags.extend(runtime.iter().map(String::as_str));
        flags.extend(more);
        let program = place_of(&kind).compile(program, &flags);
        Ok(Device { kind, levels: platform.levels, program })
    }

    /// Place of the daemon.
    pub(crate) fn place(&self) -> &Place {
        place_of(&self.kind)
    }

    /// Levels to test at.
    pub(crate) fn levels(&self) -> impl Iterator<Item = &'static str> {
        self.levels.iter().copied()
    }

    fn start(&self, command: Command) -> Process {
        match &self.kind {
            Kind::Plain(_) => Process::start(command),
            Kind::Cuda(gpu) => gpu.with_driver(command),
            Kind::Hip(gpu) => gpu.with_runtime(command),
        }
    }

    /// Starts the workload without xsched.
    pub(crate) fn bare(&self, args: &[&str]) -> Process {
        self.start(self.place().command(&self.program, args))
    }

    /// Starts the workload under `xsched run`.
    pub(crate) fn run(&self, options: &[&str], args: &[&str]) -> Process {
        self.start(self.place().run_command(options, &self.program, args))
    }

    /// Starts the workload with the library alone, and these variables.
    pub(crate) fn preloaded(&self, variables: &[(&str, &str)], args: &[&str]) -> Process {
        self.with_variables(variables, true, args)
    }

    /// Starts the workload with these variables, and perhaps the library.
    pub(crate) fn with_variables(&self, variables: &[(&str, &str)], preload: bool, args: &[&str]) -> Process {
        let mut command = self.place().command("env", &[]);
        command.args(variables.iter().map(|(name, value)| format!("{name}={value}")));
        if preload {
            command.arg(format!("LD_PRELOAD={}", beside("libxsched.so").display()));
        }
        command.arg(&self.program).args(args);
        self.start(command)
    }

    /// Asserts that the scheduler's count of a program's launches equals the program's own, and the driver's where the driver counts; and
    /// that all of them were scheduled.
    #[track_caller]
    pub(crate) fn assert_counts(&self, lines: &[String]) {
        self.place().assert_counts(lines);
        let pid = pid_of(lines);
        match &self.kind {
            Kind::Plain(_) => {}
            Kind::Cuda(gpu) => gpu.assert_counts(pid),
            Kind::Hip(gpu) => gpu.assert_counts(pid),
        }
    }
}

fn place_of(kind: &Kind) -> &Place {
    match kind {
        Kind::Plain(place) => place,
        Kind::Cuda(gpu) => &gpu.place,
        Kind::Hip(gpu) => &gpu.place,
    }
}

/// Process id in the line of launches.
pub(crate) fn pid_of(lines: &[String]) -> u32 {
    let line = lines.iter().find_map(|line| line.strip_prefix("launched ")).expect("a line of launches");
    line.split(' ').next().and_then(|pid| pid.parse().ok()).expect("a process id")
}
