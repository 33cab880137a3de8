//! What is learned of how long commands take from when they are seen complete.

use core::sync::atomic::Ordering::*;

use xsched_flow::estimate::{Fence, Lesson, Pace, Seen};
use xsched_flow::journal::Record;
use xsched_proto::segment::gate;

use super::{Mark, XQueue};
use crate::estimate::UNKNOWN_NS;
use crate::journal;
use crate::runtime::Runtime;

/// What a command that had company on the device took is divided by this to be sure of it.
const SHARED_BY: u64 = 4;
/// A completion is known this exactly, in ns, or to this part of the time it took, or nothing is learned from it.
const EXACT_NS: u64 = 10_000;
const EXACT_PART: u64 = 8;
/// The pace is judged by at least so long without a pause, in ns.
const PACE_NS: u64 = 2_000_000;

impl XQueue {
    /// Learns from a completion that was told at once.
    pub(super) fn learn(&self, rt: &Runtime, mark: &Mark, now: u64) {
        let before = self.last_done_at.swap(now, Relaxed);
        if mark.commands == 1 && mark.key != 0 {
            rt.estimates.sample(mark.key, now.saturating_sub(before.max(mark.at)), self.is_alone(rt));
        }
    }

    /// With company on the device a time may hold somebody else's work, so that only a shorter one says something.
    fn is_alone(&self, rt: &Runtime) -> bool {
        self.group(rt).slot(rt).gate.load(Relaxed) & gate::SOLO != 0
    }

    /// Learns from the marks that the device has passed when it is looked at `now`; none of them had been passed when it
    /// was looked at `late_ns` ago.
    pub(super) fn learn_passed(&self, rt: &Runtime, passed: &[Mark], now: u64, late_ns: u64) {
        let ([first, ..], [.., last]) = (passed, passed) else { return };
        let before = self.last_done_at.swap(now, Relaxed);
        let before_late_ns = self.last_late_ns.swap(late_ns, Relaxed);
        // What waited for another turn took a time that says nothing.
        let turn = self.group(rt).slot(rt).turns.load(Relaxed);
        let told = Told::new(|| {
            let seen = Seen { before_ns: before, before_late_ns, ..self.seen(rt, now, late_ns) };
            (seen, fences(rt, passed))
        });
        if passed.iter().any(|m| m.key != 0 && m.turn != Some(turn)) {
            return;
        }
        // Of several that were all followed, the time is that of the longest but for what the others are known to take: a
        // short command behind a long one is passed before anybody looks.
        if let Some(mark) = passed.iter().max_by_key(|m| m.estimate_ns)
            && mark.key != 0
            && passed.iter().all(|m| m.commands == 1)
            && passed.iter().all(|m| m.number == mark.number || rt.estimates.get(m.key).is_some())
        {
            let others = passed.iter().map(|m| m.estimate_ns).sum::<u64>() - mark.estimate_ns;
            let took = now.saturating_sub(before.max(first.at));
            let exact = EXACT_NS.max(took / EXACT_PART);
            if others <= exact.min(took) && late_ns <= exact && (before_late_ns <= exact || first.at > before) {
                let took = took - others;
                let alone = self.is_alone(rt);
                told.learned(|| Lesson::Sample { key: mark.key, ns: took, exclusive: alone, tells: true });
                rt.estimates.sample(mark.key, took, alone);
                let slot = self.group(rt).slot(rt);
                let ns = if alone {
                    rt.estimates.get(mark.key).unwrap_or(0)
                } else if slot.bound_us.load(Relaxed) == 0 {
                    // Never held, it shared the device with others: with few, most of the time.
                    rt.estimates.shortest_shared(mark.key).unwrap_or(0) / SHARED_BY
                } else {
                    0
                };
                slot.longest_us.fetch_max(ns / 1000, Relaxed);
                return;
            }
        }
        // However late they were seen: together they cannot have taken longer than this.
        let most = now.saturating_sub(before.saturating_sub(before_late_ns).max(first.at));
        let expected = last.issued_ns.saturating_sub(self.done_ns.load(Acquire));
        let all_followed = passed.iter().all(|m| m.commands == 1);
        if all_followed && most < expected {
            for mark in passed {
                let share = u128::from(mark.estimate_ns) * u128::from(most) / u128::from(expected);
                told.learned(|| Lesson::Lower { key: mark.key, ns: share as u64 });
                rt.estimates.lower(mark.key, share as u64);
            }
            return;
        }
        // Of those of which nothing was known, what the others leave of the time is a beginning. Not where some were not
        // tracked: of those most may have been complete when the first mark was given.
        let unknown = || passed.iter().filter(|m| m.key != 0 && rt.estimates.get(m.key).is_none());
        let count = unknown().count() as u64;
        let commands = passed.iter().map(|m| m.commands).sum::<u64>();
        if commands == last.seq.saturating_sub(self.done.load(Acquire)) {
            let left = most.saturating_sub(expected.saturating_sub(count * UNKNOWN_NS));
            let rest = left.checked_div(count).unwrap_or(0).max(most / commands.max(1));
            unknown().for_each(|mark| {
                told.learned(|| Lesson::Lower { key: mark.key, ns: rest });
                rt.estimates.lower(mark.key, rest);
            });
        }
        passed.iter().filter(|m| most < m.estimate_ns).for_each(|mark| {
            told.learned(|| Lesson::Lower { key: mark.key, ns: most });
            rt.estimates.lower(mark.key, most);
        });
    }

