//! Settings from the environment: read by the preload library, and by `xsched run` before it hands the environment over.

use std::path::PathBuf;

use crate::account::{self, Amount};
use crate::class::parse_priority;
use crate::domains::DomainMode;
use crate::hint::{Hint, Hints};
use crate::text::check_visible;
use crate::wire::{COMMANDS_MAX, Platform, ProgramOptions};
use crate::{paths, variables};

/// Variable with the names, separated by commas, of which `run` has reported already that they have no effect.
pub const TOLD_OF: &str = "XSCHED_TOLD_OF";

/// Scheduler of this process.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// Daemon at this socket.
    Daemon(PathBuf),
    /// Scheduler inside this process, with this policy.
    Local(String),
    /// No scheduler: calls are counted and pass.
    Unscheduled,
}

/// Amount of output on stderr (`XSCHED_LOG`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Log {
    /// No output.
    Off,
    /// Errors only.
    Error,
    /// Also information for an operator (the default).
    Info,
    /// Also the course of events.
    Debug,
}

/// Settings that the environment asks for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Scheduler of this process.
    pub mode: Mode,
    /// True if streams get an XQueue automatically (`XSCHED_AUTO_XQUEUE`).
    pub auto_xqueue: bool,
    /// Options of the program for the scheduler.
    pub options: ProgramOptions,
    /// Amount of output.
    pub log: Log,
    /// True if each group reports that it is scheduled, and how (`XSCHED_VERBOSE`).
    pub verbose: bool,
    /// True if the program's starter has reported to its user that no daemon answers (`XSCHED_TOLD`).
    pub told: bool,
    /// True if the program has to end rather than run unscheduled (`XSCHED_REQUIRE`).
    pub required: bool,
    /// Values that were not understood and are ignored: `NAME=VALUE: use …`, one line each.
    pub complaints: Vec<String>,
    /// Variables without effect, each with a line: variables of XSched 1.2.0, with their replacement, and names that xsched does not know.
    /// Those that were reported already (`XSCHED_TOLD_OF`) are left out.
    pub without_effect: Vec<(String, String)>,
}

/// Default policy of a scheduler inside the process.
pub const LOCAL_POLICY: &str = "hpf";

/// Reader of an environment, with the faults found in it.
struct Reader<F> {
    var: F,
    complaints: Vec<String>,
}

impl<F: Fn(&str) -> Option<String>> Reader<F> {
    /// Value of a variable; none where it is empty.
    fn text(&self, name: &str) -> Option<String> {
        (self.var)(name).filter(|v| !v.is_empty())
    }

    fn is_set(&self, name: &str) -> bool {
        self.text(name).is_some_and(|v| variables::flag(&v) == Some(true))
    }

    /// Value of a variable as `parse` reads it. A value that is not accepted is ignored and reported.
    fn value<T>(&mut self, name: &str, accepted: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.text(name)?;
        let value = parse(&text);
        if value.is_none() {
            self.complaints.push(format!("{name}={text}: use {accepted}"));
        }
        value
    }

    /// Value of a variable as a whole number; none where it is the word for the automatic choice.
    fn number(&mut self, name: &str, (low, high): (u32, u32), automatic: &str) -> Option<u32> {
        let accepted = format!("a number from {low} to {high}, or {automatic}");
        let parse = |text: &str| match text.eq_ignore_ascii_case(automatic) {
            true => Some(None),
            false => text.parse().ok().filter(|n| (low..=high).contains(n)).map(Some),
        };
        self.value(name, &accepted, parse).flatten()
    }

