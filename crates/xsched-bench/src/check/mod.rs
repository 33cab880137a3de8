//! `xsched check`: takes simple steps on each device, bare and under xsched, and reports where they differ.

mod device;
pub mod steps;

pub use self::steps::Platform;

use std::ffi::OsString;
use std::fmt::Write;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Serialize;
use xsched_daemon::mps::PIPE_DIRECTORY;

use self::steps::{Outcome, Step};
use crate::children::{self, Guarded};
use crate::failure::{Error, Result};
use crate::private::{Daemon, Private, clean};
use crate::progress::Progress;

/// Longest time that all steps of a platform may take: a first import of PyTorch reads gigabytes.
const PATIENCE: Duration = Duration::from_secs(300);
/// Steps with PyTorch.
const PYTHON: &str = include_str!("steps.py");

/// A check to be made.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Platforms whose devices are tried.
    pub platforms: &'static [Platform],
    /// The Python whose PyTorch is tried; none = no PyTorch.
    pub python: Option<String>,
}

/// Result of a step, bare and under xsched together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Differs,
    /// The step failed equally both times: xsched is not the cause.
    Failed,
    Skipped,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Differs => "DIFFERS",
            Verdict::Failed => "failed",
            Verdict::Skipped => "skipped",
        }
    }
}

/// Result of one step in the report.
#[derive(Debug, Serialize)]
struct Row {
    step: String,
    verdict: Verdict,
    bare: Option<Outcome>,
    xsched: Option<Outcome>,
}

/// Results of a platform, or of PyTorch.
#[derive(Debug, Serialize)]
struct Part {
    name: &'static str,
    /// Reason for which nothing could be tried.
    absent: Option<String>,
    steps: Vec<Row>,
    /// Number of launches under xsched.
    launches: u64,
    unscheduled: u64,
}

/// Outcome of a check.
#[derive(Debug, Serialize)]
pub struct Report {
    differs: bool,
    parts: Vec<Part>,
}

impl Report {
    /// Tells whether something went otherwise under xsched.
    pub fn differs(&self) -> bool {
        self.differs
    }

    /// A table for people.
    pub fn table(&self) -> String {
        table(self)
    }
}

/// Takes the steps.
///
/// # Errors
/// One line; exit code 3 where there is no device.
pub fn run(wish: &Wish) -> Result<Report> {
    children::catch_signals();
    let report = look(wish).map_err(|why| why.within("check"))?;
    if report.parts.iter().filter(|part| part.name != "pytorch").all(|part| part.absent.is_some()) {
        let reasons = report.parts.iter().filter_map(|p| Some(format!("{}: {}", p.name, p.absent.as_ref()?)));
        let reasons = reasons.collect::<Vec<_>>().join("; ");
        return Err(Error::environment(format!("check: no device: {reasons}; --device sim takes the simulated one")));
    }
    Ok(report)
}

fn look(wish: &Wish) -> Result<Report> {
    let private = Private::new("check")?;
    let daemon = private.daemon("xsched", &["--policy".as_ref(), "hpf".as_ref()])?;
    let sim_device = wish.platforms.contains(&Platform::Sim).then(|| private.sim_device()).transpose()?;
    let stage = Stage { private, daemon, sim_device };
    let progress = Progress::new("check", None);
    let mut parts = Vec::new();
    for platform in wish.platforms {
        progress.show(platform.name());
        let steps = ["check-steps".into(), platform.name().into()];
        parts.push(stage.part(platform.name(), stage.private.exe.as_os_str().to_owned(), &steps)?);
    }
    if let Some(python) = wish.python.as_ref().filter(|_| stage.sim_device.is_none()) {
        progress.show("pytorch");
        let file = stage.private.join("steps.py");
        crate::private::write(&file, PYTHON)?;
        parts.push(stage.part("pytorch", python.into(), &[file.into()])?);
    }
    let differs = parts.iter().flat_map(|part| &part.steps).any(|row| row.verdict == Verdict::Differs);
    Ok(Report { differs, parts })
}

struct Stage {
    private: Private,
    daemon: Daemon,
    sim_device: Option<Guarded>,
}

