//! Chain of a program, seven shared libraries, and the device: program → libext → libtorch_python → libtorch_hip → libwrapper → libhipblas
//! → libhipblaslt (named as a wheel's repair tool names it) → a vendor's runtime → the simulated device. Over HIP the last library calls
//! the HIP runtime itself.
#![allow(dead_code, unreachable_pub)]

use std::path::{Path, PathBuf};
use std::process::Command;

use xsched_e2e::{HipGpu, Place, Process, beside};

/// File, function, and the function that it calls.
const LINKS: [(&str, &str, &str); 6] = [
    ("libhipblaslt-1a2b3c4d.so.0", "stage6", "runtime_launch"),
    ("libhipblas.so.2", "stage5", "stage6"),
    ("libwrapper.so", "stage4", "stage5"),
    ("libtorch_hip.so", "stage3", "stage4"),
    ("libtorch_python.so", "stage2", "stage3"),
    ("libext.so", "stage1", "stage2"),
];
const RUNTIME: &str = "libamdhip64.so.6";

/// Compiled chain.
pub struct Chain {
    pub place: Place,
    program: PathBuf,
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// Compiles a file of `testing/programs/domains` against other libraries of the chain and the device.
fn build(place: &Place, output: &str, file: &str, flags: &[&str], needs: &[PathBuf]) -> PathBuf {
    let simdev = beside("libsimdev.so");
    let libraries = simdev.parent().expect("a folder");
    let output = place.join(output);
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&output);
    cc.arg(source("testing/programs/domains").join(file)).arg("-I").arg(source("include"));
    cc.arg("-I").arg(source("crates/xsched-simdev/include")).args(flags).args(needs);
    for folder in [libraries, &place.join("")] {
        cc.arg(format!("-Wl,-rpath,{}", folder.display()));
        cc.arg(format!("-Wl,-rpath-link,{}", folder.display()));
    }
    let done = cc.output().expect("a C compiler");
    assert!(done.status.success(), "cc: {}", String::from_utf8_lossy(&done.stderr));
    output
}

/// Compiles the libraries of the chain. `below` is the library that the last of them needs, `extra` are compiler options.
fn links(place: &Place, below: &[PathBuf], extra: &[&str]) -> Vec<PathBuf> {
    let (mut needs, mut all) = (below.to_vec(), Vec::new());
    for (file, name, calls) in LINKS {
        let (define, calls) = (format!("-DNAME={name}"), format!("-DNEXT={calls}"));
        let soname = soname(file);
        let mut flags = vec!["-shared", "-fPIC", &*define, &*calls, &*soname];
        if name == "stage6" {
            flags.push("-DVENDOR");
            flags.extend(extra);
        }
        let made = build(place, file, "link.c", &flags, &needs);
        needs = vec![made.clone()];
        all.push(made);
    }
    all
}

fn soname(name: &str) -> String {
    format!("-Wl,-soname,{name}")
}

/// Compiles the chain over the HIP runtime, and returns the program.
pub fn over_hip(gpu: &HipGpu) -> PathBuf {
    let runtime = gpu.library(6);
    let mut all = links(&gpu.place, &[source("testing/programs/domains/runtime.c"), runtime.clone()], &["-DHIP"]);
    all.push(runtime);
    let folder = format!("-Wl,-rpath-link,{}", gpu.runtime.display());
    build(&gpu.place, "chain", "chain_hip.c", &["-lpthread", "-ldl", &folder], &all)
}

impl Chain {
    pub fn new() -> Chain {
        Chain::over("chain.c", RUNTIME, &["-lm"])
    }

    /// Makes the chain over the CUDA driver: in place of libcudart there is a library that finds the driver as libcudart does.
    pub fn over_cuda() -> Chain {
        Chain::over("chain_cuda.c", "libcudart.so.12", &["-DCUDA", "-lpthread", "-lm"])
    }

    fn over(program: &str, runtime_name: &str, extra: &[&str]) -> Chain {
        let place = Place::new();
        place.device();
        let simdev = beside("libsimdev.so");
        let cuda = extra.contains(&"-DCUDA");
        let named = soname(runtime_name);
        let flags = [&["-shared", "-fPIC", &*named], extra].concat();
        let runtime = build(&place, runtime_name, "runtime.c", &flags, std::slice::from_ref(&simdev));
        let mut all = vec![simdev, runtime.clone()];
        all.extend(links(&place, &[runtime], &[]));
        let program = build(&place, "chain", program, extra, &all);
        if cuda {
            std::os::unix::fs::symlink(beside("libfakecuda.so"), place.join("libcuda.so.1")).expect("a link");
        }
        Chain { place, program }
    }

    /// Path of one of the libraries.
    pub fn library(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// Time that a program's launches waited at its gates, in µs.
    pub fn waited_us(&self, pid: u32) -> u64 {
        let program = self.place.program(pid).expect("a program");
        program["groups"].as_array().expect("groups").iter().map(|g| g["wait_us"].as_u64().expect("a number")).sum()
    }

    /// Starts the chain's program under the scheduler.
    pub fn run(&self, environment: &[(&str, &str)]) -> Process {
        self.run_as(&[], environment)
    }

    /// Starts the program over CUDA. It launches this many times by itself, through the runtime, and by the chain.
    pub fn run_cuda(&self, launches: [u32; 3], environment: &[(&str, &str)]) -> Process {
        let launches = launches.map(|n| n.to_string());
        let mut command = self.place.run_command(&[], &self.program, &launches.each_ref().map(String::as_str));
        command.envs(environment.iter().copied());
        Process::start(self.with_driver(command))
    }

    /// Starts the program over CUDA; it obeys lines on its input.
    pub fn run_cuda_told(&self, options: &[&str], environment: &[(&str, &str)]) -> Process {
        let mut command = self.place.run_command(options, &self.program, &[]);
        command.envs(environment.iter().copied().filter(|(_, value)| !value.is_empty()));
        let mut program = Process::start(self.with_driver(command));
        program.expect("ready");
        program
    }

    /// Adds the variables by which a program finds the driver of [`Chain::over_cuda`].
    pub fn with_driver(&self, mut command: Command) -> Command {
        command.env("LD_LIBRARY_PATH", self.place.join(""));
        command
    }

    /// Starts the program with options of `xsched run`.
    pub fn run_as(&self, options: &[&str], environment: &[(&str, &str)]) -> Process {
        let mut command = self.place.run_command(options, &self.program, &[]);
        command.envs(environment.iter().copied().filter(|(_, value)| !value.is_empty()));
        let mut program = Process::start(command);
        program.expect("ready");
        program
    }
}

/// Has the program do something, and returns the number that it answers.
#[track_caller]
pub fn step(program: &mut Process, what: &str) -> i64 {
    program.tell(what);
    let name = what.split(' ').next().expect("a word");
    let line = program.line();
    let (said, answer) = line.split_once(' ').expect("an answer");
    assert_eq!(said, name, "{line}");
    answer.parse().expect("a number")
}
