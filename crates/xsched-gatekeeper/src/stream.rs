//! The stream of transitions: each is made here, from the words of a group or from a gate that was stored, and given to all that read it:
//! the ring of records, the ledger, and the outcomes that are kept.

use std::ops::Deref;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use xsched_policy::{GroupId, Micros};
use xsched_proto::segment::{GroupSlot, state};
use xsched_proto::trace::Why;
use xsched_proto::transitions::{Bursts, Outcome, Reason, Step, Transition};

use crate::Gatekeeper;

impl<W: Deref<Target = GroupSlot>> Gatekeeper<W> {
    /// Makes a transition of a group that is there.
    pub(crate) fn note(&mut self, now: Micros, id: GroupId, step: Step) {
        let Gatekeeper { arbiter, groups, ring, ledger, keeps_outcomes, outcomes, .. } = self;
        let Some(group) = groups.get_mut(&id) else { return };
        let is_decision = matches!(step, Step::Granted { .. } | Step::Closed | Step::Waits);
        let (why, policy) = if is_decision { arbiter.why(id) } else { (Why::Unsaid, 0) };
        let reason = Reason { why, policy, level: group.words.level.load(Relaxed) as u8 };
        let transition = Transition { at_ns: now * 1_000, group: id.0, step, reason };
        if let Some(ring) = ring {
            transition.records(&group.tracker).for_each(|record| ring.push(record));
        }
        group.tracker.take(&transition, &mut |outcome| match outcome {
            Outcome::On(at_ns) => ledger.set(at_ns, id, true),
            Outcome::Off(at_ns) => ledger.set(at_ns, id, false),
            _ if *keeps_outcomes => outcomes.push((id, outcome)),
            _ => {}
        });
    }

    /// Notes the bursts of a group that have ended since the last look. `word` is its state, and `late_us` says how late news of it came.
    pub(crate) fn note_bursts(&mut self, now: Micros, id: GroupId, word: u32, late_us: u64) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let words = &group.words;
        let bursts = words.bursts.load(Acquire);
        let length_ns = words.burst_us.load(Relaxed).saturating_mul(1_000);
        let began_ns = words.ready_at_ns.load(Relaxed).min(now * 1_000);
        // A client that counts on meanwhile will wake the daemon again.
        let settled = words.bursts.load(Acquire) == bursts;
        let ended = bursts.wrapping_sub(std::mem::replace(&mut group.entered, bursts));
        let goes_on = word == state::READY;
        if ended > 0 || late_us > 0 && goes_on {
            self.note(now, id, Step::Bursts(Bursts { ended, length_ns, began_ns, goes_on, settled }));
        }
    }

    /// Notes that a group has wanted its device anew for so long, in µs; 0 = it has not. `is_over` = it wants it no more.
    pub(crate) fn note_late(&mut self, now: Micros, id: GroupId, late_us: u64, is_over: bool) {
        if late_us > 0 {
            self.note(now, id, Step::Late { since_ns: now.saturating_sub(late_us) * 1_000 });
            if is_over {
                self.note(now, id, Step::Idle { since_ns: now * 1_000 });
            }
        }
    }

    /// Notes the change of a group's state from one word to another. `since_ns` = it has wanted its device since then, by its
    /// own word; none = that is noted already.
    pub(crate) fn note_state(&mut self, now: Micros, id: GroupId, before: u32, word: u32, since_ns: Option<u64>) {
        let wants = word == state::READY || word == state::DRAINED;
        if word == state::READY || wants && before == state::IDLE && since_ns.is_some() {
            if let Some(since_ns) = since_ns {
                self.note(now, id, Step::Ready { since_ns });
            }
            // If it waits, the reason is recorded with the decision.
            self.asking.push(id);
        }
        match word {
            state::READY => {}
            state::DRAINED => self.note(now, id, Step::Drained),
            _ => self.note(now, id, Step::Idle { since_ns: now * 1_000 }),
        }
    }
}
