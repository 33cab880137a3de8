//! Parsers of values on the command line. Each parser's error is one line that names the accepted values.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use xsched_policy::registry;
use xsched_proto::Error;
use xsched_proto::account::{self, Amount};
use xsched_proto::class;
use xsched_proto::text::check_visible;
use xsched_proto::units::{self, Bare};
use xsched_proto::wire::COMMANDS_MAX;

/// Time for which a daemon that was started for a program outlives its last client, in seconds.
pub(crate) const IDLE_EXIT_S: u64 = 60;
const S: Duration = Duration::from_secs(1);

/// Parses a whole number within a range.
fn number(text: &str, what: &str, min: u64, max: u64, unit: &str) -> Result<u64, Error> {
    match text.parse::<u64>() {
        Ok(n) if (min..=max).contains(&n) => Ok(n),
        _ => Err(Error::input(format!("'{text}' is no {what}: use a number from {min} to {max}{unit}"))),
    }
}

/// `--priority`.
pub(crate) fn priority(text: &str) -> Result<i32, Error> {
    class::parse_priority(text)
}

/// `--memory-limit` and `--memory-reserve`.
pub(crate) fn memory(text: &str) -> Result<Amount, Error> {
    Amount::parse(text).ok_or_else(|| Error::value(text, "amount of memory", Amount::ACCEPTED))
}

/// `--memory-idle`: a time in whole seconds.
pub(crate) fn memory_idle(text: &str) -> Result<u32, Error> {
    account::parse_idle_s(text)
}

/// `--threshold`.
pub(crate) fn threshold(text: &str) -> Result<u32, Error> {
    number(text, "threshold", 0, COMMANDS_MAX.into(), " commands (0 = automatic)").map(|n| n as u32)
}

/// `--batch`.
pub(crate) fn batch(text: &str) -> Result<u32, Error> {
    number(text, "batch size", 0, COMMANDS_MAX.into(), " commands (0 = automatic)").map(|n| n as u32)
}

/// `--pid`.
pub(crate) fn pid(text: &str) -> Result<u32, Error> {
    number(text, "process id", 1, i32::MAX as u64, "").map(|n| n as u32)
}

/// `--secs`: a time in whole seconds, the next longer one where it has a fraction.
pub(crate) fn seconds(text: &str) -> Result<u64, Error> {
    let time = units::within(text, "time", &(S..=S * 86_400), "30s", Bare::S)?;
    Ok(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

/// `--seed`.
pub(crate) fn seed(text: &str) -> Result<u64, Error> {
    number(text, "seed", 0, u64::MAX, "")
}

/// `--rounds`.
pub(crate) fn rounds(text: &str) -> Result<u32, Error> {
    number(text, "number of rounds", 1, 1_000, "").map(|n| n as u32)
}

/// Preemption level; none = automatic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level(pub(crate) Option<u8>);

/// `--level`.
pub(crate) fn level(text: &str) -> Result<Level, Error> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => Ok(Level(None)),
        "1" => Ok(Level(Some(1))),
        "2" => Ok(Level(Some(2))),
        "3" => Ok(Level(Some(3))),
        _ => Err(Error::value(text, "preemption level", "auto, 1, 2 or 3")),
    }
}

/// Reads a time, such as 10s.
pub(crate) fn time(text: &str) -> Result<Duration, Error> {
    time_within(text, Duration::from_millis(1)..=S * 86_400)
}

/// A time within a range; it has a unit.
pub(crate) fn time_within(text: &str, range: RangeInclusive<Duration>) -> Result<Duration, Error> {
    units::within(text, "time", &range, "10s", Bare::Refused)
}

/// Time that a daemon stays without clients; none = for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdleExit(pub(crate) Option<Duration>);

/// `--idle-exit`.
pub(crate) fn idle_exit(text: &str) -> Result<IdleExit, Error> {
    if text.eq_ignore_ascii_case("never") {
        return Ok(IdleExit(None));
    }
    let range = S..=S * 365 * 86_400;
    let time = units::parse(text, Bare::S).filter(|time| range.contains(time));
    let accepted = || units::accepted(&range, "10m", Bare::S) + ", or never";
    time.map(|time| IdleExit(Some(time))).ok_or_else(|| Error::value(text, "idle time", accepted()))
}

/// Reads a value of `--since`: a number with a unit, s, m, h or d.
pub(crate) fn time_ago(text: &str) -> Result<Duration, Error> {
    units::within(text, "time", &(S..=S * 3_650 * 86_400), "12h", Bare::Refused)
}

/// `--scheduler`: an existing file.
pub(crate) fn library(text: &str) -> Result<std::path::PathBuf, Error> {
    let path = std::path::absolute(text).map_err(|e| Error::input(format!("'{text}': {e}")))?;
    if path.is_file() { Ok(path) } else { Err(Error::input(format!("'{text}' is no file: give a shared library"))) }
}

