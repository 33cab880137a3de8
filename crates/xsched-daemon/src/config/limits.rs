//! Limits of users: on the values that they may ask for, and on the number of things that they may have.

use std::collections::BTreeMap;

use serde::Deserialize;
use xsched_engine::{Bounds, Ceilings, MemoryTerms, User as Owner, number_of};
use xsched_proto::account::Amount;
use xsched_proto::class::Class;

use super::keys::{ClassName, Count, Memory, Quantum, User, Weight};
use super::{Config, Rule};
use crate::identity::container::Place;
use crate::tuning::{
    USER_BOOKS_MAX, USER_CONNS_MAX, USER_DEVICE_GROUPS_MAX, USER_DEVICES_MAX, USER_FDS_MAX, USER_GROUPS_MAX,
    USER_JOBS_MAX, USER_MAPPED_MAX_MIB, USER_QUEUES_MAX, USER_TIMESLICE_MAX_US, USER_WEIGHT_MAX, of_user,
};

/// Table of limits: those of all users, beside the table of users with limits of their own.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    max_class: Option<ClassName>,
    max_weight: Option<Weight>,
    max_timeslice_us: Option<Quantum>,
    connections: Option<Count>,
    groups: Option<Count>,
    device_groups: Option<Count>,
    jobs: Option<Count>,
    queues: Option<Count>,
    descriptors: Option<Count>,
    mapped_mib: Option<Count>,
    memory: Option<Memory>,
    host_memory: Option<Memory>,
    reserve: Option<Memory>,
    container_memory: Option<Memory>,
    pod_memory: Option<Memory>,
    #[serde(default)]
    users: BTreeMap<User, UserLimits>,
}

/// Limits of memory on each device, of all programs in one container and in one pod.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Enclosed {
    pub(super) container: Option<Memory>,
    pub(super) pod: Option<Memory>,
}

impl Enclosed {
    /// Returns these limits, completed by `those` where they are not set.
    pub(super) fn or(self, those: Enclosed) -> Enclosed {
        Enclosed { container: self.container.or(those.container), pod: self.pod.or(those.pod) }
    }
}

/// Limits of one user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UserLimits {
    max_class: Option<ClassName>,
    max_weight: Option<Weight>,
    max_timeslice_us: Option<Quantum>,
    connections: Option<Count>,
    groups: Option<Count>,
    device_groups: Option<Count>,
    jobs: Option<Count>,
    queues: Option<Count>,
    descriptors: Option<Count>,
    mapped_mib: Option<Count>,
    /// Memory on each device, of all programs of the user.
    memory: Option<Memory>,
    /// Memory of the host, for what is away from devices of all programs of the user.
    host_memory: Option<Memory>,
    /// Largest reserve of a program of the user that other users' programs leave to it, too.
    reserve: Option<Memory>,
    pub(super) weight: Option<Weight>,
}

impl Limits {
    /// Splits the table into the limits of all users, those of single users, and those of containers and pods.
    pub(super) fn parts(self) -> (UserLimits, BTreeMap<User, UserLimits>, Enclosed) {
        let of_all = UserLimits {
            max_class: self.max_class,
            max_weight: self.max_weight,
            max_timeslice_us: self.max_timeslice_us,
            connections: self.connections,
            groups: self.groups,
            device_groups: self.device_groups,
            jobs: self.jobs,
            queues: self.queues,
            descriptors: self.descriptors,
            mapped_mib: self.mapped_mib,
            memory: self.memory,
            host_memory: self.host_memory,
            reserve: self.reserve,
            weight: None,
        };
        (of_all, self.users, Enclosed { container: self.container_memory, pod: self.pod_memory })
    }
}

