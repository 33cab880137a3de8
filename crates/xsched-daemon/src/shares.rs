//! Part of its device that each group asks for and has had lately. The sums over all groups are made once for an answer: with a thousand
//! programs, sums for each of them would delay decisions.

use std::collections::{BTreeSet, HashMap};

use xsched_policy::GroupId;

use crate::tuning::SHARES_NS;

/// Sums over the groups of each device, for `ps`.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Time at which the sums were made, in ns.
    at_ns: u64,
    devices: HashMap<String, Sums>,
    /// Device time charged to each group within the window, in µs.
    charged_us: HashMap<GroupId, f64>,
}

#[derive(Debug, Default)]
struct Sums {
    /// Sum of the parts that the programs there ask for.
    parts: f64,
    charged_us: f64,
}

impl Shares {
    /// Makes the sums in one pass over the groups, with device and charged time each, and one over the programs, with part and devices.
    pub(crate) fn of<'a>(
        at_ns: u64,
        groups: impl Iterator<Item = (GroupId, &'a str, f64)>,
        programs: impl Iterator<Item = (f64, BTreeSet<&'a str>)>,
    ) -> Shares {
        let mut shares = Shares { at_ns, ..Shares::default() };
        let mut sums: HashMap<&str, Sums> = HashMap::new();
        for (id, device, us) in groups {
            sums.entry(device).or_default().charged_us += us;
            shares.charged_us.insert(id, us);
        }
        for (part, devices) in programs {
            for device in devices {
                sums.entry(device).or_default().parts += part;
            }
        }
        shares.devices = sums.into_iter().map(|(device, sums)| (device.to_owned(), sums)).collect();
        shares
    }

    /// Reports whether the sums are recent enough for programs that end now.
    pub(crate) fn is_recent(&self, now_ns: u64) -> bool {
        self.at_ns + SHARES_NS > now_ns
    }

    /// Part of a group in the device time that was charged lately, in percent; none = none was charged.
    pub(crate) fn got_percent(&self, id: GroupId, device: &str) -> Option<f64> {
        let all = self.devices.get(device)?.charged_us;
        (all > 0.0).then(|| self.charged_us.get(&id).copied().unwrap_or(0.0) * 100.0 / all)
    }

    /// Part of a device that a program asks for, in percent of the sum over all programs there.
    pub(crate) fn asked_percent(&self, part: f64, device: &str) -> Option<f64> {
        // Only a program that has come since the sums were made asks for more than the sum.
        let all = self.devices.get(device).map_or(0.0, |sums| sums.parts).max(part);
        (all > 0.0).then_some(part * 100.0 / all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn parts_are_of_the_device_and_each_group_and_program_is_looked_at_once() {
        const N: u64 = 1000;
        let looks = Cell::new(0);
        let look = |n: &u64| {
            looks.set(looks.get() + 1);
            if n.is_multiple_of(2) { "a" } else { "b" }
        };
        let groups = (0..N).map(|n| (GroupId(n), look(&n), n as f64));
        let programs = (0..N).map(|n| (1.0, BTreeSet::from([look(&n)])));
        let shares = Shares::of(7, groups, programs);
        assert_eq!(looks.get(), 2 * N);
        let of = |device| (0..N).filter_map(|n| shares.got_percent(GroupId(n), device)).sum::<f64>();
        assert!((shares.got_percent(GroupId(998), "a").unwrap() - 998.0 * 100.0 / 249_500.0).abs() < 1e-9);
        assert!(of("a") > 100.0 && (shares.asked_percent(1.0, "a").unwrap() - 0.2).abs() < 1e-9);
        assert_eq!((shares.got_percent(GroupId(1), "c"), shares.asked_percent(0.0, "c")), (None, None));
        assert_eq!(shares.asked_percent(3.0, "c"), Some(100.0), "it has come since");
    }
}
