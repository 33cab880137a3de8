//! Waiting for the in-flight budget, and what of it is used.

use core::sync::atomic::Ordering::*;

use xsched_flow::admission::{self, Budget, InFlight, Pause};
use xsched_flow::journal::Record;
use xsched_flow::tuning::{BUDGET_SLEEP_NS, TIMER_SLACK_NS, UNKNOWN_NS};
use xsched_flow::watchdog::{override_commands, patience_ns};
use xsched_proto::memory::Woken;

use crate::clock::now_ns;
use crate::group::Group;
use crate::journal;
use crate::queue::XQueue;
use crate::runtime::Runtime;
use crate::waiting::{Interruptible, start_waiting, stop_waiting};

impl XQueue {
    /// Waits until one more command of `estimate_ns` fits into the budget. False: the gate closed meanwhile.
    pub(super) fn within_budget(&self, rt: &'static Runtime, group: &Group, estimate_ns: u64) -> bool {
        let slot = group.slot(rt);
        let has_gates = self.has_gates(rt, slot.level.load(Relaxed)) && !slot.gate.load().yields();
        let budget = Budget::new(slot.budget_us.load(Relaxed), slot.budget_commands.load(Relaxed), has_gates);
        if budget.is_none() {
            return true;
        }
        let fits = |tells| self.fits(rt, group, &budget, estimate_ns, tells);
        if fits(true) || {
            rt.refresh(group);
            fits(true)
        } {
            group.overrides_in_a_row.store(0, Relaxed);
            group.override_credit.store(0, Relaxed);
            return true;
        }
        if group.override_credit.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_ok() {
            slot.liveness_overrides.fetch_add(1, Relaxed);
            return true;
        }
        self.wait_for_budget(rt, group, &budget, || fits(false))
    }

    /// Whether the command fits now. The journal is told of a command that fits and, where it `tells`, of one that does not.
    fn fits(&self, rt: &Runtime, group: &Group, budget: &Budget, estimate_ns: u64, tells: bool) -> bool {
        let add = |a: InFlight, b: InFlight| InFlight { commands: a.commands + b.commands, ns: a.ns + b.ns };
        let in_flight = rt.queues_of(group).map(XQueue::in_flight).fold(InFlight::default(), add);
        let mut consumed_ns = 0;
        // What the running command has used up takes a lock and the time.
        let fits = admission::fits(budget, &in_flight, estimate_ns, || {
            consumed_ns = self.consumed_ns();
            consumed_ns
        });
        if fits || tells {
            journal::record(|| Record::Fits(*budget, in_flight, estimate_ns, consumed_ns, fits));
        }
        fits
    }

    /// See [`XQueue::within_budget`].
    fn wait_for_budget(&self, rt: &'static Runtime, group: &Group, budget: &Budget, fits: impl Fn() -> bool) -> bool {
        let slot = group.slot(rt);
        slot.limited.fetch_add(1, Relaxed);
        rt.poke_if_due();
        rt.flush(group);
        let uncounted_ns = |q: &XQueue| q.timeline.open_counted(q.counted(rt)) * UNKNOWN_NS;
        let expected_ns = rt.queues_of(group).map(|q| q.in_flight().ns + uncounted_ns(q)).sum::<u64>();
        let patience = patience_ns(budget.ns, expected_ns);
        journal::record(|| Record::Patience(budget.ns, expected_ns, patience));
        let polled = !self.calls_back();
        let began = now_ns();
        let mut since = began;
        start_waiting(rt, group);
        let wait = Interruptible::begin(began);
        group.progress.begin_wait();
        // Grants may be shorter than the patience: what was waited in one counts in the next.
        let waited_before = |seen| match self.waited_since.load(Relaxed) == seen {
            true => self.waited_ns.load(Relaxed),
            false => 0,
        };
        let slack = rustix::thread::current_timer_slack();
        let _ = rustix::thread::set_current_timer_slack(core::num::NonZeroU64::new(TIMER_SLACK_NS));
        let ok = loop {
            let seen = group.progress.seen();
            let gate = slot.gate.load();
            if !gate.is_open() && !gate.yields() || self.group.load(Relaxed) != group.index {
                self.waited_ns.store(waited_before(seen) + now_ns().saturating_sub(since), Relaxed);
                self.waited_since.store(seen, Relaxed);
                break false;
            }
            if polled {
                rt.refresh(group);
            }
            if fits() {
                break true;
            }
            let waited = waited_before(seen) + now_ns().saturating_sub(since);
            if waited >= patience {
                self.waited_ns.store(0, Relaxed);
                slot.liveness_overrides.fetch_add(1, Relaxed);
                let row = group.overrides_in_a_row.fetch_add(1, Relaxed);
                let commands = override_commands(row);
                journal::record(|| Record::Override(row, commands));
                group.override_credit.store(commands, Relaxed);
                break true;
            }
            let limit = if polled {
                let due_ns = self.next_completion_ns(now_ns());
                match admission::pause(due_ns) {
                    Pause::Awake => {
                        rustix::thread::sched_yield();
                        continue;
                    }
                    Pause::Sleep(ns) => {
                        journal::record(|| Record::Pause(due_ns, Pause::Sleep(ns)));
                        ns
                    }
                }
            } else {
                patience - waited
            };
            if group.progress.sleep(seen, limit.min(BUDGET_SLEEP_NS)) == Woken::Signal && wait.signal_ends() {
                slot.signal_overrides.fetch_add(1, Relaxed);
                break true;
            }
            if group.progress.seen() != seen {
                since = now_ns();
            }
        };
        if let Ok(slack) = slack {
            let _ = rustix::thread::set_current_timer_slack(core::num::NonZeroU64::new(slack));
        }
        drop(wait);
        group.progress.end_wait();
        stop_waiting(rt);
        rt.at_bound_ns.fetch_add(now_ns().saturating_sub(began), Relaxed);
        ok
    }

    /// Whether its commands get gates on the device (level 2), more or less often.
    pub(super) fn has_gates(&self, rt: &Runtime, level: u32) -> bool {
        level >= 2 && rt.has_one_group() && !rt.is_cross_stream()
    }

    /// When the next fence should be reached, in ns from now; negative = that time has passed.
    fn next_completion_ns(&self, now: u64) -> i64 {
        let Ok(fences) = self.fences.try_lock() else { return 0 };
        let Some(fence) = fences.front() else { return i64::MIN / 2 };
        let took = fence.covers.issued_ns.saturating_sub(self.timeline.done().ns);
        (self.last_done_at.load(Relaxed).max(fence.covers.at_ns) + took).wrapping_sub(now) as i64
    }

    /// What the device has probably done of the commands up to the next fence, in ns: never more than they take.
    pub(crate) fn consumed_ns(&self) -> u64 {
        let Ok(fences) = self.fences.try_lock() else { return 0 };
        let Some(fence) = fences.front() else { return 0 };
        let took = fence.covers.issued_ns.saturating_sub(self.timeline.done().ns);
        now_ns().saturating_sub(self.last_done_at.load(Relaxed).max(fence.covers.at_ns)).min(took)
    }
}
