//! One group on its device: the policy's view of it, and the state that each part of the arbiter keeps about it.

use xsched_proto::class::PRIORITY_NEVER;
use xsched_proto::trace::Why;

use super::stages::drain::Drain;
use super::stages::guard::Wait;
use super::starvation::Watch;
use super::{Action, GroupSpec};
use crate::tuning::{DORMANT_US, DRAIN_FIRST_REQUEST_US};
use crate::{GroupView, Micros, ProgramId};

/// A group on a device.
pub(super) struct Member {
    /// View for the policy, but for `ready`, which [`Member::may_run`] computes for each decision.
    pub(super) group: GroupView,
    /// Configured priority. That of the view is the effective one.
    pub(super) own_priority: i32,
    /// Priority lent by groups of the same program that wait for this group.
    pub(super) lent: Option<i32>,
    pub(super) job: InJob,
    /// Suspended by an operator.
    pub(super) held: bool,
    /// True in the system domain of its program.
    pub(super) system: bool,
    /// Waits for a group in the system domain of its own program, as of the last [`order_domains`].
    pub(super) behind: bool,
    pub(super) gate: Gate,
    /// State of the search for groups that have the device without progress.
    pub(super) watch: Watch,
    /// State of the guard.
    pub(super) wait: Wait,
    /// State of the drain stage.
    pub(super) drain: Drain,
    /// The policy prefers this group to others of its priority because it pauses.
    pub(super) interactive: bool,
    /// The evenness stage keeps this group off the device, though the policy would let it run.
    pub(super) paced: bool,
    /// The closed gate yields: the group goes on beside those that have the device.
    pub(super) yields: bool,
    /// State that the client knows from earlier actions.
    pub(super) announced: Announced,
}

/// Membership in a job.
#[derive(Default)]
pub(super) struct InJob {
    /// Number of the job; none = the group is in none.
    pub(super) number: Option<usize>,
    /// Number of the job, while that has groups on several devices.
    pub(super) spanning: Option<usize>,
    /// The job cannot run on all its devices now.
    pub(super) refused: bool,
}

/// History of a gate.
pub(super) struct Gate {
    /// Time since which the group has the device and wants it.
    pub(super) running_since: Option<Micros>,
    /// Time at which the gate closed last.
    pub(super) closed_at: Micros,
    /// Number of times that the gate closed.
    pub(super) closures: u64,
}

/// Values of the last [`Action::Budget`], [`Action::Contended`], [`Action::Exclusive`], [`Action::Stalled`] and
/// [`Action::KeepsGaps`] of a group.
#[derive(Default)]
pub(super) struct Announced {
    pub(super) sharers: u32,
    pub(super) contended: bool,
    pub(super) exclusive: bool,
    pub(super) stalled: bool,
    pub(super) keeps_gaps: Option<u16>,
}

impl Member {
    pub(super) fn new(now: Micros, spec: GroupSpec, job: Option<usize>, held: bool) -> Member {
        Member {
            group: GroupView {
                priority: spec.priority,
                hints: spec.hints,
                nice: spec.nice,
                active: spec.active,
                lineage: spec.lineage,
                spatial: spec.spatial,
                pool: spec.pool,
                ready_since: now,
                ..GroupView::new(spec.id, spec.program)
            },
            own_priority: spec.priority,
            lent: None,
            job: InJob { number: job, ..InJob::default() },
            held,
            system: spec.system,
            behind: false,
            gate: Gate { running_since: None, closed_at: now, closures: 0 },
            watch: Watch { progress_at: now, ..Watch::default() },
            wait: Wait::default(),
            drain: Drain::default(),
            interactive: false,
            paced: false,
            yields: false,
            announced: Announced::default(),
        }
    }

    pub(super) fn ready(&mut self, now: Micros) {
        if !self.group.ready {
            self.group.ready = true;
            self.group.ready_since = now;
        }
        self.watch.progress_at = now;
        self.watch.stalled = false;
    }

