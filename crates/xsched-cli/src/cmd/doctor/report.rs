//! Report of the checks: its parts, and its text.

use std::fmt::Write;

use serde::Serialize;
use xsched_proto::text::escaped;

use super::cuda::Cuda;
use super::program;
use crate::width::Width;

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Ok,
    Note,
    Fail,
}

/// Fault of a check that is not `ok`: a word that stays the same in all versions, for scripts and for the table of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(clap::ValueEnum))]
pub(super) enum Cause {
    // Causes about the machine.
    NoLibrary,
    LibraryNotLoadable,
    OldGlibc,
    NoAnswer,
    OtherVersion,
    SwitchedOff,
    BadVariable,
    UselessVariable,
    BadConfiguration,
    OddConfiguration,
    OtherDaemon,
    OtherArbiter,
    LateDaemon,
    SchedulerFailed,
    PartFailed,
    Faults,
    Preloaded,
    NoState,
    NoPermission,
    NoDevice,
    NotAttached,
    // Causes about a program.
    NoProcess,
    Stopped,
    NotReadable,
    NotPreloadable,
    Secure,
    NoScheduler,
    NotPreloaded,
    FileMissing,
    NotLoaded,
    Shadowed,
    PassedBy,
    NoDaemon,
    Refused,
    NoCall,
    Held,
    MemoryRefused,
    Unscheduled,
}

/// Result of one check.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) status: Status,
    /// Cause; none where the check is `ok`.
    pub(super) cause: Option<Cause>,
    /// Finding, in one line.
    pub(super) found: String,
    /// Advice, if there is any.
    pub(super) advice: Option<String>,
}

impl Check {
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, status: Status::Ok, cause: None, found: found.into(), advice: None }
    }

    pub(super) fn note(name: &'static str, cause: Cause, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, status: Status::Note, cause: Some(cause), found: found.into(), advice: Some(advice.into()) }
    }

    pub(super) fn fail(name: &'static str, cause: Cause, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, status: Status::Fail, cause: Some(cause), found: found.into(), advice: Some(advice.into()) }
    }
}

/// Causes in the order of their importance: one that keeps everything from working first, then what spoils more than what follows it.
const IMPORTANCE: [Cause; 38] = [
    Cause::NoProcess,
    Cause::OldGlibc,
    Cause::NoLibrary,
    Cause::LibraryNotLoadable,
    Cause::NotPreloadable,
    Cause::Secure,
    Cause::SwitchedOff,
    Cause::BadConfiguration,
    Cause::BadVariable,
    Cause::NoAnswer,
    Cause::OtherVersion,
    Cause::NoScheduler,
    Cause::FileMissing,
    Cause::NotLoaded,
    Cause::NotPreloaded,
    Cause::NoDaemon,
    Cause::OtherDaemon,
    Cause::Shadowed,
    Cause::PassedBy,
    Cause::Refused,
    Cause::Stopped,
    Cause::Held,
    Cause::MemoryRefused,
    Cause::NoPermission,
    Cause::NoDevice,
    Cause::SchedulerFailed,
    Cause::OtherArbiter,
    Cause::Preloaded,
    Cause::NotAttached,
    Cause::Unscheduled,
    Cause::NoCall,
    Cause::UselessVariable,
    Cause::OddConfiguration,
    Cause::LateDaemon,
    Cause::PartFailed,
    Cause::Faults,
    Cause::NotReadable,
    Cause::NoState,
];

/// The one thing to do next.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Next {
    /// Name of the check that asks for it; none = there is nothing to mend.
    pub(super) check: Option<&'static str>,
    pub(super) cause: Option<Cause>,
    /// Step, in one line.
    pub(super) step: String,
}

impl Next {
    /// Cure of the most important finding: of a failed check before that of a note. `pid` = the program that was examined.
    fn of(checks: &[Check], pid: Option<u32>) -> Next {
        let rank = |check: &&Check| {
            let at = IMPORTANCE.iter().position(|cause| Some(*cause) == check.cause);
            (check.status != Status::Fail, at.unwrap_or(IMPORTANCE.len()))
        };
        // Most machines lack a source for the state of devices, and do without.
        let found = checks.iter().filter(|check| check.advice.is_some() && check.cause != Some(Cause::NoState));
        match (found.min_by_key(rank), pid) {
            (Some(check), _) => {
                let step = check.advice.clone().unwrap_or_default();
                Next { check: Some(check.name), cause: check.cause, step }
            }
            (None, None) => Next { check: None, cause: None, step: "nothing to do: try `xsched demo`".to_owned() },
            (None, Some(pid)) => {
                let step = format!("nothing to do: `xsched ps {pid}` says what it waits for");
                Next { check: None, cause: None, step }
            }
        }
    }
}

/// Report on the machine or a program.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) version: u32,
    /// True if no check failed.
    pub(super) ok: bool,
    /// Program that was examined; none = the machine.
    pub(super) pid: Option<u32>,
    pub(super) checks: Vec<Check>,
    pub(super) next: Next,
    pub(super) platforms: Vec<Platform>,
    pub(super) functions: Vec<program::Function>,
    pub(super) queues: Vec<program::Queue>,
    pub(super) notes: Vec<String>,
}

impl Report {
    pub(super) fn new(pid: Option<u32>, checks: Vec<Check>) -> Report {
        let (platforms, functions, queues, notes) = Default::default();
        Report {
            version: 2,
            ok: checks.iter().all(|c| c.status != Status::Fail),
            pid,
            next: Next::of(&checks, pid),
            checks,
            platforms,
            functions,
            queues,
            notes,
        }
    }

