//! Timeline of a queue: commands issued, fenced and complete.

use core::sync::atomic::{AtomicU64, Ordering::*};

use xsched_flow::admission::InFlight;
use xsched_flow::timeline::{Evidence, Point};
use xsched_proto::memory::Hardware;

use crate::protocol::idle;

/// Counts of one queue. Launches that find the gate plainly open are only counted, elsewhere and thread by thread; the others are
/// numbered here, and their expected device time is summed up.
#[derive(Default)]
pub(crate) struct Timeline {
    /// Numbered commands, and their expected time in ns.
    issued: AtomicU64,
    issued_ns: AtomicU64,
    /// Number and summed time of the command of the last fence. The commands since are the unfenced suffix.
    fenced: AtomicU64,
    fenced_ns: AtomicU64,
    /// Commands that were only counted and that some fence covers.
    fenced_counted: AtomicU64,
    /// Complete commands: the last number, their expected time in ns, and those that were only counted.
    done: AtomicU64,
    done_ns: AtomicU64,
    done_counted: AtomicU64,
}

impl Timeline {
    /// Begins anew for another user of the place: all commands numbered so far count as complete.
    pub(crate) fn reset(&self) {
        let (issued, issued_ns) = (self.issued.load(Relaxed), self.issued_ns.load(Relaxed));
        self.done.store(issued, Relaxed);
        self.done_ns.store(issued_ns, Relaxed);
        self.fenced.store(issued, Relaxed);
        self.fenced_ns.store(issued_ns, Relaxed);
        self.fenced_counted.store(0, Relaxed);
        self.done_counted.store(0, Relaxed);
    }

    /// Numbers a command. Returns its number and the summed time up to and including it.
    #[inline]
    pub(crate) fn issue(&self, estimate_ns: u64) -> (u64, u64) {
        let seq = idle::number::<Hardware>(&self.issued);
        (seq, self.issued_ns.fetch_add(estimate_ns, Relaxed) + estimate_ns)
    }

    /// Numbered commands.
    #[inline]
    pub(crate) fn issued(&self) -> u64 {
        self.issued.load(Acquire)
    }

    /// Expected time of the numbered commands, in ns.
    #[inline]
    pub(crate) fn issued_ns(&self) -> u64 {
        self.issued_ns.load(Acquire)
    }

    /// The end of the timeline, where `counted` commands were only counted.
    pub(crate) fn end(&self, counted: u64) -> Point {
        Point { seq: self.issued(), ns: self.issued_ns(), counted }
    }

    /// The point up to which everything is complete.
    pub(crate) fn done(&self) -> Point {
        Point { seq: self.done.load(Acquire), ns: self.done_ns.load(Acquire), counted: self.done_counted.load(Acquire) }
    }

    /// Number and summed time of the last fence.
    #[inline]
    pub(crate) fn fenced(&self) -> (u64, u64) {
        (self.fenced.load(Relaxed), self.fenced_ns.load(Relaxed))
    }

    /// Notes a fence that covers all commands up to this point. Returns how many numbered commands no fence had covered, and how
    /// many counted ones.
    pub(crate) fn fence(&self, at: Point) -> (u64, u64) {
        let numbered = at.seq.saturating_sub(self.fenced.fetch_max(at.seq, Relaxed));
        self.fenced_ns.fetch_max(at.ns, Relaxed);
        let counted = at.counted.saturating_sub(self.fenced_counted.fetch_max(at.counted, Relaxed));
        (numbered, counted)
    }

    /// Takes back a fence that covered `commands` and could not be placed: the next command gets one.
    pub(crate) fn unfence(&self, seq: u64, commands: u64) {
        self.fenced_counted.store(self.done_counted.load(Relaxed), Relaxed);
        self.fenced.store(seq.saturating_sub(commands), Relaxed);
    }

    /// True: a fence covers everything, the `counted` commands that were only counted included.
    pub(crate) fn is_all_fenced(&self, counted: u64) -> bool {
        self.fenced.load(Relaxed) >= self.issued()
            && self.fenced_counted.load(Relaxed).max(self.done_counted.load(Relaxed)) >= counted
    }

