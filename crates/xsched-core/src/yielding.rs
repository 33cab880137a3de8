//! Waits of a group that yields until others keep up, and the urgent program's part: the backlog that it publishes. See
//! [`crate::backlog_pages`].

use core::sync::atomic::Ordering::*;

use xsched_flow::backlog::{Behind, Published};
use xsched_flow::journal::Record;
use xsched_flow::tuning::HELD_LONG_NS;
use xsched_proto::backlog::{Backlog, Page, is_before};
use xsched_proto::gate::Gate;
use xsched_proto::memory::Woken;

use crate::clock::now_ns;
use crate::group::Group;
use crate::journal;
use crate::queue::XQueue;
use crate::runtime::Runtime;
use crate::waiting::{Interruptible, PromptSleeps, start_waiting, stop_waiting};

impl Group {
    /// True: a command may go on at this gate without a wait.
    pub(crate) fn may_pass(&self, rt: &Runtime, gate: Gate) -> bool {
        gate.is_open() || gate.yields() && self.check_backlogs(rt)
    }

    /// Checks the backlogs of the programs that the group yields to, before a command. True: the command may go on.
    fn check_backlogs(&self, rt: &Runtime) -> bool {
        let clear = rt.backlog_pages.is_clear(self.slot(rt));
        let mut state = self.yields.state();
        let (before, now) = (*state, now_ns());
        let (after, goes_on) = before.look(now, clear);
        journal::record(|| Record::Yields(before, now, clear, after, goes_on));
        *state = after;
        if goes_on {
            self.slot(rt).yield_passed.fetch_add(1, Relaxed);
        } else if before.given.is_some() {
            self.yields.holds.fetch_add(1, Relaxed);
        }
        goes_on
    }

    /// Waits at a gate that yields until the programs that it yields to keep up (true: a command may go on), or the gate changes.
    /// Nothing wakes a thread when a device has caught up, so it checks again and again.
    pub(crate) fn wait_for_backlogs(&self, rt: &Runtime) -> bool {
        let slot = self.slot(rt);
        rt.poke_if_due();
        self.flush(rt);
        let began = now_ns();
        start_waiting(rt, self);
        let wait = Interruptible::begin(began);
        let prompt = PromptSleeps::begin();
        let mut reported = false;
        let goes_on = loop {
            // The daemon need not know of most of these waits: they are short.
            if !reported && now_ns().saturating_sub(began) > HELD_LONG_NS && self.is_quiet(rt) {
                reported = true;
                self.report_drained(rt);
            }
            let gate = slot.gate.load();
            if gate.is_open() || !gate.yields() {
                break false;
            }
            if self.check_backlogs(rt) {
                break true;
            }
            if rt.daemon_is_silent(now_ns(), began) {
                rt.detach();
                break false;
            }
            let look_ns = self.yields.state().look_in_ns(now_ns());
            if slot.gate.sleep(gate, look_ns) == Woken::Signal && wait.signal_ends() {
                slot.signal_overrides.fetch_add(1, Relaxed);
                break true;
            }
        };
        drop(prompt);
        drop(wait);
        stop_waiting(rt);
        if reported {
            self.readiness(rt).undrained();
            rt.notify_daemon();
        }
        slot.yield_wait_ns.fetch_add(now_ns().saturating_sub(began), Relaxed);
        goes_on
    }
}

impl XQueue {
    /// Backlog that the queue publishes, if it does.
    fn backlog(&self, rt: &Runtime) -> Option<&'static Backlog> {
        rt.backlog_pages.backlog(self.index)
    }

    /// Publishes that the device will be behind, if it will be, before a command that brings the expected time up to `issued_ns`,
    /// `fenced_ns` of it before the last fence. True: the command needs a fence, by which the device reports that it has caught up.
    pub(crate) fn publish(&self, rt: &Runtime, command: Behind, issued_ns: u64, fenced_ns: u64) -> bool {
        let Some(backlog) = self.backlog(rt) else { return false };
        let wanted_ns = &self.publication.wanted_ns;
        let mut ask = Behind {
            unfenced_ns: issued_ns.saturating_sub(fenced_ns),
            unwanted_ns: issued_ns.saturating_sub(wanted_ns.load(Relaxed)),
            ..command
        };
        let in_flight_ns = || issued_ns.saturating_sub(self.timeline.done().ns);
        ask.in_flight_ns = in_flight_ns();
        // Completions are refreshed only where they decide.
        if ask.published(|| 0) != Published::default() {
            self.refresh(rt);
            ask.in_flight_ns = in_flight_ns();
            ask.few_fences = self.fences.are_few();
        }
        let mut consumed_ns = 0;
        let published = ask.published(|| {
            consumed_ns = self.consumed_ns();
            consumed_ns
        });
        journal::record(|| Record::Behind(ask, consumed_ns, published));
        if published.wanted {
            backlog.want(self.fences.upcoming_number());
            wanted_ns.store(issued_ns, Relaxed);
        }
        published.fence
    }

    /// Settles the backlog of a queue whose commands are all complete, or were refused: it is not behind, whatever the device has
    /// stored.
    pub(crate) fn settle(&self, rt: &Runtime) {
        if self.group(rt).slot(rt).publishes.load(Relaxed) == 0 {
            return;
        }
        let Some(backlog) = self.backlog(rt) else { return };
        let wanted = backlog.wanted();
        if backlog.is_behind() && self.timeline.is_numbered_complete() {
            backlog.settle(wanted);
        }
    }

    /// Returns the second place for this fence's number, on the published page, if other programs wait for it or for a fence before it.
    /// Until the device is known to store there, each fence tries.
    pub fn published_place(&self, rt: &Runtime, number: u32) -> Option<*mut u32> {
        let backlog = self.backlog(rt)?;
        let publishes = self.group(rt).slot(rt).publishes.load(Relaxed) != 0;
        let published = &self.publication.published;
        if publishes && !is_before(published.load(Relaxed), backlog.wanted()) {
            return None;
        }
        published.store(number, Relaxed);
        Some(backlog.done_ptr())
    }

    /// Notes that the device can store at [`XQueue::published_place`], or cannot.
    pub fn publishes(&self, rt: &Runtime, can: bool) {
        self.group(rt).slot(rt).publishes.store(can.into(), Relaxed);
    }
}

impl Runtime {
    /// Agent: sets the page on which this process publishes its backlog. It stays mapped until the process ends.
    pub fn set_own_page(&self, page: &'static Page) {
        self.backlog_pages.set_own(page);
    }

    /// Address of this process's backlog page.
    pub fn own_page(&self) -> Option<usize> {
        self.backlog_pages.own().map(|page| core::ptr::from_ref(page).addr())
    }

    /// Agent: sets the page of another process, in its place and with its number.
    pub fn set_page(&self, place: u8, epoch: u32, page: &'static Page) {
        self.backlog_pages.set(place, epoch, page);
    }
}
