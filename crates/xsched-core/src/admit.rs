//! The slow path into the driver: takes the snapshots for [`xsched_flow::admission`], waits, and publishes the answer.

use core::sync::atomic::Ordering::*;

use xsched_flow::admission::{self, AtGate, Place, Placed};
use xsched_flow::backlog::Behind;
use xsched_flow::estimate::Fence;
use xsched_flow::journal::Record;
use xsched_flow::tuning::{BEHIND_NS, UNKNOWN_NS};
use xsched_flow::watchdog::epoch;
use xsched_proto::gate::Gate;
use xsched_proto::memory::Hardware;
use xsched_proto::segment::{Counter, GroupSlot};

use crate::fast_path::take_inspected;
use crate::group::Group;
use crate::origin::Way;
use crate::protocol::{idle, park::Left};
use crate::queue::{CompletionFence, FenceKind, XQueue};
use crate::runtime::Runtime;
use crate::waiting::stop_waiting;
use crate::{inspect, journal};

mod budget;

/// Description of one command, before it is handed to the driver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Key of the kind of command (function and grid), for the estimate of its device time; 0 = unknown.
    pub key: u64,
    /// The call returns when the command is complete.
    pub blocking: bool,
    /// The command waits for something that only the application provides (a user event): the budget leaves it alone.
    pub unbounded: bool,
    /// The driver takes the command at once, whatever its queue waits for: it may be given while the gate is closed, pre-queued
    /// behind a gate on the device.
    pub may_prequeue: bool,
    /// The driver may load code for it.
    pub loads: bool,
    /// The command is a copy and nothing else: see [`xsched_flow::backlog::Behind`].
    pub copies: bool,
    /// Longest part of the command without a gate inside, in [`PARTS`](crate::PARTS) of the whole. 0 = no command of its kind ever
    /// had gates inside.
    pub part: u16,
}

/// Permission to call the driver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Admission {
    /// The command gets a completion fence: give its event to [`XQueue::commit`]'s [`CompletionFence`].
    pub fenced: bool,
    /// Put a device gate before the command (level 2).
    pub device_gate: bool,
    /// Put a fence before that gate, see [`XQueue::fence_before_gate`]: the last fence does not announce the gate.
    pub untold_gate: bool,
    /// The host gate is closed: if the device gate cannot be placed, the command must wait, see [`XQueue::wait_turn`].
    pub prequeued: bool,
    /// The call is to be made between [`Runtime::begin_load`] and [`Runtime::end_load`].
    pub loads: bool,
    numbered: bool,
    /// The command's fence announces that a gate follows.
    gate_follows: bool,
    /// The command is given while the gate is closed: its time is no sample of its kind's.
    unmeasured: bool,
    seq: u64,
    /// Expected time of all commands before this one, in ns.
    before_ns: u64,
    estimate_ns: u64,
    key: u64,
    blocking: bool,
    group: u16,
}

impl Admission {
    /// Admits the command as one that is counted and not numbered.
    fn set_counted(&mut self, group: &Group, work: &Work) {
        *self = Admission { blocking: work.blocking, group: group.index, ..Admission::default() };
    }
}

/// One launch on its way through the slow path.
struct Launch<'a> {
    rt: &'static Runtime,
    group: &'a Group,
    slot: &'a GroupSlot,
    work: &'a Work,
    /// Expected time of the command in ns, if it was ever measured.
    estimate: Option<u64>,
}

impl Launch<'_> {
    /// Expected time of the command, in ns.
    #[inline]
    fn estimate_ns(&self) -> u64 {
        self.estimate.unwrap_or(UNKNOWN_NS)
    }

    /// Notes the length of the command, where a budget makes it matter.
    #[inline]
    fn note_length(&self, budget_us: u32) {
        if self.work.part != 0 {
            self.rt.estimates.note_part(self.work.key, self.work.part);
        }
        if budget_us != 0
            && let Some(ns) = self.estimate
        {
            self.group.note_length(self.slot, ns, self.work.part);
            if ns > BEHIND_NS {
                self.slot.limited.fetch_add(1, Relaxed);
            }
        }
    }
}

/// A launch's way through the gate, at its end.
struct Passage {
    /// Grant epoch in which the command was given while the gate was closed, to wait behind a gate on the device.
    prequeued: Option<u32>,
    /// The launch is exempt and went past a closed gate.
    passed_closed: bool,
    /// The command gets a gate on the device if one is due.
    has_gates: bool,
    /// The command was given while the gate yielded.
    yields: bool,
}

