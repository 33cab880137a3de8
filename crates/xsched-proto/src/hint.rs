//! Hints that a program gives the policy about itself, by `run`, `hint`, a rule or the environment.
//!
//! [`Hint`] lists the kinds, with the words of the command line; [`Hints`] holds the values. A new kind is a variant, a field and
//! an arm in each `match` here. The policies' registry says which policy uses which hint.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::class::{
    self, TIMESLICE_DEFAULT_US, TIMESLICE_MAX_US, TIMESLICE_MIN_US, WEIGHT_DEFAULT, WEIGHT_MAX, WEIGHT_MIN,
};
use crate::units::{self, Bare};

/// Longest accepted deadline, laxity or target, in µs.
pub const TIME_MAX_US: u64 = 3_600_000_000;
/// Largest number of groups that may have a device together by [`Hint::K`].
pub const K_MAX: u32 = 64;
/// Least and greatest target slowdown, in percent of the time that a request takes alone.
pub const SLOWDOWN_PERCENT: (u32, u32) = (101, 10_000);

/// Kind of a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hint {
    /// Weight of a fair share.
    Weight,
    /// Part of the device, in percent.
    Utilization,
    /// Length of a turn, in µs.
    Timeslice,
    /// Time by which a request is due, in µs from its begin.
    Deadline,
    /// Number of groups that may have the device together while this one has it.
    K,
    /// Time for which a request may wait at its low priority, and its two priorities.
    Laxity,
    /// Active window: on for the program that has it.
    Active,
    /// Target P99 or slowdown.
    Slo,
}

impl Hint {
    /// All kinds.
    pub const ALL: [Hint; 8] = [
        Hint::Weight,
        Hint::Utilization,
        Hint::Timeslice,
        Hint::Deadline,
        Hint::K,
        Hint::Laxity,
        Hint::Active,
        Hint::Slo,
    ];

    /// Name of the hint: the option of `xsched run` and `xsched hint` without its dashes, and the key of a rule.
    pub fn name(self) -> &'static str {
        match self {
            Hint::Weight => "weight",
            Hint::Utilization => "utilization",
            Hint::Timeslice => "timeslice",
            Hint::Deadline => "deadline",
            Hint::K => "k",
            Hint::Laxity => "laxity",
            Hint::Active => "active",
            Hint::Slo => "slo",
        }
    }

    /// Environment variable of the hint. Variables with `AUTO_XQUEUE` are XSched 1.2.0's.
    pub fn variable(self) -> &'static str {
        match self {
            Hint::Weight => "XSCHED_WEIGHT",
            Hint::Utilization => "XSCHED_AUTO_XQUEUE_UTILIZATION",
            Hint::Timeslice => "XSCHED_AUTO_XQUEUE_TIMESLICE",
            Hint::Deadline => "XSCHED_AUTO_XQUEUE_DEADLINE",
            Hint::K => "XSCHED_AUTO_XQUEUE_KDEADLINE",
            Hint::Laxity => "XSCHED_AUTO_XQUEUE_LAXITY",
            Hint::Active => "XSCHED_ACTIVE",
            Hint::Slo => "XSCHED_SLO",
        }
    }

    /// Accepted values, for messages and documents.
    pub fn accepted(self) -> &'static str {
        match self {
            Hint::Weight => "a number from 1 to 10000",
            Hint::Utilization => "a number from 0 to 100 (percent)",
            Hint::Timeslice => "a time from 100 µs to 10 s, such as 5ms (a bare number is µs)",
            Hint::Deadline => "a time from 1 µs to 1 h, such as 10ms (a bare number is µs), or none",
            Hint::K => "a number from 1 to 64, or none",
            Hint::Laxity => {
                "TIME or TIME:PRIORITY:CRITICAL_PRIORITY, such as 2ms or 2ms:low:high (a bare number is µs), or none"
            }
            Hint::Active => "on or off",
            Hint::Slo => {
                "a P99 such as 2500us, 2.5ms or p99=2.5ms, a slowdown from 1.01x to 100x, such as slowdown=1.05, or none"
            }
        }
    }
}

/// Two priorities of one group: the first holds until the laxity is used up, then the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Laxity {
    /// Time for which a request may wait at its first priority, in µs; 0 = there is no laxity.
    pub us: u64,
    /// First priority; none = the group's own.
    pub lax: Option<i32>,
    /// Second priority; none = class `high`, or the group's own if that is higher.
    pub critical: Option<i32>,
}

/// Target of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Slo {
    /// No target.
    None,
    /// P99 of the request time, in µs: 99 of 100 requests take no longer.
    P99(u64),
    /// Requests take this many percent of the time that they take alone, on average.
    Slowdown(u32),
}

