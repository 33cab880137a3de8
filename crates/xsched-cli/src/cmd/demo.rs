//! `xsched demo`, and the programs that it starts.

use std::path::PathBuf;
use std::process::ExitCode;

use xsched_bench::demo::worker::{self, Role, Task};
use xsched_bench::demo::{self, Platform, Wish};

use crate::failure::{Result, print};
use crate::values;

/// Show what xsched is good for, on this machine
///
/// A latency-critical program (a burst of short kernels every 20 ms) runs alone, beside a best-effort program (kernels
/// without end) without xsched, and beside it under xsched, in alternating rounds. Needs no running daemon.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  xsched demo --secs 50 --json demo.json --svg demo.svg")]
pub(crate) struct Args {
    /// Device: auto takes a CUDA device, else an OpenCL one, else the simulated one
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Choice,

    /// Time measured in each of the three situations, over all rounds
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::seconds)]
    secs: u64,

    /// Number of rounds; each measures all three situations
    #[arg(long, value_name = "N", default_value = "5", value_parser = values::rounds)]
    rounds: u32,

    /// Write the figures to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Draw the latency distributions
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Choice {
    Auto,
    Cuda,
    Opencl,
    Sim,
}

impl Choice {
    fn platforms(self) -> &'static [Platform] {
        match self {
            Choice::Auto => &[Platform::Cuda, Platform::Opencl, Platform::Sim],
            Choice::Cuda => &[Platform::Cuda],
            Choice::Opencl => &[Platform::Opencl],
            Choice::Sim => &[Platform::Sim],
        }
    }
}

/// Measures and reports.
pub(crate) fn main(args: Args) -> Result {
    let Args { device, secs, rounds, json, svg } = args;
    print(&demo::run(&Wish { platforms: device.platforms(), secs, rounds, json, svg })?)
}

/// A program of the demo
#[derive(clap::Args, Debug)]
pub(crate) struct WorkerArgs {
    /// Platform of the device
    #[arg(long)]
    platform: Platform,

    /// Program to be
    #[arg(long)]
    role: Role,

    /// Length of a kernel, from the calibration
    #[arg(long, default_value_t = 1)]
    iterations: u32,

    /// Requests to serve
    #[arg(long, default_value_t = 0)]
    requests: u32,
}

/// Is one of the demo's programs.
pub(crate) fn work(args: WorkerArgs) -> Result {
    let WorkerArgs { platform, role, iterations, requests } = args;
    worker::work(&Task { platform, role, iterations, requests }).map(|()| ExitCode::SUCCESS)
}
