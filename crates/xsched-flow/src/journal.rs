//! Journal of the models: asks and answers, as a file that can be replayed.
//!
//! A journal is [`MAGIC`], then one [`Record`] after the other in postcard's encoding. [`replay`] asks the models again.

use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;

use xsched_proto::Error;

use crate::activity::{self, Activity, Looks, Step, View};
use crate::admission::{self, AtGate, Budget, InFlight, Pause, Place, Placed};
use crate::backlog::{Behind, Published, Yielding};
use crate::estimate::{self, Cell, Fence, Lesson, Pace, Seen};
use crate::gaps::{Gaps, Terms};
use crate::signals::Signals;
use crate::timeline::{self, Evidence, Presumed};
use crate::watchdog::{self, Bypass};

/// First bytes of a journal. The last of them is the version of the format.
pub const MAGIC: [u8; 8] = *b"xsjrnl\0\x03";

/// Arguments of a model's function, and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// [`admission::at_gate`]: commands of the group in flight (0 if that was not needed), whether it is pre-queued.
    AtGate(AtGate, u64, bool),
    /// [`admission::fits`]: budget, in flight, estimate and consumed time in ns, whether it fits.
    Fits(Budget, InFlight, u64, u64, bool),
    /// [`admission::pause`]: when the next completion is due, in ns.
    Pause(i64, Pause),
    /// [`admission::place`]: busy queues, whether few fences are under way.
    Place(Place, u64, bool, Placed),
    /// [`timeline::presumes`].
    Presumes(Presumed, Evidence, bool),
    /// [`Cell::sample`]: before, ns, exclusive, after.
    Sample(Cell, u64, bool, Cell),
    /// [`Cell::lower`]: before, ns, after.
    Lower(Cell, u64, Cell),
    /// [`estimate::learn`]: fences with the earlier estimates of their kinds.
    Learn(Seen, Vec<(Fence, Option<u64>)>, Vec<Lesson>),
    /// [`estimate::learn_pace`]: pace, fences with the earlier estimates of their kinds, the next fence, measurable.
    Pace(Pace, Seen, Vec<(Fence, Option<u64>)>, Option<Fence>, bool, Vec<Lesson>, Pace),
    /// [`activity::next_grace_ns`]: grace, gap, next, in ns.
    Grace(u64, u64, u64),
    /// [`Looks::look`]: before, now in ns, stopped, rare look due, after.
    Look(Looks, u64, bool, bool, Looks),
    /// [`watchdog::patience_ns`]: budget, expected, patience, in ns.
    Patience(u64, u64, u64),
    /// [`watchdog::override_commands`].
    Override(u32, u32),
    /// [`watchdog::bypasses`].
    Bypasses(Bypass, bool),
    /// [`watchdog::is_silent`]: beat, closed, now, in ns.
    Silent(u64, u64, u64, bool),
    /// [`Activity::of`], [`Activity::step`], [`Activity::is_late`].
    Activity(View, Activity, Step, bool),
    /// [`watchdog::releases`]: since, now, patience, in ns.
    Releases(u64, u64, u64, bool),
    /// [`watchdog::release_patience_ns`]: before in ns, released, after in ns.
    ReleasePatience(u64, bool, u64),
    /// [`Signals::interrupted`]: before, whether handlers run on the thread, after, whether the wait ends.
    Interrupted(Signals, bool, Signals, bool),
    /// [`Behind::published`]: consumed time in ns, what is published.
    Behind(Behind, u64, Published),
    /// [`Yielding::look`]: before, now in ns, whether all queues keep up, after, whether the group goes on.
    Yields(Yielding, u64, bool, Yielding, bool),
    /// [`admission::leaves_out`]: whether the queue keeps up, whether the fence is left out.
    LeavesOut(Place, bool, bool),
    /// [`Gaps::hold_ns`]: before, what the daemon allows, hold in ns.
    Hold(Box<Gaps>, Terms, u64),
}

impl Record {
    /// Record of the activity of a group, computed from its view.
    pub fn activity(view: View) -> Record {
        let activity = Activity::of(&view);
        Record::Activity(view, activity, activity.step(), activity.is_late())
    }

    /// Record of the hold of a gap.
    fn hold(before: Box<Gaps>, terms: Terms) -> Record {
        let hold_ns = before.clone().hold_ns(terms);
        Record::Hold(before, terms, hold_ns)
    }

