//! Completions of a queue's commands, and the fences by which they are known.

use core::sync::atomic::Ordering::*;

use xsched_flow::estimate::Fence;
use xsched_flow::journal::Record;
use xsched_flow::timeline::{Evidence, Point, Presumed, presumes};
use xsched_flow::tuning::{FENCE_COMMANDS, FENCES};

use crate::clock::now_ns;
use crate::group::Group;
use crate::journal;
use crate::queue::{CompletionFence, FenceKind, XQueue};
use crate::runtime::Runtime;

mod learn;

impl XQueue {
    pub(crate) fn is_quiet(&self, rt: &Runtime) -> bool {
        self.refresh(rt);
        self.timeline.is_complete(self.counted(rt))
    }

    pub(crate) fn finish(&self, rt: &Runtime, fence: &CompletionFence) {
        let commands = if self.in_order() {
            let at = Point { seq: fence.covers.seq, ns: fence.covers.issued_ns, counted: fence.counted };
            self.timeline.advance_to(at, Evidence::Fence, true)
        } else {
            self.timeline.complete_one(fence.covers.estimate_ns);
            1
        };
        let group = &rt.groups[usize::from(fence.group)];
        group.slot(rt).completed.fetch_add(commands, Relaxed);
        group.progress.advance();
    }

    /// Reads the completion word, where the device reports completions by one, and finishes the fences that it has reached.
    pub(crate) fn refresh(&self, rt: &Runtime) {
        if self.calls_back() {
            return;
        }
        let Some(mut fences) = self.fences.try_open() else { return };
        if fences.is_empty() {
            return;
        }
        let word = self.slot(rt).completed_word.load(Acquire);
        let now = now_ns();
        let late_ns = now.saturating_sub(self.seen.looked_at.swap(now, Relaxed));
        let n = fences.iter().take_while(|fence| word.wrapping_sub(fence.number) as i32 >= 0).count();
        if n == 0 {
            return;
        }
        let mut reached = [CompletionFence::default(); FENCES];
        let mut covered = [Fence::default(); FENCES];
        for (at, fence) in fences.drain(..n).enumerate() {
            (reached[at], covered[at]) = (fence, fence.covers);
        }
        let next = fences.front().map(|fence| fence.covers);
        drop(fences);
        self.learn_reached(rt, &covered[..n], next.as_ref(), now, late_ns);
        for fence in &reached[..n] {
            self.finish(rt, fence);
        }
    }

    /// True: a gate on the device may hold commands that the driver has already. In a process of several groups only commands from
    /// before there were several can be held so.
    pub fn is_held_on_device(&self, rt: &Runtime) -> bool {
        self.refresh(rt);
        self.device_gates.seq.load(Relaxed) > self.timeline.done().seq
    }

    /// True: a gate on the device holds some of its commands now, as far as is known.
    pub fn waits_for_turn(&self, rt: &Runtime) -> bool {
        !self.group(rt).slot(rt).gate.load().is_open_on_device() && self.is_held_on_device(rt)
    }

    /// True: some of its commands are followed by a fence that the device has not reached.
    pub(crate) fn is_followed(&self, rt: &Runtime) -> bool {
        self.refresh(rt);
        self.timeline.is_fenced()
    }

    /// Agent: presumes the queue's commands complete, if the evidence allows it. [`Evidence::Silence`] is for the rare polls: a
    /// program that uses a stream once and never waits for it would be busy for ever otherwise. [`Evidence::Overdue`] is for a group
    /// that drains, see [`xsched_flow::activity::Activity::is_late`].
    pub(crate) fn presume(&self, rt: &Runtime, evidence: Evidence) {
        let fenced = self.is_followed(rt);
        let end = self.timeline.end(self.counted(rt));
        let launches = end.counted.wrapping_add(end.seq);
        let silent = evidence == Evidence::Silence && self.seen.launches.swap(launches, Relaxed) == launches;
        let ask = Presumed {
            fenced,
            held: self.waits_for_turn(rt),
            in_order: self.in_order(),
            counted_done: self.timeline.open_counted(end.counted) == 0,
            silent,
        };
        let presumed = presumes(&ask, evidence);
        journal::record(|| Record::Presumes(ask, evidence, presumed));
        if presumed {
            let commands = self.timeline.advance_to(end, evidence, ask.in_order);
            self.group(rt).slot(rt).completed.fetch_add(commands, Relaxed);
        }
    }

    /// Polls a queue that the program fills by itself, which must not be destroyed meanwhile. `None` if it is no such queue; true if
    /// the device has something left to take.
    pub(crate) fn poll_filled(&self, rt: &Runtime) -> Option<bool> {
        let (given, taken) = self.platform(rt).filled(self)?;
        self.slot(rt).shared.launches.store(given, Release);
        let at = Point { counted: taken, ..Point::default() };
        let commands = self.timeline.advance_to(at, Evidence::Taken, true);
        self.group(rt).slot(rt).completed.fetch_add(commands, Relaxed);
        Some(given > taken)
    }

