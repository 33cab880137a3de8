//! Waits at the closed gate, and what is to be done before one.

use core::cell::Cell;
use core::num::NonZeroU64;
use core::sync::atomic::Ordering::*;
use std::sync::OnceLock;

use xsched_flow::journal::Record;
use xsched_flow::tuning::{GATE_LOOK_NS, TIMER_SLACK_NS};

use crate::clock::now_ns;
use crate::group::Group;
use crate::inherit;
use crate::journal;
use crate::protocol::park::{self, Left};
use crate::queue::{XQueue, is_default};
use crate::runtime::Runtime;
use crate::thread::current;
use crate::used::used;

/// Tells if an interpreter runs the program's signal handlers on the calling thread, once that comes back from its launch.
pub type RunsHandlers = fn() -> bool;

static RUNS_HANDLERS: OnceLock<RunsHandlers> = OnceLock::new();

/// The function to ask when a signal interrupts a thread's wait. The first one stays.
pub fn ask_at_signals(runs_handlers: RunsHandlers) {
    let _ = RUNS_HANDLERS.set(runs_handlers);
}

/// A wait of the calling thread that signals may interrupt, from now until it is dropped.
pub(crate) struct Interruptible {
    /// Beginning of the stretch of the wait that is not yet added up, in ns.
    since: Cell<u64>,
}

impl Interruptible {
    pub(crate) fn begin(now: u64) -> Interruptible {
        Interruptible { since: Cell::new(now) }
    }

    /// Notes that a handler has run on this thread. True: that ends the wait, since an interpreter above must see the signal; a
    /// profiler's tick is over.
    pub(crate) fn signal_ends(&self) -> bool {
        self.add_up();
        let before = current().signals.get();
        let runs_handlers = RUNS_HANDLERS.get().is_some_and(|runs| runs());
        let (after, ends) = before.interrupted(runs_handlers);
        journal::record(|| Record::Interrupted(before, runs_handlers, after, ends));
        current().signals.set(after);
        current().let_through.set(ends);
        ends
    }

    fn add_up(&self) {
        let now = now_ns();
        let signals = &current().signals;
        signals.set(signals.get().waited(now.saturating_sub(self.since.replace(now))));
    }
}

impl Drop for Interruptible {
    fn drop(&mut self) {
        self.add_up();
    }
}

/// A wait of the calling thread for memory that is away from the device.
pub struct MemoryWait {
    began: u64,
    wait: Interruptible,
}

impl MemoryWait {
    /// Begins the wait.
    pub fn begin() -> MemoryWait {
        let began = now_ns();
        MemoryWait { began, wait: Interruptible::begin(began) }
    }

    /// True: the thread must go on, since no daemon says when memory comes back (`rt` is none where scheduling has ended), or a signal has
    /// let it through its gate or has just ended a sleep here.
    pub fn must_end(&self, rt: Option<&Runtime>, is_interrupted: bool) -> bool {
        let ends = is_interrupted && self.wait.signal_ends();
        let Some(rt) = rt else { return true };
        if rt.daemon_is_silent(now_ns(), self.began) {
            rt.detach();
        }
        ends || current().let_through.get() || !rt.memory_is_arbitrated()
    }
}

/// Short timer slack of the calling thread until it is dropped: its sleeps end when they should.
pub(crate) struct PromptSleeps {
    before_ns: Option<u64>,
}

impl PromptSleeps {
    pub(crate) fn begin() -> PromptSleeps {
        let before_ns = rustix::thread::current_timer_slack().ok();
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS));
        PromptSleeps { before_ns }
    }
}

impl Drop for PromptSleeps {
    fn drop(&mut self) {
        if let Some(before_ns) = self.before_ns {
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(before_ns));
        }
    }
}

/// Begins a wait of the calling thread on behalf of a group, which is not idle meanwhile.
pub(crate) fn start_waiting(rt: &Runtime, group: &Group) {
    stop_waiting(rt);
    let must_announce = group.readiness(rt).begin_wait();
    current().begin_wait(group.index);
    // The agent may have called the group idle just now, and the daemon would let it wait for ever.
    if must_announce {
        group.announce(rt);
        rt.poke_if_due();
    }
}

