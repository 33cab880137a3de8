//! What the environment asks for.

use std::path::PathBuf;

use xsched_core::Scheduler;
use xsched_proto::class::parse_priority;
use xsched_proto::hint::{Hint, Hints};
use xsched_proto::wire::ProgramOptions;

/// What decides for this process.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// The daemon on this socket.
    Daemon(PathBuf),
    /// A scheduler inside this process, with this policy.
    Local(String),
    /// Nothing: calls are counted and go through.
    Unscheduled,
}

impl Mode {
    /// What decides when the program itself has chosen this.
    pub fn changed_to(&self, scheduler: Scheduler) -> Mode {
        match (scheduler, self) {
            (Scheduler::Application, _) => Mode::Unscheduled,
            (Scheduler::Local(policy), _) => Mode::Local(policy),
            (Scheduler::Daemon, Mode::Daemon(path)) => Mode::Daemon(path.clone()),
            (Scheduler::Daemon, _) => {
                let named = std::env::var_os("XSCHED_SOCKET").filter(|name| !name.is_empty());
                Mode::Daemon(xsched_proto::paths::socket_path(named.map(Into::into)).0)
            }
        }
    }
}

/// How much is said on stderr (`XSCHED_LOG`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Log {
    /// Nothing.
    Off,
    /// What went wrong.
    Error,
    /// Also what an operator wants to know (the default).
    Info,
    /// Also what happens.
    Debug,
}

/// What the environment asks for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What decides.
    pub mode: Mode,
    /// What the program asks of the scheduler.
    pub options: ProgramOptions,
    /// How much is said.
    pub log: Log,
    /// The program's starter has told its user that no daemon answers (`XSCHED_TOLD`).
    pub told: bool,
    /// The program is to end rather than run unscheduled (`XSCHED_REQUIRE`).
    pub required: bool,
    /// Words of the environment that were not understood, a line each.
    pub complaints: Vec<String>,
}

impl Settings {
    /// Reads the environment through `var`. A word that is not understood is left out and complained about: a
    /// preloaded library must not end its host.
    pub fn read(var: impl Fn(&str) -> Option<String>) -> Settings {
        let var = |name: &str| var(name).filter(|v| !v.is_empty());
        let mut complaints = Vec::new();
        let mut number = |name: &str, low: u64, high: u64, none: Option<&str>| -> Option<u64> {
            let text = var(name)?;
            if none.is_some_and(|none| text.eq_ignore_ascii_case(none)) {
                return None;
            }
            let value = text.parse().ok().filter(|n| (low..=high).contains(n));
            if value.is_none() {
                complaints.push(format!("{name}={text} ignored: use a number from {low} to {high}"));
            }
            value
        };
        let level = number("XSCHED_FORCE_LEVEL", 1, 3, Some("auto"))
            .or_else(|| number("XSCHED_AUTO_XQUEUE_LEVEL", 1, 3, Some("auto")));
        let threshold = number("XSCHED_AUTO_XQUEUE_THRESHOLD", 1, 1 << 20, None).map(|n| n as u32);
        let mut hints = Hints::default();
        for hint in Hint::ALL {
            let Some(text) = var(hint.variable()) else { continue };
            let mut more = hints;
            match more.set(hint, &text) {
                Ok(()) => hints = more,
                Err(_) => complaints.push(format!("{}={text} ignored: use {}", hint.variable(), hint.accepted())),
            }
        }
        let mut options =
            ProgramOptions { priority: None, hints, level: level.map(|n| n as u8), threshold, job: var("XSCHED_JOB") };
        if let Some(text) = var("XSCHED_AUTO_XQUEUE_PRIORITY") {
            match parse_priority(&text) {
                Ok(priority) => options.priority = Some(priority),
                Err(e) => complaints.push(format!("XSCHED_AUTO_XQUEUE_PRIORITY ignored: {e}")),
            }
        }
        let policy = var("XSCHED_POLICY");
        let mode = match var("XSCHED_SCHEDULER").map(|s| s.to_ascii_uppercase()).as_deref() {
            _ if var("XSCHED_NO_DAEMON").is_some_and(|v| v != "0") => Mode::Unscheduled,
            Some("LCL") => Mode::Local(policy.unwrap_or_else(|| "hpf".into())),
            Some("APP") => Mode::Unscheduled,
            None if policy.is_some() => Mode::Local(policy.unwrap_or_default()),
            Some("GLB") | None => {
                Mode::Daemon(xsched_proto::paths::socket_path(var("XSCHED_SOCKET").map(Into::into)).0)
            }
            Some(other) => {
                complaints.push(format!("XSCHED_SCHEDULER={other} ignored: use GLB, LCL or APP"));
                Mode::Daemon(xsched_proto::paths::socket_path(None).0)
            }
        };
        let log = match var("XSCHED_LOG").map(|s| s.to_ascii_lowercase()).as_deref() {
            Some("off") => Log::Off,
            Some("error") => Log::Error,
            Some("debug") => Log::Debug,
            Some("info") | None => Log::Info,
            Some(other) => {
                complaints.push(format!("XSCHED_LOG={other} ignored: use off, error, info or debug"));
                Log::Info
            }
        };
        let told = var("XSCHED_TOLD").is_some_and(|v| v != "0");
        let required = var("XSCHED_REQUIRE").is_some_and(|v| v != "0");
        Settings { mode, options, log, told, required, complaints }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Settings {
        Settings::read(|name| pairs.iter().find(|(k, _)| *k == name).map(|(_, v)| (*v).to_string()))
    }

    #[test]
    fn words_are_read_and_what_is_not_understood_is_left_out_and_named() {
        let s = read(&[
            ("XSCHED_AUTO_XQUEUE_PRIORITY", "high"),
            ("XSCHED_WEIGHT", "0"),
            ("XSCHED_SOCKET", "/s"),
            ("XSCHED_AUTO_XQUEUE_LEVEL", "auto"),
        ]);
        assert_eq!(s.mode, Mode::Daemon("/s".into()));
        assert_eq!((s.options.priority, s.options.hints, s.options.level), (Some(128), Hints::default(), None));
        assert_eq!(s.complaints.len(), 1);
        assert!(s.complaints[0].contains("XSCHED_WEIGHT=0") && s.complaints[0].contains("1 to 10000"));
    }

    #[test]
    fn a_policy_implies_a_scheduler_in_the_process() {
        assert_eq!(read(&[("XSCHED_POLICY", "UP")]).mode, Mode::Local("UP".into()));
        assert_eq!(read(&[("XSCHED_SCHEDULER", "lcl")]).mode, Mode::Local("hpf".into()));
        assert_eq!(read(&[("XSCHED_NO_DAEMON", "1"), ("XSCHED_POLICY", "up")]).mode, Mode::Unscheduled);
    }
}
