//! The unit of suspension.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};

use xsched_proto::class::SHORT_US;
use xsched_proto::gate::Gate;
use xsched_proto::memory::Hardware;
use xsched_proto::segment::{GroupSlot, length, state};

use xsched_flow::activity::{Activity, Step, View, next_grace_ns};
use xsched_flow::journal::Record;
use xsched_flow::tuning::{FIRST_GRACE_NS, GATE_LOOK_NS, LENGTHS_NS, LONG_PARTS};

use crate::protocol::idle::Readiness;
use crate::protocol::park::{self, Left, Progress};
use crate::protocol::registration::{Answered, Holding, Registration, wait_registered};
use crate::runtime::Runtime;
use crate::thread;
use crate::{journal, now_ns};

/// All XQueues of a process on a device that have the same priority. Suspended together, so that a queue can never
/// be held by another queue that is not.
pub struct Group {
    pub(crate) index: u16,
    pub(crate) used: AtomicU32,
    pub(crate) registration: AtomicU32,
    /// Until then a launch waits for the daemon's answer.
    pub(crate) attach_deadline: AtomicU64,
    /// Threads that wait, at the closed gate or for the bound.
    pub(crate) waiting: AtomicU32,
    /// Threads inside a call that waits for the device.
    pub(crate) syncing: AtomicU32,
    /// For threads that wait for the budget.
    pub(crate) progress: Progress<Hardware>,
    /// How often in a row the bound had to let commands through, and how many more it lets through without a wait.
    pub(crate) overrides_in_a_row: AtomicU32,
    pub(crate) override_credit: AtomicU32,
    /// When the group drained, waiting for the grace time to pass; 0 = not.
    pub(crate) grace_since: AtomicU64,
    pub(crate) grace_ns: AtomicU64,
    /// When a thread last began to wait at the closed gate while commands were in flight.
    waits_since: AtomicU64,
    /// Gates inside recorded commands wait for its word.
    pub(crate) holds_inside: AtomicBool,
    /// After which turn gates on the device were seen to hold commands, since when (in ns), and after which turn they let them go
    /// on; see [`crate::device_gates`].
    pub(crate) held_epoch: AtomicU32,
    pub(crate) held_since: AtomicU64,
    pub(crate) released_epoch: AtomicU32,
    /// Expected time of the commands under a bound since [`GroupSlot::lengths`] was told last, and of the long ones among
    /// them, in ns.
    bounded_ns: AtomicU64,
    bounded_long_ns: AtomicU64,
    /// Priority by which [`crate::Inheritance`] compares groups of a process.
    pub(crate) priority: AtomicI32,
    pub(crate) inherited: std::sync::Mutex<Vec<i32>>,
}

impl Group {
    pub(crate) fn new(index: u16) -> Self {
        Group {
            index,
            used: AtomicU32::new(0),
            registration: AtomicU32::new(Registration::Pending as u32),
            attach_deadline: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            syncing: AtomicU32::new(0),
            progress: Progress::new(),
            overrides_in_a_row: AtomicU32::new(0),
            override_credit: AtomicU32::new(0),
            grace_since: AtomicU64::new(0),
            grace_ns: AtomicU64::new(FIRST_GRACE_NS),
            waits_since: AtomicU64::new(0),
            holds_inside: AtomicBool::new(false),
            held_epoch: AtomicU32::new(0),
            held_since: AtomicU64::new(0),
            released_epoch: AtomicU32::new(0),
            bounded_ns: AtomicU64::new(0),
            bounded_long_ns: AtomicU64::new(0),
            priority: AtomicI32::new(0),
            inherited: std::sync::Mutex::new(Vec::new()),
        }
    }

    /// Index of its slot in the segment.
    pub fn index(&self) -> u16 {
        self.index
    }

