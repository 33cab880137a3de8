//! Counters of programs: each is one entry of a table, with its metric, its description, and the place where it is read. Rows, series and
//! the page of metrics are made of the table.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;

use prometheus_client::registry::Unit;
use xsched_gatekeeper::ledger::Usage;
use xsched_policy::GroupStatus;
use xsched_proto::account::MemoryUse;
use xsched_proto::described::{Described, Field};
use xsched_proto::segment::GroupSlot;
use xsched_proto::statistics::GroupInfo;

/// A counter of programs on a device. It only grows.
pub(crate) struct Counter {
    /// Name of the metric, without unit and suffix. Neighbours of one name are one family.
    pub(super) name: &'static str,
    help: Help,
    pub(super) label: Option<(&'static str, &'static str)>,
    /// True for a time, in ns.
    is_time: bool,
    source: Source,
}

/// Description of a counter.
enum Help {
    /// Description of the same statistic in `ps --json`.
    OfGroup(Field),
    Own(&'static str),
}

/// Place where a counter is read.
enum Source {
    /// The ledger's books.
    Usage(fn(&Usage) -> u64),
    /// The words of a group, added up over the groups of a program.
    Words(fn(&GroupSlot) -> u64),
    /// The arbiter, likewise.
    Arbiter(fn(&GroupStatus) -> u64),
    /// The counters of queues, which take long to add up.
    Launches,
    /// The program's account of the device's memory.
    Memory(fn(&MemoryUse) -> u64),
}

impl Counter {
    const fn usage(name: &'static str, help: &'static str, read: fn(&Usage) -> u64) -> Counter {
        Counter { name, help: Help::Own(help), label: None, is_time: true, source: Source::Usage(read) }
    }

    /// A count that `ps --json` has under another name.
    const fn of_group(name: &'static str, field: &str, source: Source) -> Counter {
        Counter { name, help: Help::OfGroup(GroupInfo::SHAPE.field(field)), label: None, is_time: false, source }
    }

    const fn time(self) -> Counter {
        Counter { is_time: true, ..self }
    }

    const fn reason(self, reason: &'static str) -> Counter {
        Counter { label: Some(("reason", reason)), ..self }
    }

    pub(super) fn help(&self) -> Cow<'static, str> {
        match &self.help {
            Help::OfGroup(field) => field.help().into(),
            Help::Own(help) => (*help).into(),
        }
    }

    pub(super) fn unit(&self) -> Option<Unit> {
        self.is_time.then_some(Unit::Seconds)
    }
}

/// All counters.
pub(crate) const COUNTERS: [Counter; 11] = [
    Counter::usage(
        "xsched_gpu",
        "Device time; time that several programs have together is divided among them",
        |usage| usage.gpu_ns,
    ),
    Counter::usage(
        "xsched_gpu_by_driver",
        "Part of the device time that rests on the driver's figure of the device's activity",
        |usage| usage.by_driver_ns,
    ),
    Counter::usage(
        "xsched_gpu_at_most",
        "Part of the device time that was not measured and may be too much",
        |usage| usage.at_most_ns,
    ),
    Counter::usage("xsched_resident", "Time on a device, whatever else was there", |usage| usage.resident_ns),
    Counter::of_group("xsched_gate_wait", "wait_us", Source::Words(|words| words.wait_ns.load(Relaxed))).time(),
    Counter::of_group("xsched_launches", "launches", Source::Launches),
    unscheduled(|words| words.unscheduled_attach.load(Relaxed)).reason("attach"),
    unscheduled(|words| words.unscheduled_passthrough.load(Relaxed)).reason("passthrough"),
    unscheduled(|words| words.unscheduled_error.load(Relaxed)).reason("error"),
    Counter::of_group("xsched_suspensions", "suspensions", Source::Arbiter(|status| status.suspensions)),
    Counter {
        name: "xsched_memory_refusals",
        help: Help::Own("Allocations that were refused: over a limit, for a reserve, or by the driver"),
        label: None,
        is_time: false,
        source: Source::Memory(|held| held.refused),
    },
];

const fn unscheduled(read: fn(&GroupSlot) -> u64) -> Counter {
    Counter::of_group("xsched_unscheduled_launches", "unscheduled", Source::Words(read))
}

/// Counts of a program on a device, in the order of [`COUNTERS`]; times are in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts([u64; COUNTERS.len()]);

impl Counts {
    /// Counts of usage, and nothing else.
    pub(crate) fn of(usage: Usage) -> Counts {
        let mut counts = Counts::default();
        counts.set_usage(usage);
        counts
    }

    /// Puts in the program's usage of the device.
    pub(crate) fn set_usage(&mut self, usage: Usage) {
        self.change(|source, count| match source {
            Source::Usage(read) => read(&usage),
            _ => count,
        });
    }

    /// Puts in the program's account of the device's memory.
    pub(crate) fn set_memory(&mut self, held: &MemoryUse) {
        self.change(|source, count| match source {
            Source::Memory(read) => read(held),
            _ => count,
        });
    }

    /// Adds the counts of a group.
    pub(crate) fn add_group(&mut self, words: &GroupSlot, status: Option<&GroupStatus>) {
        self.change(|source, count| match source {
            Source::Words(read) => count.wrapping_add(read(words)),
            Source::Arbiter(read) => count.wrapping_add(status.map_or(0, read)),
            Source::Usage(_) | Source::Launches | Source::Memory(_) => count,
        });
    }

    /// Replaces the launches by a sum that was made elsewhere.
    #[must_use]
    pub(crate) fn with_launches(mut self, launches: u64) -> Counts {
        self.change(|source, count| if matches!(source, Source::Launches) { launches } else { count });
        self
    }

    /// Growth since earlier counts of the same.
    pub(crate) fn since(self, before: Counts) -> Counts {
        Counts(std::array::from_fn(|at| self.0[at].saturating_sub(before.0[at])))
    }

    pub(crate) fn add(&mut self, more: Counts) {
        self.0 = std::array::from_fn(|at| self.0[at].wrapping_add(more.0[at]));
    }

    /// A count by its place in [`COUNTERS`].
    pub(super) fn get(&self, at: usize) -> u64 {
        self.0[at]
    }

    fn change(&mut self, change: impl Fn(&Source, u64) -> u64) {
        self.0 = std::array::from_fn(|at| change(&COUNTERS[at].source, self.0[at]));
    }
}

#[cfg(test)]
impl Counts {
    /// A count by the name of its metric.
    pub(super) fn named(&self, name: &str) -> u64 {
        self.get(COUNTERS.iter().position(|counter| counter.name == name).expect("a counter"))
    }
}
