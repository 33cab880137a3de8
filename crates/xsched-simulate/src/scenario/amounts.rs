//! Times of a scenario: fixed, or drawn from a distribution.

use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use xsched_proto::units::{self, Bare};

use crate::random::Random;

/// A time in ns, written with its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

/// A distribution of times.
#[derive(Clone, Debug, PartialEq)]
pub enum Times {
    /// Always the same, in ns: `200us`.
    Fixed(u64),
    /// Uniform from one time to another, in ns: `100us..300us`.
    Between(u64, u64),
    /// Normal, with a mean in ns and a deviation as a part of it: `200us +- 10%`.
    Normal(u64, f64),
    /// Exponential with a mean in ns: `exp 20ms`.
    Exponential(u64),
    /// Quantiles at equal distances, in ns, of times that were measured: `["1ms", "2ms", "9ms"]`.
    Quantiles(Vec<u64>),
}

/// Number of times up to which each is drawn by itself.
const FEW: u32 = 8;

/// Accepted distributions, for messages and documents.
pub const TIMES_HELP: &str = "a time such as 200us, A..B, T +- 10%, exp T, or a list of quantiles";

fn parse_ns(text: &str) -> Option<u64> {
    u64::try_from(units::parse(text.trim(), Bare::Refused)?.as_nanos()).ok()
}

impl Time {
    /// A time as it is written.
    pub fn parse(text: &str) -> Option<Time> {
        parse_ns(text).map(Time)
    }
}

impl Times {
    /// A distribution as it is written.
    pub fn parse(text: &str) -> Option<Times> {
        if let Some(mean) = text.trim().strip_prefix("exp ") {
            return parse_ns(mean).map(Times::Exponential);
        }
        if let Some((low, high)) = text.split_once("..") {
            let (low, high) = (parse_ns(low)?, parse_ns(high)?);
            return (low <= high).then_some(Times::Between(low, high));
        }
        if let Some((mean, part)) = text.split_once("+-").or_else(|| text.split_once('±')) {
            let percent: f64 = part.trim().strip_suffix('%')?.trim().parse().ok()?;
            return (0.0..=100.0).contains(&percent).then_some(Times::Normal(parse_ns(mean)?, percent / 100.0));
        }
        parse_ns(text).map(Times::Fixed)
    }

    /// A time of the distribution, in ns.
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Times::Fixed(ns) => *ns,
            Times::Between(low, high) => low + ((high - low) as f64 * random.unit()) as u64,
            // Neither negative nor far off: a tenth of the mean is the least.
            Times::Normal(mean, part) => (*mean as f64 * (1.0 + part * random.normal()).max(0.1)) as u64,
            Times::Exponential(mean) => (*mean as f64 * random.exponential()) as u64,
            Times::Quantiles(all) => {
                let place = random.unit() * (all.len().max(1) - 1) as f64;
                let (at, part) = (place as usize, place.fract());
                let low = all.get(at).copied().unwrap_or(0);
                let high = all.get(at + 1).copied().unwrap_or(low);
                low + (high.saturating_sub(low) as f64 * part) as u64
            }
        }
    }

    /// Mean of the distribution, in ns.
    pub fn mean_ns(&self) -> u64 {
        match self {
            Times::Fixed(ns) | Times::Normal(ns, _) | Times::Exponential(ns) => *ns,
            Times::Between(low, high) => low / 2 + high / 2,
            Times::Quantiles(all) if all.len() < 2 => all.first().copied().unwrap_or(0),
            Times::Quantiles(all) => {
                let between: u128 = all.windows(2).map(|pair| u128::from(pair[0] / 2 + pair[1] / 2)).sum();
                (between / (all.len() - 1) as u128) as u64
            }
        }
    }

    /// Sum of so many times of the distribution, in ns.
    pub(crate) fn draw_sum(&self, count: u32, random: &mut Random) -> f64 {
        if count <= FEW {
            return (0..count).map(|_| self.draw(random) as f64).sum();
        }
        // Of many, the sum is nearly normal.
        let (mean_ns, count) = (self.mean_ns() as f64, f64::from(count));
        (mean_ns * count + self.deviation_ns() * count.sqrt() * random.normal()).max(mean_ns * count / 10.0)
    }

    /// Standard deviation of the distribution, in ns.
    fn deviation_ns(&self) -> f64 {
        match self {
            Times::Fixed(_) => 0.0,
            Times::Between(low, high) => (high - low) as f64 / 12_f64.sqrt(),
            Times::Normal(mean, part) => *mean as f64 * part,
            Times::Exponential(mean) => *mean as f64,
            Times::Quantiles(all) => {
                let mean = self.mean_ns() as f64;
                let square = |pair: &[u64]| {
                    let [a, b] = [pair[0] as f64 - mean, pair[1] as f64 - mean];
                    (a * a + a * b + b * b) / 3.0
                };
                (all.windows(2).map(square).sum::<f64>() / (all.len().max(2) - 1) as f64).sqrt()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
        let text = String::deserialize(from)?;
        Time::parse(&text).ok_or_else(|| D::Error::custom(format!("'{text}' is no time: use one such as 20ms or 1.5s")))
    }
}

impl<'de> Deserialize<'de> for Times {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Times, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            One(String),
            Many(Vec<String>),
        }
        let fault = |text: &str| D::Error::custom(format!("'{text}' is no time: use {TIMES_HELP}"));
        match Written::deserialize(from).map_err(|_| D::Error::custom(format!("no times: use {TIMES_HELP}")))? {
            Written::One(text) => Times::parse(&text).ok_or_else(|| fault(&text)),
            Written::Many(all) => {
                let mut read = all.iter().map(|text| parse_ns(text).ok_or_else(|| fault(text)));
                let times = read.by_ref().collect::<Result<Vec<u64>, _>>()?;
                if times.is_empty() || !times.is_sorted() {
                    return Err(D::Error::custom("a list of quantiles has one time or more, in ascending order"));
                }
                Ok(Times::Quantiles(times))
            }
        }
    }
}

