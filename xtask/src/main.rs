//! Build and test tasks: `cargo xtask --help` lists them.
#![forbid(unsafe_code)]

mod apt;
mod bundle;
mod c;
mod cli;
mod containers;
mod cuda;
mod distribution;
mod fuzz;
mod generate;
mod hip;
mod hip_runtime;
mod kubernetes;
mod opencl;
mod package;
mod packages;
mod release;
mod rocm;
mod test;
mod vm;
mod wheel;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use cli::Task;
use test::Extent;
use xtask::{Failure, circles, commits, prose, sizes};

fn main() -> ExitCode {
    let (line, code) = match cli::read(std::env::args_os()).map_err(Failure::Input).and_then(run) {
        Ok(code) => return code,
        Err(Failure::Input(line)) => (line, ExitCode::from(2)),
        Err(Failure::Work(line)) => (line, ExitCode::FAILURE),
    };
    eprintln!("xtask: {line}");
    code
}

/// Does a task.
fn run(task: Task) -> Result<ExitCode, Failure> {
    let root = root();
    match task {
        Task::Test { long: false } => tested(Extent::Tests)?,
        Task::Test { long: true } => tested(Extent::Long)?,
        Task::Ci => tested(Extent::Rest)?,
        Task::Generate { check: false } => generate::write(&root)?,
        Task::Generate { check: true } => generate::check(&root).map(drop)?,
        Task::Circles(words) if words.write => circles::write(&root)?,
        Task::Circles(words) => circles::run(&root, words.name.as_deref(), detail(&words))?,
        Task::Prose { write: true, .. } => prose::write(&root)?,
        Task::Prose { name, .. } => prose::run(&root, name.as_deref())?,
        Task::Sizes => sizes::run(&root)?,
        Task::Commits => commits::run(&root)?,
        Task::Replay { words } => return Ok(replay(&words)),
        Task::Fuzz { target, secs, planted } => fuzz::run(&root, &fuzz::Wish { target, secs, planted })?,
        Task::HipRuntime { debug: true, folder } => hip_runtime::run(&root, &folder, hip_runtime::Built::Debug)?,
        Task::HipRuntime { debug: false, folder } => hip_runtime::run(&root, &folder, hip_runtime::Built::Release)?,
        Task::Rocm { suite, folder } => rocm::run(&suite, &folder)?,
        Task::Bundle { hip: true, folder } => bundle::run(&root, &folder, &bundle::HIP)?,
        Task::Bundle { hip: false, folder } => bundle::run(&root, &folder, &bundle::CUDA)?,
        Task::Wheel { folder } => wheel::run(&root, &folder)?,
        Task::Package { folder: Some(folder), .. } => package::run(&root, &folder)?,
        Task::Package { folder: None, .. } => package::check::run(&root)?,
        Task::Release { folder, check } => distribution::run(&root, &folder, check)?,
        Task::Install { prefix } => package::install(&root, &prefix)?,
        Task::Vm { kvm, minutes, suite } => vm::run(&root, vm::Options { suite, kvm, minutes })?,
        Task::Containers { cost } => containers::run(&root, cost)?,
        Task::Kubernetes => kubernetes::run(&root)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn detail(words: &cli::Circles) -> circles::Detail {
    match (words.calls, words.unresolved) {
        (_, true) => circles::Detail::Unresolved,
        (true, _) => circles::Detail::Calls,
        _ => circles::Detail::Example,
    }
}

fn tested(extent: Extent) -> Result<(), String> {
    if test::run(&root(), extent) { Ok(()) } else { Err("something failed, see the summary".into()) }
}

/// Checks recorded journals against the models.
fn replay(words: &[OsString]) -> ExitCode {
    let mut command = std::process::Command::new("cargo");
    command.args(["run", "--quiet", "--package", "xsched-flow", "--example", "replay", "--"]).args(words);
    let code = command.status().ok().and_then(|status| status.code());
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Root of the workspace: the folder above this package. Cargo names it at run time; the path at compile time may be of another checkout
/// that shares its target folder.
fn root() -> PathBuf {
    let now = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let mut path = now.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    path.pop();
    path
}