/// Values of hints; an absent value stays as it was, or has its default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hints {
    /// See [`Hint::Weight`].
    pub weight: Option<u32>,
    /// See [`Hint::Utilization`].
    pub utilization: Option<u32>,
    /// See [`Hint::Timeslice`].
    pub timeslice_us: Option<u64>,
    /// See [`Hint::Deadline`]; 0 = none.
    pub deadline_us: Option<u64>,
    /// See [`Hint::K`]; 0 = the policy's own.
    pub k: Option<u32>,
    /// See [`Hint::Laxity`].
    pub laxity: Option<Laxity>,
    /// See [`Hint::Active`].
    pub active: Option<bool>,
    /// See [`Hint::Slo`].
    pub slo: Option<Slo>,
}

impl Hints {
    /// Sets a hint to a value as users write it.
    ///
    /// # Errors
    /// Fails if the value is not accepted, with one line that says which values are.
    pub fn set(&mut self, hint: Hint, text: &str) -> Result<(), Error> {
        let text = text.trim();
        let parsed = self.parse(hint, text).filter(|()| self.fault().is_none());
        parsed.ok_or_else(|| Error::value(text, hint.name(), hint.accepted()))
    }

    fn parse(&mut self, hint: Hint, text: &str) -> Option<()> {
        let is_none = text.eq_ignore_ascii_case("none") || text == "-1";
        match hint {
            Hint::Weight => self.weight = Some(text.parse().ok()?),
            Hint::Utilization => self.utilization = Some(text.parse().ok()?),
            Hint::Timeslice => self.timeslice_us = Some(time_us(text, Bare::Us)?),
            Hint::Deadline => self.deadline_us = Some(if is_none { 0 } else { time_us(text, Bare::Us)? }),
            Hint::K => self.k = Some(if is_none { 0 } else { u32::try_from(positive(text)?).ok()? }),
            Hint::Laxity => self.laxity = Some(laxity(text, is_none)?),
            Hint::Active => {
                self.active = Some(match text.to_ascii_lowercase().as_str() {
                    "on" | "1" | "true" => true,
                    "off" | "0" | "false" => false,
                    _ => return None,
                });
            }
            Hint::Slo => self.slo = Some(if is_none { Slo::None } else { slo(text)? }),
        }
        Some(())
    }

    /// Returns the first hint whose value is out of range.
    pub fn fault(&self) -> Option<Hint> {
        let time = |us: u64| us <= TIME_MAX_US;
        let priority = |p: Option<i32>| p.is_none_or(|p| (class::PRIORITY_MIN..=class::PRIORITY_MAX).contains(&p));
        let slo = |slo: Slo| match slo {
            Slo::None => true,
            Slo::P99(us) => us > 0 && time(us),
            Slo::Slowdown(percent) => (SLOWDOWN_PERCENT.0..=SLOWDOWN_PERCENT.1).contains(&percent),
        };
        let checks = [
            (Hint::Weight, self.weight.is_none_or(|w| (WEIGHT_MIN..=WEIGHT_MAX).contains(&w))),
            (Hint::Utilization, self.utilization.is_none_or(|u| u <= 100)),
            (Hint::Timeslice, self.timeslice_us.is_none_or(|us| (TIMESLICE_MIN_US..=TIMESLICE_MAX_US).contains(&us))),
            (Hint::Deadline, self.deadline_us.is_none_or(time)),
            (Hint::K, self.k.is_none_or(|k| k <= K_MAX)),
            (Hint::Laxity, self.laxity.is_none_or(|l| time(l.us) && priority(l.lax) && priority(l.critical))),
            (Hint::Slo, self.slo.is_none_or(slo)),
        ];
        checks.into_iter().find(|(_, is_good)| !is_good).map(|(hint, _)| hint)
    }

    /// Checks values that another process has sent.
    ///
    /// # Errors
    /// Fails if one is out of range, with one line that says which values are accepted.
    pub fn check(&self) -> Result<(), Error> {
        self.fault().map_or(Ok(()), |hint| {
            Err(Error::input(format!("{} is out of range: use {}", hint.name(), hint.accepted())))
        })
    }

    /// Returns these values, completed by those of `other` where these have none.
    #[must_use]
    pub fn or(self, other: Hints) -> Hints {
        Hints {
            weight: self.weight.or(other.weight),
            utilization: self.utilization.or(other.utilization),
            timeslice_us: self.timeslice_us.or(other.timeslice_us),
            deadline_us: self.deadline_us.or(other.deadline_us),
            k: self.k.or(other.k),
            laxity: self.laxity.or(other.laxity),
            active: self.active.or(other.active),
            slo: self.slo.or(other.slo),
        }
    }

