//! Attachment of the process to its scheduler: wake-ups of the agent and the daemon, and gates that open when there is no daemon.

use core::sync::atomic::Ordering::*;
use std::sync::OnceLock;

use xsched_flow::tuning::{ATTACH_NS, REQUIRED_LOOK_NS};
use xsched_proto::segment::Heartbeat;

use crate::agent_port::Scheduler;
use crate::clock::now_ns;
use crate::descriptor::Descriptor;
use crate::group::Group;
use crate::runtime::Runtime;

/// Called every few milliseconds while a launch waits for the first registration of the process, with the ns waited so far:
/// ends the process when there is no hope of one.
pub type Unscheduled = fn(u64);

static UNSCHEDULED: OnceLock<Unscheduled> = OnceLock::new();

/// From now on no launch goes on unscheduled before a group of the process was registered once. The first one stays.
pub fn require_registration(unscheduled: Unscheduled) {
    let _ = UNSCHEDULED.set(unscheduled);
}

impl Runtime {
    /// Has the agent change to another scheduler. False: it has not after `most_ns`.
    pub fn choose_scheduler(&self, scheduler: Scheduler, most_ns: u64) -> bool {
        let before = self.port.choose(scheduler);
        self.poke_agent();
        self.port.await_choice(before, most_ns)
    }

    /// Agent: changes to the scheduler that the program has chosen since the last call, if it has, by `change`.
    pub fn take_choice(&self, change: impl FnOnce(Scheduler)) {
        self.port.take_choice(change);
    }

    /// Notifies the daemon that a word of the segment changed.
    pub fn notify_daemon(&self) {
        if !self.port.ring_daemon() {
            self.descriptors_lost();
        }
    }

    /// Wakes the agent thread.
    pub fn poke_agent(&self) {
        if !self.port.ring_agent() {
            self.descriptors_lost();
        }
    }

    /// Wakes the agent thread if a group announced itself since: after its launch, which the wake-up would have put off.
    pub(crate) fn poke_if_due(&self) {
        if self.port.take_poke() {
            self.poke_agent();
        }
    }

    /// Wakes the agent thread unless it will wake by itself until `deadline_ns`.
    pub(crate) fn agent_by(&self, deadline_ns: u64) {
        if self.port.agent_sleeps_past(deadline_ns) {
            self.poke_agent();
        }
    }

    /// Agent: notes when it will poll again, before its last poll; [`u64::MAX`] = when poked, and while it polls.
    pub fn agent_sleeps_until(&self, at_ns: u64) {
        self.port.set_agent_wakes_at(at_ns);
    }

    /// The eventfd of [`Runtime::notify_daemon`].
    pub fn daemon_event(&self) -> &Descriptor {
        &self.port.daemon_event
    }

    /// The eventfd of [`Runtime::poke_agent`].
    pub fn agent_event(&self) -> &Descriptor {
        &self.port.agent_event
    }

    /// The program's own priority. Waits a moment for the daemon's answer, which may know of rules.
    pub fn own_priority(&self) -> i32 {
        self.port.await_welcome(ATTACH_NS);
        self.base_priority()
    }

    /// Agent: the daemon or the local gatekeeper has given the program this priority. Queues made later are ranked by it.
    pub fn set_priority(&self, priority: i32) {
        self.set_base_priority(priority);
        self.port.welcome();
    }

    /// Agent: a daemon holds the gates from now on; `heartbeat` is its page (null for a scheduler in this process).
    pub fn attach(&self, heartbeat: *mut Heartbeat) {
        self.daemon_page.set(heartbeat);
        if heartbeat.is_null() {
            self.detach_memory()
        } else {
            self.attach_memory()
        }
        self.attach_groups();
    }

    /// Opens every gate: no daemon holds them any more. The application goes on unscheduled.
    pub fn detach(&self) {
        self.port.welcome();
        self.detach_memory();
        if self.detach_groups() {
            self.poke_agent();
        }
    }

    /// Opens every gate and never lets a daemon have it again.
    pub fn detach_for_good(&self) {
        self.end_scheduling();
        self.detach();
    }

    /// Opens every gate for good: the application closed the descriptors, so that nothing can be reported any more.
    fn descriptors_lost(&self) {
        self.end_scheduling();
        self.detach_memory();
        self.detach_groups();
    }

    fn end_scheduling(&self) {
        self.port.set_over();
        self.release_all();
    }

    /// True: [`Runtime::detach_for_good`] was called.
    pub fn is_over(&self) -> bool {
        self.port.is_over()
    }

    /// True: a group of this process has been registered since it began.
    pub fn was_registered(&self) -> bool {
        self.port.registered.load(Acquire)
    }

    /// True: the daemon knows best-effort programs whose contexts on this device have time slices.
    pub fn has_best_effort_contention(&self, device: &str) -> bool {
        self.daemon_page.has_best_effort_contention(device)
    }

    /// True: the daemon has been silent for so long since this gate was seen closed, at `since`, that it holds no program any more.
    pub fn daemon_is_silent(&self, now: u64, since: u64) -> bool {
        self.daemon_page.is_silent(now, since)
    }

    /// Where the program must be scheduled from the start, waits for the first group to be registered.
    fn insist(&self, unscheduled: Unscheduled) {
        let began = now_ns();
        while !self.was_registered() && !self.is_over() {
            unscheduled(now_ns() - began);
            std::thread::sleep(core::time::Duration::from_nanos(REQUIRED_LOOK_NS));
        }
    }
}

impl Group {
    /// Waits a moment for the daemon's answer on the group, if that is still to come.
    pub fn await_registration(&self, rt: &Runtime) {
        self.wait_registered(self.attach_deadline.load(Relaxed));
        if let Some(unscheduled) = UNSCHEDULED.get()
            && !rt.was_registered()
        {
            rt.insist(*unscheduled);
            self.wait_registered(now_ns() + ATTACH_NS);
        }
    }
}