    fn word<T: Copy>(&mut self, name: &str, accepted: &str, words: &[(&str, T)]) -> Option<T> {
        let find = |text: &str| words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)).map(|(_, value)| *value);
        self.value(name, accepted, find)
    }

    fn mode(&mut self) -> Mode {
        #[derive(Clone, Copy)]
        enum Scheduler {
            Global,
            Local,
            Application,
        }
        let words = [("GLB", Scheduler::Global), ("LCL", Scheduler::Local), ("APP", Scheduler::Application)];
        let scheduler = self.word("XSCHED_SCHEDULER", "GLB, LCL or APP", &words);
        let policy = self.text("XSCHED_POLICY");
        if self.is_set("XSCHED_NO_DAEMON") {
            return Mode::Unscheduled;
        }
        match (scheduler, policy) {
            (Some(Scheduler::Application), _) => Mode::Unscheduled,
            (Some(Scheduler::Local), policy) => Mode::Local(policy.unwrap_or_else(|| LOCAL_POLICY.into())),
            (None, Some(policy)) if self.text("XSCHED_SCHEDULER").is_none() => Mode::Local(policy),
            _ => Mode::Daemon(paths::socket_path(self.text("XSCHED_SOCKET").map(Into::into)).0),
        }
    }

    fn priority(&mut self, name: &str) -> Option<i32> {
        let read = parse_priority(&self.text(name)?);
        read.map_err(|why| self.complaints.push(format!("{name}: {why}"))).ok()
    }

    fn options(&mut self) -> ProgramOptions {
        let forced = self.number("XSCHED_FORCE_LEVEL", (1, 3), "auto");
        let level = self.number("XSCHED_AUTO_XQUEUE_LEVEL", (1, 3), "auto");
        let mut hints = Hints::default();
        for hint in Hint::ALL {
            let read = |text: &str| {
                let mut more = hints;
                more.set(hint, text).ok().map(|()| more)
            };
            hints = self.value(hint.variable(), hint.accepted(), read).unwrap_or(hints);
        }
        let own = self.priority("XSCHED_PRIORITY");
        let original = self.priority("XSCHED_AUTO_XQUEUE_PRIORITY");
        ProgramOptions {
            priority: own.or(original),
            hints,
            level: forced.or(level).map(|n| n as u8),
            threshold: self.number("XSCHED_AUTO_XQUEUE_THRESHOLD", (1, COMMANDS_MAX), "0"),
            batch: self.number("XSCHED_AUTO_XQUEUE_BATCH_SIZE", (1, COMMANDS_MAX), "0"),
            job: self.job(),
            domains: self.value("XSCHED_DOMAINS", DomainMode::HELP, |text| match text {
                "0" => Some(DomainMode::Off),
                word => DomainMode::named(word),
            }),
            memory_limit: self.value("XSCHED_MEMORY_LIMIT", Amount::ACCEPTED, Amount::parse),
            memory_reserve: self.value("XSCHED_MEMORY_RESERVE", Amount::ACCEPTED, Amount::parse),
            memory_swap: self.text("XSCHED_MEMORY").as_deref() == Some("swap"),
            memory_idle_s: self.memory_idle(),
            command: Vec::new(),
            title: None,
            exe: String::new(),
        }
    }

    fn memory_idle(&mut self) -> Option<u32> {
        let text = self.text("XSCHED_MEMORY_IDLE")?;
        let read = account::parse_idle_s(&text);
        self.complaints.extend(read.as_ref().err().map(|why| format!("XSCHED_MEMORY_IDLE: {why}")));
        read.ok()
    }

    fn job(&mut self) -> Option<String> {
        let job = self.text("XSCHED_JOB")?;
        let checked = check_visible(&job, "job");
        self.complaints.extend(checked.as_ref().err().map(|why| format!("XSCHED_JOB: {why}")));
        checked.is_ok().then_some(job)
    }

    /// Finds variables of XSched 1.2.0 for features that do not exist here.
    fn replaced(&mut self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        for name in LIBRARIES {
            if self.text(name).is_some() {
                let line = "has no effect: calls go to the library that the program itself loads; use LD_LIBRARY_PATH";
                lines.push((name.to_owned(), format!("{name} {line}")));
            }
        }
        for name in OTHER_LIBRARIES {
            if self.text(name).is_some() {
                let platforms = Platform::ALL.map(Platform::name).join(", ");
                let line = format!("{name} has no effect: the platforms here are {platforms}");
                lines.push((name.to_owned(), line));
            }
        }
        let name = "XSCHED_CUDA_LV3_IMPL";
        if self.word(name, "TSG", &[("TSG", false), ("TRAP", true)]) == Some(true) {
            let line = "has no effect: level 3 on NVIDIA GPUs is by time slices of channel groups (TSG)";
            lines.push((name.to_owned(), format!("{name}=TRAP {line}")));
        }
        lines
    }
}