    /// Reports whether a hint has a value.
    pub fn has(&self, hint: Hint) -> bool {
        match hint {
            Hint::Weight => self.weight.is_some(),
            Hint::Utilization => self.utilization.is_some(),
            Hint::Timeslice => self.timeslice_us.is_some(),
            Hint::Deadline => self.deadline_us.is_some(),
            Hint::K => self.k.is_some(),
            Hint::Laxity => self.laxity.is_some(),
            Hint::Active => self.active.is_some(),
            Hint::Slo => self.slo.is_some(),
        }
    }

    /// Hints that have a value.
    pub fn given(&self) -> impl Iterator<Item = Hint> {
        Hint::ALL.into_iter().filter(|hint| self.has(*hint))
    }

    /// Value of a hint as [`Hints::set`] reads it; none if the hint has no value.
    pub fn text(&self, hint: Hint) -> Option<String> {
        let or_none = |n: u64| if n == 0 { "none".to_owned() } else { n.to_string() };
        match hint {
            Hint::Weight => self.weight.map(|w| w.to_string()),
            Hint::Utilization => self.utilization.map(|u| u.to_string()),
            Hint::Timeslice => self.timeslice_us.map(|us| us.to_string()),
            Hint::Deadline => self.deadline_us.map(or_none),
            Hint::K => self.k.map(|k| or_none(k.into())),
            Hint::Laxity => self.laxity.map(|l| match (l.lax, l.critical) {
                (Some(lax), Some(critical)) => format!("{}:{lax}:{critical}", l.us),
                _ => or_none(l.us),
            }),
            Hint::Active => self.active.map(|on| if on { "on" } else { "off" }.to_owned()),
            Hint::Slo => self.slo.map(|slo| match slo {
                Slo::None => "none".to_owned(),
                Slo::P99(us) => format!("{us}us"),
                Slo::Slowdown(percent) => format!("{}.{:02}x", percent / 100, percent % 100),
            }),
        }
    }

    /// Value of a hint for people: as [`Hints::text`], with times in their units.
    pub fn shown(&self, hint: Hint) -> Option<String> {
        let time = |us: u64| if us == 0 { "none".to_owned() } else { units::exact_us(us) };
        match hint {
            Hint::Timeslice => self.timeslice_us.map(time),
            Hint::Deadline => self.deadline_us.map(time),
            Hint::Laxity => self.laxity.map(|l| match (l.lax, l.critical) {
                (Some(lax), Some(critical)) => format!("{}, {lax} then {critical}", time(l.us)),
                _ => time(l.us),
            }),
            Hint::Slo => match self.slo {
                Some(Slo::P99(us)) => Some(format!("P99 {}", time(us))),
                _ => self.text(hint),
            },
            Hint::Weight | Hint::Utilization | Hint::K | Hint::Active => self.text(hint),
        }
    }

    /// Weight, or its default.
    pub fn weight(&self) -> u32 {
        self.weight.unwrap_or(WEIGHT_DEFAULT)
    }

    /// Part of the device that is asked for: the utilization, else the weight.
    pub fn part(&self) -> f64 {
        f64::from(self.utilization.unwrap_or(self.weight()))
    }

    /// Length of a turn, in µs.
    pub fn turn_us(&self) -> u64 {
        self.timeslice_us.unwrap_or(TIMESLICE_DEFAULT_US)
    }
}

fn positive(text: &str) -> Option<u64> {
    text.parse().ok().filter(|n| *n > 0)
}

fn laxity(text: &str, is_none: bool) -> Option<Laxity> {
    if is_none {
        return Some(Laxity { us: 0, lax: None, critical: None });
    }
    let mut parts = text.split(':');
    let us = time_us(parts.next()?, Bare::Us)?;
    let priority = |text: &str| class::parse_priority(text).ok();
    let (lax, critical) = match (parts.next(), parts.next(), parts.next()) {
        (None, None, None) => (None, None),
        (Some(lax), Some(critical), None) => (Some(priority(lax)?), Some(priority(critical)?)),
        _ => return None,
    };
    Some(Laxity { us, lax, critical })
}

fn slo(text: &str) -> Option<Slo> {
    let scaled = |number: &str, by: f64| number.parse::<f64>().ok().filter(|n| n.is_finite()).map(|n| (n * by).round());
    let slowdown = text.strip_prefix("slowdown=").map(|times| times.strip_suffix('x').unwrap_or(times));
    if let Some(times) = slowdown.or(text.strip_suffix('x')) {
        return scaled(times, 100.0).filter(|p| *p >= 1.0 && *p <= 1e6).map(|p| Slo::Slowdown(p as u32));
    }
    let text = text.strip_prefix("p99=").unwrap_or(text);
    time_us(text, Bare::Refused).map(Slo::P99)
}