/// Text of a time as [`Time::parse`] reads it.
pub(crate) fn exact(ns: u64) -> String {
    match ns {
        0 => "0s".to_owned(),
        ns if ns.is_multiple_of(1_000_000_000) => format!("{}s", ns / 1_000_000_000),
        ns if ns.is_multiple_of(1_000_000) => format!("{}ms", ns / 1_000_000),
        ns if ns.is_multiple_of(1_000) => format!("{}us", ns / 1_000),
        ns => format!("{}.{:03}us", ns / 1_000, ns % 1_000),
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Times::Fixed(ns) => write!(f, "\"{}\"", exact(*ns)),
            Times::Between(low, high) => write!(f, "\"{}..{}\"", exact(*low), exact(*high)),
            Times::Normal(mean, part) => write!(f, "\"{} +- {:.2}%\"", exact(*mean), part * 100.0),
            Times::Exponential(mean) => write!(f, "\"exp {}\"", exact(*mean)),
            Times::Quantiles(all) => {
                let all: Vec<String> = all.iter().map(|ns| format!("\"{}\"", exact(*ns))).collect();
                write!(f, "[{}]", all.join(", "))
            }
        }
    }
}

impl From<Time> for Duration {
    fn from(time: Time) -> Duration {
        Duration::from_nanos(time.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_read_as_they_are_written() {
        for (text, times, mean) in [
            ("200us", Times::Fixed(200_000), 200_000),
            ("1ms..3ms", Times::Between(1_000_000, 3_000_000), 2_000_000),
            ("200us +- 10%", Times::Normal(200_000, 0.1), 200_000),
            ("exp 20ms", Times::Exponential(20_000_000), 20_000_000),
        ] {
            let read = Times::parse(text).expect(text);
            assert_eq!(read, times);
            assert_eq!(Times::parse(read.to_string().trim_matches('"')), Some(times), "{read}");
            let mut random = Random::new(1, 1);
            let drawn = (0..20_000).map(|_| read.draw(&mut random)).sum::<u64>() / 20_000;
            assert!(drawn.abs_diff(mean) <= mean / 40, "{text}: {drawn}");
            assert_eq!(read.mean_ns(), mean);
        }
        for bad in ["", "5", "3ms..1ms", "1ms +- 200%", "exp", "soon"] {
            assert_eq!(Times::parse(bad), None, "{bad}");
        }
        let measured = Times::Quantiles(vec![100, 200, 900]);
        assert_eq!(measured.mean_ns(), (150 + 550) / 2);
    }
}
