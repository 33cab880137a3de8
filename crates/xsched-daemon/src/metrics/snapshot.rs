//! What the loop tells of one moment.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use xsched_gatekeeper::ledger::Usage;
use xsched_policy::ProgramId;
use xsched_proto::class::Class;

use super::histogram::Histogram;
use crate::devices::DeviceLabel;
use crate::memory::ClientSegment;
use crate::tuning::METRICS_HISTOGRAMS_MAX;
use crate::usage::Identity;

/// All that there is to tell.
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
    pub(crate) counters: Counters,
    pub(crate) launched: Launched,
    pub(crate) weight: u32,
    /// The part of the weights of all programs on the device.
    pub(crate) share: f64,
    pub(crate) memory_bytes: Option<u64>,
    /// The program is gone.
    pub(crate) gone: bool,
    /// It is gone, and no more comes of it.
    pub(crate) last: bool,
}

/// What only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) usage: Usage,
    pub(crate) wait_ns: u64,
    pub(crate) suspensions: u64,
    /// Before the daemon's answer, by a pass-through rule, after an error.
    pub(crate) unscheduled: [u64; 3],
    pub(crate) launches: u64,
}

/// Where launches are counted. Adding up those of a program takes some 0.1 ms: not on the loop's thread while the program lives.
#[derive(Clone)]
pub(crate) enum Launched {
    /// In the segment, by groups in these slots.
    Count(Arc<ClientSegment>, Vec<u16>),
    /// So many.
    Known(u64),
}

impl std::fmt::Debug for Launched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.count())
    }
}

impl Launched {
    /// How many.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Launched::Known(count) => *count,
            Launched::Count(segment, slots) => {
                let launches = segment.group_launches();
                slots.iter().fold(0, |sum, slot| sum.wrapping_add(launches[usize::from(*slot)]))
            }
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
    pub(crate) decisions: u64,
    pub(crate) uptime_s: f64,
}

/// Class and device.
pub(crate) type Kind = (Class, Arc<str>);

/// What was observed since the daemon's start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observations {
    pub(crate) waits: BTreeMap<Kind, Histogram>,
    pub(crate) preemptions: BTreeMap<Kind, (u64, Histogram)>,
    pub(crate) decisions: Histogram,
}

impl Observations {
    /// A group waited so long for its device, in ns.
    pub(crate) fn wait(&mut self, kind: Kind, ns: u64) {
        if self.waits.len() < METRICS_HISTOGRAMS_MAX || self.waits.contains_key(&kind) {
            self.waits.entry(kind).or_default().see(ns);
        }
    }

    /// A group was taken off its device; or has told, so long after that, in ns, that it is off.
    pub(crate) fn preempted(&mut self, kind: Kind, left_ns: Option<u64>) {
        if self.preemptions.len() < METRICS_HISTOGRAMS_MAX || self.preemptions.contains_key(&kind) {
            let (count, times) = self.preemptions.entry(kind).or_default();
            match left_ns {
                Some(ns) => times.see(ns),
                None => *count += 1,
            }
        }
    }
}
