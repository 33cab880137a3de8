//! Programs that the demo measures, each a process of its own, so that the preload library works in them as in any user's program.
//!
//! A worker writes lines to stdout and reads stdin: `ready` when warm; it starts at `go`; the best-effort one says
//! `running` and stops at the next byte or the end of stdin; both report one line of JSON,
//! and the latency-critical one stays until stdin ends.

use std::io::{BufRead, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::load::{Burst, Load, Part, Platform, calibrate};
use crate::failure::{Error, Result};

/// Time between two latency-critical requests.
pub(crate) const PERIOD: Duration = Duration::from_millis(20);
/// Multiple of the planned time after which a device on which requests pile up is given up.
const GIVE_UP: u32 = 10;

/// Part that a worker plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Names the device and its speed.
    Calibrate,
    /// Latency-critical.
    Lc,
    /// Best-effort.
    Be,
}

/// A program of the demo, as its process is told.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// The device.
    pub platform: Platform,
    /// The program.
    pub role: Role,
    /// Length of a kernel, from the calibration.
    pub iterations: u32,
    /// Requests to serve.
    pub requests: u32,
}

/// Measurement of a latency-critical worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Latencies {
    /// Time of each request from when it was due to its completion, in ns.
    pub(crate) latencies_ns: Vec<u64>,
}

/// Measurement of a best-effort worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    /// Number of completed kernels.
    pub(crate) kernels: u64,
    /// Time that they took, in s.
    pub(crate) seconds: f64,
}

/// Works and reports, on standard output.
///
/// # Errors
/// One line.
pub fn work(task: &Task) -> Result<()> {
    let done = match task.role {
        // The reason for a failure is an answer too.
        Role::Calibrate => say_json(&calibrate(task.platform)),
        Role::Lc => latency_critical(task),
        Role::Be => best_effort(task),
    };
    done.map_err(|e| Error::environment(format!("the demo's program on {}: {e}", task.platform.name())))
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|e| Error::environment(format!("cannot report: {e}")))
}

fn say_json(value: &impl Serialize) -> Result<()> {
    say(&serde_json::to_string(value).map_err(Error::environment)?)
}

fn wait_for_go() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|e| Error::environment(format!("cannot read: {e}")))?;
    if line.trim_end() == "go" { Ok(()) } else { Err(Error::environment("nobody said go")) }
}

fn run(load: &Load, burst: Burst) -> Result<()> {
    for _ in 0..burst.kernels {
        load.launch()?;
    }
    load.finish()
}

fn latency_critical(task: &Task) -> Result<()> {
    let load = Load::open(task.platform, Part::Critical, task.iterations)?;
    let burst = Burst::of(task.platform, Part::Critical);
    for _ in 0..5 {
        run(&load, burst)?;
    }
    say("ready")?;
    wait_for_go()?;
    let begin = Instant::now();
    let give_up = begin + PERIOD * task.requests * GIVE_UP + Duration::from_secs(10);
    let mut latencies_ns = Vec::with_capacity(task.requests as usize);
    for i in 0..task.requests {
        let due = begin + PERIOD * i;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        run(&load, burst)?;
        let done = Instant::now();
        // Latency counts from the time at which the request was due: a late start is part of it.
        latencies_ns.push((done - due).as_nanos() as u64);
        if done > give_up {
            return Err(Error::environment(format!(
                "{} of {} requests took {} times as long as they should",
                i + 1,
                task.requests,
                GIVE_UP
            )));
        }
    }
    say_json(&Latencies { latencies_ns })?;
    // Stays until the demo has asked the daemon about this process.
    std::io::stdin()
        .lock()
        .read_to_end(&mut Vec::new())
        .map(|_| ())
        .map_err(|e| Error::environment(format!("cannot read: {e}")))
}

fn best_effort(task: &Task) -> Result<()> {
    let load = Load::open(task.platform, Part::BestEffort, task.iterations)?;
    let burst = Burst::of(task.platform, Part::BestEffort);
    run(&load, burst)?;
    say("ready")?;
    wait_for_go()?;
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    std::thread::spawn(move || {
        // A byte, the end, or an error: all of them mean stop.
        let _ = std::io::stdin().lock().read(&mut [0u8]);
        seen.store(true, Ordering::Relaxed);
    });
    let begin = Instant::now();
    let mut kernels = 0;
    while !stop.load(Ordering::Relaxed) {
        run(&load, burst)?;
        if kernels == 0 {
            say("running")?;
        }
        kernels += u64::from(burst.kernels);
    }
    say_json(&Work { kernels, seconds: begin.elapsed().as_secs_f64() })
}
