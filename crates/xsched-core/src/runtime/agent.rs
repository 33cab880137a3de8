//! The way to the agent thread and the daemon, and whether there is one.

use core::sync::atomic::Ordering::*;
use std::sync::OnceLock;

use xsched_flow::journal::Record;
use xsched_flow::tuning::{ATTACH_NS, REQUIRED_LOOK_NS};
use xsched_flow::watchdog::is_silent;
use xsched_proto::memory::{Hardware, Memory, Sleepers};
use xsched_proto::segment::{Heartbeat, device_place};

use super::Runtime;
use crate::clock::now_ns;
use crate::descriptor::Descriptor;
use crate::group::Group;
use crate::journal;

/// Called every few milliseconds while a launch waits for the first registration of the process, with the ns waited so far:
/// ends the process when there is no hope of one.
pub type Unscheduled = fn(u64);

static UNSCHEDULED: OnceLock<Unscheduled> = OnceLock::new();

/// From now on no launch goes on unscheduled before a group of the process was registered once. The first one stays.
pub fn require_registration(unscheduled: Unscheduled) {
    let _ = UNSCHEDULED.set(unscheduled);
}

/// What decides for the process, by the program's own choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// The program itself: every gate is open, and it holds its queues as it likes.
    Application,
    /// A scheduler inside the process, with this policy.
    Local(String),
    /// The daemon.
    Daemon,
}

impl Runtime {
    /// Has the agent change to another scheduler. False: it has not after so many ns.
    pub fn choose_scheduler(&self, scheduler: Scheduler, most_ns: u64) -> bool {
        let before = self.choices.load(Acquire);
        *self.chosen.lock().unwrap_or_else(|e| e.into_inner()) = Some(scheduler);
        self.poke_agent();
        let until = now_ns() + most_ns;
        while self.choices.load(Acquire) == before {
            let left = until.saturating_sub(now_ns());
            if left == 0 {
                return false;
            }
            let _ = Hardware::sleep(&self.choices, before, Sleepers::Own, left);
        }
        true
    }

    /// Agent: changes to the scheduler that the program has chosen since, if it has, by `change`.
    pub fn take_choice(&self, change: impl FnOnce(Scheduler)) {
        let Some(chosen) = self.chosen.lock().unwrap_or_else(|e| e.into_inner()).take() else { return };
        change(chosen);
        self.choices.fetch_add(1, Release);
        Hardware::wake(&self.choices, Sleepers::Own);
    }

    /// Tells the daemon that a word of the segment changed.
    pub fn notify_daemon(&self) {
        self.ring(&self.daemon_event);
    }

    /// Wakes the agent thread.
    pub fn poke_agent(&self) {
        self.ring(&self.agent_event);
    }

    /// Wakes the agent thread if a group announced itself since: after its launch, which the wake-up would have put off.
    pub(crate) fn poke_if_due(&self) {
        if self.poke_due.load(Relaxed) && self.poke_due.swap(false, AcqRel) {
            self.poke_agent();
        }
    }

    fn ring(&self, event: &Descriptor) {
        match event.get() {
            Some(event) => {
                let _ = rustix::io::write(event, &1u64.to_ne_bytes());
            }
            // The application closed it: nothing can be reported any more.
            None => self.descriptors_lost(),
        }
    }

    fn descriptors_lost(&self) {
        self.over.store(true, Release);
        self.release_all();
        if !self.detached.swap(true, AcqRel) {
            self.groups().for_each(|g| g.holding(self).detach());
        }
    }

    /// Wakes the agent thread unless it will wake by itself until `deadline_ns`.
    pub(crate) fn agent_by(&self, deadline_ns: u64) {
        if self.agent_wakes_at.load(SeqCst) > deadline_ns {
            self.poke_agent();
        }
    }

    /// Agent: when it will look again, said before its last look; [`u64::MAX`] = when poked, and while it looks.
    pub fn agent_sleeps_until(&self, at_ns: u64) {
        self.agent_wakes_at.store(at_ns, SeqCst);
    }