impl UserLimits {
    /// Returns these limits, completed by `those` where they are not set.
    pub(super) fn or(self, those: UserLimits) -> UserLimits {
        UserLimits {
            max_class: self.max_class.or(those.max_class),
            max_weight: self.max_weight.or(those.max_weight),
            max_timeslice_us: self.max_timeslice_us.or(those.max_timeslice_us),
            connections: self.connections.or(those.connections),
            groups: self.groups.or(those.groups),
            device_groups: self.device_groups.or(those.device_groups),
            jobs: self.jobs.or(those.jobs),
            queues: self.queues.or(those.queues),
            descriptors: self.descriptors.or(those.descriptors),
            mapped_mib: self.mapped_mib.or(those.mapped_mib),
            memory: self.memory.or(those.memory),
            host_memory: self.host_memory.or(those.host_memory),
            reserve: self.reserve.or(those.reserve),
            weight: self.weight.or(those.weight),
        }
    }
}

impl Config {
    /// Reports whether a user of the files is this one.
    pub(super) fn is_user(&self, user: &User, uid: u32) -> bool {
        match user {
            User::Id(id) => *id == uid,
            User::Name(name) => self.accounts.get(name) == Some(&uid),
        }
    }

    fn limits_of(&self, uid: u32) -> UserLimits {
        self.limits_of_own(uid).or(self.limits)
    }

    /// Limits that the files give to this user alone.
    pub(super) fn limits_of_own(&self, uid: u32) -> UserLimits {
        let own = self.users.iter().filter(|(user, _)| self.is_user(user, uid));
        own.fold(UserLimits::default(), |earlier, (_, later)| later.or(earlier))
    }

    /// Largest values that programs of a user without privilege may ask for.
    pub(crate) fn ceilings(&self, uid: u32) -> Ceilings {
        let limits = self.limits_of(uid);
        Ceilings {
            priority: limits.max_class.map_or(Class::High, |class| class.0).range().1,
            weight: limits.max_weight.map_or(USER_WEIGHT_MAX, |weight| weight.0),
            timeslice_us: limits.max_timeslice_us.map_or(USER_TIMESLICE_MAX_US, |us| us.0),
        }
    }

    /// Limits on the number of things that a user may have. `own` = root or the daemon's own user, whose limits are wider unless they are
    /// given.
    pub(crate) fn bounds(&self, uid: u32, own: bool) -> Bounds {
        let limits = if own { self.limits_of_own(uid) } else { self.limits_of(uid) };
        let bound = |given: Option<Count>, usual| given.map_or(of_user(usual, own), |count| count.0 as usize);
        Bounds {
            connections: bound(limits.connections, USER_CONNS_MAX),
            groups: bound(limits.groups, USER_GROUPS_MAX),
            device_groups: bound(limits.device_groups, USER_DEVICE_GROUPS_MAX),
            jobs: bound(limits.jobs, USER_JOBS_MAX),
            queues: bound(limits.queues, USER_QUEUES_MAX),
            descriptors: bound(limits.descriptors, USER_FDS_MAX),
            mapped_mib: bound(limits.mapped_mib, USER_MAPPED_MAX_MIB),
            devices: of_user(USER_DEVICES_MAX, own),
            books: of_user(USER_BOOKS_MAX, own),
        }
    }