impl Stage {
    /// Runs the steps of a program that prints them, bare and under xsched.
    fn part(&self, name: &'static str, program: OsString, arguments: &[OsString]) -> Result<Part> {
        let mut part = Part { name, absent: None, steps: Vec::new(), launches: 0, unscheduled: 0 };
        let mut command = clean(Command::new(&program));
        command.args(arguments).env("XSCHED_DISABLE", "1");
        let bare = match self.run(command) {
            Ok(steps) => steps,
            Err(why @ Error::Interrupted(_)) => return Err(why),
            Err(why) => {
                part.absent = Some(why.line().to_owned());
                return Ok(part);
            }
        };
        if let Some(Step { outcome: Outcome::None(why), .. }) = bare.first() {
            part.absent = Some(why.clone());
            return Ok(part);
        }
        let mut command = clean(Command::new(&self.private.exe));
        let stats = self.private.join(&format!("{name}.stats"));
        command.args(["run", "--require", "--socket"]).arg(&self.daemon.socket).arg("--").arg(&program);
        command.args(arguments).env("XSCHED_PRELOAD", &self.private.library).env("XSCHED_STATS", &stats);
        let under = self.run(command)?;
        part.steps = rows(bare, under);
        (part.launches, part.unscheduled) = launches(&stats);
        part.steps.extend(scheduled(name, &part));
        Ok(part)
    }

    /// Runs a program that prints steps. An end with a failure counts as a step of its own.
    fn run(&self, mut command: Command) -> Result<Vec<Step>> {
        let (out, err) = (self.private.join("out"), self.private.join("err"));
        let create =
            |path: &Path| File::create(path).map_err(|e| Error::environment(format!("{}: {e}", path.display())));
        command.stdin(Stdio::null()).stdout(create(&out)?).stderr(create(&err)?);
        // Variables of a GPU without an MPS daemon, so that both runs share it in the same way.
        command.env(PIPE_DIRECTORY, self.private.folder());
        if self.sim_device.is_some() {
            command.env("SIMDEV_SOCKET", self.private.sim_socket());
        }
        let what = command.get_program().to_string_lossy().into_owned();
        let mut child = Guarded::spawn(command, "the steps").map_err(|why| why.within(&what))?;
        let status = child.ended_within(PATIENCE)?;
        drop(child);
        let read =
            |path: &Path| std::fs::read(path).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
        // Libraries may print to stdout as well.
        let text = read(&out);
        let mut steps: Vec<Step> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if !status.is_some_and(|s| s.success()) {
            let ended = match status {
                None => format!("it did not end within {} s", PATIENCE.as_secs()),
                Some(status) => match status.signal() {
                    Some(signal) => format!("ended by signal {signal}"),
                    None => format!("ended with {status}"),
                },
            };
            let said = read(&err);
            let last = said.lines().rev().find(|line| !line.trim().is_empty());
            let why = last.map_or(ended.clone(), |line| format!("{ended}: {}", line.trim()));
            steps.push(Step { step: "end".into(), outcome: Outcome::Failed(why) });
        }
        Ok(steps)
    }
}

/// Puts the results of the two runs side by side.
fn rows(bare: Vec<Step>, under: Vec<Step>) -> Vec<Row> {
    let mut names: Vec<&str> = Vec::new();
    for step in bare.iter().chain(&under) {
        if !names.contains(&step.step.as_str()) {
            names.push(&step.step);
        }
    }
    let of = |steps: &[Step], name: &str| steps.iter().find(|s| s.step == name).map(|s| s.outcome.clone());
    let row = |name: &&str| {
        let (bare, xsched) = (of(&bare, name), of(&under, name));
        let verdict = match (&bare, &xsched) {
            (bare, xsched) if bare != xsched => Verdict::Differs,
            (Some(Outcome::Ok(_)), _) => Verdict::Ok,
            (Some(Outcome::Failed(_)), _) => Verdict::Failed,
            _ => Verdict::Skipped,
        };
        Row { step: (*name).to_owned(), verdict, bare, xsched }
    };
    names.iter().map(row).collect()
}