impl XQueue {
    /// The slow path into the driver: announces, waits at the gate, obeys the budget. The caller counted the launch in `counter`
    /// already; a numbered launch is taken out of there again. Fills `admission` in place: returning it by value was measurably
    /// slower.
    #[cold]
    #[inline(never)]
    pub fn admit(&self, rt: &'static Runtime, work: Work, counter: &Counter, admission: &mut Admission) {
        let mut way = self.way(rt, take_inspected(), counter);
        if way == Way::Passes {
            return admission.set_counted(self.group(rt), &work);
        }
        stop_waiting(rt);
        loop {
            let group = self.group(rt);
            let contended = self.is_contended(rt, group);
            // Inspection may have begun with the daemon's answer.
            way = self.way(rt, way, counter);
            if way == Way::Regroup {
                way = Way::Gate;
                rt.change_domain(self);
                continue;
            }
            if !contended {
                // Detached for good is unscheduled; detached because the queue moved to another group is not.
                if group.slot(rt).gate.load().is_detached() && !self.is_in(group.index) {
                    continue;
                }
                return admission.set_counted(group, &work);
            }
            idle::uncount::<Hardware>(&counter.launches);
            if self.enter(rt, group, &work, counter, way == Way::Exempt, admission) {
                return;
            }
            // The queue moved to another group, whose gate counts now; the old one may have nothing left.
            group.update_idle_state(rt);
            counter.launches.store(counter.launches.load(Relaxed).wrapping_add(1), Release);
        }
    }

    /// Way of the launch under way, which is inspected if that is wanted and was not done yet.
    fn way(&self, rt: &Runtime, known: Way, counter: &Counter) -> Way {
        let slot = self.group(rt).slot(rt);
        if known == Way::Unknown && slot.gate.peek().is_inspected() {
            return inspect::launch(self, slot, counter);
        }
        known
    }

    /// Announces the group if it must be announced. False: the launch goes on without gate and budget, since the group is detached
    /// or has no rivals.
    fn is_contended(&self, rt: &'static Runtime, group: &Group) -> bool {
        let slot = group.slot(rt);
        let mut gate = slot.gate.load();
        if gate.is_detached() {
            group.await_registration(rt);
            gate = slot.gate.load();
            if gate.is_detached() {
                slot.unscheduled_attach.fetch_add(self.is_in(group.index).into(), Relaxed);
                return false;
            }
        }
        if gate.must_announce() {
            group.announce(rt);
        }
        if gate.is_stalled() {
            group.end_stall(rt);
        }
        group.end_grace(rt, 1);
        gate = slot.gate.load();
        let contended = gate.is_contended() || !gate.is_open();
        if contended && gate.is_bypassed() {
            // The condition for which the gates stand open may be over.
            group.set_device_gates(rt);
        }
        contended
    }

    /// Waits for gate and budget unless the launch is exempt, numbers the command, and decides about its fence and gate. False: the
    /// queue moved to another group.
    fn enter(
        &self,
        rt: &'static Runtime,
        group: &Group,
        work: &Work,
        counter: &Counter,
        exempt: bool,
        admission: &mut Admission,
    ) -> bool {
        let launch = Launch { rt, group, slot: group.slot(rt), work, estimate: rt.estimates.get(work.key) };
        let before = counter.total();
        let Some(passage) = self.pass_gate(&launch, exempt) else { return false };
        // If no daemon holds the gate any more, the launch goes on unscheduled.
        if launch.slot.gate.load().is_detached() {
            launch.slot.unscheduled_attach.fetch_add(self.is_in(group.index).into(), Relaxed);
        }
        let announced = self.fences.gate_follows.load(Relaxed) && self.fences.gate_follows.swap(false, Relaxed);
        let ask = self.number(&launch, &passage, before, announced);
        let placed = self.place(&launch, &ask, passage.yields);
        // The agent may have called the group idle while this launch was counted nowhere.
        if group.readiness(rt).numbered() {
            group.announce(rt);
        }
        admission.fenced = placed.fence;
        admission.device_gate = placed.device_gate;
        admission.untold_gate = placed.device_gate && !announced && ask.tells_of_gates();
        admission.gate_follows = admission::gate_follows(&ask, &placed);
        admission.prequeued = passage.prequeued.is_some();
        admission.unmeasured = passage.prequeued.is_some() || passage.passed_closed;
        admission.loads = work.loads && passage.has_gates && ask.budget_us != 0;
        admission.numbered = true;
        admission.seq = ask.seq;
        admission.before_ns = ask.issued_ns;
        admission.estimate_ns = launch.estimate_ns();
        admission.key = work.key;
        admission.blocking = work.blocking;
        admission.group = group.index;
        true
    }