    pub(super) fn idle(&mut self, now: Micros) {
        if std::mem::take(&mut self.group.ready) {
            self.group.idle_since = Some(now);
            self.drain.has_long_requests = now.saturating_sub(self.group.ready_since) >= DRAIN_FIRST_REQUEST_US;
        }
        self.group.busy = false;
        self.gate.running_since = None;
        self.watch.stalled = false;
        self.watch.yields_until = None;
    }

    pub(super) fn drained(&mut self, now: Micros) {
        // A thread waits at the gate, so the group wants the device, even if it counted as stalled.
        self.ready(now);
        if !self.group.granted {
            self.group.busy = false;
        }
    }

    /// Records that the group goes on beside those that have the device.
    pub(super) fn goes_on(&mut self, now: Micros, gets_on: bool) {
        self.yields = true;
        if gets_on {
            self.wait.denied_since = self.wait.denied_since.map(|_| now);
            self.watch.progress_at = now;
        }
    }

    /// True if the group stays off the device whatever the policy says, and whatever priority it is lent.
    pub(super) fn is_held(&self) -> bool {
        self.held || self.own_priority <= PRIORITY_NEVER
    }

    /// True if the group wants the device, as far as a decision is concerned.
    pub(super) fn wants(&self) -> bool {
        let kept_off = self.is_held() || self.watch.stalled || self.job.refused || self.watch.yields_until.is_some();
        self.group.ready && !kept_off
    }

    /// True if the group wants the device and waits for no other of its own program.
    pub(super) fn may_run(&self) -> bool {
        self.wants() && !self.behind
    }

    /// True if the group is ready and its gate is closed, though no operator closed it.
    pub(super) fn waits(&self) -> bool {
        self.group.ready && !self.is_held() && !self.group.granted
    }

    /// Reason for which the gate stays closed whatever the stages of a decision say.
    pub(super) fn kept_off(&self) -> Option<Why> {
        let reasons = [
            (self.is_held(), Why::Suspended),
            (self.job.refused, Why::Job),
            (self.watch.stalled, Why::Stalled),
            (self.watch.yields_until.is_some(), Why::Starvation),
            (self.behind, Why::Domain),
        ];
        reasons.into_iter().find(|(holds, _)| *holds).map(|(_, why)| why)
    }

    /// True if decisions may pass over the group: it has wanted nothing for long, and nothing else about it affects a decision.
    pub(super) fn may_sleep(&self, now: Micros) -> bool {
        let g = &self.group;
        let wants = g.ready || g.busy || self.watch.stalled || self.lent.is_some();
        let is_special =
            self.is_held() || self.system || self.job.spanning.is_some() || g.pool.is_some() || g.spatial.is_some();
        !wants && !is_special && g.idle_since.unwrap_or(g.ready_since) + DORMANT_US <= now
    }

    /// Closes the gate of a group that decisions will pass over, and leaves all else as after a decision.
    pub(super) fn sleep(&mut self, now: Micros, actions: &mut Vec<Action>) {
        if self.group.granted {
            self.close(now, actions);
        }
        if std::mem::take(&mut self.announced.exclusive) {
            actions.push(Action::Exclusive(self.group.id, false));
        }
    }

    /// Closes the gate, which is open.
    pub(super) fn close(&mut self, now: Micros, actions: &mut Vec<Action>) {
        self.group.granted = false;
        self.gate.closed_at = now;
        self.gate.closures += 1;
        actions.push(Action::Close(self.group.id));
    }
}

/// Finds the groups that wait for one of the system domain of their own program, of their priority. A group that is lent a priority
/// never waits so: the lender may be the one of the system domain.
pub(super) fn order_domains(members: &mut [Member]) {
    let system = members.iter().filter(|m| m.system && m.wants());
    let mut first: Vec<(ProgramId, i32)> = system.map(|m| (m.group.program, m.group.priority)).collect();
    first.sort_unstable();
    for m in members {
        let own = (m.group.program, m.group.priority);
        m.behind = !m.system && m.lent.is_none() && first.binary_search(&own).is_ok();
    }
}

/// True if some group waits for the device.
pub(super) fn any_waits(members: &[Member]) -> bool {
    members.iter().any(Member::waits)
}