    /// Name of the model that the record belongs to.
    pub fn model(&self) -> &'static str {
        match self {
            Record::AtGate(..) | Record::Fits(..) | Record::Pause(..) | Record::Place(..) | Record::LeavesOut(..) => {
                "admission"
            }
            Record::Presumes(..) => "timeline",
            Record::Sample(..) | Record::Lower(..) | Record::Learn(..) | Record::Pace(..) => "estimate",
            Record::Grace(..) | Record::Look(..) | Record::Activity(..) => "activity",
            Record::Hold(..) => "gaps",
            Record::Patience(..)
            | Record::Override(..)
            | Record::Bypasses(..)
            | Record::Releases(..)
            | Record::ReleasePatience(..)
            | Record::Silent(..) => "watchdog",
            Record::Interrupted(..) => "signals",
            Record::Behind(..) | Record::Yields(..) => "backlog",
        }
    }

    /// Asks the models again, and returns the same ask with today's answer.
    pub fn answered_now(&self) -> Record {
        match self.clone() {
            Record::AtGate(ask, issued, _) => Record::AtGate(ask, issued, admission::at_gate(&ask, || issued)),
            Record::Fits(budget, in_flight, estimate_ns, consumed_ns, _) => {
                let fits = admission::fits(&budget, &in_flight, estimate_ns, || consumed_ns);
                Record::Fits(budget, in_flight, estimate_ns, consumed_ns, fits)
            }
            Record::Pause(due_ns, _) => Record::Pause(due_ns, admission::pause(due_ns)),
            Record::Place(ask, busy, few, _) => Record::Place(ask, busy, few, admission::place(&ask, || busy, || few)),
            Record::Presumes(ask, evidence, _) => Record::Presumes(ask, evidence, timeline::presumes(&ask, evidence)),
            Record::Sample(cell, ns, exclusive, _) => Record::Sample(cell, ns, exclusive, cell.sample(ns, exclusive)),
            Record::Lower(cell, ns, _) => Record::Lower(cell, ns, cell.lower(ns)),
            Record::Learn(seen, fences, _) => {
                let learned = lessons(&fences, |plain, known, learns| estimate::learn(&seen, plain, known, learns));
                Record::Learn(seen, fences, learned)
            }
            Record::Pace(pace, seen, fences, next, measurable, ..) => {
                let after = RefCell::new(pace);
                let learned = lessons(&fences, |plain, known, learns| {
                    *after.borrow_mut() =
                        estimate::learn_pace(pace, &seen, plain, next.as_ref(), measurable, known, learns);
                });
                Record::Pace(pace, seen, fences, next, measurable, learned, after.into_inner())
            }
            Record::Grace(grace, gap, _) => Record::Grace(grace, gap, activity::next_grace_ns(grace, gap)),
            Record::Activity(view, ..) => Record::activity(view),
            Record::Look(before, now, stopped, ..) => {
                let mut after = before;
                let due = after.look(now, stopped);
                Record::Look(before, now, stopped, due, after)
            }
            Record::Patience(budget, expected, _) => {
                Record::Patience(budget, expected, watchdog::patience_ns(budget, expected))
            }
            Record::Override(row, _) => Record::Override(row, watchdog::override_commands(row)),
            Record::Bypasses(ask, _) => Record::Bypasses(ask, watchdog::bypasses(&ask)),
            Record::Releases(since, now, patience, _) => {
                Record::Releases(since, now, patience, watchdog::releases(since, now, patience))
            }
            Record::ReleasePatience(before, released, _) => {
                Record::ReleasePatience(before, released, watchdog::release_patience_ns(before, released))
            }
            Record::Silent(beat, closed, now, _) => {
                Record::Silent(beat, closed, now, watchdog::is_silent(beat, closed, now))
            }
            Record::Interrupted(before, runs_handlers, ..) => {
                let (after, ends) = before.interrupted(runs_handlers);
                Record::Interrupted(before, runs_handlers, after, ends)
            }
            Record::Behind(ask, consumed_ns, _) => Record::Behind(ask, consumed_ns, ask.published(|| consumed_ns)),
            Record::Yields(before, now_ns, clear, ..) => {
                let (after, goes_on) = before.look(now_ns, clear);
                Record::Yields(before, now_ns, clear, after, goes_on)
            }
            Record::Hold(before, terms, _) => Record::hold(before, terms),
            Record::LeavesOut(ask, keeps_up, _) => {
                Record::LeavesOut(ask, keeps_up, admission::leaves_out(&ask, keeps_up))
            }
        }
    }
}

