//! `xsched simulate`: plays a scenario in virtual time.

mod trace;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use xsched_command::progress::Progress;
use xsched_proto::units;
use xsched_simulate::{Change, Json, Outcome, Run, Scenario, difference, picture, table};

use crate::failure::{Error, Result, print};
use crate::values;

/// Show what would happen: plays programs and devices of a file in virtual time
///
/// Decisions are made by the daemon's own code, so that a policy can be tried on machines that you do not have. Needs no device
/// and no daemon.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// File of the scenario
    #[arg(value_name = "SCENARIO", required_unless_present = "schema")]
    scenario: Option<PathBuf>,

    /// Play it under this policy, such as 'mlfq levels=4'; several times: one after the other [default: those of the file]
    #[arg(long, value_name = "POLICY")]
    policy: Vec<String>,

    /// Put a program on another device, which is made if the file has none: serve:gpu1
    #[arg(long, value_name = "PROGRAM:DEVICE", value_parser = of_program(Change::device))]
    r#move: Vec<(String, Change)>,

    /// Give a program another class or priority: serve:high
    #[arg(long, visible_alias = "class", value_name = "PROGRAM:CLASS", value_parser = of_program(Change::class))]
    priority: Vec<(String, Change)>,

    /// Give a program another weight: train:300
    #[arg(long, value_name = "PROGRAM:WEIGHT", value_parser = of_program(Change::weight))]
    weight: Vec<(String, Change)>,

    /// Seed of the random numbers [default: that of the file]
    #[arg(long, value_name = "N", value_parser = values::seed)]
    seed: Option<u64>,

    /// Write the figures to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Draw the figures
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write the first run as a trace for https://ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Print the JSON Schema of the file of --json
    #[arg(long, exclusive = true)]
    schema: bool,
}

/// Published schema of the file.
const SCHEMA: &str = include_str!("../../../../../docs/reference/simulate.schema.json");

const AFTER_HELP: &str = "\
Examples:
  xsched simulate examples/scenarios/server-and-training.toml
  xsched simulate mine.toml --policy native --policy hpf --policy slo
  xsched simulate mine.toml --move serve:gpu1 --policy slo      before and after

The policy `native` is the machine without xsched: the device shares itself.

P50 ... WORST  time of a request, from its arrival to its end
PER SECOND     completed requests of all programs of the line
SHARE          part of a device that each program had while it was there
PREEMPTED      times that a gate closed";

/// Parser of a change of a program: its name, a colon, and what it gets.
fn of_program(parse: fn(&str) -> Result<Change>) -> impl Fn(&str) -> Result<(String, Change)> + Clone + Send + Sync {
    move |text| match text.rsplit_once(':') {
        Some((name, value)) => Ok((name.to_owned(), parse(value)?)),
        None => Err(Error::input(format!("'{text}' names no program: use one such as serve:{text}"))),
    }
}

fn text_of(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| Error::input(format!("{}: {e}", path.display())))
}

/// Reads the scenario, plays it, and writes what it has shown.
pub(crate) fn main(args: Args) -> Result {
    if args.schema {
        return print(SCHEMA);
    }
    let path = args.scenario.unwrap_or_default();
    let folder = path.parent().unwrap_or(Path::new(""));
    let read = Scenario::read(&text_of(&path)?, |name| text_of(&folder.join(name)));
    let mut scenario = read.map_err(|e| e.within(path.display()))?;
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    let changes = [args.r#move, args.priority, args.weight].concat();
    if !changes.is_empty() {
        let output = (args.json.as_deref(), args.svg.as_deref(), args.trace.as_deref());
        return compare(&scenario, &changes, &args.policy, output);
    }
    let policies = match args.policy.is_empty() {
        true => [std::slice::from_ref(&scenario.policy), &scenario.compare].concat(),
        false => args.policy,
    };
    let strategies = [std::slice::from_ref(&scenario.placement.strategy), &scenario.placement.compare].concat();
    let mut runs = Vec::new();
    for policy in &policies {
        for strategy in &strategies {
            let run = Run::new(&scenario, policy, *strategy).map_err(|e| e.within("--policy"))?;
            runs.push(run);
        }
    }
    let mut outcomes: Vec<Outcome> = Vec::new();
    for (at, mut run) in runs.into_iter().enumerate() {
        run.has_spans = args.trace.is_some() && at == 0;
        outcomes.push(play(&run));
    }
    write_all(&scenario, &outcomes, (args.json.as_deref(), args.svg.as_deref(), args.trace.as_deref()))?;
    print(&text(&scenario, &outcomes))
}

/// Files for the figures, the picture and the trace.
type Files<'a> = (Option<&'a Path>, Option<&'a Path>, Option<&'a Path>);