    /// Limits of memory of a program of this user, at this place, to which this rule applies. Of `[limits]`, those of all users are not for
    /// root and the daemon's own user.
    pub(super) fn memory_terms(&self, user: Owner, place: &Place, rule: Option<(usize, &Rule)>) -> MemoryTerms {
        let limits = if user.is_own() { self.limits_of_own(user.uid) } else { self.limits_of(user.uid) };
        let of_rule = |get: fn(&Rule) -> Option<Memory>| rule.and_then(|(_, rule)| get(rule)).map(|memory| memory.0);
        let within = |name: Option<String>, limit: Option<Memory>| -> Option<(u64, Amount)> {
            Some((number_of(&name?), limit?.0))
        };
        let total = of_rule(|rule| rule.memory_total);
        MemoryTerms {
            program: of_rule(|rule| rule.memory_limit),
            reserve: of_rule(|rule| rule.memory_reserve),
            reserve_of_others: of_rule(|rule| rule.max_reserve).or(limits.reserve.map(|memory| memory.0)),
            idle_s: rule.and_then(|(_, rule)| rule.memory_idle_s).map(|idle| idle.0),
            user: limits.memory.map(|memory| memory.0),
            user_host: limits.host_memory.map(|memory| memory.0),
            within: place.container().map(|name| number_of(&name)),
            container: within(place.container(), self.enclosed.container),
            pod: within(place.pod_key(), self.enclosed.pod),
            rule: rule.zip(total).map(|((at, _), total)| (at as u32, total)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xsched_proto::hint::Hints;

    #[test]
    fn host_memory_is_limited_for_all_and_by_user_and_idle_times_are_by_rule() {
        let text = "[memory]\nhost_limit = \"10%\"\n[limits]\nhost_memory = \"4GiB\"\n[limits.users.7]\nhost_memory = \"25%\"\n\
                    [[rule]]\nexe = \"*\"\nmemory_idle_s = 300\n";
        let c = Config::parsed(&[text]).unwrap();
        let of = |uid| {
            let rule = c.rule_of("/bin/a", &[], &[], uid, &Place::default());
            let terms = c.memory_terms(Owner::unknown(uid), &Place::default(), rule);
            (terms.user_host, terms.idle_s)
        };
        assert_eq!(of(7), (Some(Amount::PerMille(250)), Some(300)));
        assert_eq!(of(8), (Some(Amount::Bytes(4 << 30)), Some(300)));
        let memory = c.settings(xsched_policy::Choice::named("hpf").unwrap(), true, false).memory;
        assert_eq!(memory.host_limit, Some(Amount::PerMille(100)));
        assert!(memory.host_bytes > 1 << 28, "{}", memory.host_bytes);
        let (_, why) = Config::parsed(&["[[rule]]\nmemory_idle_s = 0\n"]).err().unwrap();
        assert!(why.contains("1 to 2592000"), "{why}");
    }

    #[test]
    fn limits_are_of_all_users_or_of_one_and_wider_for_the_daemons_own() {
        let c = Config::parsed(&[
            "[limits]\nmax_weight = 300\nmax_timeslice_us = 20000\nconnections = 10\ngroups = 20\nqueues = 40\n[limits.users.7]\nmax_weight = 5000\njobs = 3\ndescriptors = 9\nmapped_mib = 64\n",
            "[limits]\nconnections = 11\n[limits.users.7]\nconnections = 50\n",
        ])
        .unwrap();
        assert_eq!(c.ceilings(7), Ceilings { priority: 191, weight: 5_000, timeslice_us: 20_000 });
        assert_eq!(c.ceilings(8), Ceilings { priority: 191, weight: 300, timeslice_us: 20_000 });
        let of = |uid, own| {
            let b = c.bounds(uid, own);
            (b.connections, b.groups, b.device_groups, b.jobs)
        };
        assert_eq!((of(7, false), of(8, false)), ((50, 20, 128, 3), (11, 20, 128, 16)));
        assert_eq!((of(7, true).0, of(8, true)), (50, (usize::MAX, 4_096, 1_024, 128)));
        let more = |uid, own| {
            let b = c.bounds(uid, own);
            (b.queues, b.descriptors, b.mapped_mib)
        };
        assert_eq!((more(7, false), more(8, false)), ((40, 9, 64), (40, 8_192, 8_192)));
        assert_eq!(more(8, true), (1_048_576, usize::MAX, usize::MAX));
        let asked = Hints { weight: Some(400), timeslice_us: Some(10), ..Hints::default() };
        assert_eq!(c.ceilings(8).cut(asked), Hints { weight: Some(300), ..asked });
        assert_eq!(c.ceilings(8).notice(asked).as_deref(), Some("weight 400 is over your limit: 300 counts"));
        assert_eq!((c.ceilings(7).cut(asked), c.ceilings(7).notice(asked)), (asked, None));
    }
}
