//! History of groups, from the daemon's records: pure, without a clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;
use xsched_proto::segment::HEARD_LATE_NS;
use xsched_proto::trace::{Record, What, Why};
use xsched_proto::transitions::{Outcome, Tracker, Transition};
use xsched_proto::wire::TracedGroup;

/// State of a group for some time. A group that does not want the device has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Doing {
    /// The group wants the device and has it.
    Runs,
    /// The group's gate is closed but yields: it goes on while the groups that it yields to keep up.
    Yields,
    /// The group's gate is closed, and its commands on the device run to their end, or are about to be held there.
    Leaves,
    /// The group wants the device, and its launches wait.
    Waits,
    /// The group wants the device, and an operator keeps it off.
    Suspended,
    /// The group has the device and shows no progress while others wait: it counts as idle.
    Stalled,
}

/// Time in which a group has one state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Span {
    pub(crate) doing: Doing,
    /// Begin and end, CLOCK_MONOTONIC in µs.
    pub(crate) from_us: u64,
    pub(crate) to_us: u64,
    /// Reason for the state of its gate.
    pub(crate) why: Why,
    /// Place of the policy in force in the list of policies.
    #[serde(skip)]
    pub(crate) policy: u8,
    pub(crate) level: u8,
    /// True if the group had the device and lost it.
    pub(crate) preempted: bool,
    /// Number of threads that waited at the gate, for a wait that ended with an open gate.
    pub(crate) threads: u32,
    /// Groups that had the device when a wait began, as `g<N>`.
    #[serde(skip)]
    pub(crate) holders: Vec<u64>,
}

/// Event in the history of a group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    /// A span of the group has ended.
    Span(u64, Span),
    /// A wait for the device is over, in µs: 0 where its gate was open.
    Wait(u64, u64),
    /// The group was preempted.
    Preempted(u64),
    /// The group has left the device this long after losing it, in µs.
    Left(u64, u64),
    /// The daemon noticed this late that the group wanted the device, in µs.
    Late(u64, u64),
}

#[derive(Clone, Debug, Default)]
struct State {
    device: String,
    tracker: Tracker,
    /// The span that goes on.
    span: Option<Span>,
    /// End of its last span.
    did_until: u64,
    why: Reason,
}

/// Last reason that a record gave.
#[derive(Clone, Copy, Debug)]
struct Reason {
    why: Why,
    policy: u8,
    level: u8,
    preempted: bool,
}

impl Default for Reason {
    fn default() -> Reason {
        Reason { why: Why::Unsaid, policy: 0, level: 0, preempted: false }
    }
}

impl State {
    fn doing(&self) -> Option<Doing> {
        let tracker = &self.tracker;
        match (tracker.is_ready(), tracker.is_granted()) {
            (false, _) => None,
            (true, true) if tracker.is_stalled() => Some(Doing::Stalled),
            (true, true) => Some(Doing::Runs),
            (true, false) if tracker.yields() => Some(Doing::Yields),
            (true, false) if tracker.is_on() => Some(Doing::Leaves),
            (true, false) if self.why.why == Why::Suspended => Some(Doing::Suspended),
            (true, false) => Some(Doing::Waits),
        }
    }

    /// Takes the reason of a record. `before` = as the group was, `is_anew` = it has come to want the device.
    fn take_reason(&mut self, record: &Record, before: &Tracker, is_anew: bool) {
        match record.what {
            What::Ready if is_anew => {
                let preempted = self.why.preempted && (before.is_granted() || before.yields());
                self.why = Reason { level: record.level, preempted, ..self.why };
            }
            What::Waits => {
                self.why = Reason { preempted: self.why.preempted && self.span.is_some(), ..reason(record) };
            }
            What::Opened => self.why = reason(record),
            What::Closed => self.why = Reason { preempted: before.is_ready() && before.is_granted(), ..reason(record) },
            _ => {}
        }
    }

    /// Time at which the change of a record took place, in µs.
    fn changed_at(&self, record: &Record, before: &Tracker, is_anew: bool) -> u64 {
        let at = record.at_us;
        let own = at.saturating_sub(record.value.into());
        match record.what {
            // The program has had the device since then, whatever the daemon knew.
            What::Ready if is_anew && before.is_granted() => {
                own.max(before.granted_ns() / 1_000).max(self.did_until).min(at)
            }
            // A first launch that waits has done so since it came.
            What::Ready if is_anew && !before.yields() => own,
            What::Idle => own,
            _ => at,
        }
    }

