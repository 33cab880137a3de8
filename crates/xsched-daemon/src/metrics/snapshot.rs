//! Snapshot: the state of the daemon at one moment, for monitors.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use xsched_gatekeeper::ledger::Usage;
use xsched_policy::ProgramId;
use xsched_policy::share::Node;
use xsched_proto::class::Class;
use xsched_proto::wire::MemoryInfo;

use super::histogram::Histogram;
use super::statistics::Counts;
use crate::devices::DeviceLabel;
use crate::identity::User;
use crate::programs::memory::ClientSegment;
use crate::tuning::{METRICS_HISTOGRAMS_MAX, METRICS_KEPT_NS, METRICS_USER_HISTOGRAMS_MAX};
use crate::usage::Identity;

/// Data of a snapshot.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) rows: Vec<Row>,
    pub(crate) devices: Vec<DeviceRow>,
    pub(crate) observations: Observations,
    pub(crate) daemon: DaemonRow,
    /// While it is made: what was charged to programs on devices, at one moment.
    pub(crate) usage: HashMap<(ProgramId, Arc<str>), Usage>,
}

/// One program on one device.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Number of the program, never given twice.
    pub(crate) program: u64,
    pub(crate) identity: Arc<Identity>,
    pub(crate) class: Class,
    pub(crate) device: Arc<str>,
    pub(crate) counts: Counts,
    pub(crate) launched: Launched,
    pub(crate) weight: u32,
    /// Ways of its groups to their parties among the shares of the device.
    pub(crate) ways: Vec<Vec<Node>>,
    /// The part of the device that it asks for, 0 to 1.
    pub(crate) share: f64,
    pub(crate) memory_bytes: Option<u64>,
    /// Memory that it holds as it counts it; none = it does not.
    pub(crate) held: Option<Held>,
    /// The program is gone.
    pub(crate) gone: bool,
    /// True if the program is gone and its values are final.
    pub(crate) last: bool,
}

/// Memory that programs hold on a device by their own count, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) used: u64,
    /// Part of it that contexts and modules take.
    pub(crate) overhead: u64,
    /// Part of it that was exported.
    pub(crate) exported: u64,
    /// Memory that is away from the device, on the host; no part of `used`.
    pub(crate) away: u64,
    /// Smallest limit of each; of several the largest.
    pub(crate) limit: Option<u64>,
}

impl Held {
    pub(crate) fn of(memory: &MemoryInfo) -> Held {
        let held = &memory.held;
        let (used, overhead, exported) = (held.used_bytes, held.overhead_bytes, held.exported_bytes);
        Held { used, overhead, exported, away: held.away_bytes, limit: memory.limit_bytes }
    }

    pub(crate) fn and(self, more: Held) -> Held {
        Held {
            used: self.used.saturating_add(more.used),
            overhead: self.overhead.saturating_add(more.overhead),
            exported: self.exported.saturating_add(more.exported),
            away: self.away.saturating_add(more.away),
            limit: self.limit.max(more.limit),
        }
    }
}

/// Source of a count of launches. Adding up those of a program takes some 0.1 ms: not on the loop's thread while the program lives.
#[derive(Clone)]
pub(crate) enum Launched {
    /// In the segment, by groups in these slots.
    Count(Arc<ClientSegment>, Vec<u16>),
    /// Number of launches, counted already.
    Known(u64),
}

impl std::fmt::Debug for Launched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.count())
    }
}

impl Launched {
    /// Number of launches.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Launched::Known(count) => *count,
            Launched::Count(segment, slots) => segment.group_launches().of(slots),
        }
    }
}

/// A device.
#[derive(Clone, Debug)]
pub(crate) struct DeviceRow {
    pub(crate) device: Arc<str>,
    pub(crate) label: DeviceLabel,
    /// Since programs have been there without a break.
    pub(crate) busy: Usage,
    pub(crate) policy: String,
}

/// The daemon itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct DaemonRow {
    pub(crate) programs: u64,
    pub(crate) connections: u64,
    pub(crate) dropped_clients: u64,
    pub(crate) panics: u64,
    pub(crate) decisions: u64,
    pub(crate) uptime_s: f64,
}

/// Class and device.
pub(crate) type Kind = (Class, Arc<str>);

/// Times that were observed since the daemon's start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observations {
    pub(crate) waits: BTreeMap<Kind, Histogram>,
    pub(crate) preemptions: BTreeMap<Kind, (u64, Histogram)>,
    pub(crate) decisions: Histogram,
    /// User whose program was the first of a kind, and the time of the kind's last use, in ns.
    users: BTreeMap<Kind, (User, u64)>,
    /// Number of kinds of each user.
    counts: HashMap<User, usize>,
}