    /// Draws the conclusions from the checks, after others were added.
    pub(super) fn conclude(&mut self) {
        self.ok = self.checks.iter().all(|check| check.status != Status::Fail);
        self.next = Next::of(&self.checks, self.pid);
    }

    pub(super) fn text(&self, width: Width) -> String {
        let mut out = String::new();
        for check in &self.checks {
            let mark = match check.status {
                Status::Ok => "ok  ",
                Status::Note => "note",
                Status::Fail => "FAIL",
            };
            out += &width.fill(&format!("{mark}  {:<14} {}", check.name, escaped(&check.found)), 21);
            if let Some(advice) = &check.advice {
                out += &width.fill(&format!("{:<21}→ {}", "", escaped(advice)), 23);
            }
        }
        out += &platforms(&self.platforms, width);
        // Writing to a String cannot fail.
        if !self.functions.is_empty() {
            let _ = writeln!(out, "\n{:<40} {:>18}  {:<8} OWNER", "FUNCTION", "ADDRESS", "FOUND BY");
            for f in &self.functions {
                let _ = writeln!(out, "{:<40} {:>18}  {:<8} {}", f.name, f.address, f.via, f.file);
            }
        }
        if !self.queues.is_empty() {
            let _ = writeln!(out, "\n{:>18}  {:>6} {:>6}", "QUEUE", "XQUEUE", "GROUP");
            for q in &self.queues {
                let _ = writeln!(out, "{:>18}  {:>6} {:>6}", q.handle, q.slot, q.group);
            }
        }
        if !self.notes.is_empty() {
            out.push('\n');
        }
        for note in &self.notes {
            out += &width.fill(&format!("note  {note}"), 6);
        }
        let Next { check, step, .. } = &self.next;
        let check = check.map_or_else(String::new, |name| format!("{name:<14} "));
        out += "\n";
        out += &width.fill(&format!("next  {check}{}", escaped(step)), 6 + check.len());
        out
    }
}

/// Examination of one vendor interface.
#[derive(Debug, Serialize)]
pub(super) struct Platform {
    pub(super) platform: &'static str,
    pub(super) present: bool,
    pub(super) devices: Vec<String>,
    /// Preemption levels that this version supports on it.
    pub(super) levels: Vec<u8>,
    pub(super) note: Option<String>,
    pub(super) cuda: Option<Cuda>,
}

/// Platforms as text.
fn platforms(all: &[Platform], width: Width) -> String {
    let mut out = String::new();
    if !all.is_empty() {
        out.push_str("\nplatforms\n");
    }
    for p in all {
        let levels = p.levels.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        let what = match p.present {
            true => format!("{}; level{} {levels}", p.devices.join(", "), if p.levels.len() == 1 { "" } else { "s" }),
            false => "not here".to_owned(),
        };
        let note = p.note.as_deref().map(|n| format!(" ({n})")).unwrap_or_default();
        out += &width.fill(&format!("      {:<14} {what}{note}", p.platform), 21);
        for line in p.cuda.iter().flat_map(Cuda::lines) {
            out += &width.fill(&format!("      {:<14} {line}", ""), 21);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_cause_has_its_importance() {
        for cause in Cause::value_variants() {
            assert_eq!(IMPORTANCE.iter().filter(|other| *other == cause).count(), 1, "{cause:?}");
        }
        assert_eq!(IMPORTANCE.len(), Cause::value_variants().len());
    }

    #[test]
    fn the_last_line_is_the_cure_of_the_most_important_finding() {
        let notes = || {
            vec![
                Check::ok("glibc", "2.36"),
                Check::note("environment", Cause::UselessVariable, "XSCHED_A is none", "unset it"),
                Check::note("state", Cause::NoState, "no memory", "nothing to do"),
                Check::note("device", Cause::NoDevice, "no device", "install a driver"),
            ]
        };
        let last = |pid: Option<u32>, checks: Vec<Check>| {
            let text = Report::new(pid, checks).text(Width::Unlimited);
            assert_eq!(text.lines().filter(|line| line.starts_with("next  ")).count(), 1, "{text}");
            text.trim_end().lines().last().unwrap().to_owned()
        };
        assert_eq!(last(None, notes()), "next  device         install a driver", "the more important note");
        let mut failed = notes();
        failed.push(Check::fail("configuration", Cause::BadConfiguration, "a.toml:2: no", "correct it"));
        failed.push(Check::fail("preload", Cause::NoLibrary, "there is none", "install it"));
        assert_eq!(last(None, failed), "next  preload        install it", "without it nothing works");
        let mut fine = notes();
        fine.retain(|check| ["glibc", "state"].contains(&check.name));
        assert_eq!(last(None, fine), "next  nothing to do: try `xsched demo`");
        assert_eq!(last(Some(7), Vec::new()), "next  nothing to do: `xsched ps 7` says what it waits for");
        let mut later = Report::new(Some(7), Vec::new());
        later.checks.push(Check::fail("library", Cause::NotPreloaded, "it is not there", "start it anew"));
        later.conclude();
        let next = Next { check: Some("library"), cause: Some(Cause::NotPreloaded), step: "start it anew".into() };
        assert_eq!((later.ok, later.next), (false, next));
    }

    #[test]
    fn the_reference_has_every_cause_and_no_other() {
        let text = include_str!("../../../../../docs/reference/doctor.md");
        let of = |heading| crate::reference::rows(text, heading).into_iter().map(|row| crate::reference::bare(&row[0]));
        let mut named: Vec<String> = of("Of the machine").chain(of("Of a program")).collect();
        named.sort();
        named.dedup();
        let mut there: Vec<String> =
            Cause::value_variants().iter().filter_map(|c| Some(c.to_possible_value()?.get_name().to_owned())).collect();
        there.sort();
        assert_eq!(named, there);
    }
}
