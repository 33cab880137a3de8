//! Which part of its device each group asks for and has had lately. The sums over all are made once for an answer: with a thousand
//! programs, sums for each of them would hold up decisions.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use xsched_policy::GroupId;
use xsched_proto::hint::Hint;

use crate::client::Client;
use crate::server::Server;
use crate::tuning::SHARES_NS;

/// Sums over the groups of each device.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// When they were made, ns.
    at_ns: u64,
    devices: HashMap<String, Sums>,
    /// What was charged to each group within the window, µs.
    charged_us: HashMap<GroupId, f64>,
}

#[derive(Debug, Default)]
struct Sums {
    /// Of what each program there asks for.
    parts: f64,
    charged_us: f64,
}

impl Shares {
    /// Goes once through the groups, with device and charged time each, and once through the programs, with part and devices.
    fn of<'a>(
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

    /// A group's part of the device time that was charged lately, in percent; none = none was.
    pub(crate) fn got_percent(&self, id: GroupId, device: &str) -> Option<f64> {
        let all = self.devices.get(device)?.charged_us;
        (all > 0.0).then(|| self.charged_us.get(&id).copied().unwrap_or(0.0) * 100.0 / all)
    }

    fn asked_percent(&self, part: f64, device: &str) -> Option<f64> {
        // One that has come since is the only one that is more than all.
        let all = self.devices.get(device).map_or(0.0, |sums| sums.parts).max(part);
        (all > 0.0).then_some(part * 100.0 / all)
    }
}

impl Server {
    /// Makes the sums anew: for an answer that begins.
    pub(crate) fn sum_shares(&mut self) -> Rc<Shares> {
        let (now_us, arbiter) = (self.now_us(), self.gatekeeper.arbiter());
        let groups = arbiter.used_us(now_us).filter_map(|(id, used_us)| {
            let device = self.groups.get(&id)?.device.as_str();
            Some((id, device, self.recent.charged_us(self.now_ns, id, used_us)))
        });
        let programs = self.clients().map(|client| {
            let devices = client.groups.iter().filter_map(|id| Some(self.groups.get(id)?.device.as_str()));
            (client.hints.part(), devices.collect())
        });
        let shares = Rc::new(Shares::of(self.now_ns, groups, programs));
        self.shares = shares.clone();
        shares
    }

    /// The sums of a moment ago, or new ones: many programs may end at once.
    pub(crate) fn recent_shares(&mut self) -> Rc<Shares> {
        let is_recent = self.shares.at_ns + SHARES_NS > self.now_ns;
        if is_recent { self.shares.clone() } else { self.sum_shares() }
    }

    /// A program's part of a device by what the programs there ask for, in percent; none where the policy looks at nothing of that.
    pub(crate) fn share_asked(&self, shares: &Shares, client: &Client, device: &str) -> Option<f64> {
        let entry = self.gatekeeper.arbiter().policy_of(device).entry;
        let looks_at = |hint| entry.overlooks([hint]).is_empty();
        if looks_at(Hint::Utilization) || looks_at(Hint::Weight) {
            shares.asked_percent(client.hints.part(), device)
        } else {
            None
        }
    }

    /// Notes what is charged to each group by now.
    pub(crate) fn look_at_shares(&mut self) {
        let used = self.gatekeeper.arbiter().used_us(self.now_us());
        self.recent.look(self.now_ns, used);
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
