//! Part of its device that each group asks for and has had lately. The sums over all groups are made once for an answer: with a thousand
//! programs, sums for each of them would delay decisions.

use std::collections::HashMap;

use xsched_policy::GroupId;
use xsched_policy::share::{self, Node};

use crate::tuning::SHARES_NS;

/// Sums over the groups of each device, for `ps`.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Time at which the sums were made, in ns.
    at_ns: u64,
    /// Device time charged to the groups of each device within the window, in µs.
    charged_us: HashMap<String, f64>,
    groups: HashMap<GroupId, OfGroup>,
}

#[derive(Clone, Copy, Debug)]
struct OfGroup {
    charged_us: f64,
    /// Part of the device that its party asks for, 0 to 1.
    asked: f64,
}

/// Group, its charged time in µs, and the way to its party.
type Charged = (GroupId, f64, Vec<Node>);

impl Shares {
    /// Makes the sums in one pass over the groups, with device, charged time and way to the party of each.
    pub(crate) fn of<'a>(at_ns: u64, groups: impl Iterator<Item = (GroupId, &'a str, f64, Vec<Node>)>) -> Shares {
        let mut devices: HashMap<&str, Vec<Charged>> = HashMap::new();
        for (id, device, us, way) in groups {
            devices.entry(device).or_default().push((id, us, way));
        }
        let mut shares = Shares { at_ns, ..Shares::default() };
        for (device, groups) in devices {
            shares.charged_us.insert(device.to_owned(), groups.iter().map(|(_, us, _)| us).sum());
            let asked = share::asked(groups.iter().map(|(.., way)| way.as_slice()));
            let of_group = groups.iter().zip(asked);
            shares
                .groups
                .extend(of_group.map(|((id, us, _), asked)| (*id, OfGroup { charged_us: *us, asked: asked.part })));
        }
        shares
    }

    /// Reports whether the sums are recent enough for programs that end now.
    pub(crate) fn is_recent(&self, now_ns: u64) -> bool {
        self.at_ns + SHARES_NS > now_ns
    }

    /// Part of a group in the device time that was charged lately, in percent; none = none was charged.
    pub(crate) fn got_percent(&self, id: GroupId, device: &str) -> Option<f64> {
        let all = *self.charged_us.get(device)?;
        (all > 0.0).then(|| self.groups.get(&id).map_or(0.0, |group| group.charged_us) * 100.0 / all)
    }

    /// Part of its device that a group's party asks for, in percent; none = the group has come since.
    pub(crate) fn asked_percent(&self, id: GroupId) -> Option<f64> {
        self.groups.get(&id).map(|group| group.asked * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn parts_are_of_the_device_and_each_group_is_looked_at_once() {
        const N: u64 = 1000;
        let looks = Cell::new(0);
        let look = |n: &u64| {
            looks.set(looks.get() + 1);
            if n.is_multiple_of(2) { "a" } else { "b" }
        };
        let way = |n: u64| vec![Node { id: n, is_party: true, weight: 1.0 }];
        let groups = (0..N).map(|n| (GroupId(n), look(&n), n as f64, way(n)));
        let shares = Shares::of(7, groups);
        assert_eq!(looks.get(), N);
        let of = |device| (0..N).filter_map(|n| shares.got_percent(GroupId(n), device)).sum::<f64>();
        assert!((shares.got_percent(GroupId(998), "a").unwrap() - 998.0 * 100.0 / 249_500.0).abs() < 1e-9);
        assert!(of("a") > 100.0 && (shares.asked_percent(GroupId(1)).unwrap() - 0.2).abs() < 1e-9);
        assert_eq!((shares.got_percent(GroupId(1), "c"), shares.asked_percent(GroupId(N))), (None, None));
    }
}
