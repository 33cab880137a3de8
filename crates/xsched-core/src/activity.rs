//! Activity of a group: it announces itself when it wants the device, is drained when its commands are complete, and is idle when
//! none follow for a while.

use core::sync::atomic::Ordering::*;
use std::sync::PoisonError;

use xsched_flow::activity::{Activity, Step, View};
use xsched_flow::journal::Record;
use xsched_flow::tuning::FILLED_LOOK_NS;
use xsched_proto::gate::Gate;

use crate::clock::now_ns;
use crate::group::{Given, Group};
use crate::journal;
use crate::protocol::registration::{Answered, Registration};
use crate::queue::{CompletionFence, XQueue};
use crate::runtime::Runtime;

/// A burst that ends.
struct Ended {
    /// Bursts before it.
    bursts: u64,
    /// Launches of the group's queues until then.
    launches: u64,
    /// Length, in µs.
    us: u64,
    /// Expected device time of its commands, in µs; 0 = unknown.
    device_us: u64,
    /// Time since which the daemon has not noticed announcements, in ns.
    unheard_ns: Option<u64>,
}

impl Group {
    fn given(&self, rt: &Runtime) -> Given {
        let begin = Given { launches: self.launches(rt), ..Given::default() };
        rt.queues_of(self).fold(begin, |sum, q| Given {
            numbered: sum.numbered + q.timeline.issued(),
            ns: sum.ns + q.timeline.issued_ns(),
            ..sum
        })
    }

    /// Begins a burst at an announcement, unless one goes on: the agent asks for announcements before it decides that a burst is over,
    /// and may decide that it is not. Notes the time, and the work that its queues were given before.
    fn begin_burst(&self, rt: &Runtime) {
        if !self.burst.over.swap(false, AcqRel) {
            return;
        }
        self.slot(rt).ready_at_ns.store(rt.daemon_page.daemons_ns(now_ns()), Relaxed);
        *self.burst.from.lock().unwrap_or_else(PoisonError::into_inner) = self.given(rt);
    }

    /// Expected device time of the burst's commands so far, in µs; 0 = unknown, since some of them were counted and not numbered.
    fn burst_device_us(&self, rt: &Runtime) -> u64 {
        let from = *self.burst.from.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.given(rt);
        let launches = now.launches.saturating_sub(from.launches);
        let numbered = now.numbered.saturating_sub(from.numbered);
        // The launch that began the burst may be counted on either side.
        if numbered + 1 < launches { 0 } else { now.ns.saturating_sub(from.ns) / 1_000 }
    }

    /// Announces that the group wants the device, if the daemon does not know yet. The agent, which polls for completions, has time
    /// until there is something to poll for: see [`Runtime::poke_if_due`].
    pub(crate) fn announce(&self, rt: &Runtime) {
        if self.readiness(rt).announce(|| self.begin_burst(rt)) {
            rt.notify_daemon();
            rt.port.poke_due.store(true, Release);
        }
    }

    /// Notifies the daemon of a launch in a group that it presumed idle because it made no progress.
    #[cold]
    pub(crate) fn end_stall(&self, rt: &Runtime) {
        if self.slot(rt).gate.go_on() {
            rt.notify_daemon();
        }
    }

    /// Checks if a completion, or the end of a synchronising call, has emptied the group. Without rivals this is not urgent: the
    /// agent's rare polls are enough, and cost the program nothing.
    pub fn update_idle_state(&self, rt: &Runtime) {
        if self.is_contended(rt) {
            self.update_idle_state_always(rt);
        }
    }

    /// Checks if the group is empty, beside rivals or not: reports it drained, or begins its grace time.
    pub(crate) fn update_idle_state_always(&self, rt: &Runtime) {
        // The gate is read first: behind a closed one nothing new is given while the queues are checked.
        let gate = self.slot(rt).gate.load();
        let complete = gate.must_announce() || self.is_quiet(rt);
        let view = self.view(rt, gate, complete, now_ns());
        journal::record(|| Record::activity(view));
        match Activity::of(&view).step() {
            Step::Nothing => {}
            Step::TellDrained => self.report_drained(rt),
            Step::BeginGrace => {
                if self.grace.begin(view.now_ns, self.slot(rt)) {
                    rt.agent_by(view.now_ns + self.grace.ends_ns());
                }
            }
        }
    }

