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

/// Report on the machine or a program.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) version: u32,
    /// True if no check failed.
    pub(super) ok: bool,
    /// Program that was examined; none = the machine.
    pub(super) pid: Option<u32>,
    pub(super) checks: Vec<Check>,
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
            checks,
            platforms,
            functions,
            queues,
            notes,
        }
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