    /// The eventfd of [`Runtime::notify_daemon`].
    pub fn daemon_event(&self) -> &Descriptor {
        &self.daemon_event
    }

    /// The eventfd of [`Runtime::poke_agent`].
    pub fn agent_event(&self) -> &Descriptor {
        &self.agent_event
    }

    /// Agent: a daemon holds the gates from now on; `heartbeat` is its page (null for a scheduler in this process).
    pub fn attach(&self, heartbeat: *mut Heartbeat) {
        self.heartbeat.store(heartbeat, Release);
        self.detached.store(false, Release);
    }

    /// Opens every gate: no daemon holds them any more. The application goes on unscheduled.
    pub fn detach(&self) {
        self.welcome();
        if self.detached.swap(true, AcqRel) {
            return;
        }
        for group in self.groups() {
            group.holding(self).detach();
        }
        self.poke_agent();
    }

    /// Opens every gate and never lets a daemon have it again.
    pub fn detach_for_good(&self) {
        self.over.store(true, Release);
        self.release_all();
        self.detach();
    }

    /// Whether [`Runtime::detach_for_good`] was called.
    pub fn is_over(&self) -> bool {
        self.over.load(Acquire)
    }

    /// Whether [`Runtime::detach`] was called since the last [`Runtime::attach`].
    pub fn is_detached(&self) -> bool {
        self.detached.load(Acquire)
    }

    /// Waits a moment for the daemon's word on a group, if that is still to come.
    pub fn await_registration(&self, group: &Group) {
        group.wait_registered(group.attach_deadline.load(Relaxed));
        if let Some(unscheduled) = UNSCHEDULED.get()
            && !self.was_registered()
        {
            self.insist(*unscheduled);
            group.wait_registered(now_ns() + ATTACH_NS);
        }
    }

    /// Where the program must be scheduled from the start: waits for the first group to be registered.
    fn insist(&self, unscheduled: Unscheduled) {
        let began = now_ns();
        while !self.was_registered() && !self.is_over() {
            unscheduled(now_ns() - began);
            std::thread::sleep(core::time::Duration::from_nanos(REQUIRED_LOOK_NS));
        }
    }

    /// Whether a group of this process has been registered since it began.
    pub fn was_registered(&self) -> bool {
        self.registered.load(Acquire)
    }

    /// Whether the daemon knows best-effort programs whose contexts on this device have time slices.
    pub fn has_best_effort_contention(&self, device: &str) -> bool {
        let page = self.heartbeat.load(Acquire);
        // SAFETY: the agent maps the page and never unmaps it while it is published here.
        !page.is_null() && unsafe { &(&(*page).best_effort)[device_place(device)] }.load(Acquire) > 0
    }

    /// Whether the daemon missed so many beats that it holds no program any more. It beats only while some gate is
    /// closed, so that what counts is the silence `since` this gate was seen closed.
    pub fn daemon_is_silent(&self, now: u64, since: u64) -> bool {
        let page = self.heartbeat.load(Acquire);
        if page.is_null() {
            return false;
        }
        // SAFETY: the agent maps the page and never unmaps it while it is published here.
        let beat = unsafe { &(*page).beat_ns }.load(Acquire);
        // By this process's clock: the daemon's may be another one, and a beat that could be ahead would never grow old.
        if self.beat_seen.load(Acquire) != beat {
            self.beat_seen_at.store(now, Release);
            self.beat_seen.store(beat, Release);
        }
        let seen_at = self.beat_seen_at.load(Acquire);
        let silent = is_silent(seen_at, since, now);
        journal::record(|| Record::Silent(seen_at, since, now, silent));
        silent
    }

    /// A time of this process's clock, in ns, by that of the daemon, if there is one.
    pub(crate) fn daemons_ns(&self, own_ns: u64) -> u64 {
        let page = self.heartbeat.load(Acquire);
        if page.is_null() {
            return own_ns;
        }
        // SAFETY: as above.
        let offset_ns = unsafe { &(*page).clock_offset_ns }.load(Relaxed);
        own_ns.wrapping_add_signed(offset_ns.wrapping_sub(self.clock_offset_ns))
    }
}