    /// Goes on from one span to the next, if a record has made it do something else.
    fn turn_over(&mut self, record: &Record, begin: u64, told: &mut Vec<Told>) -> bool {
        let doing = self.doing();
        if self.span.as_ref().map(|span| span.doing) == doing {
            // The reason of a wait comes behind its beginning.
            if let Some(span) = self.span.as_mut().filter(|_| record.what == What::Waits) {
                (span.why, span.policy, span.level) = (self.why.why, self.why.policy, self.why.level);
            }
            return false;
        }
        let begin = begin.max(self.span.as_ref().map_or(0, |span| span.from_us));
        if let Some(span) = self.span.take() {
            let threads = if record.what == What::Opened { record.value } else { 0 };
            told.push(Told::Span(record.group, Span { to_us: begin, threads, ..span }));
            self.did_until = begin;
        }
        self.span = doing.map(|doing| new_span(doing, begin, &self.why));
        matches!(doing, Some(Doing::Waits | Doing::Leaves))
    }
}

/// The groups that records tell of.
#[derive(Default)]
pub(crate) struct Groups {
    groups: BTreeMap<u64, State>,
    /// Groups that began to wait at `now_us` while no group had the device: a group that gets it at that moment is seen when the moment is
    /// over.
    began: Vec<u64>,
    now_us: u64,
    /// Groups that an operator kept off at the beginning, as far as records of before tell.
    suspended: BTreeSet<u64>,
}

impl Groups {
    /// Groups as they were at a time, from what they are after all records since then.
    pub(crate) fn new(groups: &[TracedGroup], records: &[Record], from_us: u64) -> Groups {
        Groups::resumed(groups, records, from_us, BTreeSet::new())
    }

    /// States of groups of which some are known to have been suspended at the beginning, which later records do not imply.
    fn resumed(groups: &[TracedGroup], records: &[Record], from_us: u64, suspended: BTreeSet<u64>) -> Groups {
        let mut all = Groups { suspended, ..Groups::default() };
        let beginnings = beginnings(records);
        for group in groups {
            let beginning = beginnings.get(&group.id).copied().unwrap_or_default();
            all.add(from_us, group, beginning.of(group), beginning.is_explained);
        }
        all
    }

    /// Adds groups that came to be since: their doings are in records that are still to be taken. Removes those that are not among these.
    pub(crate) fn update(&mut self, at_us: u64, groups: &[TracedGroup]) {
        let known: BTreeSet<u64> = groups.iter().map(|group| group.id).collect();
        self.groups.retain(|id, _| known.contains(id));
        for group in groups.iter().filter(|group| !group.ended) {
            self.add(at_us, group, (false, false), true);
        }
    }

    /// Adds a group that wants the device and has it, or not. `is_explained` = records to come give its gate a reason, which may be another
    /// than the one before.
    fn add(&mut self, at_us: u64, group: &TracedGroup, (ready, granted): (bool, bool), is_explained: bool) {
        if self.groups.contains_key(&group.id) {
            return;
        }
        let present = Reason { why: group.why, policy: group.policy, level: group.level, preempted: false };
        let is_as_now = (ready, granted) == (group.ready, group.granted) && group.why != Why::Suspended;
        let why = match is_explained {
            true if self.suspended.contains(&group.id) => Reason { why: Why::Suspended, ..present },
            true if !is_as_now => Reason::default(),
            _ => present,
        };
        let tracker = Tracker::resumed(at_us.saturating_mul(1_000), ready, granted, why.why);
        let mut state = State { device: group.device.clone(), tracker, why, did_until: at_us, span: None };
        state.span = state.doing().map(|doing| new_span(doing, at_us, &state.why));
        self.groups.insert(group.id, state);
        self.began.push(group.id);
    }

    /// Time since which a group waits for the device, in µs; none = it does not, or is suspended.
    pub(crate) fn waits_since(&self, group: u64) -> Option<u64> {
        Some(self.groups.get(&group)?.tracker.waits_since_ns()? / 1_000)
    }