    /// Snapshot that [`Activity`] follows from; `complete` = all commands of the group are known to be.
    fn view(&self, rt: &Runtime, gate: Gate, complete: bool, now_ns: u64) -> View {
        View {
            word: gate.bits(),
            told: self.slot(rt).state.load(Acquire),
            complete,
            waiters: self.waiting.load(Acquire),
            waits_since_ns: self.waits_since.load(Relaxed),
            grace_since_ns: self.grace.since.load(Relaxed),
            grace_ns: self.grace.ends_ns(),
            now_ns,
        }
    }

    /// Snapshot without a check of the queues: while the grace time runs they are complete.
    fn known(&self, rt: &Runtime, now: u64) -> View {
        let gate = self.slot(rt).gate.load();
        self.view(rt, gate, self.grace.since.load(Relaxed) != 0, now)
    }

    /// Activity of the group, as far as it is known without a check of its queues.
    pub fn activity(&self, rt: &Runtime, now: u64) -> Activity {
        let view = self.known(rt, now);
        journal::record(|| Record::activity(view));
        Activity::of(&view)
    }

    pub(crate) fn report_drained(&self, rt: &Runtime) {
        if self.readiness(rt).drained() {
            rt.notify_daemon();
        }
    }

    /// True: another group shares the device, according to a daemon that is present. A word of a daemon that is gone does not count.
    pub fn is_contended(&self, rt: &Runtime) -> bool {
        xsched_flow::activity::is_contended(self.slot(rt).gate.load().bits())
    }

    /// Time left of the group's grace time, in ns, at whose end it may be idle; `None` if the grace time does not run, or the daemon
    /// does not ask.
    pub fn idle_due_ns(&self, rt: &Runtime, now: u64) -> Option<u64> {
        self.is_contended(rt).then(|| Activity::of(&self.known(rt, now)).grace_left_ns()).flatten()
    }

    /// Agent: declares the group idle unless a launch came in between. `exact` also requires every launch to be complete. Returns
    /// the number of launches after which it is idle.
    pub fn try_idle(&self, rt: &Runtime, exact: bool) -> Option<u64> {
        let before = self.launches(rt);
        let busy = || match exact {
            true => !self.is_quiet(rt),
            false => rt.queues_of(self).any(|q| q.waits_for_turn(rt) || q.is_followed(rt)),
        };
        if self.waiting.load(Acquire) > 0 || self.is_waited_for(rt) || busy() {
            self.grace.cancel();
            return None;
        }
        let came = || {
            let came = self.launches(rt) != before || exact && !self.is_quiet(rt) || self.waiting.load(Acquire) > 0;
            self.burst.over.store(!came, Release);
            came
        };
        let burst = Ended {
            bursts: self.slot(rt).bursts.load(Acquire),
            launches: before,
            us: self.burst_us(rt),
            device_us: self.burst_device_us(rt),
            unheard_ns: self.slot(rt).unheard_since_ns(),
        };
        let idle = self.readiness(rt).call_idle(came);
        if !idle {
            self.grace.cancel();
            return None;
        }
        let slot = self.slot(rt);
        if !slot.gate.load().must_announce() {
            // By a launch that announced itself before the burst was known to be over.
            self.begin_burst(rt);
        }
        self.publish(rt, burst);
        // The beginning of the grace time stays: the next launch measures the gap from there, however long it was.
        rt.waits.idles.fetch_add(exact.into(), Relaxed);
        rt.notify_daemon();
        Some(before)
    }

    /// Ends the grace time at a launch. If it had run out, the burst ended with its begin, though the agent, which a busy machine runs late,
    /// has not found the group idle: the pause is no part of the burst, and the launch begins another one. `under_way` launches are counted
    /// already.
    pub(crate) fn end_grace(&self, rt: &Runtime, under_way: u64) {
        let Some(since) = self.grace.end() else { return };
        let slot = self.slot(rt);
        let bursts = slot.bursts.load(Acquire);
        let (end_ns, began_ns) = (rt.daemon_page.daemons_ns(since), slot.ready_at_ns.load(Relaxed));
        // Where the agent was in time, the launch has announced the next burst by now.
        if self.burst.over.load(Acquire) || end_ns <= began_ns {
            return;
        }
        let launches = self.launches(rt).wrapping_sub(under_way);
        let burst = Ended {
            bursts,
            launches,
            us: (end_ns - began_ns) / 1_000,
            device_us: self.burst_device_us(rt),
            unheard_ns: slot.unheard_since_ns(),
        };
        slot.ready_at_ns.store(rt.daemon_page.daemons_ns(now_ns()), Relaxed);
        *self.burst.from.lock().unwrap_or_else(PoisonError::into_inner) = self.given(rt);
        self.publish(rt, burst);
        rt.notify_daemon();
    }