    /// Commands that are expected to be shorter than they are would fill the device beyond the bound, and nobody would wait
    /// for the bound and see how long they take. But where the device was at work without a pause, all up to the one it is at
    /// now cannot have taken less than that.
    pub(super) fn learn_pace(&self, rt: &Runtime, passed: &[Mark], next: Option<&Mark>, now: u64, late_ns: u64) {
        if !journal::is_on() {
            return self.learn_pace_into(rt, passed, next, now, late_ns, &mut |_| {});
        }
        let pace = || Pace { since_ns: self.busy_since.load(Relaxed), from_ns: self.busy_from_ns.load(Relaxed) };
        let (before, seen, known) = (pace(), self.seen(rt, now, late_ns), fences(rt, passed));
        let group = self.group(rt);
        let others = rt.queues_of(group).any(|q| q.index != self.index && q.in_flight().0 > 0);
        let measurable = seen.exclusive && seen.budgeted && self.in_order() && !others;
        let mut lessons = Vec::new();
        self.learn_pace_into(rt, passed, next, now, late_ns, &mut |lesson| lessons.push(lesson));
        let next = next.map(fence);
        journal::record(|| Record::Pace(before, seen, known, next, measurable, lessons, pace()));
    }

    fn seen(&self, rt: &Runtime, now: u64, late_ns: u64) -> Seen {
        let slot = self.group(rt).slot(rt);
        Seen {
            now_ns: now,
            late_ns,
            before_ns: 0,
            before_late_ns: 0,
            epoch: slot.turns.load(Relaxed),
            done: self.done.load(Acquire),
            done_ns: self.done_ns.load(Acquire),
            exclusive: self.is_alone(rt),
            budgeted: slot.bound_us.load(Relaxed) != 0,
        }
    }

    fn learn_pace_into(
        &self,
        rt: &Runtime,
        passed: &[Mark],
        next: Option<&Mark>,
        now: u64,
        late_ns: u64,
        learns: &mut dyn FnMut(Lesson),
    ) {
        let (Some(last), Some(next)) = (passed.last(), next) else { return self.busy_since.store(0, Relaxed) };
        let group = self.group(rt);
        let slot = group.slot(rt);
        let turn = Some(slot.turns.load(Relaxed));
        let mine = || self.is_alone(rt) && slot.bound_us.load(Relaxed) != 0 && self.in_order();
        let others = || rt.queues_of(group).any(|q| q.index != self.index && q.in_flight().0 > 0);
        if next.turn != turn || passed.iter().any(|m| m.turn != turn) || !mine() || others() {
            return self.busy_since.store(0, Relaxed);
        }
        let since = self.busy_since.load(Relaxed);
        // What is next was there before the first of the others was complete.
        let no_pause = since != 0 && next.at <= now.saturating_sub(late_ns);
        let took = now.saturating_sub(since);
        if no_pause && took < PACE_NS {
            return;
        }
        let expected = next.issued_ns.saturating_sub(self.busy_from_ns.load(Relaxed));
        self.busy_from_ns.store(last.issued_ns, Relaxed);
        self.busy_since.store(now, Relaxed);
        if no_pause && expected != 0 && expected < took {
            for mark in passed.iter().filter(|m| rt.estimates.get(m.key).is_some()) {
                let ns = u128::from(mark.estimate_ns) * u128::from(took) / u128::from(expected);
                learns(Lesson::Sample { key: mark.key, ns: ns as u64, exclusive: true, tells: false });
                rt.estimates.sample(mark.key, ns as u64, true);
            }
        }
    }
}

fn fence(mark: &Mark) -> Fence {
    Fence {
        seq: mark.seq,
        issued_ns: mark.issued_ns,
        estimate_ns: mark.estimate_ns,
        commands: mark.commands,
        key: mark.key,
        at_ns: mark.at,
        epoch: mark.turn,
    }
}

fn fences(rt: &Runtime, marks: &[Mark]) -> Vec<(Fence, Option<u64>)> {
    marks.iter().map(|mark| (fence(mark), rt.estimates.get(mark.key))).collect()
}

type Asked = (Seen, Vec<(Fence, Option<u64>)>);

/// Gathers the lessons of one look for the journal, and writes them when dropped.
struct Told(Option<(Asked, core::cell::RefCell<Vec<Lesson>>)>);

impl Told {
    fn new(asked: impl FnOnce() -> Asked) -> Told {
        Told(journal::is_on().then(|| (asked(), Default::default())))
    }

    fn learned(&self, lesson: impl FnOnce() -> Lesson) {
        if let Some((_, lessons)) = &self.0 {
            lessons.borrow_mut().push(lesson());
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if let Some(((seen, fences), lessons)) = self.0.take() {
            journal::record(|| Record::Learn(seen, fences, lessons.into_inner()));
        }
    }
}
