//! Times as users write and read them: one parser, one format.
//!
//! Written: `5ms`, `2.5 s`, `1m 30s`. Read: `120 µs`, `2.5 ms`, `12.4 s`, `1 m 5 s`. The parser takes all that [`of`] writes.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::Error;

/// Nanoseconds of a second.
const S: u64 = 1_000_000_000;

/// Unit of a number that is written without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bare {
    /// A number needs a unit.
    Refused,
    /// A bare number is µs.
    Us,
    /// A bare number is ms.
    Ms,
    /// A bare number is seconds.
    S,
}

impl Bare {
    /// Length in ns; none = a number needs a unit.
    fn ns(self) -> Option<u64> {
        match self {
            Bare::Refused => None,
            Bare::Us => Some(1_000),
            Bare::Ms => Some(1_000_000),
            Bare::S => Some(S),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Bare::Refused => "",
            Bare::Us => "µs",
            Bare::Ms => "ms",
            Bare::S => "s",
        }
    }
}

/// Length of a unit in ns.
fn unit_ns(name: &str) -> Option<u64> {
    Some(match name {
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" | "sec" | "secs" | "second" | "seconds" => S,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * S,
        "h" | "hour" | "hours" => 3_600 * S,
        "d" | "day" | "days" => 86_400 * S,
        _ => return None,
    })
}

/// A time: numbers with units, or one number where `bare` gives it a unit. None = it is no time, or longer than 584 years.
pub fn parse(text: &str, bare: Bare) -> Option<Duration> {
    let mut rest = text.trim();
    let mut all_ns = 0u64;
    if rest.is_empty() {
        return None;
    }
    let is_single = rest.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len()));
        let after = after.trim_start();
        let (unit, after) = after.split_at(after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len()));
        let unit = if is_single { bare.ns()? } else { unit_ns(unit)? };
        all_ns = all_ns.checked_add(scaled(number, unit)?)?;
        rest = after.trim_start();
    }
    Some(Duration::from_nanos(all_ns))
}

/// A decimal number of units, in ns. Whole numbers are exact.
fn scaled(number: &str, unit_ns: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || part.contains('.') || number.ends_with('.') {
        return None;
    }
    let part = if part.is_empty() { 0.0 } else { format!("0.{part}").parse::<f64>().ok()? };
    whole.parse::<u64>().ok()?.checked_mul(unit_ns)?.checked_add((part * unit_ns as f64).round() as u64)
}

/// Accepted times, for messages and documents: `a time from 100 µs to 10 s, such as 5ms (a bare number is µs)`.
pub fn accepted(range: &RangeInclusive<Duration>, example: &str, bare: Bare) -> String {
    let note = if bare == Bare::Refused { String::new() } else { format!(" (a bare number is {})", bare.name()) };
    format!("a time from {} to {}, such as {example}{note}", of(*range.start()), of(*range.end()))
}

/// A time within a range. `what` names it, and `example` is one that is accepted.
///
/// # Errors
/// Fails if it is no time, or out of range, with one line that says which times are accepted.
pub fn within(
    text: &str,
    what: &str,
    range: &RangeInclusive<Duration>,
    example: &str,
    bare: Bare,
) -> Result<Duration, Error> {
    let time = parse(text, bare).filter(|time| range.contains(time));
    time.ok_or_else(|| Error::value(text, what, accepted(range, example, bare)))
}

