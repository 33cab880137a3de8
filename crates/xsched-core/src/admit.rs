//! The slow path into the driver: takes the snapshots for [`xsched_flow::admission`], waits, and publishes the answer.

use core::sync::atomic::Ordering::*;

use xsched_flow::admission::{self, AtGate, Place};
use xsched_flow::backlog::Behind;
use xsched_flow::estimate::Fence;
use xsched_flow::journal::Record;
use xsched_flow::tuning::{BEHIND_NS, FEW_FENCES, UNKNOWN_NS};
use xsched_flow::watchdog::epoch;
use xsched_proto::gate::Gate;
use xsched_proto::memory::Hardware;
use xsched_proto::segment::Counter;

use crate::fast_path::take_inspected;
use crate::group::Group;
use crate::origin::Way;
use crate::protocol::{idle, park::Left};
use crate::queue::{CompletionFence, FenceKind, XQueue};
use crate::runtime::Runtime;
use crate::waiting::stop_waiting;
use crate::{inspect, journal};

mod budget;

/// What the core must know of one command before it is handed to the driver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Names the kind of command (function and grid) for the estimate of its device time; 0 = unknown.
    pub key: u64,
    /// The call returns when the command is complete.
    pub blocking: bool,
    /// The command waits for something that only the application provides (a user event): the budget leaves it alone.
    pub unbounded: bool,
    /// The driver takes the command at once, whatever its queue waits for: it may be given while the gate is closed, to wait
    /// behind a gate on the device.
    pub may_prequeue: bool,
    /// The driver may load code for it.
    pub loads: bool,
    /// A copy and nothing else: see [`xsched_flow::backlog::Behind`].
    pub copies: bool,
    /// The longest part of it without a gate inside, in [`PARTS`](crate::PARTS) of the whole. 0 = no command of its kind ever had
    /// gates inside.
    pub part: u16,
}

/// Permission to call the driver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Admission {
    /// The command's completion is to be followed: give its event to [`XQueue::commit`]'s [`CompletionFence`].
    pub fenced: bool,
    /// Put a device gate before the command (level 2).
    pub device_gate: bool,
    /// First put a fence there, see [`XQueue::fence_before_gate`]: the last one does not tell of the gate.
    pub untold_gate: bool,
    /// The host gate is closed: without that gate the command must wait, see [`XQueue::wait_turn`].
    pub prequeued: bool,
    /// The call is to be made between [`Runtime::begin_load`] and [`Runtime::end_load`].
    pub loads: bool,
    numbered: bool,
    /// The fence behind it says that a gate follows.
    gate_follows: bool,
    /// It is given while the gate is closed: its time teaches nothing.
    unmeasured: bool,
    seq: u64,
    /// Expected time of all before it, in ns.
    before_ns: u64,
    estimate_ns: u64,
    key: u64,
    blocking: bool,
    group: u16,
}

