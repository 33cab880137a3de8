//! Work of the loop at set times, and the time at which the loop wakes up for the next.

use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};

use super::Server;
use crate::Input;
use crate::scheduler::process::Host;
use crate::server::timers::Timer;
use crate::services::warnings::OptionalPart;
use crate::tuning::{
    ACCOUNTS_AGAIN_NS, BEAT_NS, DEVICE_LOOK_NS, LOOK_NS, MEASURE_NS, MEMORY_NS, METRICS_AGAIN_NS, NICE_NS,
    POOL_LOOK_NS, USAGE_NS,
};

impl Server {
    /// Does all work that is due.
    pub(super) fn do_due(&mut self) {
        for timer in self.timers.due(self.now_ns) {
            match timer {
                Timer::Policy => self.input(Input::PolicyTime),
                Timer::Look => self.input(Input::LookTime),
                Timer::Beat => self.input(Input::Beat),
                Timer::Memory => self.input(Input::MemoryTime),
                Timer::Unread => self.net.end_unread(),
                Timer::Silent => self.net.end_silent(),
                Timer::Lines => self.services.events.tend(self.now_ns),
                Timer::Reaper => self.net.listen_again(),
                Timer::Trim => {
                    // While a gate is closed, decisions may come soon.
                    let is_quiet = !self.engine.arbiter().any_scrutinised();
                    self.trim.give_back(self.now_ns, is_quiet);
                }
                Timer::Questions => self.time_out_questions(),
                Timer::Scheduler => self.check_scheduler_deadline(),
                Timer::Idle => {
                    self.detail_of_own(|| "ends: it has had no clients for as long as it was told".to_owned());
                    self.life.stop = true;
                }
                Timer::Nice
                | Timer::State
                | Timer::Devices
                | Timer::Measure
                | Timer::Usage
                | Timer::UsageQuery
                | Timer::Pools
                | Timer::Trust
                | Timer::Accounts
                | Timer::Metrics => _ = self.for_itself("work at a set time", |server| server.do_beside(timer)),
                // The loop handles these in each turn.
                Timer::Identify | Timer::TrustWorker | Timer::Service | Timer::Snapshots | Timer::Rations => (),
            }
        }
        if self.history.recent.is_due(self.now_ns) && !self.engine.groups().is_empty() {
            self.sample_shares();
        }
    }

    /// Does work beside decisions that is due, and due again after a period.
    fn do_beside(&mut self, timer: Timer) {
        match timer {
            Timer::Nice => self.poll_nice(),
            Timer::State => self.write_kept(),
            Timer::Devices => self.poll_devices(),
            Timer::Measure => self.measure(),
            Timer::Usage | Timer::UsageQuery => self.begin_usage_sweep(),
            Timer::Pools => self.poll_pools(),
            Timer::Trust => self.tend_trust(),
            Timer::Accounts => self.find_accounts(),
            Timer::Metrics => self.start_metrics(),
            _ => (),
        }
    }

    /// Sets all timers, and the kernel's for the first of them. One set too early is left alone: it costs one needless wake-up.
    pub(super) fn arm(&mut self) {
        let now_ns = self.now_ns;
        let is_empty = self.net.conns.is_empty() && self.places.expected.is_empty();
        self.life.idle_since = is_empty.then(|| self.life.idle_since.unwrap_or(now_ns));
        let arbiter = self.engine.arbiter();
        let unmeasured = self.engine.gatekeeper().ledger().unmeasured().next().is_some();
        let kept = [
            (Timer::Beat, self.engine.must_beat(), BEAT_NS),
            (Timer::Look, arbiter.any_scrutinised(), LOOK_NS),
            (Timer::Memory, self.engine.follows_memory(), MEMORY_NS),
            (Timer::Nice, self.engine.follows_nice(), NICE_NS),
            (Timer::Devices, self.services.devices.is_wanted(), DEVICE_LOOK_NS),
            (Timer::Measure, unmeasured, MEASURE_NS),
            (Timer::Usage, self.history.accounting.is_needed(), USAGE_NS),
            (Timer::Pools, self.places.pools.need_looks(), POOL_LOOK_NS),
            (Timer::Accounts, self.config.awaits_accounts, ACCOUNTS_AGAIN_NS),
            (Timer::Metrics, self.services.warnings.has(OptionalPart::Metrics), METRICS_AGAIN_NS),
        ];
        for (timer, wanted, period_ns) in kept {
            self.timers.keep(timer, wanted, now_ns + period_ns);
        }
        // A time that is still to come is kept, so that events do not put it off for ever.
        if !self.timers.is_set(Timer::Reaper) {
            self.timers.set(Timer::Reaper, self.net.reaper.tend(now_ns));
        }
        for (timer, at_ns) in self.deadlines() {
            self.timers.set(timer, at_ns);
        }
        let Some(next) = self.timers.next_ns() else { return };
        if self.life.armed.is_some_and(|armed| armed <= next) {
            return;
        }
        // A value of zero would switch the timer off.
        let at = Timespec { tv_sec: (next / 1_000_000_000) as i64, tv_nsec: (next % 1_000_000_000).max(1) as i64 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        match timerfd_settime(&self.life.timer, TimerfdTimerFlags::ABSTIME, &once) {
            Ok(_) => self.life.armed = Some(next),
            Err(e) => self.log(&format!("cannot set the timer: {e}")),
        }
    }

    /// Times that other parts of the daemon keep, in ns.
    fn deadlines(&self) -> [(Timer, Option<u64>); 15] {
        let sweeps = self.history.accounting.sweep.is_some();
        [
            (Timer::Policy, self.engine.next_policy_us().map(|us| us.saturating_mul(1_000))),
            (Timer::Questions, self.commands.questions.iter().map(|question| question.until_ns).min()),
            (Timer::Scheduler, self.services.scheduler.as_ref().and_then(Host::deadline_ns)),
            (Timer::Unread, self.net.unread_at),
            (Timer::Silent, self.net.silent_at),
            (
                Timer::Idle,
                self.life.idle_since.zip(self.life.idle_exit_ns).map(|(since, after)| since.saturating_add(after)),
            ),
            // While accounts are processed, the loop does not sleep.
            (Timer::UsageQuery, self.history.accounting.query_at().filter(|_| !sweeps)),
            (Timer::Identify, self.services.identify.tend(self.now_ns)),
            (Timer::TrustWorker, self.services.trust.tend(self.now_ns)),
            (Timer::Trust, self.places.trusting.deadline_ns()),
            (Timer::Lines, self.services.events.deadline_ns()),
            (Timer::Service, self.life.service.deadline_ns()),
            (Timer::Snapshots, self.services.snapshots.deadline_ns()),
            (Timer::Trim, self.trim.deadline_ns(!self.programs.clients.is_empty())),
            // Work that can be done at once needs no timer.
            (Timer::Rations, self.net.rations.due_ns().filter(|at| *at > self.now_ns)),
        ]
    }
}
