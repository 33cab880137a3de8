//! A program as the loop saw it. Taking this is short: texts are shared, and the counters in the program's memory are read where the
//! answer is made.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use xsched_gatekeeper::InForce;
use xsched_gatekeeper::company::Opened;
use xsched_policy::registry::Entry;
use xsched_policy::share::Node;
use xsched_policy::{GroupId, GroupStatus};
use xsched_proto::class::Class;
use xsched_proto::domains::DomainMode;
use xsched_proto::hint::{Hint, Hints};
use xsched_proto::histogram::quantile_us;
use xsched_proto::segment::state;
use xsched_proto::wire::{
    ClassFrom, GroupInfo, GroupState, MemoryInfo, Platform, PoolSide, ProgramInfo, QueueDomain, QueueInfo, Share,
    Unscheduled, Waits, YieldRule, Yielding,
};

use crate::history::shares::Shares;
use crate::identity::peer::Peer;
use crate::programs::memory::{ClientSegment, GroupWords, Launches};
use crate::programs::naming::{called_by, named_of};
use crate::server::clock::now_ns;

/// A program.
pub(crate) struct Seen {
    /// Its connection.
    pub(crate) conn: u64,
    pub(crate) peer: Arc<Peer>,
    pub(crate) command: Arc<[String]>,
    pub(crate) title: Option<Arc<str>>,
    pub(crate) job: Option<String>,
    pub(crate) segment: Arc<ClientSegment>,
    /// When it attached, ns.
    pub(crate) attached_ns: u64,
    pub(crate) class_from: ClassFrom,
    pub(crate) limited: bool,
    pub(crate) priority: i32,
    pub(crate) hints: Hints,
    pub(crate) domains: DomainMode,
    pub(crate) timeslice_us: Option<u64>,
    pub(crate) pool: Option<PoolSide>,
    pub(crate) pool_why: Option<Arc<str>>,
    pub(crate) groups: Vec<SeenGroup>,
    pub(crate) queues: Vec<SeenQueue>,
    pub(crate) memory: Vec<MemoryInfo>,
}

/// One of its groups.
pub(crate) struct SeenGroup {
    pub(crate) id: GroupId,
    pub(crate) words: GroupWords,
    pub(crate) slot: u16,
    pub(crate) device: Arc<str>,
    pub(crate) platform: Platform,
    pub(crate) share: Option<Share>,
    pub(crate) system: bool,
    pub(crate) level: u8,
    pub(crate) status: GroupStatus,
    /// Device time charged to it as in `usage`, in ns.
    pub(crate) gpu_ns: u64,
    /// Gates that yield, where it has company.
    pub(crate) yielding: Option<SeenYielding>,
    /// Way to its party among the shares of its device.
    pub(crate) way: Vec<Node>,
    /// The policy of its device.
    pub(crate) policy: &'static Entry,
}

/// A group's gate that yields, and the gates that yield to it.
#[derive(Clone, Copy)]
pub(crate) struct SeenYielding {
    /// Rule in force beside it, and how often that became [`InForce::Closes`].
    pub(crate) rule: Option<(InForce, u64)>,
    pub(crate) opened: Opened,
}

/// One of its queues.
#[derive(Clone, Copy)]
pub(crate) struct SeenQueue {
    pub(crate) slot: u16,
    pub(crate) id: u64,
    /// Slot of its group.
    pub(crate) group: u16,
}

/// The number of each queue and its launches, by the slot of its group.
type QueuesByGroup = BTreeMap<u16, Vec<(u64, Launches)>>;

impl Seen {
    /// Report on the program with all of its queues. `started_ns` = when the daemon started.
    pub(crate) fn info(&self, now_ns: u64, started_ns: u64, shares: &Shares) -> ProgramInfo {
        // By group; the counters of all queues are added up once.
        let mut queues = QueuesByGroup::new();
        if !self.queues.is_empty() {
            let launches = self.segment.queue_launches();
            for queue in &self.queues {
                queues.entry(queue.group).or_default().push((queue.id, launches.of(queue.slot)));
            }
        }
        let place = &self.peer.place;
        ProgramInfo {
            pid: self.peer.pid,
            uid: self.peer.uid,
            exe: self.peer.exe.clone(),
            name: called_by(&self.command, &self.peer.exe).to_owned(),
            command: self.command.to_vec(),
            title: self.title.as_deref().map(str::to_owned),
            job: named_of(self.job.as_deref(), self.peer.user).map(str::to_owned),
            container: place.container(),
            container_name: place.name().map(str::to_owned),
            pod: place.pod().map(str::to_owned),
            namespace: place.namespace().map(str::to_owned),
            attached_s: now_ns.saturating_sub(self.attached_ns) / 1_000_000_000,
            ended_s: None,
            class: Class::of(self.priority),
            class_from: self.class_from,
            limited: self.limited,
            priority: self.priority,
            weight: self.hints.weight(),
            hints: self
                .hints
                .given()
                .filter_map(|hint| Some((hint.name().to_owned(), self.hints.text(hint)?)))
                .collect(),
            share: self.groups.iter().find_map(|group| group.share),
            pool: self.pool,
            pool_why: self.pool_why.as_deref().map(str::to_owned),
            domains: self.domains,
            groups: self.groups.iter().map(|group| self.group(group, started_ns, &queues, shares)).collect(),
            memory: self.memory.clone(),
        }
    }