    /// Span of a group that goes on; its end is not known.
    pub(crate) fn span(&self, group: u64) -> Option<&Span> {
        self.groups.get(&group)?.span.as_ref()
    }

    /// Groups that have the device of this group, and use it.
    pub(crate) fn holders(&self, group: u64) -> Vec<u64> {
        let Some(s) = self.groups.get(&group) else { return Vec::new() };
        let others = self.groups.iter().filter(|(id, o)| **id != group && o.device == s.device);
        others.filter(|(_, o)| matches!(o.doing(), Some(Doing::Runs | Doing::Yields))).map(|(id, _)| *id).collect()
    }

    /// Takes the next record.
    pub(crate) fn take(&mut self, record: &Record, told: &mut Vec<Told>) {
        if record.at_us > self.now_us {
            self.see_holders();
            self.now_us = record.at_us;
        }
        let id = record.group;
        let Some(s) = self.groups.get_mut(&id) else { return };
        let before = s.tracker;
        s.tracker.take(&Transition::from(record), &mut |outcome| match outcome {
            Outcome::Wanted(since_ns) => {
                let late_us = record.at_us.saturating_sub(since_ns / 1_000);
                told.extend((late_us >= HEARD_LATE_NS / 1_000).then_some(Told::Late(id, late_us)));
            }
            Outcome::Waited(ns) => told.push(Told::Wait(id, ns / 1_000)),
            Outcome::Preempted => told.push(Told::Preempted(id)),
            Outcome::Left(ns) => told.push(Told::Left(id, ns / 1_000)),
            // Spans say when it ran, and records tell of no bursts.
            Outcome::On(_) | Outcome::Off(_) | Outcome::Burst { .. } => {}
        });
        let is_anew = s.tracker.is_ready() && !before.is_ready();
        s.take_reason(record, &before, is_anew);
        let begin = s.changed_at(record, &before, is_anew);
        if s.turn_over(record, begin, told) && !self.see_holders_of(id, false) {
            self.began.push(id);
        }
    }

    /// Ends all spans. A wait counts with its time so far.
    fn finish(&mut self, at_us: u64, told: &mut Vec<Told>) {
        self.see_holders();
        let spans = self.groups.iter_mut().filter_map(|(id, s)| Some((*id, s.span.take()?)));
        told.extend(spans.map(|(id, span)| Told::Span(id, Span { to_us: at_us.max(span.from_us), ..span })));
        let waits = self.groups.keys().filter_map(|id| Some((*id, self.waits_since(*id)?)));
        told.extend(waits.map(|(id, since)| Told::Wait(id, at_us.saturating_sub(since))));
    }

    /// Notes for groups that have begun to wait which ones have the device.
    fn see_holders(&mut self) {
        while let Some(id) = self.began.pop() {
            self.see_holders_of(id, true);
        }
    }

    /// Notes for one group the groups that run there, else, if they count too, those that are about to leave. True if there are any.
    fn see_holders_of(&mut self, id: u64, leaving_count: bool) -> bool {
        let Some(s) = self.groups.get(&id) else { return false };
        let others = |wanted: Doing| -> Vec<u64> {
            let others = self.groups.iter().filter(|(other, o)| **other != id && o.device == s.device);
            others.filter(|(_, o)| o.doing() == Some(wanted)).map(|(id, _)| *id).collect()
        };
        let mut holders = others(Doing::Runs);
        if holders.is_empty() && leaving_count {
            holders = others(Doing::Leaves);
        }
        let found = !holders.is_empty();
        if let Some(span) = self.groups.get_mut(&id).and_then(|s| s.span.as_mut()) {
            span.holders = holders;
        }
        found
    }
}

fn reason(record: &Record) -> Reason {
    Reason { why: record.why, policy: record.policy, level: record.level, preempted: false }
}

fn new_span(doing: Doing, from_us: u64, why: &Reason) -> Span {
    Span {
        doing,
        from_us,
        to_us: from_us,
        why: why.why,
        policy: why.policy,
        level: why.level,
        preempted: why.preempted,
        threads: 0,
        holders: Vec::new(),
    }
}