impl Admission {
    /// The command is only counted.
    fn set_counted(&mut self, group: &Group, work: &Work) {
        *self = Admission { blocking: work.blocking, group: group.index, ..Admission::default() };
    }
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
            // Only the daemon's answer may have said that launches are looked at.
            way = self.way(rt, way, counter);
            if way == Way::Regroup {
                way = Way::Gate;
                rt.change_domain(self);
                continue;
            }
            if !contended {
                // Detached for good is unscheduled; detached because the queue moved to another group is not.
                if group.slot(rt).gate.load().is_detached() && !self.is_of(group) {
                    continue;
                }
                return admission.set_counted(group, &work);
            }
            idle::uncount::<Hardware>(&counter.launches);
            if self.enter(rt, group, &work, counter, way == Way::Exempt, admission) {
                return;
            }
            // `hint --queue` gave the queue to another group, whose gate counts now; the old one may have nothing left.
            group.update_idle_state(rt);
            counter.launches.store(counter.launches.load(Relaxed).wrapping_add(1), Release);
        }
    }

    /// How the launch under way goes on. It is looked at if that is wanted and was not done yet.
    fn way(&self, rt: &Runtime, known: Way, counter: &Counter) -> Way {
        let slot = self.group(rt).slot(rt);
        if known == Way::Unknown && slot.gate.peek().is_inspected() {
            return inspect::launch(self, slot, counter);
        }
        known
    }

    fn is_of(&self, group: &Group) -> bool {
        self.group.load(Acquire) == group.index
    }

    /// Announces what must be announced. False: the launch goes on without a look at gate and budget, since the group is detached
    /// or has no rivals.
    fn is_contended(&self, rt: &'static Runtime, group: &Group) -> bool {
        let slot = group.slot(rt);
        let mut gate = slot.gate.load();
        if gate.is_detached() {
            rt.await_registration(group);
            gate = slot.gate.load();
            if gate.is_detached() {
                slot.unscheduled_attach.fetch_add(self.is_of(group).into(), Relaxed);
                return false;
            }
        }
        if gate.must_announce() {
            group.announce(rt);
        }
        if gate.is_stalled() {
            group.go_on(rt);
        }
        group.end_grace();
        gate = slot.gate.load();
        let contended = gate.is_contended() || !gate.is_open();
        if contended && gate.is_bypassed() {
            // What that was for may be over.
            group.set_device_gates(rt);
        }
        contended
    }

    /// Waits for gate and budget unless the launch is exempt, numbers the command and places what goes with it. False: the queue
    /// moved to another group.
    fn enter(
        &self,
        rt: &'static Runtime,
        group: &Group,
        work: &Work,
        counter: &Counter,
        exempt: bool,
        admission: &mut Admission,
    ) -> bool {
        let slot = group.slot(rt);
        let before = counter.total();
        let estimate = rt.estimates.get(work.key);
        let estimate_ns = estimate.unwrap_or(UNKNOWN_NS);
        let mut has_gates = self.has_gates(rt, slot.level.load(Relaxed));
        if has_gates && self.joins_others(rt) {
            rt.note_cross_stream();
            has_gates = self.has_gates(rt, slot.level.load(Relaxed));
        }
        let (mut prequeued, mut passed_closed, mut yields) = (None, false, false);
        loop {
            // Read the epoch before the gate. If it advances in between, one device gate too many is placed, never too few.
            let grants = slot.grants.load(Acquire);
            let gate = slot.gate.load();
            if exempt {
                passed_closed = !gate.is_open();
                slot.exempt.fetch_add(passed_closed.into(), Relaxed);
                break;
            }
            if !gate.is_open() && gate.yields() {
                // The budget first: what it waits for, the company of others included, may be over at the end of a wait.
                let fits = work.unbounded || self.within_budget(rt, group, estimate_ns);
                if fits && (group.lets_go_on(rt, gate) || group.wait_for_company(rt)) {
                    // Gates on the device stand open.
                    (has_gates, yields) = (false, true);
                    break;
                }
                if !self.is_of(group) {
                    return false;
                }
                continue;
            }
            if !gate.is_open() {
                if self.prequeues(rt, group, work, gate, has_gates) {
                    prequeued = Some(epoch(grants));
                    break;
                }
                if group.wait_open(rt, || rt.flush(group), || self.is_of(group)) == Left::Signal {
                    break;
                }
            }
            if !self.is_of(group) {
                return false;
            }
            if work.unbounded || self.within_budget(rt, group, estimate_ns) {
                break;
            }
        }
        // Whatever it waited for, no daemon holds the gate any more.
        if slot.gate.load().is_detached() {
            slot.unscheduled_attach.fetch_add(self.is_of(group).into(), Relaxed);
        }
        let (budget_us, budget_commands) = (slot.budget_us.load(Relaxed), slot.budget_commands.load(Relaxed));
        // What comes behind a gate of this very epoch waits with it.
        let first_prequeued = prequeued.is_some_and(|epoch| self.gated_epoch.swap(epoch, Relaxed) != epoch);
        let told = self.gate_follows.load(Relaxed) && self.gate_follows.swap(false, Relaxed);
        // Without a budget nothing waits for room.
        let batch = if budget_us == 0 && budget_commands == 0 { 0 } else { slot.batch_commands.load(Relaxed) };
        if work.part != 0 {
            rt.estimates.note_part(work.key, work.part);
        }
        if budget_us != 0
            && let Some(ns) = estimate
        {
            group.note_length(slot, ns, work.part);
            if ns > BEHIND_NS {
                slot.limited.fetch_add(1, Relaxed);
            }
        }
        let (fenced, fenced_ns) = self.timeline.fenced();
        let (seq, issued_ns) = self.timeline.issue(estimate_ns);
        let ask = Place {
            seq,
            estimate_ns: estimate,
            issued_ns: issued_ns - estimate_ns,
            fenced,
            fenced_ns,
            gated_ns: self.gated_ns.load(Relaxed),
            before,
            budget_us,
            fence_commands: admission::fence_commands(budget_commands, batch),
            gate_due: first_prequeued || told && has_gates && budget_us != 0,
            has_gates,
            forced: rt.forced_level().is_some(),
            in_order: self.in_order(),
            calls_back: self.calls_back(),
            blocking: work.blocking,
        };
        let known = estimate.is_some();
        let command = Behind { known, blocking: work.blocking, copies: work.copies, ..Behind::default() };
        let tells = slot.publishes.load(Relaxed) != 0 && slot.gate.load().tells();
        let published = tells && self.publish(rt, command, issued_ns, fenced_ns);
        let mut placed = admission::place(&ask, || self.busy_others(rt), || self.has_few_fences());
        journal::record(|| Record::Place(ask, self.busy_others(rt), self.has_few_fences(), placed));
        if yields && placed.fence {
            let keeps_up = !self.is_followed(rt);
            let leaves_out = admission::leaves_out(&ask, keeps_up);
            journal::record(|| Record::LeavesOut(ask, keeps_up, leaves_out));
            placed.fence = !leaves_out;
        }
        placed.fence |= published;
        if placed.device_gate {
            self.gated_ns.store(ask.issued_ns, Relaxed);
            self.gated.store(seq, Relaxed);
            if ask.forced {
                slot.untold_gates.store(1, Relaxed);
            }
        }
        // The agent may have called the group idle while this launch was counted nowhere.
        if group.readiness(rt).numbered() {
            group.announce(rt);
        }
        admission.fenced = placed.fence;
        admission.device_gate = placed.device_gate;
        admission.untold_gate = placed.device_gate && !told && ask.tells_of_gates();
        admission.gate_follows = admission::gate_follows(&ask, &placed);
        admission.prequeued = prequeued.is_some();
        admission.unmeasured = prequeued.is_some() || passed_closed;
        admission.loads = work.loads && has_gates && budget_us != 0;
        admission.numbered = true;
        admission.seq = seq;
        admission.before_ns = ask.issued_ns;
        admission.estimate_ns = estimate_ns;
        admission.key = work.key;
        admission.blocking = work.blocking;
        admission.group = group.index;
        true
    }

    /// Whether a command may be given while the gate is closed, to wait behind a gate on the device.
    fn prequeues(&self, rt: &Runtime, group: &Group, work: &Work, gate: Gate, has_gates: bool) -> bool {
        let budgeted = group.slot(rt).budget_us.load(Relaxed) != 0;
        let ask = AtGate { word: gate.bits(), can_prequeue: work.may_prequeue, loads: work.loads, has_gates, budgeted };
        let mut issued = 0;
        let prequeues = admission::at_gate(&ask, || {
            rt.refresh(group);
            issued = rt.queues_of(group).map(|q| q.timeline.open()).sum();
            issued
        });
        journal::record(|| Record::AtGate(ask, issued, prequeues));
        prequeues
    }

    pub(crate) fn has_few_fences(&self) -> bool {
        self.fences.try_lock().is_ok_and(|fences| fences.len() < FEW_FENCES)
    }

    /// Says what became of an admitted command. Returns the fence to complete later if the driver took it and its
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
            self.want_again();
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
            // No callback tells of it.
            if self.timeline.is_numbered_complete() {
                rt.groups[usize::from(admission.group)].update_idle_state(rt);
            }
            return None;
        }
        let kind = FenceKind { apart: false, gate_follows: admission.gate_follows };
        let fence = self.new_fence(rt, covers, admission.group, kind);
        match fence {
            Some(_) if admission.gate_follows => self.gate_follows.store(true, Relaxed),
            Some(_) => (),
            None => self.want_again(),
        }
        fence
    }

    /// The fence that comes before the gate of an [`Admission::untold_gate`], and says that this follows. The caller places it.
    pub fn fence_before_gate(&self, rt: &Runtime, admission: &Admission) -> CompletionFence {
        let epoch = (!admission.prequeued).then(|| self.group(rt).slot(rt).grants.load(Relaxed));
        let covers = Fence { seq: admission.seq - 1, issued_ns: admission.before_ns, epoch, ..Fence::default() };
        self.new_fence_before_gate(rt, covers, admission.group)
    }
}
