//! How much may be in flight: the bound, gates on the device, and what may be given while the gate is closed.

use core::sync::atomic::Ordering::*;

use xsched_flow::admission::{Budget, InFlight, Pause};
use xsched_flow::journal::Record;
use xsched_proto::segment::gate;

use super::XQueue;
use crate::estimate::UNKNOWN_NS;
use crate::group::Group;
use crate::runtime::Runtime;
use crate::{journal, now_ns, thread};

/// The bound lets one more command through when nothing completed for this long, in ns (or four times the bound).
const ESCAPE_NS: u64 = 5_000_000;
/// … but not longer than this for commands that are expected to be long, in ns.
const ESCAPE_LONG_NS: u64 = 1_000_000_000;
/// How often a thread at the bound looks at the memory that tells of completions, in ns, unless something is expected at any moment …
const POLL_NS: u64 = 50_000;
/// … which it then awaits awake: from so long before it until so long after, in ns. A device that has to wait for a thread
/// to wake up stands idle meanwhile.
const AWAKE_NS: u64 = 30_000;
/// What is left of the commands in flight may be this little, in ns, before the next one must be on its way, whatever the
/// bound: so the device finds the next command when it ends one.
const LEAD_NS: u64 = 50_000;
/// Where the device has gates, commands at least this long, in ns, each get one, and shorter ones whenever as much as the
/// bound allows came since the last …
const LONG_NS: u64 = 150_000;
/// … and so many times the bound may be in flight: all but what runs can still be held.
const GATED: u64 = 8;
/// So many commands are given at most while the gate is closed. Not more: the driver's own queues must not fill up (CUDA's
/// take 1,024 a stream, marks and gates included).
const AHEAD_COMMANDS: u64 = 512;