    /// Id of the group in a slot.
    pub(super) fn group_at(&self, slot: u16) -> Option<String> {
        self.groups.iter().find(|group| group.slot == slot).map(|group| group_id(group.id))
    }

    fn group(&self, group: &SeenGroup, started_ns: u64, queues: &QueuesByGroup, shares: &Shares) -> GroupInfo {
        let (words, status) = (&group.words, &group.status);
        let state = if status.held {
            GroupState::Suspended
        } else if words.gate.peek().is_detached() {
            GroupState::Detached
        } else if words.state.load(Relaxed) == state::IDLE {
            GroupState::Idle
        } else if status.granted {
            GroupState::Running
        } else {
            GroupState::Ready
        };
        let queues = queues.get(&group.slot).map_or(&[][..], Vec::as_slice);
        let inspected = words.gate.peek().is_inspected();
        let system_launches = inspected.then(|| {
            let living = queues.iter().map(|(_, launches)| launches.system);
            living.fold(words.system_retired.load(Relaxed), u64::wrapping_add)
        });
        let queues: Vec<QueueInfo> =
            queues.iter().map(|(id, launches)| QueueInfo { id: queue_id(*id), launches: launches.all }).collect();
        let retired = words.launches_retired.load(Relaxed);
        GroupInfo {
            id: group_id(group.id),
            device: group.device.to_string(),
            platform: group.platform,
            domain: if group.system { QueueDomain::System } else { QueueDomain::Application },
            system_launches,
            exempt_launches: words.exempt.load(Relaxed),
            priority: status.priority,
            level: group.level,
            threshold: words.budget_commands.load(Relaxed),
            batch: words.batch_commands.load(Relaxed),
            state,
            interactive: status.interactive,
            launches: queues.iter().fold(retired, |sum, q| sum.wrapping_add(q.launches)),
            queues,
            unscheduled: Unscheduled {
                attach: words.unscheduled_attach.load(Relaxed),
                passthrough: words.unscheduled_passthrough.load(Relaxed),
                error: words.unscheduled_error.load(Relaxed),
            },
            liveness_overrides: words.liveness_overrides.load(Relaxed),
            signal_overrides: words.signal_overrides.load(Relaxed).into(),
            heard_late: words.heard_late_by(now_ns()),
            stalls: words.stalls.load(Relaxed).into(),
            releases: words.releases.load(Relaxed),
            suspensions: status.suspensions,
            gpu_us: group.gpu_ns / 1_000,
            device_us: status.used_us as u64,
            share_asked_percent: Self::share_asked(shares, group),
            share_got_percent: shares.got_percent(group.id, &group.device),
            waits: waits(words, started_ns),
            wait_us: words.wait_ns.load(Relaxed).saturating_add(words.waiting_ns(now_ns(), started_ns)) / 1_000,
            longest_us: words.longest_us.load(Relaxed),
            short: xsched_engine::are_short(words),
            timeslice_us: self.timeslice_us,
            completed: words.completed.load(Relaxed),
            alone_us: status.alone_us,
            yielding: group.yielding.map(|seen| Yielding {
                rule: seen.rule.map(|(rule, _)| match rule {
                    InForce::Yields => YieldRule::Yields,
                    InForce::Probe => YieldRule::Probe,
                    InForce::Closes => YieldRule::Closes,
                }),
                flips: seen.rule.map_or(0, |(_, flips)| flips),
                opened: seen.opened.times,
                opened_us: seen.opened.us,
                passed: words.yield_passed.load(Relaxed),
                held_us: words.yield_wait_ns.load(Relaxed) / 1_000,
            }),
        }
    }

    /// Part of a device that the group's party asks for, in percent; none where the policy uses neither weight nor utilization.
    fn share_asked(shares: &Shares, group: &SeenGroup) -> Option<f64> {
        let looks_at = |hint| group.policy.overlooks([hint]).is_empty();
        if looks_at(Hint::Utilization) || looks_at(Hint::Weight) { shares.asked_percent(group.id) } else { None }
    }
}

pub(super) fn queue_id(id: u64) -> String {
    format!("q{id}")
}

fn group_id(id: GroupId) -> String {
    format!("g{}", id.0)
}

fn waits(words: &GroupWords, started_ns: u64) -> Waits {
    let counts = words.waits().counts();
    let now = words.waiting.load(Relaxed);
    Waits {
        now,
        now_us: words.waiting_ns(now_ns(), started_ns) / 1_000 / u64::from(now.max(1)),
        count: counts.iter().map(|count| u64::from(*count)).sum(),
        p50_us: quantile_us(&counts, 0.5),
        p99_us: quantile_us(&counts, 0.99),
    }
}