    /// True: some fence is not known to be reached.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced.load(Acquire) > self.done.load(Acquire)
    }

    /// True: everything is complete, the `counted` commands that were only counted included.
    pub(crate) fn is_complete(&self, counted: u64) -> bool {
        self.is_numbered_complete() && self.done_counted.load(Acquire) >= counted
    }

    /// True: every numbered command is complete.
    pub(crate) fn is_numbered_complete(&self) -> bool {
        self.done.load(Acquire) >= self.issued()
    }

    /// Numbered commands that are not known to be complete.
    pub(crate) fn open(&self) -> u64 {
        let done = self.done.load(Acquire);
        self.issued().saturating_sub(done)
    }

    /// Commands that are not known to be complete, of the `counted` ones.
    pub(crate) fn open_counted(&self, counted: u64) -> u64 {
        counted.saturating_sub(self.done_counted.load(Acquire))
    }

    /// Numbered commands in flight whose completion will be known. In an ordered queue the unfenced suffix is left out: a thread
    /// could wait for a completion that is never reported.
    #[inline]
    pub(crate) fn in_flight(&self, in_order: bool) -> InFlight {
        // The complete ones are read first, so that they are never ahead of those issued.
        let (done, done_ns) = (self.done.load(Acquire), self.done_ns.load(Acquire));
        let (told, told_ns) = if in_order { (&self.fenced, &self.fenced_ns) } else { (&self.issued, &self.issued_ns) };
        InFlight {
            commands: told.load(Acquire).saturating_sub(done),
            ns: told_ns.load(Acquire).saturating_sub(done_ns),
        }
    }

    /// Takes everything up to a point as complete, by this evidence. The only way in which commands of an ordered queue become so;
    /// commands of an unordered one are completed one by one ([`Timeline::complete_one`]), and only those that were counted follow a
    /// point. Returns how many commands that are new.
    pub(crate) fn advance_to(&self, at: Point, evidence: Evidence, in_order: bool) -> u64 {
        let mut counted = 0;
        if evidence.covers_counted() {
            counted = at.counted.saturating_sub(self.done_counted.fetch_max(at.counted, AcqRel));
        }
        if evidence == Evidence::Taken {
            return counted;
        }
        if !in_order {
            return 0;
        }
        self.done_ns.fetch_max(at.ns, AcqRel);
        at.seq.saturating_sub(self.done.fetch_max(at.seq, AcqRel))
    }

    /// Completes one command of an unordered queue.
    pub(crate) fn complete_one(&self, estimate_ns: u64) {
        self.done_ns.fetch_add(estimate_ns, AcqRel);
        self.done.fetch_add(1, AcqRel);
    }

    /// Takes back a numbered command that the driver refused. False: another command was numbered after it, whose completion covers
    /// its number too.
    pub(crate) fn withdraw(&self, seq: u64, estimate_ns: u64, in_order: bool) -> bool {
        if in_order {
            if self.issued.compare_exchange(seq, seq - 1, AcqRel, Relaxed).is_err() {
                return false;
            }
        } else {
            self.done.fetch_add(1, AcqRel);
        }
        self.issued_ns.fetch_sub(estimate_ns, Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_evidence_advances_to_its_point_and_no_further() {
        let timeline = Timeline::default();
        (0..10).for_each(|_| _ = timeline.issue(100));
        let at = |seq, counted| Point { seq, ns: seq * 100, counted };
        assert_eq!(timeline.advance_to(at(3, 5), Evidence::Fence, true), 3);
        assert_eq!(timeline.advance_to(at(2, 9), Evidence::Sync, true), 0, "behind what is done already");
        assert_eq!(timeline.done(), at(3, 9));
        assert_eq!(timeline.advance_to(at(10, 50), Evidence::Overdue, true), 7);
        assert_eq!(timeline.done(), at(10, 9), "what was only counted may be much more than a suffix");
        assert_eq!(timeline.advance_to(at(0, 60), Evidence::Taken, true), 51);
        assert!(timeline.is_complete(60) && !timeline.is_complete(61));
    }

    #[test]
    fn commands_of_an_unordered_queue_complete_one_by_one() {
        let timeline = Timeline::default();
        (0..2).for_each(|_| _ = timeline.issue(100));
        assert_eq!(timeline.advance_to(timeline.end(7), Evidence::Sync, false), 0);
        assert_eq!(timeline.in_flight(false), InFlight { commands: 2, ns: 200 });
        timeline.complete_one(100);
        assert_eq!(timeline.in_flight(false), InFlight { commands: 1, ns: 100 });
        assert!(timeline.withdraw(2, 100, false));
        assert!(timeline.is_complete(7));
    }
}