impl XQueue {
    /// Waits until one more command of `estimate_ns` fits into the bound. False: the gate closed meanwhile.
    pub(super) fn within_bound(&self, rt: &'static Runtime, group: &Group, estimate_ns: u64) -> bool {
        let slot = group.slot(rt);
        let mut bound_ns = u64::from(slot.bound_us.load(Relaxed)) * 1000;
        if self.has_gates(rt, slot.level.load(Relaxed)) {
            bound_ns *= GATED;
        }
        let commands = u64::from(slot.bound_commands.load(Relaxed));
        let first = core::cell::RefCell::new(true);
        let fits = || {
            let (n, ns) = rt.queues_of(group).map(XQueue::in_flight).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
            // What the running command has left is looked at only where it decides: it takes a lock and the time.
            let mut consumed = 0;
            let time = bound_ns == 0 || n == 0 || ns + estimate_ns <= bound_ns || {
                consumed = self.consumed_ns();
                let left = ns.saturating_sub(consumed);
                left + estimate_ns <= bound_ns || left <= LEAD_NS
            };
            let fits = time && (commands == 0 || n < commands);
            if fits || core::mem::take(&mut *first.borrow_mut()) {
                journal::record(|| {
                    let (budget, in_flight) = (Budget { ns: bound_ns, commands }, InFlight { commands: n, ns });
                    Record::Fits(budget, in_flight, estimate_ns, consumed, fits)
                });
            }
            fits
        };
        if bound_ns == 0 && commands == 0 {
            return true;
        }
        if fits() || {
            rt.refresh(group);
            fits()
        } {
            group.escapes.store(0, Relaxed);
            group.escape_credit.store(0, Relaxed);
            return true;
        }
        if group.escape_credit.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_ok() {
            slot.bound_escapes.fetch_add(1, Relaxed);
            return true;
        }
        rt.poke_if_due();
        rt.flush(group);
        // What is in flight may simply be long, or be much: of the time without rivals nothing was followed.
        let untracked = |q: &XQueue| q.fast_launches(rt).saturating_sub(q.fast_done.load(Acquire));
        let expected_ns = rt.queues_of(group).map(|q| q.in_flight().1 + untracked(q) * UNKNOWN_NS).sum::<u64>();
        let patience = ESCAPE_NS.max(4 * bound_ns).max((2 * expected_ns).min(ESCAPE_LONG_NS));
        journal::record(|| Record::Patience(bound_ns, expected_ns, patience));
        let polled = !self.platform(rt).reports_completion_of(self);
        let began = now_ns();
        let mut since = began;
        thread::start_waiting(rt, group);
        group.progress_waiters.fetch_add(1, AcqRel);
        // Turns may be shorter than the patience: what was waited in one counts in the next.
        let waited_before = |seen| match self.waited_since.load(Relaxed) == seen {
            true => self.waited_ns.load(Relaxed),
            false => 0,
        };
        // Sleeps are 50 µs longer than asked for otherwise.
        let slack = rustix::thread::current_timer_slack();
        let _ = rustix::thread::set_current_timer_slack(core::num::NonZeroU64::new(1000));
        let ok = loop {
            let seen = group.progress.load(Acquire);
            if slot.gate.load(Acquire) & gate::OPEN_MASK == 0 || self.group.load(Relaxed) != group.index {
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
                slot.bound_escapes.fetch_add(1, Relaxed);
                // A program that provides what its commands wait for only after thousands of them must not wait
                // thousands of times: each time in a row lets twice as many through.
                let row = group.escapes.fetch_add(1, Relaxed).min(12);
                group.escape_credit.store((1 << row) - 1, Relaxed);
                journal::record(|| Record::Override(row, (1 << row) - 1));
                break true;
            }
            let limit = if polled {
                // The next command is due a little before the next completion.
                let due_ns = self.next_completion_ns(now_ns());
                let due = due_ns - LEAD_NS as i64;
                if (-((LEAD_NS + AWAKE_NS) as i64)..=AWAKE_NS as i64).contains(&due) {
                    rustix::thread::sched_yield();
                    continue;
                }
                let sleep = if due > 0 { (due as u64 - AWAKE_NS).min(POLL_NS) } else { POLL_NS };
                journal::record(|| Record::Pause(due_ns, Pause::Sleep(sleep)));
                sleep
            } else {
                patience - waited
            };
            let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: limit.min(1_000_000) as _ };
            use rustix::thread::futex;
            if let Err(rustix::io::Errno::INTR) =
                futex::wait(&group.progress, futex::Flags::PRIVATE, seen, Some(&timeout))
            {
                slot.signal_escapes.fetch_add(1, Relaxed);
                break true;
            }
            if group.progress.load(Acquire) != seen {
                since = now_ns();
            }
        };
        if let Ok(slack) = slack {
            let _ = rustix::thread::set_current_timer_slack(core::num::NonZeroU64::new(slack));
        }
        group.progress_waiters.fetch_sub(1, Release);
        thread::stop_waiting(rt);
        rt.at_bound_ns.fetch_add(now_ns().saturating_sub(began), Relaxed);
        ok
    }

    /// For a command that was to wait behind a gate on the device, which could not be placed, or a thread that waits for such
    /// commands. A signal ends the wait.
    pub fn wait_turn(&self, rt: &'static Runtime) {
        let group = self.group(rt);
        group.wait_open(rt, || rt.flush(group), || self.group.load(Acquire) == group.index);
    }

    /// Tracked commands that are not known to be complete, followed or not.
    pub(crate) fn issued(&self) -> u64 {
        let done = self.done.load(Acquire);
        self.tracked.load(Acquire).saturating_sub(done)
    }

    /// Whether its commands get gates on the device (level 2), more or less often.
    pub(super) fn has_gates(&self, rt: &Runtime, level: u32) -> bool {
        level >= 2 && rt.has_one_group() && !rt.is_entangled()
    }

    /// Whether a command gets a gate, where there are any. Not each, unless asked for: a gate costs what a short kernel
    /// takes. Queues of the group that have work share what may run ungated, down to the length of a long command each.
    pub(super) fn is_gated(&self, rt: &Runtime, bound_ns: u64, estimate_ns: u64) -> bool {
        if rt.forced_level().is_some() || estimate_ns >= LONG_NS {
            return true;
        }
        let ungated_ns = self.issued_ns.load(Relaxed).saturating_sub(self.gated_ns.load(Relaxed)) + estimate_ns;
        ungated_ns > bound_ns || ungated_ns > LONG_NS && ungated_ns > bound_ns / (1 + self.busy_others(rt))
    }

    /// Other queues of the group that have work.
    pub(super) fn busy_others(&self, rt: &Runtime) -> u64 {
        let others = rt.queues_of(self.group(rt)).filter(|q| q.index != self.index && q.in_flight().0 > 0);
        others.count() as u64
    }

    /// When the next mark should be reached, in ns from now; negative = that time has passed.
    fn next_completion_ns(&self, now: u64) -> i64 {
        let Ok(marks) = self.marks.try_lock() else { return 0 };
        let Some(mark) = marks.front() else { return i64::MIN / 2 };
        let took = mark.issued_ns.saturating_sub(self.done_ns.load(Acquire));
        (self.last_done_at.load(Relaxed).max(mark.at) + took).wrapping_sub(now) as i64
    }

    /// What the device has probably done of the commands up to the next mark, in ns: never more than they take.
    fn consumed_ns(&self) -> u64 {
        let Ok(marks) = self.marks.try_lock() else { return 0 };
        let Some(mark) = marks.front() else { return 0 };
        let took = mark.issued_ns.saturating_sub(self.done_ns.load(Acquire));
        now_ns().saturating_sub(self.last_done_at.load(Relaxed).max(mark.at)).min(took)
    }
}

/// Whether one more command may be given while the gate is closed. Programs that are slow at giving them get ahead so while
/// others have the device, and the device finds work when their turn comes, before any thread has woken up.
pub(super) fn fits_ahead(rt: &Runtime, group: &Group) -> bool {
    rt.refresh(group);
    rt.queues_of(group).map(XQueue::issued).sum::<u64>() < AHEAD_COMMANDS
}