/// Counts that the library wrote at the end of its processes: launches, and launches that were not scheduled.
fn launches(stats: &Path) -> (u64, u64) {
    let text = std::fs::read_to_string(stats).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines.fold((0, 0), |(launches, unscheduled), line| {
        let left_out = line["unscheduled"].as_object().into_iter().flatten().filter_map(|(_, n)| n.as_u64());
        (launches + line["launches"].as_u64().unwrap_or(0), unscheduled + left_out.sum::<u64>())
    })
}

/// Row for the scheduling: equal results prove nothing where the library did not take part.
fn scheduled(name: &str, part: &Part) -> Option<Row> {
    let gives_work = |row: &&Row| row.step.starts_with("mem") || row.step.ends_with("the device") && name == "pytorch";
    let worked = part.steps.iter().filter(gives_work).any(|row| matches!(row.xsched, Some(Outcome::Ok(_))));
    if !worked {
        return None;
    }
    let (verdict, xsched) = match part.launches {
        0 => (Verdict::Differs, Outcome::Failed("none: see `xsched doctor`".into())),
        n => (Verdict::Ok, Outcome::Ok(format!("{n}, unscheduled {}", part.unscheduled))),
    };
    Some(Row { step: "launches scheduled".into(), verdict, bare: None, xsched: Some(xsched) })
}

/// Report as a table.
fn table(report: &Report) -> String {
    let mut out = String::new();
    let shown = |outcome: &Option<Outcome>| match outcome {
        None => "-".to_owned(),
        Some(Outcome::Ok(text) | Outcome::Failed(text) | Outcome::Skipped(text) | Outcome::None(text)) => text.clone(),
    };
    // Writing to a String cannot fail.
    for part in &report.parts {
        if let Some(why) = &part.absent {
            let _ = writeln!(out, "{}: not here ({why})\n", part.name);
            continue;
        }
        let _ = writeln!(out, "{}", part.name);
        for row in &part.steps {
            let (bare, xsched) = (shown(&row.bare), shown(&row.xsched));
            let said = match row.verdict {
                Verdict::Differs => format!("bare: {bare}; under xsched: {xsched}"),
                _ => xsched,
            };
            let line = format!("  {:<25}{:<9}{said}", row.step, row.verdict.name());
            let _ = writeln!(out, "{}", line.trim_end());
        }
        let _ = writeln!(out);
    }
    out += if report.differs { "bare and under xsched there is a difference\n" } else { "no difference\n" };
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str, outcome: Outcome) -> Step {
        Step { step: name.into(), outcome }
    }

    #[test]
    fn a_step_that_ends_otherwise_under_xsched_differs() {
        let ok = |text: &str| Outcome::Ok(text.into());
        let failed = |text: &str| Outcome::Failed(text.into());
        let skipped = || Outcome::Skipped("no".into());
        let bare = vec![
            step("a", ok("1")),
            step("b", ok("1")),
            step("c", failed("2")),
            step("d", failed("2")),
            step("e", skipped()),
            step("f", ok("")),
        ];
        let under = vec![
            step("a", ok("1")),
            step("b", ok("2")),
            step("c", failed("2")),
            step("d", failed("3")),
            step("e", skipped()),
            step("end", failed("ended by signal 11")),
        ];
        let verdicts: Vec<Verdict> = rows(bare, under).iter().map(|row| row.verdict).collect();
        use Verdict::*;
        assert_eq!(verdicts, [Ok, Differs, Failed, Differs, Skipped, Differs, Differs]);
    }

    #[test]
    fn equal_results_without_a_launch_are_a_difference() {
        let steps = vec![step("memset", Outcome::Ok("right".into()))];
        let mut part =
            Part { name: "cuda", absent: None, steps: rows(steps.clone(), steps), launches: 0, unscheduled: 0 };
        assert_eq!(scheduled("cuda", &part).unwrap().verdict, Verdict::Differs);
        part.launches = 3;
        assert_eq!(scheduled("cuda", &part).unwrap().verdict, Verdict::Ok);
        part.steps.clear();
        assert!(scheduled("cuda", &part).is_none());
    }
}