/// The end of [`start_waiting`]: the wait returned now, or was left by `longjmp` some time ago.
pub(crate) fn stop_waiting(rt: &Runtime) {
    let thread = current();
    let Some(at) = thread.end_wait() else { return };
    let group = &rt.groups[at];
    if let Some(since) = thread.leave_gate() {
        group.slot(rt).end_wait(since);
    }
    if let Some(priority) = thread.take_back() {
        inherit::take_back(rt, group, priority);
    }
    group.readiness(rt).end_wait();
}

impl Group {
    /// Waits at the closed gate, as long as the queue that the launch is for `stays` in this group.
    pub(crate) fn wait_open(&self, rt: &Runtime, flush: impl FnOnce(), stays: impl Fn() -> bool) -> Left {
        let slot = self.slot(rt);
        if slot.gate.load().is_open() {
            return Left::Open;
        }
        rt.poke_if_due();
        flush();
        rt.flush_elsewhere(self);
        let began = now_ns();
        current().let_through.set(false);
        rt.waits.at_gate.fetch_add(1, Relaxed);
        self.begin_wait_at_gate(rt, began);
        let wait = Interruptible::begin(began);
        let is_over = || {
            if rt.daemon_is_silent(now_ns(), began) {
                rt.detach();
            }
            // A gate that yields has a wait of its own: `Group::wait_for_backlogs`.
            !stays() || slot.gate.load().yields()
        };
        let left = park::at_gate(&slot.gate, GATE_LOOK_NS, is_over, || wait.signal_ends());
        drop(wait);
        if left == Left::Signal {
            slot.signal_overrides.fetch_add(1, Relaxed);
        }
        self.end_wait_at_gate(rt, began);
        left
    }

    /// Publishes that the calling thread waits at the gate, lends the group its priority, and reports a group that has drained.
    fn begin_wait_at_gate(&self, rt: &Runtime, began: u64) {
        start_waiting(rt, self);
        let daemons_ns = rt.daemon_page.daemons_ns(began);
        self.slot(rt).begin_wait(daemons_ns);
        current().is_at_gate(daemons_ns);
        inherit::lend_at_gate(rt, self);
        if self.is_quiet(rt) {
            self.report_drained(rt);
        } else if self.is_polled(rt) {
            self.waits_since.store(began, Relaxed);
            rt.poke_agent();
        }
    }

    /// The end of [`Group::begin_wait_at_gate`]: accounts for the wait.
    fn end_wait_at_gate(&self, rt: &Runtime, began: u64) {
        stop_waiting(rt);
        self.readiness(rt).undrained();
        let waited_ns = now_ns() - began;
        self.slot(rt).wait_ns.fetch_add(waited_ns, Relaxed);
        self.waits(rt).add(waited_ns / 1_000);
        rt.waits.at_gate_ns.fetch_add(waited_ns, Relaxed);
    }

    /// Makes the commands of its queues begin that the driver may have put off.
    pub(crate) fn flush(&self, rt: &Runtime) {
        rt.flush_queues(rt.queues_of(self));
    }
}

impl XQueue {
    /// Waits for the group's gate: for a command that was to wait behind a gate on the device, which could not be placed, or a thread
    /// that waits for such commands. A signal may end the wait.
    pub fn wait_turn(&self, rt: &'static Runtime) {
        let group = self.group(rt);
        group.wait_open(rt, || group.flush(rt), || self.is_in(group.index));
    }
}

impl Runtime {
    /// Takes note that the calling thread ends: its counters go to the next thread that asks for some.
    pub fn thread_exit(&self) {
        stop_waiting(self);
        self.leave_counters();
    }

    /// Flushes what the calling thread gave to other groups, before it waits at a group's gate. No thread waits for that now, so its
    /// end would be seen late, and such a group seem to want the device, and have it, until then.
    fn flush_elsewhere(&self, group: &Group) {
        if !self.has_one_group() {
            // The next command of a default stream may wait for all others.
            let elsewhere = |q: &&XQueue| q.group.load(Relaxed) != group.index && !is_default(q.handle());
            self.flush_queues(used(self).filter(elsewhere));
        }
    }

    /// Flushes queues. Their handles are pinned with our lock held, so that no queue is destroyed meanwhile; the driver flushes
    /// without it.
    fn flush_queues<'a>(&self, queues: impl Iterator<Item = &'a XQueue>) {
        let flushes: Vec<_> = self.keeping_queues(|| queues.filter_map(|q| q.platform(self).flusher(q)).collect());
        flushes.into_iter().for_each(|flush| flush());
    }
}
