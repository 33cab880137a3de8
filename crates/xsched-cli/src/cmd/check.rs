//! `xsched check`, and the process that takes its steps.

use std::path::Path;
use std::process::ExitCode;

use xsched_bench::check::{self, Platform, Wish, steps};

use crate::failure::{Error, Result, print, print_json};

/// Compare simple steps on each device, bare and under xsched
///
/// Device count, properties, memory, copies, a kernel; then, where PyTorch can be imported: a matrix product, a
/// convolution, a small model. Needs no running daemon. Exit code 0: no difference, 1: a difference, 3: no device.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  xsched check\n  xsched check --python ~/venv/bin/python3")]
pub(crate) struct Args {
    /// Device: auto takes every CUDA, HIP and OpenCL device there is; sim is the simulated one
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Choice,

    /// The Python whose PyTorch is tried, or none
    #[arg(long, value_name = "FILE|none", default_value = "python3", value_parser = python)]
    python: String,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Choice {
    Auto,
    Cuda,
    Hip,
    Opencl,
    Sim,
}

impl Choice {
    fn platforms(self) -> &'static [Platform] {
        match self {
            Choice::Auto => &[Platform::Cuda, Platform::Hip, Platform::Opencl],
            Choice::Cuda => &[Platform::Cuda],
            Choice::Hip => &[Platform::Hip],
            Choice::Opencl => &[Platform::Opencl],
            Choice::Sim => &[Platform::Sim],
        }
    }
}

/// `--python`: a name that is searched in PATH, or an existing file.
fn python(text: &str) -> Result<String> {
    match text.contains('/') && !Path::new(text).is_file() || text.is_empty() {
        true => Err(Error::input(format!("'{text}' is no file: give a Python, or none"))),
        false => Ok(text.to_owned()),
    }
}

/// Takes the steps and reports.
pub(crate) fn main(args: Args) -> Result {
    let python = Some(args.python).filter(|python| python != "none");
    let report = check::run(&Wish { platforms: args.device.platforms(), python })?;
    if args.json {
        print_json(&report)?
    } else {
        print(&report.table())?
    };
    Ok(ExitCode::from(u8::from(report.differs())))
}

/// Take the steps on a platform
#[derive(clap::Args, Debug)]
pub(crate) struct StepsArgs {
    /// Platform to take the steps on
    #[arg(value_name = "PLATFORM")]
    platform: Platform,
}

/// Takes the steps on a platform.
pub(crate) fn take_steps(args: StepsArgs) -> Result {
    steps::run(args.platform).map(|()| ExitCode::SUCCESS)
}
