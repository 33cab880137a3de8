//! `xsched demo`: a latency-critical program beside a best-effort one, without and with xsched.

mod children;
mod load;
mod report;
pub(crate) mod worker;

pub(crate) use load::simdev_path;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::de::DeserializeOwned;
use xsched_daemon::mps::PIPE_DIRECTORY;
use xsched_proto::wire::{DaemonMsg, Request};

use self::children::{Guarded, Worker};
use self::load::{Calibration, Part, Platform};
use self::report::{Report, Situation};
use self::worker::{Latencies, PERIOD, Work};
use crate::failure::{Error, Result, print, say};
use crate::{client, preload, values};

/// Longest wait for a program to become ready: a vendor library may compile its first kernel for long.
const WARM_UP: Duration = Duration::from_secs(60);

/// Show what xsched is good for, on this machine
///
/// A latency-critical program (a burst of short kernels every 20 ms) runs alone, beside a best-effort program (kernels
/// without end) without xsched, and beside it under xsched, in alternating rounds. Needs no running daemon.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  xsched demo --secs 50 --json demo.json --svg demo.svg")]
pub(crate) struct Args {
    /// Where: auto takes a CUDA device, else an OpenCL one, else the simulated one
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Choice,

    /// Seconds measured in each of the three situations, over all rounds
    #[arg(long, value_name = "S", default_value = "10", value_parser = values::seconds)]
    secs: u64,

    /// Rounds; each measures all three situations
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

/// A situation to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Alone,
    Native,
    Xsched,
}

/// What a round starts its programs with.
struct Stage {
    exe: PathBuf,
    library: PathBuf,
    platform: Platform,
    calibration: Calibration,
    requests: u32,
    socket: PathBuf,
    folder: PathBuf,
}

/// Measures and reports.
pub(crate) fn main(args: Args) -> Result {
    let platforms: &[Platform] = match args.device {
        Choice::Auto => &[Platform::Cuda, Platform::Opencl, Platform::Sim],
        Choice::Cuda => &[Platform::Cuda],
        Choice::Opencl => &[Platform::Opencl],
        Choice::Sim => &[Platform::Sim],
    };
    let requests = (args.secs as u128 * 1000 / PERIOD.as_millis() / u128::from(args.rounds)) as u32;
    if requests < 10 {
        return Err(Error::input(format!(
            "--rounds: {} rounds leave {requests} requests each of {} s; give at least 10, by fewer rounds or more --secs",
            args.rounds, args.secs
        )));
    }
    for file in args.json.iter().chain(&args.svg) {
        std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(file)
            .map_err(|e| Error::input(format!("cannot write {}: {e}", file.display())))?;
    }
    children::catch_signals();
    measure(platforms, requests, args.rounds)
        .and_then(|report| {
            let write = |file: &Path, text: String| {
                std::fs::write(file, text)
                    .map_err(|e| Error::environment(format!("cannot write {}: {e}", file.display())))
            };
            args.json.as_deref().map_or(Ok(()), |file| write(file, report.json()?))?;
            args.svg.as_deref().map_or(Ok(()), |file| report.plot(file))?;
            Ok(report.table())
        })
        .map_err(|why| why.within("demo"))
        .and_then(|table| print(&table))
}

fn measure(platforms: &[Platform], requests: u32, rounds: u32) -> Result<Report> {
    let library = preload::find()?;
    let exe =
        std::env::current_exe().map_err(|e| Error::environment(format!("cannot tell where this program lies: {e}")))?;
    // A folder under /tmp even where TMPDIR is long: a socket's path has room for 107 bytes.
    let folder = tempfile::Builder::new()
        .prefix("xsched-demo-")
        .tempdir_in("/tmp")
        .map_err(|e| Error::environment(format!("cannot make a folder under /tmp: {e}")))?;
    let socket = folder.path().join("xsched.sock");
    let mut sim_device = None;
    let (platform, calibration) = choose(platforms, &exe, folder.path(), &mut sim_device)?;
    let mut daemon = Command::new(&exe);
    // Its own configuration: none. The user's might name another policy.
    daemon.args(["daemon", "--policy", "hpf", "--socket"]).arg(&socket).env("XDG_CONFIG_HOME", folder.path());
    daemon.arg("--log").arg(folder.path().join("log"));
    let daemon = Guarded::spawn(clean(daemon), "the demo's daemon")?;
    daemon.answers_at(&socket)?;
    let device = calibration.device.clone();
    let stage = Stage { exe, library, platform, calibration, requests, socket, folder: folder.path().to_owned() };
    let mut report =
        Report { platform, device, alone: Situation::new()?, native: Situation::new()?, xsched: Situation::new()? };
    let progress = Progress::new(&report.device, rounds);
    let cases = [Case::Alone, Case::Native, Case::Xsched];
    for round in 0..rounds as usize {
        for step in 0..cases.len() {
            // Each round begins with another situation, so that drift of the machine hits all alike.
            let case = cases[(round + step) % cases.len()];
            progress.show(round, step, case);
            let into = match case {
                Case::Alone => &mut report.alone,
                Case::Native => &mut report.native,
                Case::Xsched => &mut report.xsched,
            };
            stage.play(case, into)?;
        }
    }
    Ok(report)
}

