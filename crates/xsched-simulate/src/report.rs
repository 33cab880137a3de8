//! Outcomes as tables for people and as JSON.

use std::fmt::Write as _;

use serde::Serialize;
use xsched_proto::units;

use crate::histogram::Histogram;
use crate::outcome::{Outcome, ProgramInterval, ProgramOutcome};

/// Version of the JSON's form.
pub const VERSION: u32 = 1;

/// Outcomes for a program that reads them.
#[derive(Serialize)]
pub struct Json {
    /// Version of this form: [`VERSION`].
    pub version: u32,
    /// The scenario's question.
    pub question: String,
    /// Seed of all random numbers.
    pub seed: u64,
    /// One entry for each policy and placement.
    pub runs: Vec<JsonRun>,
}

/// A run.
#[derive(Serialize)]
pub struct JsonRun {
    /// The policy with its parameters.
    pub policy: String,
    /// The strategy of placement; none where nothing was to be placed.
    pub placement: Option<String>,
    /// Virtual time, in µs.
    pub time_us: f64,
    /// Number of devices.
    pub devices: usize,
    /// Part of the time in which devices worked, in percent.
    pub device_use_percent: f64,
    /// Switches from one context to another.
    pub switches: u64,
    /// Decisions of all daemons.
    pub decisions: u64,
    /// Things that happened in virtual time.
    pub events: u64,
    /// One entry for each kind of program.
    pub programs: Vec<JsonProgram>,
    /// One entry for each part of the time, if parts were asked for.
    pub intervals: Vec<JsonInterval>,
}

/// A part of the time.
#[derive(Serialize)]
pub struct JsonInterval {
    /// Its begin, in µs.
    pub from_us: f64,
    /// Part of it in which devices worked, in percent.
    pub device_use_percent: f64,
    /// One entry for each kind of program.
    pub programs: Vec<JsonProgramInterval>,
}

/// A kind of program in a part of the time.
#[derive(Serialize)]
pub struct JsonProgramInterval {
    /// Its name.
    pub name: String,
    /// Completed requests.
    pub requests: u64,
    /// Requests that were open at the end.
    pub open_requests: u64,
    /// 99 of 100 completed requests take no longer, in µs; none = there were none.
    pub p99_us: Option<f64>,
}

/// A kind of program.
#[derive(Serialize)]
pub struct JsonProgram {
    /// Its name.
    pub name: String,
    /// Programs that had a place.
    pub placed: u32,
    /// Programs that had none.
    pub unplaced: u32,
    /// Completed requests.
    pub requests: u64,
    /// Requests that were open at the end.
    pub open_requests: u64,
    /// Times of completed requests in µs; none = there were none.
    pub latency_us: Option<JsonLatency>,
    /// Times in µs for which the host waited for the device in a request, after it had given the commands; none = they were not played.
    pub wait_us: Option<JsonLatency>,
    /// Times in µs between two waits of the host in a request, such as those between two tokens; none = there were none.
    pub gap_us: Option<JsonLatency>,
    /// Completed requests in a second.
    pub per_second: f64,
    /// Part of a device that each program had, in percent.
    pub share_percent: f64,
    /// Times that a gate closed.
    pub preemptions: u64,
}

/// Times of requests, in µs.
#[derive(Serialize)]
pub struct JsonLatency {
    /// Mean of all.
    pub mean: f64,
    /// Half of the requests take no longer.
    pub p50: f64,
    /// 90 of 100 take no longer.
    pub p90: f64,
    /// 99 of 100 take no longer.
    pub p99: f64,
    /// The longest.
    pub worst: f64,
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1_000.0
}

fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

impl Json {
    /// The form of some runs.
    pub fn new(question: &str, seed: u64, runs: &[Outcome]) -> Json {
        Json { version: VERSION, question: question.to_owned(), seed, runs: runs.iter().map(JsonRun::new).collect() }
    }
}

