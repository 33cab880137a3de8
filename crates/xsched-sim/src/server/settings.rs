//! Settings of the server, from its environment.

use crate::layout::MAX_TIMESLICE_US;
use crate::model::Timing;
use std::io;
use std::ops::RangeInclusive;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) timing: Timing,
    pub(super) devices: usize,
}

impl Settings {
    pub(super) fn from_env() -> io::Result<Self> {
        Self::new(|name| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned()))
    }

    fn new(get: impl Fn(&str) -> Option<String>) -> io::Result<Self> {
        let number = |name: &str, default: u64, range: RangeInclusive<u64>| match get(name) {
            None => Ok(default),
            Some(text) => text.parse().ok().filter(|v| range.contains(v)).ok_or_else(|| {
                let (low, high) = range.clone().into_inner();
                let what = format!("{name}={text}: expected a whole number from {low} to {high}");
                io::Error::new(io::ErrorKind::InvalidInput, what)
            }),
        };
        let natural = Timing::default();
        let timeslice_us = number("SIMDEV_TIMESLICE_US", natural.timeslice_ns / 1000, 1..=MAX_TIMESLICE_US)?;
        let switch_us = number("SIMDEV_SWITCH_US", natural.switch_ns / 1000, 0..=1_000_000)?;
        let devices = number("SIMDEV_DEVICES", 1, 1..=16)?;
        let shares = number("SIMDEV_SHARES", 0, 0..=1)? == 1;
        let timing = Timing { timeslice_ns: timeslice_us * 1000, switch_ns: switch_us * 1000, shares };
        Ok(Self { timing, devices: devices as usize })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_an_h200() {
        let settings = Settings::new(|_| None).unwrap();
        assert_eq!(
            settings,
            Settings { timing: Timing { timeslice_ns: 2_000_000, switch_ns: 50_000, shares: false }, devices: 1 }
        );
    }

    #[test]
    fn a_wrong_value_is_named_with_its_range() {
        let error = Settings::new(|name| (name == "SIMDEV_DEVICES").then(|| "17".into())).unwrap_err();
        assert_eq!(error.to_string(), "SIMDEV_DEVICES=17: expected a whole number from 1 to 16");
        assert!(Settings::new(|name| (name == "SIMDEV_SWITCH_US").then(|| "-1".into())).is_err());
        let free = Settings::new(|name| (name == "SIMDEV_SWITCH_US").then(|| "0".into())).unwrap();
        assert_eq!(free.timing.switch_ns, 0);
    }
}