/// History of one group.
#[derive(Clone, Debug)]
pub(crate) struct GroupHistory {
    pub(crate) group: TracedGroup,
    /// Spans in order; none is empty.
    pub(crate) spans: Vec<Span>,
    /// Lengths of its waits for the device, in µs, in order.
    pub(crate) waits_us: Vec<u64>,
    pub(crate) preemptions: u64,
    /// Times that it took to leave the device after losing it, in µs.
    pub(crate) left_us: Vec<u64>,
    /// Delays of the daemon in noticing that it wanted the device, where there were any, in µs.
    pub(crate) late_us: Vec<u64>,
}

/// Reports whether a group waited when the records began, for a reason that they do not name.
pub(crate) fn is_unexplained(groups: &[TracedGroup], records: &[Record]) -> bool {
    let beginnings = beginnings(records);
    // Groups of other users have no reasons.
    groups.iter().filter(|group| group.why != Why::Unsaid).any(|group| {
        let beginning = beginnings.get(&group.id).copied().unwrap_or_default();
        beginning.is_explained && beginning.of(group) == (true, false)
    })
}

/// Groups that an operator kept off at a time, from records that begin earlier, at `since_us`.
pub(crate) fn suspended_at(groups: &[TracedGroup], records: &[Record], since_us: u64, at_us: u64) -> BTreeSet<u64> {
    let mut states = Groups::new(groups, records, since_us);
    let mut told = Vec::new();
    records.iter().take_while(|record| record.at_us < at_us).for_each(|record| states.take(record, &mut told));
    states.groups.iter().filter(|(_, s)| s.doing() == Some(Doing::Suspended)).map(|(id, _)| *id).collect()
}

/// History of all groups within a time.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) from_us: u64,
    pub(crate) to_us: u64,
    pub(crate) groups: BTreeMap<u64, GroupHistory>,
}

impl History {
    /// Makes the history from all records of some groups within a time. The groups are given in their state at its end, and those that
    /// were suspended at its beginning.
    pub(crate) fn resumed(
        groups: &[TracedGroup],
        records: &[Record],
        suspended: BTreeSet<u64>,
        from_us: u64,
        to_us: u64,
    ) -> History {
        let mut states = Groups::resumed(groups, records, from_us, suspended);
        let mut told = Vec::new();
        records.iter().for_each(|record| states.take(record, &mut told));
        states.finish(to_us, &mut told);
        let new = |group: &TracedGroup| GroupHistory {
            group: group.clone(),
            spans: Vec::new(),
            waits_us: Vec::new(),
            preemptions: 0,
            left_us: Vec::new(),
            late_us: Vec::new(),
        };
        let mut all: BTreeMap<u64, GroupHistory> = groups.iter().map(|group| (group.id, new(group))).collect();
        for told in told {
            let (Told::Span(id, _) | Told::Wait(id, _) | Told::Preempted(id) | Told::Left(id, _) | Told::Late(id, _)) =
                told;
            let Some(h) = all.get_mut(&id) else { continue };
            match told {
                Told::Span(_, span) => {
                    let span = Span { from_us: span.from_us.max(from_us), ..span };
                    h.spans.extend((span.to_us > span.from_us).then_some(span));
                }
                Told::Wait(_, us) => h.waits_us.push(us),
                Told::Preempted(_) => h.preemptions += 1,
                Told::Left(_, us) => h.left_us.push(us),
                Told::Late(_, us) => h.late_us.push(us),
            }
        }
        History { from_us, to_us, groups: all }
    }

    /// History of groups of which none is known to have been suspended at the beginning.
    pub(crate) fn new(groups: &[TracedGroup], records: &[Record], from_us: u64, to_us: u64) -> History {
        History::resumed(groups, records, BTreeSet::new(), from_us, to_us)
    }

    /// Time that a group spent in a state, in µs.
    pub(crate) fn time_us(&self, group: u64, doing: Doing) -> u64 {
        let spans = self.groups.get(&group).into_iter().flat_map(|h| &h.spans);
        spans.filter(|span| span.doing == doing).map(|span| span.to_us - span.from_us).sum()
    }

    /// Time in which a group ran: it was on its device, in µs.
    pub(crate) fn ran_us(&self, group: u64) -> u64 {
        let doings = [Doing::Runs, Doing::Yields, Doing::Leaves, Doing::Stalled];
        doings.into_iter().map(|doing| self.time_us(group, doing)).sum()
    }