/// Runs a model that learns from fences, with the estimates that were known when the record was written, and collects its lessons.
fn lessons(
    fences: &[(Fence, Option<u64>)],
    learn: impl FnOnce(&[Fence], &dyn Fn(u64) -> Option<u64>, &mut dyn FnMut(Lesson)),
) -> Vec<Lesson> {
    let plain: Vec<Fence> = fences.iter().map(|(fence, _)| *fence).collect();
    // A lesson on a kind without an estimate sets the estimate.
    let known: BTreeMap<u64, Option<u64>> = fences.iter().map(|(fence, known)| (fence.key, *known)).collect();
    let (known, mut learned) = (RefCell::new(known), Vec::new());
    learn(&plain, &|key| known.borrow().get(&key).copied().flatten(), &mut |lesson| {
        let (Lesson::Sample { key, ns, .. } | Lesson::Lower { key, ns }) = lesson;
        known.borrow_mut().entry(key).or_default().get_or_insert(ns);
        learned.push(lesson);
    });
    learned
}

/// Appends a record to a journal.
pub fn encode(record: &Record, to: &mut Vec<u8>) {
    let taken = std::mem::take(to);
    // Writing to a vector cannot fail.
    *to = postcard::to_extend(record, taken).unwrap_or_default();
}

/// Result of a replay.
#[derive(Debug, Default, PartialEq)]
pub struct Replay {
    /// Number of records of each model, and how many of them are answered differently now.
    pub models: BTreeMap<&'static str, (u64, u64)>,
    /// First record of each model whose answer differs: its number in the file, the record, and the record with today's answer.
    pub first: BTreeMap<&'static str, (u64, Record, Record)>,
    /// True if the file ends within a record: the process was ended while it wrote.
    pub cut_short: bool,
}

impl Replay {
    /// Number of answers that differ.
    pub fn differences(&self) -> u64 {
        self.models.values().map(|(_, different)| different).sum()
    }
}

/// Asks the models again every question of a journal, and compares the answers.
///
/// # Errors
/// When the bytes are no journal, or one of another version.
pub fn replay(journal: &[u8]) -> Result<Replay, Error> {
    let mut found = Replay::default();
    found.cut_short = each(journal, |number, record| {
        let now = record.answered_now();
        let (all, different) = found.models.entry(record.model()).or_default();
        *all += 1;
        if now != record {
            *different += 1;
            found.first.entry(record.model()).or_insert((number, record, now));
        }
    })?;
    Ok(found)
}

/// Returns the journal with the answers that the models give now.
///
/// # Errors
/// As for [`replay`].
pub fn bless(journal: &[u8]) -> Result<Vec<u8>, Error> {
    let mut blessed = MAGIC.to_vec();
    each(journal, |_, record| encode(&record.answered_now(), &mut blessed))?;
    Ok(blessed)
}

/// Calls `take` with the number and content of each record. Returns true if the file ends within a record.
fn each(journal: &[u8], mut take: impl FnMut(u64, Record)) -> Result<bool, Error> {
    let mut rest = journal.strip_prefix(&MAGIC).ok_or_else(|| Error::input("this is no journal of this version"))?;
    let mut number = 0;
    while !rest.is_empty() {
        number += 1;
        match postcard::take_from_bytes::<Record>(rest) {
            Ok((record, after)) => {
                rest = after;
                take(number, record);
            }
            Err(postcard::Error::DeserializeUnexpectedEnd) => return Ok(true),
            Err(e) => return Err(Error::input(format!("record {number} makes no sense: {e}"))),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(records: &[Record]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        records.iter().for_each(|record| encode(record, &mut bytes));
        bytes
    }

    fn wrong() -> Record {
        Record::Override(4, 1)
    }

    #[test]
    fn a_replay_names_the_first_answer_of_a_model_that_differs() {
        let (good, bad) = (Record::Grace(200_000, 100_000, 200_000), Record::Grace(200_000, 400_000, 200_000));
        let found = replay(&journal(&[good.clone(), Record::Override(3, 7), bad.clone(), bad.clone()])).unwrap();
        assert_eq!(found.models["activity"], (3, 2));
        assert_eq!(found.models["watchdog"], (1, 0));
        assert_eq!(found.first["activity"], (3, bad, Record::Grace(200_000, 400_000, 800_000)));
        assert_eq!(found.differences(), 2);
        let blessed = bless(&journal(&[good.clone(), wrong()])).unwrap();
        assert_eq!(replay(&blessed).unwrap().differences(), 0);
        assert_eq!(replay(&journal(&[good])).unwrap().differences(), 0);
    }

    #[test]
    fn a_file_cut_short_is_replayed_as_far_as_it_goes_and_another_file_refused() {
        let whole = journal(&[Record::Override(0, 0), Record::Silent(1, 2, 3, false)]);
        let found = replay(&whole[..whole.len() - 1]).unwrap();
        assert!(found.cut_short && found.models["watchdog"] == (1, 0));
        assert!(replay(b"another file").is_err());
        assert!(replay(&[&whole[..], &[0xff; 12]].concat()).is_err());
    }
}