    /// Publishes a burst that has ended, unless another thread has meanwhile.
    fn publish(&self, rt: &Runtime, burst: Ended) {
        let slot = self.slot(rt);
        if slot.bursts.load(Acquire) != burst.bursts {
            return;
        }
        slot.burst_us.store(burst.us, Relaxed);
        slot.burst_device_us.store(burst.device_us.try_into().unwrap_or(u32::MAX), Relaxed);
        let retired = slot.launches_retired.load(Relaxed);
        slot.burst_launches.store(burst.launches.wrapping_add(retired) as u32, Relaxed);
        if let Some(since_ns) = burst.unheard_ns {
            slot.unheard_ready_ns.store(since_ns, Relaxed);
        }
        _ = slot.bursts.compare_exchange(burst.bursts, burst.bursts.wrapping_add(1), Release, Relaxed);
    }

    /// Duration of the burst that would end now, in µs: to the last completion, at which the grace time began.
    fn burst_us(&self, rt: &Runtime) -> u64 {
        let ended = match self.grace.since.load(Relaxed) {
            0 => now_ns(),
            since => since,
        };
        rt.daemon_page.daemons_ns(ended).saturating_sub(self.slot(rt).ready_at_ns.load(Relaxed)) / 1000
    }

    /// Agent: polls the queues of the group that the program fills by itself, and announces the group or checks its idleness, as
    /// launches and completions do for other groups. Returns the ns until the next poll; `None` = it has no such queues.
    pub fn poll_filled(&self, rt: &Runtime) -> Option<u64> {
        // A queue that is about to be destroyed is removed first.
        let busy = rt.keeping_queues(|| {
            if rt.is_over() {
                return None;
            }
            let looks = rt.queues_of(self).filter_map(|q| q.poll_filled(rt));
            looks.reduce(|one, other| one | other)
        })?;
        let gate = self.slot(rt).gate.load();
        if gate.is_detached() {
            return Some(FILLED_LOOK_NS.1);
        }
        if busy {
            self.announce(rt);
            self.end_grace(rt, 0);
        } else {
            self.update_idle_state_always(rt);
            if self.activity(rt, now_ns()).grace_left_ns() == Some(0) {
                self.try_idle(rt, true);
            }
        }
        let often = if gate.is_contended() { FILLED_LOOK_NS.0 } else { FILLED_LOOK_NS.1 };
        Some(self.activity(rt, now_ns()).grace_left_ns().map_or(often, |ns| ns.min(often)))
    }

    /// Agent: takes the daemon's answer on the group: the daemon holds its gate, or there is no daemon.
    pub fn set_registration(&self, rt: &Runtime, registration: Registration) {
        match registration {
            Registration::Attached => {
                rt.port.registered.store(true, Release);
                // A burst that went on under a former daemon is none of this one's.
                self.burst.over.store(true, Release);
                let answered = self.holding(rt).attach(|| !self.is_quiet(rt), || rt.is_detached());
                // A thread may have launched meanwhile, and the group be busy: poll soon.
                self.grace.cancel();
                if answered == Answered::Busy {
                    self.announce(rt);
                }
            }
            Registration::Detached | Registration::Pending => self.holding(rt).detach(),
        }
    }
}

impl XQueue {
    /// Takes note that the device has completed everything up to a fence (of an out-of-order queue: that one command). May be called
    /// on any thread.
    pub fn complete(rt: &'static Runtime, fence: &CompletionFence) {
        let queue = &rt.queues[usize::from(fence.queue)];
        if queue.generation.load(Acquire) == fence.generation {
            queue.learn(rt, fence, now_ns());
            queue.finish(rt, fence);
            if queue.timeline.is_numbered_complete() {
                queue.group(rt).update_idle_state(rt);
            }
        }
    }
}

impl Runtime {
    /// Checks each group: it may have become idle.
    pub fn update_idle_states(&self) {
        self.groups().for_each(|group| group.update_idle_state(self));
    }

    /// Declares groups idle of which the device has nothing left, without the grace time: nothing more comes. Returns true if all
    /// are idle.
    pub fn say_idle_at_end(&self) -> bool {
        let mut all = true;
        for group in self.groups() {
            all &= group.slot(self).gate.load().must_announce() || group.try_idle(self, true).is_some();
        }
        all
    }

    /// True: some group shares its device with another.
    pub fn is_contended(&self) -> bool {
        self.groups().any(|g| g.is_contended(self))
    }
}