/// Time in three figures, or in its two largest units from a minute on.
pub fn of(time: Duration) -> String {
    of_ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// As [`of`], for a time in µs.
pub fn of_us(us: u64) -> String {
    of_ns(us.saturating_mul(1_000))
}

/// Exact time in its largest unit up to s, for values that a user gives: `2.405 ms`.
pub fn exact_us(us: u64) -> String {
    let (unit_us, unit) = match us {
        0..1_000 => return format!("{us} µs"),
        1_000..1_000_000 => (1_000, "ms"),
        _ => (1_000_000, "s"),
    };
    let digits = if unit_us == 1_000 { 3 } else { 6 };
    let part = format!("{:0digits$}", us % unit_us);
    let part = part.trim_end_matches('0');
    let point = if part.is_empty() { "" } else { "." };
    format!("{}{point}{part} {unit}", us / unit_us)
}

/// As [`of`], for a time that is known to the second.
pub fn of_s(s: u64) -> String {
    if s == 0 { "0 s".to_owned() } else { of(Duration::from_secs(s)) }
}

/// As [`of`], for a time in ns.
pub fn of_ns(ns: u64) -> String {
    // A number that is exact has no decimal.
    let scaled = |unit_ns: u64, unit: &str| {
        let value = ns as f64 / unit_ns as f64;
        if ns.is_multiple_of(unit_ns) || value >= 99.95 {
            format!("{value:.0} {unit}")
        } else {
            format!("{value:.1} {unit}")
        }
    };
    let s = ns / S + u64::from(ns % S >= S / 2);
    let two = |large: u64, unit: &str, small: u64, smaller: &str| match small {
        0 => format!("{large} {unit}"),
        small => format!("{large} {unit} {small} {smaller}"),
    };
    match ns {
        0..999_500 => format!("{} µs", (ns + 500) / 1_000),
        999_500..999_500_000 => scaled(1_000_000, "ms"),
        999_500_000..59_950_000_000 => scaled(S, "s"),
        _ if s < 3_600 => two(s / 60, "m", s % 60, "s"),
        _ if s < 86_400 => two(s / 3_600, "h", s / 60 % 60, "m"),
        _ => two(s / 86_400, "d", s / 3_600 % 24, "h"),
    }
}

/// Time in its largest unit, from ms on, without a fraction: five columns at most up to 99 days.
pub fn rough_us(us: u64) -> String {
    match us {
        0..1_000_000 => format!("{} ms", us / 1_000),
        1_000_000..60_000_000 => format!("{} s", us / 1_000_000),
        60_000_000..3_600_000_000 => format!("{} m", us / 60_000_000),
        3_600_000_000..86_400_000_000 => format!("{} h", us / 3_600_000_000),
        _ => format!("{} d", us / 86_400_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_numbers_with_units() {
        let us = |text| parse(text, Bare::Refused).map(|time| time.as_micros());
        for (text, expected) in [
            ("5ms", 5_000),
            ("2.5ms", 2_500),
            ("120us", 120),
            ("120 µs", 120),
            ("1.001ms", 1_001),
            ("10s", 10_000_000),
            ("1m", 60_000_000),
            ("2min", 120_000_000),
            ("1m 5s", 65_000_000),
            ("1 m 5 s", 65_000_000),
            ("12h", 43_200_000_000),
            ("3650d", 315_360_000_000_000),
            ("0s", 0),
        ] {
            assert_eq!(us(text), Some(expected), "{text}");
        }
        for bad in [
            "",
            " ",
            "5",
            "ms",
            "-1s",
            "+1s",
            "1e3s",
            "1.s",
            ".5s",
            "1.2.3s",
            "5 parsecs",
            "1s 5",
            "inf",
            "5é",
            "999999999d",
        ] {
            assert_eq!(us(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_bare_number_has_the_unit_of_its_option() {
        let us = |bare| parse("5", bare).map(|time| time.as_micros());
        assert_eq!([us(Bare::Us), us(Bare::Ms), us(Bare::S)], [Some(5), Some(5_000), Some(5_000_000)]);
        assert_eq!((us(Bare::Refused), parse("5 5", Bare::S)), (None, None));
    }

    #[test]
    fn all_times_have_one_form_and_can_be_read_again() {
        for (us, text) in [
            (0, "0 µs"),
            (120, "120 µs"),
            (999, "999 µs"),
            (1_000, "1 ms"),
            (2_500, "2.5 ms"),
            (5_040, "5.0 ms"),
            (123_456, "123 ms"),
            (999_499, "999 ms"),
            (999_500, "1.0 s"),
            (12_440_000, "12.4 s"),
            (59_949_999, "59.9 s"),
            (59_950_000, "1 m"),
            (65_000_000, "1 m 5 s"),
            (3_600_000_000, "1 h"),
            (7_384_000_000, "2 h 3 m"),
            (86_400_000_000, "1 d"),
            (100_000_000_000, "1 d 3 h"),
        ] {
            assert_eq!(of_us(us), text);
            let again = parse(text, Bare::Refused).unwrap_or_else(|| panic!("{text}"));
            assert!(again.as_micros().abs_diff(us.into()) <= u128::from(us / 10), "{text}");
        }
        assert_eq!((of_ns(1), of_ns(u64::MAX)), ("0 µs".into(), "213503 d 23 h".into()));
        assert_eq!([0, 1, 65].map(of_s), ["0 s", "1 s", "1 m 5 s"]);
        let exact = [0, 900, 2_405, 5_000, 1_000_001, 90_000_000].map(exact_us);
        assert_eq!(exact, ["0 µs", "900 µs", "2.405 ms", "5 ms", "1.000001 s", "90 s"]);
        let rough = [0, 12_999, 3_500_000, 75_000_000, 7_200_000_000, 99 * 86_400_000_000].map(rough_us);
        assert_eq!(rough, ["0 ms", "12 ms", "3 s", "1 m", "2 h", "99 d"]);
    }

    #[test]
    fn each_refusal_names_the_range() {
        let range = Duration::from_micros(100)..=Duration::from_secs(10);
        let accepted = "a time from 100 µs to 10 s, such as 5ms (a bare number is µs)";
        for bad in ["99", "11s", "soon"] {
            let line = within(bad, "timeslice", &range, "5ms", Bare::Us).unwrap_err().to_string();
            assert_eq!(line, format!("'{bad}' is no timeslice: use {accepted}"));
        }
        assert!(within("5", "time", &range, "5ms", Bare::Refused).unwrap_err().line().ends_with("such as 5ms"));
    }
}
