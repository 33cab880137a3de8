//! Settings of the server, from its environment.

use crate::layout::{CAPACITY, DEVICE_BYTES, MAX_TIMESLICE_US};
use crate::model::Timing;
use std::io;
use std::ops::RangeInclusive;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) timing: Timing,
    pub(super) devices: usize,
    /// Memory of each device, in bytes.
    pub(super) memory: Vec<u64>,
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
        let timing = Timing { timeslice_ns: timeslice_us * 1000, switch_ns: switch_us * 1000, save_ns: 0, shares };
        let memory = capacities(get("SIMDEV_MEMORY_MIB"), devices as usize)?;
        Ok(Self { timing, devices: devices as usize, memory })
    }
}

/// Memory of each device in bytes, from a number of MiB or several with commas; the last one is for all further devices.
fn capacities(text: Option<String>, devices: usize) -> io::Result<Vec<u64>> {
    let Some(text) = text else { return Ok(vec![CAPACITY; devices]) };
    let most = (DEVICE_BYTES >> 20) as u64;
    let of = |word: &str| word.trim().parse().ok().filter(|mib| (1..=most).contains(mib)).map(|mib: u64| mib << 20);
    let listed: Option<Vec<u64>> = text.split(',').map(of).collect();
    let listed = listed.ok_or_else(|| {
        let what =
            format!("SIMDEV_MEMORY_MIB={text}: expected a whole number from 1 to {most}, or several with commas");
        io::Error::new(io::ErrorKind::InvalidInput, what)
    })?;
    Ok((0..devices).map(|device| listed[device.min(listed.len() - 1)]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_an_h200() {
        let settings = Settings::new(|_| None).unwrap();
        assert_eq!(
            settings,
            Settings {
                timing: Timing { timeslice_ns: 2_000_000, switch_ns: 50_000, save_ns: 0, shares: false },
                devices: 1,
                memory: vec![256 << 20]
            }
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

    #[test]
    fn devices_have_the_listed_memory_and_further_ones_the_last() {
        let mib = |text: &str, devices| {
            capacities(Some(text.into()), devices).map(|all| all.iter().map(|b| b >> 20).collect())
        };
        let good = |text, devices| -> Vec<u64> { mib(text, devices).unwrap() };
        assert_eq!(good("64", 2), [64, 64]);
        assert_eq!(good("64, 8192", 3), [64, 8192, 8192]);
        assert_eq!(good("1,2,3", 1), [1]);
        for wrong in ["", "0", "8193", "64,", "-1", "64MiB"] {
            let error = capacities(Some(wrong.into()), 1).unwrap_err().to_string();
            let want =
                format!("SIMDEV_MEMORY_MIB={wrong}: expected a whole number from 1 to 8192, or several with commas");
            assert_eq!(error, want);
        }
    }
}