    /// Waits for gate and budget unless the launch is exempt. `None`: the queue moved to another group.
    #[inline]
    fn pass_gate(&self, launch: &Launch<'_>, exempt: bool) -> Option<Passage> {
        let has_gates = self.places_gates(launch);
        let mut passage = Passage { prequeued: None, passed_closed: false, has_gates, yields: false };
        loop {
            // Read the epoch before the gate. If it advances in between, one device gate too many is placed, never too few.
            let grants = launch.slot.grants.load(Acquire);
            let gate = launch.slot.gate.load();
            if exempt {
                passage.passed_closed = !gate.is_open();
                launch.slot.exempt.fetch_add(passage.passed_closed.into(), Relaxed);
                return Some(passage);
            }
            if !gate.is_open() && gate.yields() {
                if self.passes_yielding(launch, gate) {
                    // Gates on the device stand open.
                    (passage.has_gates, passage.yields) = (false, true);
                    return Some(passage);
                }
                if !self.is_in(launch.group.index) {
                    return None;
                }
                continue;
            }
            if !gate.is_open() {
                if self.prequeues(launch, gate, passage.has_gates) {
                    passage.prequeued = Some(epoch(grants));
                    return Some(passage);
                }
                if self.wait_open(launch) == Left::Signal {
                    return Some(passage);
                }
            }
            if !self.is_in(launch.group.index) {
                return None;
            }
            if self.passes_budget(launch) {
                return Some(passage);
            }
        }
    }

    /// True: the queue's commands get gates on the device, and do not wait for other queues there.
    #[inline]
    fn places_gates(&self, launch: &Launch<'_>) -> bool {
        let Launch { rt, slot, .. } = launch;
        if !self.has_gates(rt, slot.level.load(Relaxed)) {
            return false;
        }
        if !self.has_cross_stream_dependency(rt) {
            return true;
        }
        rt.note_cross_stream();
        self.has_gates(rt, slot.level.load(Relaxed))
    }

    /// Waits at a gate that yields. The budget first: the reason for that wait, the backlog of others included, may be over at the
    /// end of a wait. False: the gate is to be read again.
    #[inline]
    fn passes_yielding(&self, launch: &Launch<'_>, gate: Gate) -> bool {
        let Launch { rt, group, .. } = launch;
        self.passes_budget(launch) && (group.may_pass(rt, gate) || group.wait_for_backlogs(rt))
    }

    /// Waits for the in-flight budget, unless the command is outside it. False: the gate closed meanwhile.
    #[inline]
    fn passes_budget(&self, launch: &Launch<'_>) -> bool {
        launch.work.unbounded || self.within_budget(launch.rt, launch.group, launch.estimate_ns())
    }

    /// Waits at the closed gate.
    fn wait_open(&self, launch: &Launch<'_>) -> Left {
        let Launch { rt, group, .. } = launch;
        group.wait_open(rt, || group.flush(rt), || self.is_in(group.index))
    }

    /// Tells if a command may be given while the gate is closed, to wait behind a gate on the device.
    fn prequeues(&self, launch: &Launch<'_>, gate: Gate, has_gates: bool) -> bool {
        let Launch { rt, group, slot, work, .. } = launch;
        let budgeted = slot.budget_us.load(Relaxed) != 0;
        let ask = AtGate { word: gate.bits(), can_prequeue: work.may_prequeue, loads: work.loads, has_gates, budgeted };
        let mut issued = 0;
        let prequeues = admission::at_gate(&ask, || {
            group.refresh(rt);
            issued = rt.queues_of(group).map(|q| q.timeline.open()).sum();
            issued
        });
        journal::record(|| Record::AtGate(ask, issued, prequeues));
        prequeues
    }

    /// Numbers the command, and takes the snapshot by which its fence and its gate are placed. `announced`: the last fence announces that
    /// a gate follows.
    #[inline]
    fn number(&self, launch: &Launch<'_>, passage: &Passage, before: u64, announced: bool) -> Place {
        let Launch { rt, slot, work, estimate, .. } = *launch;
        let (budget_us, budget_commands) = (slot.budget_us.load(Relaxed), slot.budget_commands.load(Relaxed));
        // A command behind a gate of the same grant epoch waits at that gate.
        let prequeued_epoch = &self.device_gates.prequeued_epoch;
        let first_prequeued = passage.prequeued.is_some_and(|epoch| prequeued_epoch.swap(epoch, Relaxed) != epoch);
        // Without a budget nothing waits for room.
        let batch = if budget_us == 0 && budget_commands == 0 { 0 } else { slot.batch_commands.load(Relaxed) };
        launch.note_length(budget_us);
        let (fenced, fenced_ns) = self.timeline.fenced();
        let estimate_ns = launch.estimate_ns();
        let (seq, issued_ns) = self.timeline.issue(estimate_ns);
        Place {
            seq,
            estimate_ns: estimate,
            issued_ns: issued_ns - estimate_ns,
            fenced,
            fenced_ns,
            gated_ns: self.device_gates.before_ns.load(Relaxed),
            before,
            budget_us,
            fence_commands: admission::fence_commands(budget_commands, batch),
            gate_due: first_prequeued || announced && passage.has_gates && budget_us != 0,
            has_gates: passage.has_gates,
            forced: rt.forced_level().is_some(),
            in_order: self.in_order(),
            calls_back: self.calls_back(),
            blocking: work.blocking,
        }
    }