impl JsonInterval {
    fn new(run: &Outcome, at: usize) -> JsonInterval {
        // The last one may be shorter.
        let longest_ns = run.interval_ns.max(1);
        let from_ns = longest_ns * at as u64;
        let length_ns = longest_ns.min(run.time_ns - from_ns).max(1);
        let interval = &run.intervals[at];
        let all_ns = length_ns as f64 * run.devices_busy_ns.len().max(1) as f64;
        let of = |(program, known): (&ProgramInterval, &ProgramOutcome)| JsonProgramInterval {
            name: known.name.clone(),
            requests: program.requests.count(),
            open_requests: program.open_requests,
            p99_us: program.requests.quantile_ns(0.99).map(us),
        };
        JsonInterval {
            from_us: us(from_ns),
            device_use_percent: rounded(interval.busy_ns as f64 * 100.0 / all_ns),
            programs: interval.programs.iter().zip(&run.programs).map(of).collect(),
        }
    }
}

impl JsonLatency {
    fn new(times: &Histogram) -> Option<JsonLatency> {
        let at = |part| times.quantile_ns(part).map(us);
        Some(JsonLatency {
            mean: us(times.mean_ns()),
            p50: at(0.5)?,
            p90: at(0.9)?,
            p99: at(0.99)?,
            worst: us(times.longest_ns()),
        })
    }
}

impl JsonRun {
    fn new(run: &Outcome) -> JsonRun {
        let of = |program: &ProgramOutcome| JsonProgram {
            name: program.name.clone(),
            placed: program.placed,
            unplaced: program.unplaced,
            requests: program.requests.count(),
            open_requests: program.open_requests,
            latency_us: JsonLatency::new(&program.requests),
            wait_us: JsonLatency::new(&program.waits),
            gap_us: JsonLatency::new(&program.gaps),
            per_second: rounded(program.per_second(run.time_ns)),
            share_percent: rounded(program.share_percent()),
            preemptions: program.preemptions,
        };
        JsonRun {
            policy: run.policy.clone(),
            placement: Some(run.placement.clone()).filter(|name| !name.is_empty()),
            time_us: us(run.time_ns),
            devices: run.devices_busy_ns.len(),
            device_use_percent: rounded(run.device_use_percent()),
            switches: run.switches,
            decisions: run.decisions,
            events: run.events,
            programs: run.programs.iter().map(of).collect(),
            intervals: (0..run.intervals.len()).map(|at| JsonInterval::new(run, at)).collect(),
        }
    }
}

/// Number in three figures.
fn figures(number: f64) -> String {
    match number {
        n if n >= 100.0 => format!("{n:.0}"),
        n if n >= 10.0 => format!("{n:.1}"),
        n => format!("{n:.2}"),
    }
}

fn row(program: &ProgramOutcome, time_ns: u64) -> [String; 9] {
    let at = |part| program.requests.quantile_ns(part).map_or("-".to_owned(), units::of_ns);
    let worst = match program.requests.count() {
        0 => "-".to_owned(),
        _ => units::of_ns(program.requests.longest_ns()),
    };
    let placed = match program.unplaced {
        0 => program.placed.to_string(),
        unplaced => format!("{} of {}", program.placed, program.placed + unplaced),
    };
    [
        program.name.clone(),
        placed,
        at(0.5),
        at(0.9),
        at(0.99),
        worst,
        figures(program.per_second(time_ns)),
        format!("{:.1} %", program.share_percent()),
        program.preemptions.to_string(),
    ]
}

/// One run as a table, with a line about its devices.
pub fn table(run: &Outcome) -> String {
    let head = ["PROGRAM", "N", "P50", "P90", "P99", "WORST", "PER SECOND", "SHARE", "PREEMPTED"].map(str::to_owned);
    let rows: Vec<[String; 9]> =
        std::iter::once(head).chain(run.programs.iter().map(|program| row(program, run.time_ns))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..9).map(width).collect();
    let mut text = String::new();
    let place = if run.placement.is_empty() { String::new() } else { format!(", placement {}", run.placement) };
    let _ = writeln!(text, "policy {}{place}", run.policy);
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match at {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        let _ = writeln!(text, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    let devices = run.devices_busy_ns.len();
    let plural = if devices == 1 { "the device works" } else { "devices work" };
    let _ = writeln!(
        text,
        "  {plural} {:.1} % of the time, with {} switches per second",
        run.device_use_percent(),
        figures(run.switches as f64 * 1e9 / run.time_ns.max(1) as f64)
    );
    for program in run.programs.iter().filter(|program| program.open_requests > program.placed as u64) {
        let open = program.open_requests;
        let since = units::of_ns(program.longest_open_ns);
        let _ = writeln!(
            text,
            "  {} does not keep up: {open} requests are open at the end, the first for {since}",
            program.name
        );
    }
    text
}