impl Observations {
    /// Records that a group of a user waited for its device, for `ns`.
    pub(crate) fn wait(&mut self, user: User, now_ns: u64, kind: Kind, ns: u64) {
        if self.has_room(user, now_ns, &kind) {
            self.waits.entry(kind).or_default().see(ns);
        }
    }

    /// Records that a group of a user was taken off its device; or, with `left_ns`, that it reported to be off that long afterwards, in ns.
    pub(crate) fn preempted(&mut self, user: User, now_ns: u64, kind: Kind, left_ns: Option<u64>) {
        if self.has_room(user, now_ns, &kind) {
            let (count, times) = self.preemptions.entry(kind).or_default();
            match left_ns {
                Some(ns) => times.see(ns),
                None => *count += 1,
            }
        }
    }

    /// Tells whether there is a place for a kind, or room for one. Kinds that were not used for long give theirs back.
    fn has_room(&mut self, user: User, now_ns: u64, kind: &Kind) -> bool {
        if let Some((_, used_ns)) = self.users.get_mut(kind) {
            *used_ns = now_ns;
            return true;
        }
        // With many users this is done for each observation: one pass over all kinds, not one pass for each kind.
        self.expire(now_ns);
        if self.counts.get(&user).is_some_and(|theirs| *theirs >= METRICS_USER_HISTOGRAMS_MAX) {
            return false;
        }
        if self.users.len() >= METRICS_HISTOGRAMS_MAX {
            let heaviest = self.counts.iter().max_by_key(|(_, theirs)| **theirs).map(|(user, _)| *user);
            let of_heaviest = self.users.iter().filter(|(_, (user, _))| Some(*user) == heaviest);
            let Some(kind) = of_heaviest.min_by_key(|(_, (_, at))| *at).map(|(kind, _)| kind.clone()) else {
                return false;
            };
            self.forget(&kind);
        }
        self.users.insert(kind.clone(), (user, now_ns));
        *self.counts.entry(user).or_default() += 1;
        true
    }

    /// Gives back the places of kinds that were not used for long.
    pub(crate) fn expire(&mut self, now_ns: u64) {
        let is_old = |used_ns: u64| used_ns + METRICS_KEPT_NS <= now_ns;
        let old = self.users.iter().filter(|(_, (_, used_ns))| is_old(*used_ns)).map(|(kind, _)| kind.clone());
        for kind in old.collect::<Vec<Kind>>() {
            self.forget(&kind);
        }
    }

    fn forget(&mut self, kind: &Kind) {
        if let Some((user, _)) = self.users.remove(kind)
            && let Some(theirs) = self.counts.get_mut(&user)
        {
            *theirs -= 1;
            if *theirs == 0 {
                self.counts.remove(&user);
            }
        }
        self.waits.remove(kind);
        self.preemptions.remove(kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_that_makes_up_devices_takes_places_of_its_own_and_gives_them_back() {
        let (one, other) = (User::unknown(1), User::unknown(2));
        let mut seen = Observations::default();
        let kind = |n: usize| (Class::Low, Arc::from(format!("made-up:{n}")));
        (0..10_000).for_each(|n| seen.wait(one, n as u64, kind(n), 5));
        assert_eq!(seen.waits.len(), METRICS_USER_HISTOGRAMS_MAX);
        let real = (Class::High, Arc::from("pci:0000:41:00.0"));
        seen.wait(other, 10_000, real.clone(), 5);
        assert!(seen.waits.contains_key(&real), "the real device has its place");
        for user in 3..20 {
            (0..METRICS_USER_HISTOGRAMS_MAX).for_each(|n| {
                seen.preempted(User::unknown(user), 20_000, (Class::Low, Arc::from(format!("{user}:{n}"))), None);
            });
        }
        assert_eq!(seen.users.len(), METRICS_HISTOGRAMS_MAX);
        assert!(seen.waits.contains_key(&real), "those with many lose theirs first");
        // Later the places are free of kinds that no program uses any more.
        seen.wait(other, 20_000, real.clone(), 5);
        seen.expire(19_999 + METRICS_KEPT_NS);
        assert!(seen.waits.contains_key(&real), "it was used within that time");
        seen.expire(20_000 + METRICS_KEPT_NS);
        assert_eq!((seen.users.len(), seen.waits.len(), seen.preemptions.len(), seen.counts.len()), (0, 0, 0, 0));
    }
}
