//! Terms: the part of the configuration that holds for one program, and [`Settings`], the part that holds for all.

use std::collections::BTreeMap;

use xsched_policy::{Choice, ClassRule};
use xsched_proto::account::Amount;
use xsched_proto::class::{self, Class};
use xsched_proto::domains::DomainMode;
use xsched_proto::entitlement::Claim;
use xsched_proto::hint::Hints;
use xsched_proto::units::exact_us;

/// Limits of memory that the configuration gives a program, on each device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryTerms {
    /// Limit of the program, with all its processes.
    pub program: Option<Amount>,
    /// Memory that less urgent programs leave to it.
    pub reserve: Option<Amount>,
    /// Largest part of a reserve that the program asks for which other users' programs leave to it, too; none = they leave nothing.
    pub reserve_of_others: Option<Amount>,
    /// Time without launches after which its memory leaves by itself, in seconds.
    pub idle_s: Option<u32>,
    /// Limit of all programs of its user.
    pub user: Option<Amount>,
    /// Limit of the host memory for memory of its user's programs that is away from devices.
    pub user_host: Option<Amount>,
    /// Its container, as a number.
    pub within: Option<u64>,
    /// Its container, as a number, and the limit of all programs in it.
    pub container: Option<(u64, Amount)>,
    /// Its pod, as a number, and the limit of all programs in it.
    pub pod: Option<(u64, Amount)>,
    /// Its rule, and the limit of all programs to which that applies.
    pub rule: Option<(u32, Amount)>,
}

/// Limits of memory that the configuration gives to all programs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemorySettings {
    /// Memory of each device that programs may use together.
    pub capacity: Option<Amount>,
    /// Limit of all programs of each class, in the order of [`Class::ALL`].
    pub classes: [Option<Amount>; Class::ALL.len()],
    /// Largest part of a reserve that programs of each class ask for which other users' programs leave to them, too, likewise, where
    /// neither rule nor user have one.
    pub reserves: [Option<Amount>; Class::ALL.len()],
    /// True if no program's memory may leave its device.
    pub stays: bool,
    /// Limit of the host memory for memory that is away from devices, of all programs.
    pub host_limit: Option<Amount>,
    /// Memory of the host, in bytes.
    pub host_bytes: u64,
}

/// The terms of one program: its rule, and the limits of its user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Values that a rule gives.
    pub given: Given,
    /// Limits on what the user's programs may ask for.
    pub ceilings: Ceilings,
    /// Limits on how much the user may have.
    pub bounds: Bounds,
    /// Limits of memory on devices.
    pub memory: MemoryTerms,
}

impl Terms {
    /// The claim of a program that asks for a priority.
    pub fn claim(&self, asked: Option<i32>) -> Claim {
        Claim {
            asked,
            rule: self.given.priority,
            limit: self.ceilings.priority,
            ceiling: self.given.ceiling,
            system_ceiling: self.given.system_ceiling,
        }
    }
}

/// Values that a rule of the configuration gives.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Given {
    /// Priority where the program asks for none.
    pub priority: Option<i32>,
    /// The highest priority that it may have.
    pub ceiling: Option<i32>,
    /// Hints for the policy.
    pub hints: Hints,
    /// Preemption level, 1..=3.
    pub level: Option<u8>,
    /// Commands in flight while watched; 0 = automatic.
    pub threshold: Option<u32>,
    /// Commands after which room comes back; 0 = automatic.
    pub batch: Option<u32>,
    /// Like `ceiling`, for queues of the system domain.
    pub system_ceiling: Option<i32>,
    /// Treatment of launches of vendors' libraries. Only a rule makes them exempt.
    pub domains: Option<DomainMode>,
}

/// Limits on what a user's programs may ask for. Rules and root's hints are not cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceilings {
    /// Highest priority.
    pub priority: i32,
    /// Largest weight.
    pub weight: u32,
    /// Longest timeslice, in µs.
    pub timeslice_us: u64,
}

impl Ceilings {
    /// No limits, as for root and the daemon's own user.
    pub const NONE: Ceilings =
        Ceilings { priority: class::PRIORITY_MAX, weight: class::WEIGHT_MAX, timeslice_us: u64::MAX };

    /// Cuts hints of a user without privilege. Hints are cut nowhere else.
    pub fn cut(self, hints: Hints) -> Hints {
        Hints {
            weight: hints.weight.map(|weight| weight.min(self.weight)),
            timeslice_us: hints.timeslice_us.map(|us| us.min(self.timeslice_us)),
            ..hints
        }
    }

    /// A line that tells which of some hints are cut; none if none are.
    pub fn notice(self, asked: Hints) -> Option<String> {
        let weight = asked.weight.filter(|weight| *weight > self.weight);
        let turn = asked.timeslice_us.filter(|us| *us > self.timeslice_us);
        let lines = [
            weight.map(|weight| format!("weight {weight} is over your limit: {} counts", self.weight)),
            turn.map(|us| {
                format!("timeslice {} is over your limit: {} counts", exact_us(us), exact_us(self.timeslice_us))
            }),
        ];
        let lines: Vec<String> = lines.into_iter().flatten().collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }
}

/// Limits on how much of each thing a user may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Connections to the daemon.
    pub connections: usize,
    /// Groups on all devices.
    pub groups: usize,
    /// Groups on one device.
    pub device_groups: usize,
    /// Jobs with groups on several devices.
    pub jobs: usize,
    /// Queues of all programs.
    pub queues: usize,
    /// Descriptors that the daemon keeps.
    pub descriptors: usize,
    /// Address space that programs share with the daemon, in MiB.
    pub mapped_mib: usize,
    /// Devices with open books.
    pub devices: usize,
    /// Open books.
    pub books: usize,
}

/// The configuration of scheduling.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The policy of devices without one of their own.
    pub policy: Choice,
    /// Policies by device key.
    pub devices: BTreeMap<String, Choice>,
    /// Hints that come with each class, in the order of [`Class::ALL`].
    pub class_hints: [Hints; Class::ALL.len()],
    /// Rules on classes for the policies.
    pub class_rules: Vec<ClassRule>,
    /// Time after which a group that waits gets its device once, in µs; none = never.
    pub guard_us: Option<u64>,
    /// Evenness of programs in a pool, in percent.
    pub evenness: u32,
    /// In-flight budget of a device, in µs.
    pub budget_us: u32,
    /// Highest class whose programs are in a pool.
    pub pool_max_class: Class,
    /// Time slice of the contexts of outer pools, in µs.
    pub pool_timeslice_us: u64,
    /// In-flight budget of a pooled group, in µs.
    pub pool_budget_us: u32,
    /// True if gates that would close among programs of one MPS server yield where they may.
    pub yields: bool,
    /// True if the log has details of groups.
    pub has_details: bool,
    /// Limits of memory on devices.
    pub memory: MemorySettings,
}

impl Settings {
    /// Hints that come with the class of a priority.
    pub fn hints_of(&self, priority: i32) -> Hints {
        let class = Class::of(priority);
        let at = Class::ALL.iter().position(|other| *other == class).unwrap_or(0);
        self.class_hints[at]
    }
}