    /// Makes a fence for the end of the commands numbered so far, if no fence follows it yet. The caller places it, as a marker
    /// command or the like, and completes it.
    pub fn fence_suffix(&self, rt: &Runtime) -> Option<CompletionFence> {
        if !self.in_order() || self.timeline.is_all_fenced(self.counted(rt)) || self.is_quiet(rt) {
            return None;
        }
        let covers = || {
            let end = self.timeline.end(0);
            Fence { seq: end.seq, issued_ns: end.ns, ..Fence::default() }
        };
        self.new_fence(rt, covers, self.group.load(Relaxed), FenceKind { apart: true, gate_follows: false })
    }

    /// Makes a fence behind a command or, apart, behind all of them; none if too many are open. The fence covers all commands up to
    /// it, and is made with the fences locked, so that their order is that of their numbers.
    pub(crate) fn new_fence(
        &self,
        rt: &Runtime,
        covers: impl FnOnce() -> Fence,
        group: u16,
        kind: FenceKind,
    ) -> Option<CompletionFence> {
        let calls_back = self.calls_back();
        let mut fences = (!calls_back).then(|| self.fences.open());
        if fences.as_ref().is_some_and(|fences| fences.len() >= FENCES) {
            return None;
        }
        let fence = self.covering(covers(), group, self.counted(rt), kind);
        if let Some(fences) = &mut fences {
            fences.push_back(fence);
            self.slot(rt).fence.store(fence.number, Relaxed);
        }
        Some(fence)
    }

    /// Makes a fence for all commands before a gate on the device that is about to be placed. Where too many are open, or one covers
    /// those commands already, the new fence only announces the gate.
    pub(crate) fn new_fence_before_gate(&self, rt: &Runtime, covers: Fence, group: u16) -> CompletionFence {
        let kind = FenceKind { apart: true, gate_follows: true };
        let mut fences = self.fences.open();
        let fence = if fences.len() < FENCES && self.timeline.fenced().0 < covers.seq {
            let fence = self.covering(covers, group, self.counted(rt), kind);
            fences.push_back(fence);
            fence
        } else {
            CompletionFence { number: self.fences.next_number(kind.gate_follows), ..CompletionFence::default() }
        };
        self.slot(rt).fence.store(fence.number, Relaxed);
        fence
    }

    /// Withdraws a fence that could not be placed: the next command gets one.
    pub fn withdraw(&self, rt: &Runtime, fence: &CompletionFence) {
        self.publication.want_again();
        let mut fences = self.fences.open();
        fences.retain(|m| m.number != fence.number);
        let slot = self.slot(rt);
        let last = fences.back().map_or_else(|| slot.completed_word.load(Relaxed), |fence| fence.number);
        slot.fence.store(last, Relaxed);
        self.fences.gate_follows.store(false, Relaxed);
        drop(fences);
        // A fence that covers no command only announced a gate.
        if fence.covers.commands > 0 {
            self.timeline.unfence(fence.covers.seq, fence.covers.commands.max(FENCE_COMMANDS));
        }
    }

    /// Expected time until the device reaches the next fence, in ns; negative = that time has passed.
    pub(crate) fn next_completion_ns(&self, now: u64) -> i64 {
        let Some(fences) = self.fences.try_open() else { return 0 };
        let Some(fence) = fences.front() else { return i64::MIN / 2 };
        let took = fence.covers.issued_ns.saturating_sub(self.timeline.done().ns);
        (self.seen.done_at.load(Relaxed).max(fence.covers.at_ns) + took).wrapping_sub(now) as i64
    }

    /// Estimate of the work that the device has done of the commands up to the next fence, in ns: never more than they take.
    pub(crate) fn consumed_ns(&self) -> u64 {
        let Some(fences) = self.fences.try_open() else { return 0 };
        let Some(fence) = fences.front() else { return 0 };
        let took = fence.covers.issued_ns.saturating_sub(self.timeline.done().ns);
        now_ns().saturating_sub(self.seen.done_at.load(Relaxed).max(fence.covers.at_ns)).min(took)
    }
}

impl Group {
    /// True: the agent must poll for its completions, or poll the group itself since it has no queue left that could report any.
    pub fn is_polled(&self, rt: &Runtime) -> bool {
        let mut queues = rt.queues_of(self).peekable();
        queues.peek().is_none() || queues.any(|q| !q.calls_back())
    }

    /// True: all commands of its queues are known to be complete.
    pub fn is_quiet(&self, rt: &Runtime) -> bool {
        rt.queues_of(self).all(|q| q.is_quiet(rt))
    }

    /// Takes note of the completions on its queues that the device has reported.
    pub(crate) fn refresh(&self, rt: &Runtime) {
        rt.queues_of(self).for_each(|q| q.refresh(rt));
    }

    /// Agent: presumes commands complete whose completion nothing reports, if the evidence allows it: see [`Evidence::Silence`],
    /// [`Evidence::Overdue`]. Silence means nothing while a thread waits.
    pub fn presume(&self, rt: &Runtime, evidence: Evidence) {
        if evidence != Evidence::Silence || !self.is_waited_for(rt) {
            rt.queues_of(self).for_each(|q| q.presume(rt, evidence));
        }
    }
}
