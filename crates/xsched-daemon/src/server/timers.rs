//! What the loop does at its time, and when it is to wake up for that.

use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
use xsched_policy::Event;

use super::{Role, Server, UNREAD};
use crate::Error;
use crate::host::Host;
use crate::tuning::{BEAT_NS, DEVICE_LOOK_NS, LOOK_NS, MEASURE_NS, NICE_NS, SILENT_NS, UNREAD_NS, USAGE_NS};

impl Server {
    /// Does what is due.
    pub(super) fn timers(&mut self) {
        let now_ns = self.now_ns;
        let due = |at: Option<u64>| at.is_some_and(|at| at <= now_ns);
        let (policy, look, beat) = (due(self.next_policy_ns()), due(self.look_at), due(self.beat_at));
        let (tend, nice, unread) = (due(self.tend_at), due(self.nice_at), due(self.unread_at));
        let (pools, silent, lines) = (due(self.pools.look_at), due(self.silent_at), due(self.events.deadline_ns()));
        let (kept, devices) = (due(self.remember_at), due(self.devices.look_at));
        let (measure, usage) = (due(self.accounting.measure_at), due(self.accounting.keep_at));
        if policy {
            self.look_at_drains();
            self.event(Event::Timer);
        }
        if look {
            self.look_at = None;
            self.look_soon();
        }
        if beat {
            self.heartbeat.beat(self.now_ns);
            self.beat_at = None;
        }
        if nice {
            self.look_at_nice();
        }
        if unread {
            self.end_unread();
        }
        if silent {
            self.end_silent();
        }
        if lines {
            self.events.tend(self.now_ns);
        }
        if kept {
            self.write_kept();
        }
        if devices {
            self.look_at_devices();
        }
        if measure {
            self.measure();
        }
        if usage {
            self.keep_usage();
        }
        if due(self.accounting.query_at()) {
            self.keep_usage();
        }
        if self.recent.is_due(self.now_ns) && !self.groups.is_empty() {
            self.look_at_shares();
        }
        if pools {
            self.look_at_pools();
        }
        if self.trim.is_due(self.now_ns, self.clients().next().is_some()) {
            // With a gate closed, decisions come soon.
            let is_quiet = !self.gatekeeper.arbiter().any_scrutinised();
            self.trim.give_back(self.now_ns, is_quiet);
        }
        if tend {
            self.tend_at = None;
            if self.deaf && !self.closer.is_full() {
                self.listen(true);
            }
        }
        self.time_out_questions();
        self.watch_scheduler();
        if self.idle_deadline().is_some_and(|at| at <= self.now_ns) {
            self.detail_of_own(|| "ends: it has had no clients for as long as it was told".to_owned());
            self.stop = true;
        }
    }

    fn next_policy_ns(&self) -> Option<u64> {
        self.gatekeeper.arbiter().next_timer().map(|us| us.saturating_mul(1_000))
    }

    fn idle_deadline(&self) -> Option<u64> {
        Some(self.idle_since?.saturating_add(self.idle_exit_ns?))
    }

    /// Sets the timer for what comes first. One set too early is left alone: it costs a wake-up, once.
    pub(super) fn arm(&mut self) {
        let keep = |at: Option<u64>, wanted: bool, period| wanted.then(|| at.unwrap_or(self.now_ns + period));
        let arbiter = self.gatekeeper.arbiter();
        self.beat_at = keep(self.beat_at, arbiter.any_closed(), BEAT_NS);
        self.look_at = keep(self.look_at, arbiter.any_scrutinised(), LOOK_NS);
        self.nice_at = keep(self.nice_at, self.follows_nice(), NICE_NS);
        self.devices.look_at = keep(self.devices.look_at, self.devices.is_wanted(), DEVICE_LOOK_NS);
        let unmeasured = self.gatekeeper.ledger().unmeasured().next().is_some();
        self.accounting.measure_at = keep(self.accounting.measure_at, unmeasured, MEASURE_NS);
        self.accounting.keep_at = keep(self.accounting.keep_at, self.accounting.is_needed(), USAGE_NS);
        // Kept while it is still to come, so that events do not put it off for ever.
        self.tend_at = self.tend_at.filter(|at| *at > self.now_ns).or_else(|| self.closer.tend());
        let pools = self.next_look_at_pools();
        let question = self.questions.iter().map(|q| q.until_ns).min();
        let overdue = self.scheduler.as_ref().and_then(Host::deadline_ns);
        let own = [self.beat_at, self.look_at, self.nice_at, self.tend_at, self.unread_at, pools, self.idle_deadline()];
        let others = [
            self.devices.look_at,
            self.accounting.measure_at,
            self.accounting.keep_at,
            // While books are looked at, the loop does not sleep.
            self.accounting.query_at().filter(|_| self.accounting.sweep.is_none()),
            self.clerk.tend(),
            self.silent_at,
            self.remember_at,
            self.events.deadline_ns(),
            self.service.deadline_ns(),
            self.teller.deadline_ns(),
            self.trim.deadline_ns(self.clients().next().is_some()),
            // What is due already needs no timer.
            self.rations_due_ns().filter(|at| *at > self.now_ns),
        ];
        let all = [self.next_policy_ns(), question, overdue].into_iter().chain(own).chain(others);
        let Some(next) = all.flatten().min() else { return };
        if self.armed.is_some_and(|armed| armed <= next) {
            return;
        }
        // All zero would switch the timer off.
        let at = Timespec { tv_sec: (next / 1_000_000_000) as i64, tv_nsec: (next % 1_000_000_000).max(1) as i64 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        match timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once) {
            Ok(_) => self.armed = Some(next),
            Err(e) => self.log(&format!("cannot set the timer: {e}")),
        }
    }

    /// Ends connections that have not said what they are.
    fn end_silent(&mut self) {
        let unknown = self.conns.iter().filter(|(_, c)| matches!(c.role, Role::Unknown | Role::Unlisted(_)));
        let since = unknown.map(|(id, c)| (c.since_ns, *id));
        let (over, others): (Vec<_>, Vec<_>) = since.partition(|(since, _)| since + SILENT_NS <= self.now_ns);
        self.silent_at = others.into_iter().min().map(|(since, _)| since + SILENT_NS);
        self.doomed.extend(over.into_iter().map(|(_, id)| (id, Some(Error::input("it says nothing")))));
    }

    /// Ends connections for which something is kept and that have taken nothing of it for some time.
    fn end_unread(&mut self) {
        let since = self.conns.iter().filter(|(_, c)| !c.out.is_empty()).map(|(id, c)| (c.unread_since_ns, *id));
        let mut since: Vec<(u64, u64)> = since.collect();
        since.sort_unstable();
        // The end of a program is a piece of work, with its groups: others come in between.
        let over = since.first().copied().filter(|(since, _)| since + UNREAD_NS <= self.now_ns);
        self.unread_at = since.get(usize::from(over.is_some())).map(|(since, _)| since + UNREAD_NS);
        self.doomed.extend(over.map(|(_, id)| (id, Some(Error::input(UNREAD)))));
    }
}
