//! `xsched demo`: a latency-critical program beside a best-effort one, without and with xsched.

mod load;
mod report;
pub mod worker;

pub use load::Platform;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde::de::DeserializeOwned;
use xsched_daemon::mps::PIPE_DIRECTORY;
use xsched_proto::units;
use xsched_proto::wire::{DaemonMsg, Request};

use self::load::{Calibration, Part};
use self::report::{Report, Situation};
use self::worker::{Latencies, PERIOD, Work};
use crate::children::{self, Guarded, Worker};
use crate::client;
use crate::failure::{Error, Result, say};
use crate::private::{Daemon, Private, clean, writable, write};
use crate::progress::Progress;
use crate::width;

/// Longest time to wait for a program to be ready: the first compilation of a kernel may be slow.
const WARM_UP: Duration = Duration::from_secs(60);

/// A demo to be shown.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The first of these that works is taken.
    pub platforms: &'static [Platform],
    /// Seconds measured in each of the three situations, over all rounds.
    pub secs: u64,
    /// Rounds; each measures all three situations.
    pub rounds: u32,
    /// A file for the figures.
    pub json: Option<PathBuf>,
    /// A file for a picture of the latencies.
    pub svg: Option<PathBuf>,
}

/// Situation to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Alone,
    Native,
    Xsched,
}

impl Case {
    fn name(self) -> &'static str {
        match self {
            Case::Alone => "alone",
            Case::Native => "together, without xsched",
            Case::Xsched => "together, under xsched",
        }
    }
}

/// State with which a round starts its programs.
struct Stage {
    private: Private,
    platform: Platform,
    calibration: Calibration,
    requests: u32,
    daemon: Daemon,
}

/// Measures, writes the files that are wished for, and returns a table.
///
/// # Errors
/// One line. Exit code 2 for a wish that cannot be met, 3 where the machine does not allow it.
pub fn run(wish: &Wish) -> Result<String> {
    let requests = (wish.secs as u128 * 1000 / PERIOD.as_millis() / u128::from(wish.rounds)) as u32;
    if requests < 10 {
        return Err(Error::input(format!(
            "--rounds: {} rounds leave {requests} requests each of {} s; give at least 10, by fewer rounds or more --secs",
            wish.rounds, wish.secs
        )));
    }
    writable(wish.json.as_deref().into_iter().chain(wish.svg.as_deref()))?;
    children::catch_signals();
    measure(wish.platforms, requests, wish.rounds)
        .and_then(|report| {
            wish.json.as_deref().map_or(Ok(()), |file| write(file, &report.json()?))?;
            wish.svg.as_deref().map_or(Ok(()), |file| report.plot(file))?;
            Ok(width::of_output().fill_sentences(&report.table()))
        })
        .map_err(|why| why.within("demo"))
}

fn measure(platforms: &[Platform], requests: u32, rounds: u32) -> Result<Report> {
    let private = Private::new("demo")?;
    let mut sim_device = None;
    let (platform, calibration) = choose(platforms, &private, &mut sim_device)?;
    let daemon = private.daemon("xsched", &["--policy".as_ref(), "hpf".as_ref()])?;
    let device = calibration.device.clone();
    let stage = Stage { private, platform, calibration, requests, daemon };
    let mut report =
        Report { platform, device, alone: Situation::new()?, native: Situation::new()?, xsched: Situation::new()? };
    let cases = [Case::Alone, Case::Native, Case::Xsched];
    let measured = PERIOD * requests * rounds * cases.len() as u32;
    let about = format!(
        "on {}: rounds: {rounds}, about {}",
        report.device,
        units::of(Duration::from_secs(measured.as_secs() + 1))
    );
    let progress = Progress::new("demo", Some(&about));
    for round in 0..rounds as usize {
        for step in 0..cases.len() {
            // Each round begins with another situation, so that drift of the machine affects all alike.
            let case = cases[(round + step) % cases.len()];
            progress.show(&format!("round {} of {rounds}, {} of 3: {}", round + 1, step + 1, case.name()));
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

/// Finds the first platform that works, and calibrates it.
fn choose(
    platforms: &[Platform],
    private: &Private,
    sim_device: &mut Option<Guarded>,
) -> Result<(Platform, Calibration)> {
    let mut reasons = Vec::new();
    for &platform in platforms {
        if platform == Platform::Sim {
            if !reasons.is_empty() {
                say(&format!("no real device ({}); showing the simulated one", reasons.join("; ")));
            }
            *sim_device = Some(private.sim_device()?);
        }
        let mut command = Command::new(&private.exe);
        command.args(["demo-worker", "--role", "calibrate", "--platform", platform.name()]);
        command.env("XSCHED_DISABLE", "1");
        devices(&mut command, private);
        // If there is another platform to try, this one's complaint would only frighten.
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

/// Sets the device of a program: the simulated one in the demo's folder, or a GPU without any MPS server, so that all situations share it
/// in the same way.
fn devices(command: &mut Command, private: &Private) {
    command.env("SIMDEV_SOCKET", private.sim_socket()).env(PIPE_DIRECTORY, private.folder());
}

impl Stage {
    fn worker(&self, case: Case, part: Part) -> Command {
        let (role, priority) = match part {
            Part::Critical => ("lc", "high"),
            Part::BestEffort => ("be", "low"),
        };
        let mut command = clean(Command::new(&self.private.exe));
        if case == Case::Xsched {
            // Started as any user would start them.
            command.args(["run", "--require", "--priority", priority, "--socket"]).arg(&self.daemon.socket);
            command.arg("--").arg(&self.private.exe).env("XSCHED_PRELOAD", &self.private.library);
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
        devices(&mut command, &self.private);
        command
    }

    /// Runs one situation of one round.
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

    /// Checks that the daemon saw the launches: only then do figures under xsched count.
    fn check_scheduled(&self, pids: &[u32]) -> Result<()> {
        let answer = client::ask(Some(&self.daemon.socket), Request::Ps)?;
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