    /// Group that had the device for most of the time that a group waited, and its part of that time, 0 to 1.
    pub(crate) fn mostly_held_by(&self, group: u64) -> Option<(u64, f64)> {
        let waits = self.groups.get(&group)?.spans.iter().filter(|span| span.doing == Doing::Waits);
        let (mut of_each, mut all) = (BTreeMap::<u64, u64>::new(), 0);
        for wait in waits {
            all += wait.to_us - wait.from_us;
            for holder in &wait.holders {
                *of_each.entry(*holder).or_default() += wait.to_us - wait.from_us;
            }
        }
        let (holder, us) = of_each.into_iter().max_by_key(|(id, us)| (*us, std::cmp::Reverse(*id)))?;
        Some((holder, us as f64 / all.max(1) as f64))
    }
}

/// State of a group before its first record, as far as the records imply it.
#[derive(Clone, Copy, Default)]
struct Beginning {
    /// True if the group wanted the device.
    ready: Option<bool>,
    /// True if its gate was open.
    granted: Option<bool>,
    /// True if records give its gate a reason.
    is_explained: bool,
}

impl Beginning {
    /// State at the beginning: the one implied by the records, else the present one, since nothing has changed.
    fn of(self, group: &TracedGroup) -> (bool, bool) {
        (self.ready.unwrap_or(group.ready), self.granted.unwrap_or(group.granted))
    }
}

fn beginnings(records: &[Record]) -> HashMap<u64, Beginning> {
    let mut all: HashMap<u64, Beginning> = HashMap::new();
    for record in records {
        let ready = match record.what {
            What::Added | What::Ready => Some(false),
            What::Idle | What::Drained | What::Stalled | What::Recovered => Some(true),
            What::Waits | What::Opened | What::Closed | What::Removed | What::Yields | What::Held => None,
        };
        let granted = match record.what {
            What::Added | What::Waits | What::Opened | What::Drained | What::Yields | What::Held => Some(false),
            What::Closed | What::Stalled => Some(true),
            What::Ready | What::Idle | What::Recovered | What::Removed => None,
        };
        let of_group = all.entry(record.group).or_default();
        of_group.ready = of_group.ready.or(ready);
        of_group.granted = of_group.granted.or(granted);
        of_group.is_explained |= matches!(record.what, What::Waits | What::Opened | What::Closed);
    }
    all
}