    pub(crate) fn slot<'a>(&self, rt: &'a Runtime) -> &'a GroupSlot {
        &rt.segment.groups[usize::from(self.index)]
    }

    /// Its words that say whether it wants the device.
    pub(crate) fn readiness<'a>(&'a self, rt: &'a Runtime) -> Readiness<'a, Hardware> {
        let slot = self.slot(rt);
        Readiness { gate: &slot.gate, state: &slot.state, waiting: &self.waiting }
    }

    fn holding<'a>(&'a self, rt: &'a Runtime) -> Holding<'a, Hardware> {
        Holding { readiness: self.readiness(rt), registration: &self.registration }
    }

    /// Launches of its queues.
    pub fn launches(&self, rt: &Runtime) -> u64 {
        rt.launches_of(self)
    }

    /// Whether the agent must look for its completions, or at the group itself since it has no queue left that could tell
    /// of any.
    pub fn is_polled(&self, rt: &Runtime) -> bool {
        let mut queues = rt.queues_of(self).peekable();
        queues.peek().is_none() || queues.any(|q| !q.calls_back())
    }

    /// Announces that the group wants the device, if the daemon does not know yet. The agent, which looks for completions,
    /// has time until there is something to look for: see [`Runtime::poke_if_due`].
    pub(crate) fn announce(&self, rt: &Runtime) {
        let ready = || self.slot(rt).ready_at_ns.store(now_ns(), Relaxed);
        if self.readiness(rt).announce(ready) {
            rt.notify_daemon();
            rt.poke_due.store(true, Release);
        }
    }

    /// Tells the daemon that a group which it takes for idle for want of progress has launched something.
    #[cold]
    pub(crate) fn go_on(&self, rt: &Runtime) {
        if self.slot(rt).gate.go_on() {
            rt.notify_daemon();
        }
    }

    /// Called by a launch that was drained before: measures the gap, so that the grace time can follow it.
    pub(crate) fn end_grace(&self) {
        if self.grace_since.load(Relaxed) == 0 {
            return;
        }
        let armed = self.grace_since.swap(0, Relaxed);
        if armed == 0 {
            return;
        }
        let gap = now_ns().saturating_sub(armed);
        let grace = self.grace_ns.load(Relaxed);
        let next = next_grace_ns(grace, gap);
        journal::record(|| Record::Grace(grace, gap, next));
        self.grace_ns.store(next, Relaxed);
    }

    /// Called when a completion or the end of a synchronising call may have emptied the group. Without rivals
    /// this is not urgent: the agent's rare looks are enough, and cost the program nothing.
    pub fn update_idle_state(&self, rt: &Runtime) {
        if self.is_contended(rt) {
            self.update_idle_state_always(rt);
        }
    }

    /// The same, rivals or not.
    pub(crate) fn update_idle_state_always(&self, rt: &Runtime) {
        // The gate first: behind a closed one nothing new is given while the queues are looked at.
        let gate = self.slot(rt).gate.load();
        let complete = gate.must_announce() || rt.is_quiet(self);
        let view = self.view(rt, gate, complete, now_ns());
        journal::record(|| Record::activity(view));
        match Activity::of(&view).step() {
            Step::Nothing => {}
            Step::TellDrained => self.report_drained(rt),
            Step::BeginGrace => {
                if self.grace_since.compare_exchange(0, view.now_ns, SeqCst, Relaxed).is_ok() {
                    rt.agent_by(view.now_ns + view.grace_ns);
                }
            }
        }
    }

    /// What [`Activity`] goes by; `complete` = all of its commands are known to be.
    fn view(&self, rt: &Runtime, gate: Gate, complete: bool, now_ns: u64) -> View {
        View {
            word: gate.bits(),
            told: self.slot(rt).state.load(Acquire),
            complete,
            waiters: self.waiting.load(Acquire),
            waits_since_ns: self.waits_since.load(Relaxed),
            grace_since_ns: self.grace_since.load(Relaxed),
            grace_ns: self.grace_ns.load(Relaxed),
            now_ns,
        }
    }

    /// The same without a look at its queues: while the grace time runs they are complete.
    fn known(&self, rt: &Runtime, now: u64) -> View {
        let gate = self.slot(rt).gate.load();
        self.view(rt, gate, self.grace_since.load(Relaxed) != 0, now)
    }

    /// Where the group stands as far as is known without a look at its queues.
    pub fn activity(&self, rt: &Runtime, now: u64) -> Activity {
        let view = self.known(rt, now);
        journal::record(|| Record::activity(view));
        Activity::of(&view)
    }

    fn report_drained(&self, rt: &Runtime) {
        if self.readiness(rt).drained() {
            rt.notify_daemon();
        }
    }

    /// Whether another group shares the device, according to a daemon that is present: the word of one that is gone does not
    /// count.
    pub fn is_contended(&self, rt: &Runtime) -> bool {
        xsched_flow::activity::is_contended(self.slot(rt).gate.load().bits())
    }

    /// Time left until it is to be decided whether the group is idle, in ns; `None` if its grace time does not run, or the daemon
    /// does not ask. At the end of this time there is something to decide.
    pub fn idle_due_ns(&self, rt: &Runtime, now: u64) -> Option<u64> {
        self.is_contended(rt).then(|| Activity::of(&self.known(rt, now)).grace_left_ns()).flatten()
    }

    /// Agent: declares the group idle unless a launch came in between. `exact` also wants every launch complete.
    /// Returns the number of launches after which it is idle.
    pub fn try_idle(&self, rt: &Runtime, exact: bool) -> Option<u64> {
        let before = rt.launches_of(self);
        let busy = || match exact {
            true => !rt.is_quiet(self),
            false => rt.queues_of(self).any(|q| q.waits_for_turn(rt) || q.is_followed(rt)),
        };
        if self.waiting.load(Acquire) > 0 || rt.is_waited_for(self) || busy() {
            self.grace_since.store(0, Relaxed);
            return None;
        }
        let came = || rt.launches_of(self) != before || exact && !rt.is_quiet(self);
        let idle = self.readiness(rt).call_idle(came);
        if !idle {
            self.grace_since.store(0, Relaxed);
            return None;
        }
        // The beginning of the grace time stays: the next launch measures the gap from there, however long it was.
        rt.idles.fetch_add(exact.into(), Relaxed);
        rt.notify_daemon();
        Some(before)
    }

    /// Keeps account of how long the commands are that are held to a bound, as far as it is known: time slices go by that.
    pub(crate) fn note_length(&self, slot: &GroupSlot, ns: u64) {
        // Threads that do so at the same time may lose some of it: it need not be exact.
        if ns > SHORT_US * 1000 {
            self.bounded_long_ns.store(self.bounded_long_ns.load(Relaxed) + ns, Relaxed);
        }
        let all_ns = self.bounded_ns.load(Relaxed) + ns;
        self.bounded_ns.store(all_ns, Relaxed);
        if all_ns >= LENGTHS_NS {
            let long_ns = self.bounded_long_ns.swap(0, Relaxed);
            self.bounded_ns.store(0, Relaxed);
            slot.lengths.store(if long_ns * LONG_PARTS <= all_ns { length::SHORT } else { length::LONG }, Relaxed);
        }
    }

    /// Waits at the closed gate, as long as the queue it concerns `stays` in this group.
    pub(crate) fn wait_open(&self, rt: &Runtime, flush: impl FnOnce(), stays: impl Fn() -> bool) -> Left {
        let slot = self.slot(rt);
        if slot.gate.load().is_open() {
            return Left::Open;
        }
        rt.poke_if_due();
        flush();
        rt.flush_elsewhere(self);
        let began = now_ns();
        rt.gate_waits.fetch_add(1, Relaxed);
        thread::start_waiting(rt, self);
        crate::inherit::lend_at_gate(rt, self);
        if rt.is_quiet(self) {
            self.report_drained(rt);
        } else if self.is_polled(rt) {
            self.waits_since.store(began, Relaxed);
            rt.poke_agent();
        }
        let left = park::at_gate(&slot.gate, GATE_LOOK_NS, || {
            if rt.daemon_is_silent(now_ns(), began) {
                rt.detach();
            }
            !stays()
        });
        if left == Left::Signal {
            // A handler ran on this thread: let the interpreter above us see it.
            slot.signal_overrides.fetch_add(1, Relaxed);
        }
        thread::stop_waiting(rt);
        self.readiness(rt).undrained();
        let waited_ns = now_ns() - began;
        slot.wait_ns.fetch_add(waited_ns, Relaxed);
        rt.at_gate_ns.fetch_add(waited_ns, Relaxed);
        left
    }

    /// Waits for the daemon's answer to the registration until `deadline_ns`.
    pub(crate) fn wait_registered(&self, deadline_ns: u64) -> Registration {
        wait_registered::<Hardware>(&self.registration, || deadline_ns.saturating_sub(now_ns()))
    }

    /// The last queue moved away. What it left behind gates on the device would wait for a gate that is never opened
    /// again: it stands open from now on, and the group is idle.
    pub(crate) fn abandon(&self, rt: &Runtime) {
        let slot = self.slot(rt);
        slot.gate.call_idle();
        slot.gate.detach();
        slot.state.store(state::IDLE, Release);
        self.grace_since.store(0, Relaxed);
        rt.notify_daemon();
    }

    /// The counterpart of [`Group::abandon`]: a queue is about to move here.
    pub(crate) fn expect(&self, rt: &Runtime) {
        if self.registration.load(Acquire) == Registration::Attached as u32 {
            self.slot(rt).gate.let_hold();
        }
    }

    /// Agent: the daemon answered, or there is none.
    pub fn set_registration(&self, rt: &Runtime, registration: Registration) {
        match registration {
            Registration::Attached => {
                rt.registered.store(true, Release);
                let answered = self.holding(rt).attach(|| !rt.is_quiet(self), || rt.is_detached());
                // A thread may have launched meanwhile, and the group be busy: look soon.
                self.grace_since.store(0, Relaxed);
                if answered == Answered::Busy {
                    self.announce(rt);
                }
            }
            Registration::Detached | Registration::Pending => self.holding(rt).detach(),
        }
    }
}
