//! The wait for the in-flight budget.

use core::sync::atomic::Ordering::*;

use xsched_flow::admission::{self, Budget, InFlight, Pause};
use xsched_flow::journal::Record;
use xsched_flow::tuning::{BUDGET_SLEEP_NS, UNKNOWN_NS};
use xsched_flow::watchdog::patience_ns;
use xsched_proto::memory::Woken;

use crate::clock::now_ns;
use crate::group::Group;
use crate::journal;
use crate::queue::XQueue;
use crate::runtime::Runtime;
use crate::waiting::{Interruptible, PromptSleeps, start_waiting, stop_waiting};

impl XQueue {
    /// Waits until one more command of `estimate_ns` fits into the budget. False: the gate closed meanwhile.
    pub(super) fn within_budget(&self, rt: &'static Runtime, group: &Group, estimate_ns: u64) -> bool {
        let slot = group.slot(rt);
        let has_gates = self.has_gates(rt, slot.level.load(Relaxed)) && !slot.gate.load().yields();
        let budget = Budget::new(slot.budget_us.load(Relaxed), slot.budget_commands.load(Relaxed), has_gates);
        if budget.is_none() {
            return true;
        }
        let fits = |records| self.fits(rt, group, &budget, estimate_ns, records);
        if fits(true) || {
            group.refresh(rt);
            fits(true)
        } {
            group.overrides.end();
            return true;
        }
        if group.overrides.use_credit() {
            slot.liveness_overrides.fetch_add(1, Relaxed);
            return true;
        }
        self.wait_for_budget(rt, group, &budget, || fits(false))
    }

    /// True: the command fits now. The journal records a command that fits and, where it `records`, one that does not.
    fn fits(&self, rt: &Runtime, group: &Group, budget: &Budget, estimate_ns: u64, records: bool) -> bool {
        let add = |a: InFlight, b: InFlight| InFlight { commands: a.commands + b.commands, ns: a.ns + b.ns };
        let in_flight = rt.queues_of(group).map(XQueue::in_flight).fold(InFlight::default(), add);
        let mut consumed_ns = 0;
        // The progress of the running command takes a lock and the time: it is read only where it decides.
        let fits = admission::fits(budget, &in_flight, estimate_ns, || {
            consumed_ns = self.consumed_ns();
            consumed_ns
        });
        if fits || records {
            journal::record(|| Record::Fits(*budget, in_flight, estimate_ns, consumed_ns, fits));
        }
        fits
    }

    /// Waits for room in the budget, see [`XQueue::within_budget`].
    fn wait_for_budget(&self, rt: &'static Runtime, group: &Group, budget: &Budget, fits: impl Fn() -> bool) -> bool {
        group.slot(rt).limited.fetch_add(1, Relaxed);
        rt.poke_if_due();
        group.flush(rt);
        let patience_ns = self.budget_patience_ns(rt, group, budget);
        let began = now_ns();
        start_waiting(rt, group);
        let thread = Interruptible::begin(began);
        group.progress.begin_wait();
        let prompt = PromptSleeps::begin();
        let mut wait = RoomWait { rt, queue: self, group, patience_ns, since: began };
        let admitted = loop {
            match wait.step(&thread, &fits) {
                Step::Again => {}
                Step::Admitted => break true,
                Step::GateClosed => break false,
            }
        };
        drop(prompt);
        drop(thread);
        group.progress.end_wait();
        stop_waiting(rt);
        rt.waits.for_budget_ns.fetch_add(now_ns().saturating_sub(began), Relaxed);
        admitted
    }

    /// Time without progress after which a command is admitted over budget, in ns: longer than the commands in flight should take.
    fn budget_patience_ns(&self, rt: &Runtime, group: &Group, budget: &Budget) -> u64 {
        let uncounted_ns = |q: &XQueue| q.timeline.open_counted(q.counted(rt)) * UNKNOWN_NS;
        let expected_ns = rt.queues_of(group).map(|q| q.in_flight().ns + uncounted_ns(q)).sum::<u64>();
        let patience_ns = patience_ns(budget.ns, expected_ns);
        journal::record(|| Record::Patience(budget.ns, expected_ns, patience_ns));
        patience_ns
    }

    /// True: its commands get gates on the device (level 2), more or less often.
    pub(super) fn has_gates(&self, rt: &Runtime, level: u32) -> bool {
        level >= 2 && rt.has_one_group() && !rt.gate_conditions.is_cross_stream()
    }
}

/// Outcome of one step of a wait for room in the budget.
enum Step {
    Again,
    Admitted,
    /// The gate closed, or the queue moved to another group.
    GateClosed,
}

/// A thread's wait for room in the budget.
struct RoomWait<'a> {
    rt: &'a Runtime,
    queue: &'a XQueue,
    group: &'a Group,
    patience_ns: u64,
    /// Beginning of the wait, or the time at which something was complete last, in ns.
    since: u64,
}

impl RoomWait<'_> {
    /// Checks the gate, the room and the patience, and sleeps until one of them may have changed.
    fn step(&mut self, thread: &Interruptible, fits: impl Fn() -> bool) -> Step {
        let completions = self.group.progress.seen();
        let gate = self.group.slot(self.rt).gate.load();
        if !gate.is_open() && !gate.yields() || !self.queue.is_in(self.group.index) {
            // Grants may be shorter than the patience: a wait in one counts in the next.
            self.queue.budget_wait.keep(self.waited_ns(completions), completions);
            return Step::GateClosed;
        }
        if self.is_polled() {
            self.group.refresh(self.rt);
        }
        if fits() {
            return Step::Admitted;
        }
        let waited_ns = self.waited_ns(completions);
        if waited_ns >= self.patience_ns {
            self.override_budget();
            return Step::Admitted;
        }
        let Some(sleep_ns) = self.sleep_ns(waited_ns) else {
            rustix::thread::sched_yield();
            return Step::Again;
        };
        if self.group.progress.sleep(completions, sleep_ns) == Woken::Signal && thread.signal_ends() {
            self.group.slot(self.rt).signal_overrides.fetch_add(1, Relaxed);
            return Step::Admitted;
        }
        if self.group.progress.seen() != completions {
            self.since = now_ns();
        }
        Step::Again
    }

    /// True: completions are found by polling the completion word; no call reports them.
    fn is_polled(&self) -> bool {
        !self.queue.calls_back()
    }

    /// Time without progress so far, in ns, with the one in earlier grants.
    fn waited_ns(&self, completions: u32) -> u64 {
        self.queue.budget_wait.waited_ns(completions) + now_ns().saturating_sub(self.since)
    }

    /// Admits the command over budget, and some more after it: liveness override.
    fn override_budget(&self) {
        self.queue.budget_wait.forget();
        self.group.slot(self.rt).liveness_overrides.fetch_add(1, Relaxed);
        self.group.overrides.begin();
    }

    /// Longest sleep before the next step, in ns; none = the next completion is too near for one.
    fn sleep_ns(&self, waited_ns: u64) -> Option<u64> {
        let limit_ns = if self.is_polled() {
            let due_ns = self.queue.next_completion_ns(now_ns());
            match admission::pause(due_ns) {
                Pause::Awake => return None,
                Pause::Sleep(ns) => {
                    journal::record(|| Record::Pause(due_ns, Pause::Sleep(ns)));
                    ns
                }
            }
        } else {
            self.patience_ns - waited_ns
        };
        Some(limit_ns.min(BUDGET_SLEEP_NS))
    }
}