/// Value at a quantile (0 to 1) of some values, which are sorted in place; none if there are no values.
pub(crate) fn quantile(values: &mut [u64], q: f64) -> Option<u64> {
    values.sort_unstable();
    let rank = (values.len() as f64 * q).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(id: u64) -> TracedGroup {
        let device = "sim:0".into();
        let (program, why) = (None, Why::Policy);
        TracedGroup { id, device, program, ended: false, ready: true, granted: true, why, policy: 0, level: 1 }
    }

    fn record(at_us: u64, group: u64, what: What, why: Why, value: u32) -> Record {
        Record { at_us, group, what, why, policy: 0, level: 2, value }
    }

    /// Records of a low group (1) that runs while a high one (2) takes the device from it for some time, twice.
    fn records() -> Vec<Record> {
        let unsaid = Why::Unsaid;
        vec![
            record(1_000, 2, What::Ready, unsaid, 10),
            record(1_000, 1, What::Closed, Why::Policy, 0),
            record(1_000, 2, What::Opened, Why::Policy, 1),
            record(1_200, 1, What::Drained, unsaid, 0),
            record(2_000, 2, What::Idle, unsaid, 0),
            record(2_000, 1, What::Opened, Why::Policy, 3),
            record(3_000, 1, What::Idle, unsaid, 0),
            record(4_000, 2, What::Ready, unsaid, 0),
            record(4_000, 1, What::Closed, Why::Policy, 0),
            record(4_000, 2, What::Opened, Why::Policy, 0),
            record(4_500, 1, What::Ready, unsaid, 100),
            record(4_500, 1, What::Waits, Why::Guarantee, 0),
            record(5_000, 2, What::Idle, unsaid, 0),
            record(5_000, 1, What::Opened, Why::Policy, 1),
        ]
    }

    fn seen(history: &History, id: u64) -> Vec<(Doing, u64, u64)> {
        history.groups[&id].spans.iter().map(|span| (span.doing, span.from_us, span.to_us)).collect()
    }

    #[test]
    fn spans_waits_and_preemptions_follow_from_records() {
        let history = History::new(&[group(1), group(2)], &records(), 500, 6_000);
        let (runs, waits, leaves) = (Doing::Runs, Doing::Waits, Doing::Leaves);
        let low = [
            (runs, 500, 1_000),
            (leaves, 1_000, 1_200),
            (waits, 1_200, 2_000),
            (runs, 2_000, 3_000),
            (waits, 4_400, 5_000),
            (runs, 5_000, 6_000),
        ];
        assert_eq!(seen(&history, 1), low);
        assert_eq!(seen(&history, 2), [(waits, 990, 1_000), (runs, 1_000, 2_000), (runs, 4_000, 5_000)]);
        let low = &history.groups[&1];
        assert_eq!(
            (low.waits_us.as_slice(), low.preemptions, low.left_us.as_slice()),
            (&[1_000, 600][..], 1, &[200][..])
        );
        assert_eq!(history.groups[&2].waits_us, [10, 0]);
        let [_, left, preempted, _, waited, _] = low.spans.as_slice() else { panic!("{low:?}") };
        assert_eq!((left.why, left.preempted), (Why::Policy, true));
        assert_eq!((preempted.why, preempted.preempted, preempted.threads), (Why::Policy, true, 3));
        assert_eq!((waited.why, waited.preempted, waited.threads), (Why::Guarantee, false, 1));
        assert_eq!((history.time_us(1, waits), history.time_us(1, runs)), (1_400, 2_500));
    }

    #[test]
    fn a_wait_knows_the_group_that_had_the_device_when_it_began() {
        let history = History::new(&[group(1), group(2)], &records(), 500, 6_000);
        let waits = history.groups[&1].spans.iter().filter(|span| span.doing == Doing::Waits);
        assert_eq!(waits.map(|span| span.holders.clone()).collect::<Vec<_>>(), [vec![2], vec![2]]);
        assert_eq!(history.mostly_held_by(1), Some((2, 1.0)));
        assert_eq!(history.groups[&2].spans[0].holders, [1]);
    }

    #[test]
    fn without_a_record_a_group_was_always_as_it_is() {
        let history = History::new(&[group(1)], &[], 100, 300);
        assert_eq!(seen(&history, 1), [(Doing::Runs, 100, 300)]);
        let idle = TracedGroup { ready: false, ..group(1) };
        assert!(seen(&History::new(&[idle], &[], 100, 300), 1).is_empty());
        // A group that became ready without a record of its gate found the gate open.
        let history = History::new(&[group(1)], &[record(200, 1, What::Ready, Why::Unsaid, 50)], 100, 300);
        assert_eq!(
            (seen(&history, 1), history.groups[&1].waits_us.as_slice()),
            (vec![(Doing::Runs, 150, 300)], &[0][..])
        );
    }

    #[test]
    fn one_that_has_gone_was_as_it_was_when_it_went() {
        let records = [record(150, 1, What::Idle, Why::Unsaid, 0), record(200, 1, What::Ready, Why::Unsaid, 0)];
        let removed = record(300, 1, What::Removed, Why::Unsaid, 0);
        let gone = TracedGroup { ended: true, ..group(1) };
        let history = History::new(std::slice::from_ref(&gone), &[&records[..], &[removed]].concat(), 100, 400);
        assert_eq!(seen(&history, 1), [(Doing::Runs, 100, 150), (Doing::Runs, 200, 300)]);
        let waited = TracedGroup { granted: false, ..gone };
        let history = History::new(&[waited], &[records[0], removed], 100, 400);
        assert_eq!(seen(&history, 1), [(Doing::Waits, 100, 150)]);
    }

    #[test]
    fn one_that_was_heard_of_late_ran_meanwhile_if_its_gate_was_open() {
        let records = [
            record(10_000, 1, What::Ready, Why::Unsaid, 10),
            record(20_000, 1, What::Idle, Why::Unsaid, 0),
            record(60_000, 1, What::Ready, Why::Unsaid, 30_000),
            record(70_000, 1, What::Idle, Why::Unsaid, 0),
            // Reaches back to before it was idle.
            record(78_000, 1, What::Ready, Why::Unsaid, 9_000),
            // Idle before it wanted the device again.
            record(88_000, 1, What::Idle, Why::Unsaid, 6_000),
            record(88_000, 1, What::Ready, Why::Unsaid, 6_000),
        ];
        let history = History::new(&[group(1)], &records, 100, 90_000);
        let runs = [(9_990, 20_000), (30_000, 70_000), (70_000, 82_000), (82_000, 90_000)];
        assert_eq!(seen(&history, 1), runs.map(|(from, to)| (Doing::Runs, from, to)));
        assert_eq!(history.groups[&1].late_us, [30_000, 9_000, 6_000]);
    }

    #[test]
    fn a_wait_that_goes_on_counts_so_far_and_has_the_reason_of_now() {
        let waits = TracedGroup { granted: false, why: Why::Guarantee, ..group(1) };
        let history = History::new(&[waits], &[], 100, 300);
        let h = &history.groups[&1];
        assert_eq!(
            (h.waits_us.as_slice(), h.spans[0].why, h.spans[0].doing),
            (&[200][..], Why::Guarantee, Doing::Waits)
        );
    }

    #[test]
    fn one_that_is_suspended_or_stalled_is_told_apart_from_one_that_waits() {
        let records = [
            record(200, 1, What::Stalled, Why::Unsaid, 0),
            record(300, 1, What::Recovered, Why::Unsaid, 0),
            record(400, 1, What::Closed, Why::Suspended, 0),
            record(500, 1, What::Drained, Why::Unsaid, 0),
            record(600, 1, What::Removed, Why::Unsaid, 0),
        ];
        let gone = TracedGroup { ended: true, ready: false, granted: false, ..group(1) };
        let history = History::new(&[gone], &records, 100, 900);
        let expected = [
            (Doing::Runs, 100, 200),
            (Doing::Stalled, 200, 300),
            (Doing::Runs, 300, 400),
            (Doing::Leaves, 400, 500),
            (Doing::Suspended, 500, 600),
        ];
        assert_eq!(seen(&history, 1), expected);
        assert!(history.groups[&1].waits_us.is_empty());
        assert_eq!(history.groups[&1].preemptions, 0);
    }

    #[test]
    fn one_that_waits_and_is_suspended_waits_no_more_until_it_is_resumed() {
        let records = [
            record(200, 1, What::Waits, Why::Suspended, 0),
            record(500, 1, What::Waits, Why::Policy, 0),
            record(600, 1, What::Opened, Why::Policy, 1),
        ];
        let history = History::new(&[group(1)], &records, 100, 900);
        let expected =
            [(Doing::Waits, 100, 200), (Doing::Suspended, 200, 500), (Doing::Waits, 500, 600), (Doing::Runs, 600, 900)];
        assert_eq!(seen(&history, 1), expected);
        assert_eq!(history.groups[&1].waits_us, [100]);
    }

    #[test]
    fn a_look_that_begins_amid_a_suspension_knows_of_it_by_what_was_before() {
        let records = [
            record(200, 1, What::Closed, Why::Suspended, 0),
            record(210, 1, What::Drained, Why::Unsaid, 0),
            record(500, 1, What::Waits, Why::Policy, 0),
            record(600, 1, What::Opened, Why::Policy, 1),
        ];
        let (groups, late) = ([group(1)], &records[2..]);
        assert!(is_unexplained(&groups, late) && !is_unexplained(&groups, &records));
        let suspended = suspended_at(&groups, &records, 100, 300);
        assert_eq!((suspended.len(), suspended_at(&groups, &records, 100, 550).len()), (1, 0));
        let history = History::resumed(&groups, late, suspended, 300, 900);
        let expected = [(Doing::Suspended, 300, 500), (Doing::Waits, 500, 600), (Doing::Runs, 600, 900)];
        assert_eq!((seen(&history, 1), history.groups[&1].waits_us.as_slice()), (expected.into(), &[100][..]));
    }

    #[test]
    fn quantiles_are_values_that_were_there() {
        assert_eq!(quantile(&mut [], 0.5), None);
        assert_eq!(quantile(&mut [3, 1, 2], 0.5), Some(2));
        assert_eq!(quantile(&mut [1; 100], 0.99), Some(1));
        assert_eq!(quantile(&mut [5, 9], 0.99), Some(9));
        assert_eq!(quantile(&mut [5, 9], 0.5), Some(5));
    }
}
