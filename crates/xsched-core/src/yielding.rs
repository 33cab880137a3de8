//! The waits of a group that yields, and the urgent program's part in that: see [`crate::company`].

use core::sync::atomic::Ordering::*;

use xsched_flow::backlog::{Behind, Published};
use xsched_flow::journal::Record;
use xsched_flow::tuning::{HELD_LONG_NS, TIMER_SLACK_NS};
use xsched_proto::backlog::{Backlog, Page, is_before};
use xsched_proto::gate::Gate;
use xsched_proto::memory::Woken;

use crate::clock::now_ns;
use crate::company::Yielded;
use crate::group::Group;
use crate::journal;
use crate::queue::XQueue;
use crate::runtime::Runtime;
use crate::waiting::{Interruptible, start_waiting, stop_waiting};

impl Group {
    /// True: a command may go on at this gate without a wait.
    pub(crate) fn lets_go_on(&self, rt: &Runtime, gate: Gate) -> bool {
        gate.is_open() || gate.yields() && self.look_at_company(rt)
    }

    /// A look at those that the group yields to, before a command.
    fn look_at_company(&self, rt: &Runtime) -> bool {
        let clear = rt.company.is_clear(self.slot(rt));
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

    /// Waits at a gate that yields until the groups that it yields to keep up (true: a command may go on), or the gate is another.
    /// Nothing wakes a thread when a device has caught up, so it looks again and again.
    pub(crate) fn wait_for_company(&self, rt: &Runtime) -> bool {
        let slot = self.slot(rt);
        rt.poke_if_due();
        rt.flush(self);
        let began = now_ns();
        start_waiting(rt, self);
        let wait = Interruptible::begin(began);
        let slack = rustix::thread::current_timer_slack();
        let _ = rustix::thread::set_current_timer_slack(core::num::NonZeroU64::new(TIMER_SLACK_NS));
        let mut tells = false;
        let goes_on = loop {
            // The daemon need not know of most holds: they are short.
            if !tells && now_ns().saturating_sub(began) > HELD_LONG_NS && rt.is_quiet(self) {
                tells = true;
                self.report_drained(rt);
            }
            let gate = slot.gate.load();
            if gate.is_open() || !gate.yields() {
                break false;
            }
            if self.look_at_company(rt) {
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
        if let Ok(slack) = slack {
            let _ = rustix::thread::set_current_timer_slack(core::num::NonZeroU64::new(slack));
        }
        drop(wait);
        stop_waiting(rt);
        if tells {
            self.readiness(rt).undrained();
            rt.notify_daemon();
        }
        slot.yield_wait_ns.fetch_add(now_ns().saturating_sub(began), Relaxed);
        goes_on
    }
}

impl XQueue {
    /// Where the queue tells how it keeps up, if it does.
    fn backlog(&self, rt: &Runtime) -> Option<&'static Backlog> {
        rt.company.own()?.queue(self.index)
    }

    /// Before a command that brings the expected time up to `issued_ns`, `fenced_ns` of it before the last fence: tells others if
    /// the device will be behind then. True: the command needs a fence, by which the device says that it has caught up.
    pub(crate) fn publish(&self, rt: &Runtime, command: Behind, issued_ns: u64, fenced_ns: u64) -> bool {
        let Some(backlog) = self.backlog(rt) else { return false };
        let mut ask = Behind {
            unfenced_ns: issued_ns.saturating_sub(fenced_ns),
            unwanted_ns: issued_ns.saturating_sub(self.wanted_ns.load(Relaxed)),
            ..command
        };
        let in_flight_ns = || issued_ns.saturating_sub(self.timeline.done().ns);
        ask.in_flight_ns = in_flight_ns();
        // What is complete is looked at only where it decides.
        if ask.published(|| 0) != Published::default() {
            self.refresh(rt);
            ask.in_flight_ns = in_flight_ns();
            ask.few_fences = self.has_few_fences();
        }
        let mut consumed_ns = 0;
        let published = ask.published(|| {
            consumed_ns = self.consumed_ns();
            consumed_ns
        });
        journal::record(|| Record::Behind(ask, consumed_ns, published));
        if published.wanted {
            backlog.want(self.upcoming_fence());
            self.wanted_ns.store(issued_ns, Relaxed);
        }
        published.fence
    }

    /// The fence that others wait for was not placed: the next command gets one if the queue is behind still.
    pub(crate) fn want_again(&self) {
        self.wanted_ns.store(0, Relaxed);
    }

    /// All that the queue was given is complete, or was refused: it is not behind, whatever the device has said.
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

    /// The queue is no more: nothing of it is behind.
    pub(crate) fn leave_company(&self, rt: &Runtime) {
        if let Some(backlog) = self.backlog(rt) {
            backlog.settle(backlog.wanted());
        }
    }

    /// Returns the second place for this fence's number, on the published page, if other programs wait for it or for a fence before it.
    /// Until the device is known to store there, each fence tries.
    pub fn published_place(&self, rt: &Runtime, number: u32) -> Option<*mut u32> {
        let backlog = self.backlog(rt)?;
        let publishes = self.group(rt).slot(rt).publishes.load(Relaxed) != 0;
        if publishes && !is_before(self.published.load(Relaxed), backlog.wanted()) {
            return None;
        }
        self.published.store(number, Relaxed);
        Some(backlog.done_ptr())
    }

    /// The device can store there, or cannot.
    pub fn publishes(&self, rt: &Runtime, can: bool) {
        self.group(rt).slot(rt).publishes.store(can.into(), Relaxed);
    }
}

impl Runtime {
    /// Agent: the page on which this process tells how its queues keep up. It stays mapped until the process ends.
    pub fn set_own_page(&self, page: &'static Page) {
        self.company.set_own(page);
    }

    /// The page of this process as memory: where it begins.
    pub fn own_page(&self) -> Option<usize> {
        self.company.own().map(|page| core::ptr::from_ref(page).addr())
    }

    /// Agent: the page of another process, its place and its number.
    pub fn set_page(&self, place: u8, epoch: u32, page: &'static Page) {
        self.company.set(place, epoch, page);
    }

    /// Counts of the groups that yield.
    pub fn yielded(&self) -> Yielded {
        self.groups().fold(Yielded::default(), |sum, group| Yielded {
            holds: sum.holds + group.yields.holds.load(Relaxed),
            held_us: sum.held_us + group.slot(self).yield_wait_ns.load(Relaxed) / 1000,
            passed: sum.passed + group.slot(self).yield_passed.load(Relaxed),
        })
    }
}