    /// Decides about the fence behind the command and the gate before it, and records the gate. A command of a group that `yields`
    /// may do without a fence.
    #[inline]
    fn place(&self, launch: &Launch<'_>, ask: &Place, yields: bool) -> Placed {
        let Launch { rt, slot, work, estimate, .. } = *launch;
        let known = estimate.is_some();
        let command = Behind { known, blocking: work.blocking, copies: work.copies, ..Behind::default() };
        let publishes = slot.publishes.load(Relaxed) != 0 && slot.gate.load().tells();
        let published = publishes && self.publish(rt, command, ask.issued_ns + launch.estimate_ns(), ask.fenced_ns);
        let mut placed = admission::place(ask, || self.busy_others(rt), || self.fences.are_few());
        journal::record(|| Record::Place(*ask, self.busy_others(rt), self.fences.are_few(), placed));
        if yields && placed.fence {
            let keeps_up = !self.is_followed(rt);
            let leaves_out = admission::leaves_out(ask, keeps_up);
            journal::record(|| Record::LeavesOut(*ask, keeps_up, leaves_out));
            placed.fence = !leaves_out;
        }
        placed.fence |= published;
        if placed.device_gate {
            self.device_gates.before_ns.store(ask.issued_ns, Relaxed);
            self.device_gates.seq.store(ask.seq, Relaxed);
            if ask.forced {
                slot.untold_gates.store(1, Relaxed);
            }
        }
        placed
    }

    /// Takes the driver's answer to an admitted command. Returns the fence to complete later if the driver took the command and its
    /// completion is to be followed. `counter` is the one given to [`XQueue::admit`].
    pub fn commit(
        &self,
        rt: &'static Runtime,
        admission: &Admission,
        accepted: bool,
        counter: &Counter,
    ) -> Option<CompletionFence> {
        rt.poke_if_due();
        if !admission.numbered {
            if !accepted {
                idle::uncount::<Hardware>(&counter.launches);
            }
            return None;
        }
        if !accepted {
            let withdrawn = self.timeline.withdraw(admission.seq, admission.estimate_ns, self.in_order());
            self.publication.want_again();
            self.settle(rt);
            if withdrawn {
                rt.groups[usize::from(admission.group)].update_idle_state(rt);
            }
            return None;
        }
        counter.tracked.store(counter.tracked.load(Relaxed).wrapping_add(1), Relaxed);
        if !admission.blocking && !admission.fenced {
            return None;
        }
        let covers = || Fence {
            seq: admission.seq,
            issued_ns: self.timeline.issued_ns(),
            estimate_ns: admission.estimate_ns,
            key: admission.key,
            epoch: (!admission.unmeasured).then(|| self.group(rt).slot(rt).grants.load(Relaxed)),
            ..Fence::default()
        };
        if admission.blocking {
            let fence = self.covering(covers(), admission.group, self.counted(rt), FenceKind::default());
            self.finish(rt, &fence);
            self.settle(rt);
            // No callback reports a command that blocks.
            if self.timeline.is_numbered_complete() {
                rt.groups[usize::from(admission.group)].update_idle_state(rt);
            }
            return None;
        }
        let kind = FenceKind { apart: false, gate_follows: admission.gate_follows };
        let fence = self.new_fence(rt, covers, admission.group, kind);
        match fence {
            Some(_) if admission.gate_follows => self.fences.gate_follows.store(true, Relaxed),
            Some(_) => (),
            None => self.publication.want_again(),
        }
        fence
    }

    /// Makes the fence before the gate of an [`Admission::untold_gate`], which announces that gate. The caller places it.
    pub fn fence_before_gate(&self, rt: &Runtime, admission: &Admission) -> CompletionFence {
        let epoch = (!admission.prequeued).then(|| self.group(rt).slot(rt).grants.load(Relaxed));
        let covers = Fence { seq: admission.seq - 1, issued_ns: admission.before_ns, epoch, ..Fence::default() };
        self.new_fence_before_gate(rt, covers, admission.group)
    }
}
