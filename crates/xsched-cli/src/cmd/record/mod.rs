//! `xsched record`: running programs become a scenario for `xsched simulate`.

mod gather;
mod programs;

use std::path::{Path, PathBuf};
use std::time::Duration;

use xsched_proto::text::escaped;
use xsched_proto::units;
use xsched_simulate::{Recorded, Recording, Written};

use crate::candidates;
use crate::client::Connection;
use crate::cmd::trace::output::{self, Output};
use crate::failure::{Error, Result, print, say};
use crate::history::quantile;
use crate::values;

use gather::Whom;

/// Record running programs as a scenario that `xsched simulate` plays
///
/// The daemon follows them meanwhile as if others shared their devices, which costs a launch some ns. You record your own programs;
/// root records all. The names of kernels are not recorded.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// File of the scenario
    #[arg(long, short = 'o', value_name = "FILE")]
    output: PathBuf,

    /// Process ids of programs
    #[arg(long, value_name = "PID", value_parser = values::pid, add = candidates::pids())]
    pid: Vec<u32>,

    /// The programs of a job (`xsched run --job`)
    #[arg(long, value_name = "NAME", value_parser = values::job, add = candidates::jobs())]
    job: Vec<String>,

    /// All your programs, as without --pid and --job; as root, all programs
    #[arg(long, conflicts_with_all = ["pid", "job"])]
    all: bool,

    /// Length of the recording; Ctrl-C ends it early
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = values::time)]
    r#for: Duration,

    /// Keep each request in a file beside the scenario, in place of distributions
    #[arg(long)]
    full: bool,

    /// Overwrite files
    #[arg(long)]
    force: bool,

    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  xsched record -o today.toml --for 1m
  xsched simulate today.toml --policy slo      what would another policy do?

A request is what the daemon sees of one: from a program's first launch after
idleness to its last completion.

P50, P99     time of these requests, waits included
PER SECOND   requests
GPU          part of the time in which the program was on its device";

/// Records, and writes the scenario with its files.
pub(crate) fn main(args: Args) -> Result {
    output::check(&args.output, args.force)?;
    let connection = Connection::open(args.socket.as_deref())?;
    let whom = Whom { pids: args.pid, jobs: args.job };
    whom.check(&connection)?;
    let output = Output::create(Some(&args.output), args.force)?;
    let gathered = gather::gather(&connection, &whom, args.r#for)?;
    let recording = programs::recording(&gathered);
    let name = args.output.file_name().and_then(|name| name.to_str()).unwrap_or("recording");
    let Written { scenario, files, silent } = recording.scenario(args.full.then_some(name));
    if scenario.programs.is_empty() {
        return Err(Error::environment("no program launched anything meanwhile: see xsched ps"));
    }
    for (file, text) in &files {
        beside(&args.output, file, text, args.force)?;
    }
    let table = table(&recording);
    let comment = |text: &str| text.lines().map(|line| format!("# {line}\n")).collect::<String>();
    let head = format!("Recorded by xsched record for {}; measured:\n{table}", units::of_us(recording.us));
    let file = output.write(format!("{}\n{scenario}", comment(&head)).as_bytes())?;
    for line in &gathered.notes {
        say(line);
    }
    if !silent.is_empty() {
        say(&format!("not in it, since they launched nothing: {}", escaped(&silent.join(", "))));
    }
    let file = file.display().to_string();
    print(&format!("{table}\n{0}: play it with `xsched simulate {0}`\n", escaped(&file)))?;
    gathered.failure.map_or(Ok(std::process::ExitCode::SUCCESS), |why| Ok(xsched_command::failure::report(&why)))
}

/// Writes a file beside the scenario.
fn beside(scenario: &Path, name: &str, text: &str, force: bool) -> Result<()> {
    let path = scenario.with_file_name(name);
    Output::create(Some(&path), force)?.write(text.as_bytes())?;
    Ok(())
}

/// Figures of each program, as they were measured.
fn table(recording: &Recording) -> String {
    let mut rows = vec![["PROGRAM", "REQUESTS", "P50", "P99", "PER SECOND", "GPU"].map(str::to_owned)];
    rows.extend(recording.programs.iter().map(|recorded| row(recorded, recording.us)));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match at {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  "))
    };
    rows.iter().map(line).collect()
}

fn row(recorded: &Recorded, us: u64) -> [String; 6] {
    let requests = recorded.bursts.iter().map(|burst| u64::from(!burst.cut) + burst.missed).sum::<u64>();
    let mut lengths: Vec<u64> = recorded.bursts.iter().filter(|burst| !burst.cut).map(|burst| burst.us).collect();
    let mut at = |part| quantile(&mut lengths, part).map_or("-".to_owned(), units::of_us);
    let (p50, p99) = (at(0.5), at(0.99));
    [
        escaped(&recorded.program.name).to_string(),
        requests.to_string(),
        p50,
        p99,
        format!("{:.1}", requests as f64 * 1e6 / us.max(1) as f64),
        format!("{:.1} %", recorded.ran_us as f64 * 100.0 / us.max(1) as f64),
    ]
}