/// Plays a scenario as it is and with changes, and tells what these change.
fn compare(scenario: &Scenario, changes: &[(String, Change)], policies: &[String], files: Files<'_>) -> Result {
    let strategy = scenario.placement.strategy;
    let mut before = Run::new(scenario, &scenario.policy, strategy)?;
    let changed = before.pinned().changed(changes)?;
    let policy = match policies {
        [] => &scenario.policy,
        [policy] => policy,
        _ => return Err(Error::input("--policy: one beside --move, --priority and --weight")),
    };
    let mut after = Run::new(&changed, policy, strategy).map_err(|e| e.within("--policy"))?;
    before.has_spans = false;
    after.has_spans = files.2.is_some();
    let outcomes = [play(&before), play(&after)];
    let line = difference(scenario, &outcomes[0], &outcomes[1]);
    write_all(scenario, &outcomes, files)?;
    print(&format!("{line}\n\nbefore: {}\nafter: {}", table(&outcomes[0]), table(&outcomes[1])))
}

/// Writes the files that were asked for; the trace is of the last run that has spans.
fn write_all(scenario: &Scenario, outcomes: &[Outcome], (json, svg, trace): Files<'_>) -> Result<()> {
    if let Some(path) = json {
        write(path, json_text(scenario, outcomes)?.as_bytes())?;
    }
    if let Some(path) = svg {
        write(path, picture(&scenario.question, outcomes).as_bytes())?;
    }
    if let (Some(path), Some(run)) = (trace, outcomes.iter().find(|run| !run.spans.is_empty()).or(outcomes.first())) {
        write(path, &trace::encode(run))?;
    }
    Ok(())
}

fn json_text(scenario: &Scenario, outcomes: &[Outcome]) -> Result<String> {
    let json = Json::new(&scenario.question, scenario.seed, outcomes);
    let text = serde_json::to_string_pretty(&json);
    text.map(|text| text + "\n").map_err(|e| Error::environment(format!("cannot write JSON: {e}")))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).map_err(|e| Error::environment(format!("cannot write {}: {e}", path.display())))
}

fn text(scenario: &Scenario, outcomes: &[Outcome]) -> String {
    let devices = scenario.device_count();
    let plural = if devices == 1 { "device" } else { "devices" };
    let programs = scenario.program_count();
    let time = units::of_ns(scenario.time.0);
    let head = match scenario.question.as_str() {
        "" => String::new(),
        question => format!("{question}\n"),
    };
    let tables: Vec<String> = outcomes.iter().map(table).collect();
    format!("{head}{devices} {plural}, {programs} programs, {time}, seed {}\n\n{}", scenario.seed, tables.join("\n"))
}

/// Plays all machines of a run, several at a time, and tells how far it is where that takes long.
fn play(run: &Run<'_>) -> Outcome {
    let all = Mutex::new(run.nothing());
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(run.machines());
    let began = Instant::now();
    let work = || {
        while let Some(at) = Some(next.fetch_add(1, Relaxed)).filter(|at| *at < run.machines()) {
            let outcome = run.machine(at);
            // Sums do not depend on the order.
            all.lock().unwrap_or_else(|e| e.into_inner()).merge(outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        let progress = Progress::new("simulate", None);
        while let Some(at) = Some(next.fetch_add(1, Relaxed)).filter(|at| *at < run.machines()) {
            if began.elapsed() > Duration::from_secs(2) {
                let left = began.elapsed().mul_f64((run.machines() - at) as f64 / at.max(1) as f64);
                progress.show(&format!("machine {} of {}, {} left", at + 1, run.machines(), units::of(left)));
            }
            let outcome = run.machine(at);
            all.lock().unwrap_or_else(|e| e.into_inner()).merge(outcome);
        }
    });
    all.into_inner().unwrap_or_else(|e| e.into_inner())
}