/// Variables by which XSched 1.2.0 is told the file of a vendor's library. Here a call reaches the same function as without xsched: another
/// file would be another copy of the library, with other handles.
const LIBRARIES: [&str; 3] = ["XSCHED_CUDA_LIB", "XSCHED_HIP_LIB", "XSCHED_OPENCL_LIB"];
/// Variables of XSched 1.2.0 for the libraries of platforms that are not scheduled here.
const OTHER_LIBRARIES: [&str; 4] = ["XSCHED_ASCEND_LIB", "XSCHED_CUDLA_LIB", "XSCHED_LEVELZERO_LIB", "XSCHED_VPI_LIB"];

impl Settings {
    /// Reads the environment of this process.
    pub fn of_process() -> Settings {
        Settings::read(variables::text, variables::names())
    }

    /// Reads an environment through `var`, with the `names` of its variables. A value that is not understood is ignored and reported, since
    /// a preloaded library must not end its host.
    pub fn read(var: impl Fn(&str) -> Option<String>, names: impl IntoIterator<Item = String>) -> Settings {
        let complaints = variables::faults(&var);
        let mut reader = Reader { var, complaints };
        let options = reader.options();
        let mode = reader.mode();
        let auto_xqueue = reader.word("XSCHED_AUTO_XQUEUE", "ON or OFF", &[("ON", true), ("OFF", false)]);
        let auto_xqueue = auto_xqueue.unwrap_or(true);
        let levels = [("off", Log::Off), ("error", Log::Error), ("info", Log::Info), ("debug", Log::Debug)];
        let log = reader.word("XSCHED_LOG", "off, error, info or debug", &levels).unwrap_or(Log::Info);
        let mut without_effect = reader.replaced();
        without_effect.extend(variables::unknown(names));
        let told_of = reader.text(TOLD_OF).unwrap_or_default();
        without_effect.retain(|(name, _)| told_of.split(',').all(|told| told != name));
        let (told, required) = (reader.is_set("XSCHED_TOLD"), reader.is_set("XSCHED_REQUIRE"));
        let verbose = reader.is_set("XSCHED_VERBOSE");
        Settings {
            mode,
            auto_xqueue,
            options,
            log,
            verbose,
            told,
            required,
            complaints: reader.complaints,
            without_effect,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Settings {
        let value = |name: &str| pairs.iter().find(|(k, _)| *k == name).map(|(_, v)| (*v).to_string());
        Settings::read(value, pairs.iter().map(|(name, _)| (*name).to_owned()))
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
        let global = [("XSCHED_SCHEDULER", "GLB"), ("XSCHED_POLICY", "up"), ("XSCHED_SOCKET", "/s")];
        assert_eq!(read(&global).mode, Mode::Daemon("/s".into()));
        let wrong = read(&[("XSCHED_SCHEDULER", "all"), ("XSCHED_POLICY", "up"), ("XSCHED_SOCKET", "/s")]);
        assert_eq!(wrong.mode, Mode::Daemon("/s".into()));
        assert_eq!(wrong.complaints, ["XSCHED_SCHEDULER=all: use GLB, LCL or APP"]);
    }

    #[test]
    fn queues_are_made_unless_they_are_switched_off() {
        for (value, made) in [("off", false), ("ON", true), ("", true)] {
            let s = read(&[("XSCHED_AUTO_XQUEUE", value)]);
            assert_eq!((s.auto_xqueue, s.complaints.len()), (made, 0));
        }
        let wrong = read(&[("XSCHED_AUTO_XQUEUE", "2")]);
        assert_eq!(
            (wrong.auto_xqueue, &wrong.complaints[..]),
            (true, &["XSCHED_AUTO_XQUEUE=2: use ON or OFF".into()][..])
        );
    }

    #[test]
    fn commands_in_flight_and_in_a_batch_are_numbers_or_automatic() {
        let both = |value| read(&[("XSCHED_AUTO_XQUEUE_THRESHOLD", value), ("XSCHED_AUTO_XQUEUE_BATCH_SIZE", value)]);
        let options = both("16").options;
        assert_eq!((options.threshold, options.batch), (Some(16), Some(16)));
        let s = both("0");
        assert_eq!((s.options.threshold, s.options.batch, s.complaints.len()), (None, None, 0));
        let s = both("1048577");
        assert_eq!((s.options.threshold, s.options.batch, s.complaints.len()), (None, None, 2));
        assert_eq!(s.complaints[1], "XSCHED_AUTO_XQUEUE_BATCH_SIZE=1048577: use a number from 1 to 1048576, or 0");
    }

    #[test]
    fn a_job_is_called_by_characters_that_are_seen() {
        assert_eq!(read(&[("XSCHED_JOB", "größe 1")]).options.job.as_deref(), Some("größe 1"));
        let s = read(&[("XSCHED_JOB", "a\u{202e}b")]);
        assert_eq!((s.options.job, s.complaints.len()), (None, 1));
        assert!(
            s.complaints[0].starts_with("XSCHED_JOB: ") && s.complaints[0].contains("U+202E"),
            "{:?}",
            s.complaints
        );
    }

    #[test]
    fn variables_without_effect_say_what_takes_their_place() {
        let says = |name, value| {
            let s = read(&[(name, value)]);
            assert_eq!(s.complaints, [""; 0]);
            s.without_effect.into_iter().map(|(_, line)| line).collect::<Vec<_>>().join("; ")
        };
        for name in LIBRARIES {
            assert!(says(name, "/l.so").starts_with(&format!("{name} has no effect")));
            assert!(says(name, "/l.so").ends_with("use LD_LIBRARY_PATH"));
        }
        for name in OTHER_LIBRARIES {
            assert!(says(name, "/l.so").ends_with("the platforms here are cuda, hip, opencl, sim, hsa"));
        }
        assert!(says("XSCHED_CUDA_LV3_IMPL", "trap").contains("time slices"));
        assert_eq!(says("XSCHED_CUDA_LV3_IMPL", "TSG"), "");
        assert_eq!(read(&[("XSCHED_CUDA_LV3_IMPL", "x")]).complaints, ["XSCHED_CUDA_LV3_IMPL=x: use TSG"]);
    }

    #[test]
    fn the_plain_name_of_the_priority_goes_before_that_of_the_original() {
        let both = |own: &str, original: &str| {
            let s = read(&[("XSCHED_PRIORITY", own), ("XSCHED_AUTO_XQUEUE_PRIORITY", original)]);
            (s.options.priority, s.complaints)
        };
        assert_eq!(both("low", "high"), (Some(-128), vec![]));
        assert_eq!(both("", "high"), (Some(128), vec![]));
        assert_eq!(both("-7", ""), (Some(-7), vec![]));
        let (priority, complaints) = both("lwo", "high");
        assert_eq!(priority, Some(128));
        assert!(complaints[0].starts_with("XSCHED_PRIORITY: 'lwo' is no priority"), "{complaints:?}");
    }

    #[test]
    fn a_name_that_is_none_is_told_unless_it_was() {
        let lines = |told: &str| {
            read(&[("XSCHED_DISABEL", "1"), ("XSCHED_HIP_LIB", "x"), ("XSCHED_TOLD_OF", told)]).without_effect
        };
        let names = |told: &str| lines(told).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(""), ["XSCHED_HIP_LIB", "XSCHED_DISABEL"]);
        assert_eq!(
            lines("XSCHED_HIP_LIB")[0].1,
            "XSCHED_DISABEL is no variable of xsched: did you mean XSCHED_DISABLE?"
        );
        assert_eq!(names("XSCHED_DISABEL,XSCHED_HIP_LIB"), [""; 0]);
    }
}