/// A time in whole µs, at least 1.
fn time_us(text: &str, bare: Bare) -> Option<u64> {
    let time = units::parse(text, bare)?;
    // To the nearest: 1.0005ms is no whole number of µs.
    u64::try_from((time + Duration::from_nanos(500)).as_micros()).ok().filter(|us| *us >= 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(hint: Hint, text: &str) -> Result<Hints, Error> {
        let mut hints = Hints::default();
        hints.set(hint, text).map(|()| hints)
    }

    #[test]
    fn values_are_read_and_written_in_the_same_words() {
        for (hint, text) in [
            (Hint::Weight, "300"),
            (Hint::Utilization, "0"),
            (Hint::Timeslice, "100"),
            (Hint::Deadline, "5000"),
            (Hint::Deadline, "none"),
            (Hint::K, "2"),
            (Hint::Laxity, "2000:-128:128"),
            (Hint::Laxity, "none"),
            (Hint::Active, "on"),
            (Hint::Slo, "2500us"),
            (Hint::Slo, "1.05x"),
            (Hint::Slo, "none"),
        ] {
            let hints = read(hint, text).unwrap_or_else(|e| panic!("{hint:?} {text}: {e}"));
            assert_eq!(hints.text(hint).as_deref(), Some(text), "{hint:?}");
            assert_eq!(hints.given().collect::<Vec<_>>(), [hint]);
            assert_eq!(hints.or(Hints::default()), hints);
            assert_eq!(Hints::default().or(hints), hints);
        }
        for text in ["2.5ms", "p99=2.5ms", "p99=2500us"] {
            assert_eq!(read(Hint::Slo, text).unwrap().slo, Some(Slo::P99(2_500)), "{text}");
        }
        for text in ["1.05x", "slowdown=1.05", "slowdown=1.05x"] {
            assert_eq!(read(Hint::Slo, text).unwrap().slo, Some(Slo::Slowdown(105)), "{text}");
        }
        for (hint, text, shown) in [
            (Hint::Weight, "300", "300"),
            (Hint::Timeslice, "900", "900 µs"),
            (Hint::Deadline, "10000", "10 ms"),
            (Hint::Deadline, "none", "none"),
            (Hint::Laxity, "2ms:low:high", "2 ms, -128 then 128"),
            (Hint::Slo, "2500us", "P99 2.5 ms"),
            (Hint::Slo, "1.05x", "1.05x"),
        ] {
            assert_eq!(read(hint, text).unwrap().shown(hint).as_deref(), Some(shown), "{hint:?}");
        }
        for text in ["5ms", "5000", "5 ms", "0.005s"] {
            assert_eq!(read(Hint::Timeslice, text).unwrap().timeslice_us, Some(5_000), "{text}");
            assert_eq!(read(Hint::Deadline, text).unwrap().deadline_us, Some(5_000), "{text}");
            let laxity = Laxity { us: 5_000, lax: Some(-128), critical: Some(128) };
            assert_eq!(read(Hint::Laxity, &format!("{text}:low:high")).unwrap().laxity, Some(laxity), "{text}");
        }
        assert_eq!(read(Hint::Laxity, "7").unwrap().laxity, Some(Laxity { us: 7, lax: None, critical: None }));
        assert_eq!(read(Hint::Deadline, "-1").unwrap().deadline_us, Some(0), "as the original's interface has it");
    }

    #[test]
    fn what_is_out_of_range_is_refused_with_what_is_accepted() {
        for (hint, text) in [
            (Hint::Weight, "0"),
            (Hint::Utilization, "101"),
            (Hint::Timeslice, "99"),
            (Hint::Timeslice, "99us"),
            (Hint::Timeslice, "11s"),
            (Hint::Timeslice, "5 parsecs"),
            (Hint::Deadline, "2h"),
            (Hint::Deadline, "0"),
            (Hint::K, "65"),
            (Hint::Laxity, "5:low"),
            (Hint::Laxity, "5:low:300"),
            (Hint::Active, "maybe"),
            (Hint::Slo, "1x"),
            (Hint::Slo, "5"),
            (Hint::Slo, "nans"),
            (Hint::Slo, "p99=1.05x"),
            (Hint::Slo, "slowdown=5ms"),
            (Hint::Slo, "101x"),
        ] {
            let line = read(hint, text).expect_err(text).to_string();
            assert_eq!(line, format!("'{text}' is no {}: use {}", hint.name(), hint.accepted()));
        }
        let us = Duration::from_micros;
        let range = us(TIMESLICE_MIN_US)..=us(TIMESLICE_MAX_US);
        assert_eq!(Hint::Timeslice.accepted(), units::accepted(&range, "5ms", Bare::Us));
        let range = us(1)..=us(TIME_MAX_US);
        assert_eq!(Hint::Deadline.accepted(), units::accepted(&range, "10ms", Bare::Us) + ", or none");
        assert!(Hints { weight: Some(0), ..Hints::default() }.check().is_err());
        assert!(Hints { slo: Some(Slo::P99(0)), ..Hints::default() }.check().is_err());
    }
}
