//! Lessons from completions: takes the snapshot for [`xsched_flow::estimate`] and applies what follows from it.

use core::sync::atomic::Ordering::*;

use xsched_flow::estimate::{self, Fence, Lesson, Pace, Seen};
use xsched_flow::journal::Record;

use crate::journal;
use crate::queue::{CompletionFence, XQueue};
use crate::runtime::Runtime;

impl XQueue {
    /// Learns from a completion that was reported at once.
    pub(crate) fn learn(&self, rt: &Runtime, fence: &CompletionFence, now: u64) {
        let before = self.seen.done_at.swap(now, Relaxed);
        let fence = &fence.covers;
        if fence.commands == 1 && fence.key != 0 {
            rt.estimates.sample(fence.key, now.saturating_sub(before.max(fence.at_ns)), self.is_alone(rt));
        }
    }

    /// True: no other program is on the device. Otherwise a measured time may contain another program's work, and only a shorter one
    /// is a sample.
    fn is_alone(&self, rt: &Runtime) -> bool {
        self.group(rt).slot(rt).gate.peek().is_exclusive()
    }

    /// Learns from the fences that the device is found to have reached `now`; none of them had been reached `late_ns` ago. `next` is
    /// the first fence that is not reached.
    pub(super) fn learn_reached(&self, rt: &Runtime, reached: &[Fence], next: Option<&Fence>, now: u64, late_ns: u64) {
        let group = self.group(rt);
        let slot = group.slot(rt);
        let done = self.timeline.done();
        let seen = Seen {
            now_ns: now,
            late_ns,
            before_ns: self.seen.done_at.swap(now, Relaxed),
            before_late_ns: self.seen.late_ns.swap(late_ns, Relaxed),
            epoch: slot.grants.load(Relaxed),
            done: done.seq,
            done_ns: done.ns,
            exclusive: self.is_alone(rt),
            budgeted: slot.budget_us.load(Relaxed) != 0,
        };
        let known = |key| rt.estimates.get(key);
        let lessons = Lessons::new(|| with_known(reached, known));
        estimate::learn(&seen, reached, known, |lesson| lessons.apply(rt, self, lesson));
        lessons.end(|fences, applied| Record::Learn(seen, fences, applied));

        let measurable =
            seen.exclusive && seen.budgeted && next.is_some() && self.in_order() && self.busy_others(rt) == 0;
        let pace = Pace { since_ns: self.seen.busy_since.load(Relaxed), from_ns: self.seen.busy_from_ns.load(Relaxed) };
        let lessons = Lessons::new(|| with_known(reached, known));
        let learns = |lesson| lessons.apply(rt, self, lesson);
        let after = estimate::learn_pace(pace, &seen, reached, next, measurable, known, learns);
        self.seen.busy_since.store(after.since_ns, Relaxed);
        self.seen.busy_from_ns.store(after.from_ns, Relaxed);
        lessons.end(|fences, applied| Record::Pace(pace, seen, fences, next.copied(), measurable, applied, after));
    }
}

type Known = Vec<(Fence, Option<u64>)>;

fn with_known(fences: &[Fence], known: impl Fn(u64) -> Option<u64>) -> Known {
    fences.iter().map(|fence| (*fence, known(fence.key))).collect()
}

/// Applies lessons, and gathers them for the journal if there is one.
struct Lessons(Option<(Known, core::cell::RefCell<Vec<Lesson>>)>);

impl Lessons {
    fn new(known: impl FnOnce() -> Known) -> Lessons {
        Lessons(journal::is_on().then(|| (known(), Default::default())))
    }

    fn apply(&self, rt: &Runtime, queue: &XQueue, lesson: Lesson) {
        if let Some((_, lessons)) = &self.0 {
            lessons.borrow_mut().push(lesson);
        }
        rt.estimates.learn(lesson, queue.group(rt).slot(rt));
    }

    fn end(self, record: impl FnOnce(Known, Vec<Lesson>) -> Record) {
        if let Some((fences, lessons)) = self.0 {
            journal::record(|| record(fences, lessons.into_inner()));
        }
    }
}