/// The first platform that works, calibrated.
fn choose(
    platforms: &[Platform],
    exe: &Path,
    folder: &Path,
    sim_device: &mut Option<Guarded>,
) -> Result<(Platform, Calibration)> {
    let mut reasons = Vec::new();
    for &platform in platforms {
        if platform == Platform::Sim {
            if !reasons.is_empty() {
                say(&format!("no real device ({}); showing the simulated one", reasons.join("; ")));
            }
            let mut command = Command::new(exe);
            let socket = sim_socket(folder);
            command.args(["sim-device", "--socket"]).arg(&socket);
            let device = sim_device.insert(Guarded::spawn(clean(command), "the simulated device")?);
            device.answers_at(&socket)?;
        }
        let mut command = Command::new(exe);
        command.args(["demo-worker", "--role", "calibrate", "--platform", platform.name()]);
        command.env("XSCHED_DISABLE", "1");
        devices(&mut command, folder);
        // With another platform to fall back to, its own complaint would only frighten.
        if platforms.last() != Some(&platform) {
            command.stderr(std::process::Stdio::null());
        }
        let found = Worker::spawn(command, "the calibration").and_then(|mut w| w.line(WARM_UP));
        children::check()?;
        match found.and_then(|line| read::<Result<_>>(&line)?) {
            Ok(calibration) => return Ok((platform, calibration)),
            Err(why) => reasons.push(format!("{}: {why}", platform.name())),
        }
    }
    Err(Error::environment(format!("no device: {}", reasons.join("; "))))
}

fn read<T: DeserializeOwned>(line: &str) -> Result<T> {
    serde_json::from_str(line).map_err(|e| Error::environment(format!("a program of the demo wrote '{line}': {e}")))
}

/// Takes what is meant for other programs out of the environment of our own.
fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let bytes = name.as_encoded_bytes();
        if bytes.starts_with(b"XSCHED_") && bytes != b"XSCHED_LOG" {
            command.env_remove(&name);
        }
    }
    command
}

fn sim_socket(folder: &Path) -> PathBuf {
    folder.join("sim.sock")
}

/// Tells a program where its device is: the simulated one in the demo's folder, a GPU without anybody's MPS, so that
/// all situations share it in the same way.
fn devices(command: &mut Command, folder: &Path) {
    command.env("SIMDEV_SOCKET", sim_socket(folder)).env(PIPE_DIRECTORY, folder);
}

impl Stage {
    fn worker(&self, case: Case, part: Part) -> Command {
        let (role, priority) = match part {
            Part::Critical => ("lc", "high"),
            Part::BestEffort => ("be", "low"),
        };
        let mut command = clean(Command::new(&self.exe));
        if case == Case::Xsched {
            // As any user would start them.
            command.args(["run", "--require", "--priority", priority, "--socket"]).arg(&self.socket);
            command.arg("--").arg(&self.exe).env("XSCHED_PRELOAD", &self.library);
        } else {
            command.env("XSCHED_DISABLE", "1");
        }
        command.args(["demo-worker", "--role", role, "--platform", self.platform.name()]);
        let iterations = match part {
            Part::Critical => self.calibration.critical,
            Part::BestEffort => self.calibration.best_effort,
        };
        command.args(["--iterations", &iterations.to_string()]);
        command.args(["--requests", &self.requests.to_string()]);
        devices(&mut command, &self.folder);
        command
    }

    /// One situation of one round.
    fn play(&self, case: Case, into: &mut Situation) -> Result<()> {
        let mut critical = Worker::spawn(self.worker(case, Part::Critical), "the latency-critical program")?;
        critical.expect("ready", WARM_UP)?;
        let mut best_effort = None;
        if case != Case::Alone {
            let worker = Worker::spawn(self.worker(case, Part::BestEffort), "the best-effort program")?;
            let worker = best_effort.insert(worker);
            worker.expect("ready", WARM_UP)?;
            worker.go()?;
            worker.expect("running", WARM_UP)?;
        }
        critical.go()?;
        let found: Latencies = read(&critical.line(PERIOD * self.requests * 12 + WARM_UP)?)?;
        if case == Case::Xsched {
            let pids: Vec<u32> =
                [Some(critical.pid()), best_effort.as_ref().map(Worker::pid)].into_iter().flatten().collect();
            self.check_scheduled(&pids)?;
        }
        into.add_latencies(&found.latencies_ns);
        if let Some(mut worker) = best_effort {
            worker.stop();
            let work: Work = read(&worker.line(WARM_UP)?)?;
            into.add_work(work.kernels, work.seconds);
        }
        Ok(())
    }

    /// Figures under xsched count only when the daemon saw the launches.
    fn check_scheduled(&self, pids: &[u32]) -> Result<()> {
        let answer = client::ask(Some(&self.socket), Request::Ps)?;
        let launches = |pid: u32| -> u64 {
            let programs = answer.iter().filter_map(|part| match part {
                DaemonMsg::Program(p) if p.pid == pid => Some(p),
                _ => None,
            });
            programs.flat_map(|p| &p.groups).map(|g| g.launches).sum()
        };
        match pids.iter().find(|&&pid| launches(pid) == 0) {
            Some(_) => {
                let why = "the programs did not attach to the daemon, so nothing was scheduled; see `xsched doctor`";
                Err(Error::environment(why))
            }
            None => Ok(()),
        }
    }
}

/// One line on a terminal that says how far we are.
struct Progress {
    shown: bool,
    rounds: u32,
}

impl Progress {
    fn new(device: &str, rounds: u32) -> Progress {
        let shown = std::io::stderr().is_terminal();
        if shown {
            eprintln!("xsched demo on {device}");
        }
        Progress { shown, rounds }
    }

    fn show(&self, round: usize, step: usize, case: Case) {
        if self.shown {
            let what = match case {
                Case::Alone => "alone",
                Case::Native => "together, without xsched",
                Case::Xsched => "together, under xsched",
            };
            eprint!("\r\x1b[K  round {} of {}, {} of 3: {what} …", round + 1, self.rounds, step + 1);
            let _ = std::io::stderr().flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}