/// `--policy`: any name or alias of a policy; returns its own name.
pub(crate) fn policy(text: &str) -> Result<String, Error> {
    registry::find(text).map(|entry| entry.name.to_owned())
}

/// Parser of [`policy`], with the names for help and completions.
#[derive(Clone)]
pub(crate) struct PolicyParser;

impl clap::builder::TypedValueParser for PolicyParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        let parser: fn(&str) -> Result<String, Error> = policy;
        parser.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = clap::builder::PossibleValue> + '_>> {
        let value = |entry: &registry::Entry| clap::builder::PossibleValue::new(entry.name).help(entry.about);
        Some(Box::new(registry::listed().map(value)))
    }
}

/// Parser of `--class`: a class by its name, or by an alias.
#[derive(Clone)]
pub(crate) struct ClassParser;

impl clap::builder::TypedValueParser for ClassParser {
    type Value = class::Class;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<class::Class, clap::Error> {
        let parser: fn(&str) -> Result<class::Class, Error> = class_named;
        parser.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = clap::builder::PossibleValue> + '_>> {
        Some(Box::new(class::Class::ALL.into_iter().rev().map(|class| clap::builder::PossibleValue::new(class.name()))))
    }
}

fn class_named(text: &str) -> Result<class::Class, Error> {
    let named = text.parse::<i32>().is_err().then(|| class::parse_priority(text).ok()).flatten();
    named.map(class::Class::of).ok_or_else(|| {
        let names = class::Class::ALL.map(class::Class::name);
        Error::word(text, "class", "low, normal, high, realtime or system", names)
    })
}

/// Reads a parameter of a policy, `NAME=VALUE`. The daemon checks it against the policy.
pub(crate) fn parameter(text: &str) -> Result<(String, String), Error> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(Error::value(text, "parameter", "NAME=VALUE, such as k=2")),
    }
}

/// Reads a value of `--queue`: the name of an XQueue in `ps`.
pub(crate) fn queue(text: &str) -> Result<u64, Error> {
    text.strip_prefix('q')
        .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| Error::input(format!("'{text}' is no queue: use a name from `xsched ps --json`, such as q3")))
}

/// Reads a value of `--job`: a name that can stand in an environment variable and a table.
pub(crate) fn job(text: &str) -> Result<String, Error> {
    if !(1..=128).contains(&text.len()) {
        return Err(Error::input("a job's name has 1 to 128 printable characters"));
    }
    check_visible(text, "job").map(|()| text.to_owned())
}

/// `--socket`.
pub(crate) fn socket(text: &str) -> Result<PathBuf, Error> {
    // sun_path has 108 bytes, one of them for the terminating zero.
    let path = std::path::absolute(text).map_err(|_| Error::input(format!("'{text}' is no path for a socket")))?;
    match path.as_os_str().len() {
        1..=107 => Ok(path),
        n => Err(Error::input(format!(
            "'{text}' is no path for a socket: {n} bytes as an absolute path, at most 107 are possible"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_accepted_and_what_is_beyond_them_is_refused() {
        assert_eq!(level("AUTO"), Ok(Level(None)));
        assert!(level("4").is_err());
        assert_eq!(idle_exit("never"), Ok(IdleExit(None)));
        for same in ["60", "60s", "1m"] {
            assert_eq!(idle_exit(same), Ok(IdleExit(Some(Duration::from_secs(60)))), "{same}");
        }
        assert!(idle_exit("0").is_err() && idle_exit("366d").is_err());
        assert_eq!((seconds("90"), seconds("1500ms"), seconds("2m")), (Ok(90), Ok(2), Ok(120)));
        assert!(seconds("0").is_err() && seconds("2d").is_err());
        assert_eq!(queue("q12"), Ok(12));
        for bad in ["12", "q", "q+1", "g1", "q99999999999999999999"] {
            assert!(queue(bad).is_err(), "{bad}");
        }
        assert!(job("").is_err());
        assert!(job("a\nb").is_err());
        assert!(socket("").is_err());
        assert!(socket(&"x".repeat(200)).unwrap_err().line().contains("107"));
        assert_eq!(policy("Priority").as_deref(), Ok("hpf"));
        assert!(pid("0").is_err());
        assert_eq!(time_ago("90m"), Ok(Duration::from_secs(5_400)));
        for bad in ["", "d", "5", "0s", "+5s", "-1d", "4000d", "1w", "5é"] {
            assert!(time_ago(bad).is_err(), "{bad}");
        }
        assert_eq!(time("1500ms"), Ok(Duration::from_millis(1_500)));
        for bad in ["10", "0s", "-1s", "2d", "s", ""] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
