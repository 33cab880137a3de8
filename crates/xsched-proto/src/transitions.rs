//! Transitions: one stream of what happens to groups, and the one definition of the words that follow from it. Pure, without a clock.
//!
//! The gatekeeper makes a [`Transition`] of each word that a client has changed and of each gate that it stores. All figures of time come
//! from these: the ledger charges by them, the metrics count by them, lines of bursts are made of them, and [`crate::trace::Record`]s
//! are how they travel to `xsched trace` and `xsched top`. A [`Tracker`] follows one group and says what they mean:
//!
//! - **ready**: the group wants its device, from the launch that announced it to its going idle.
//! - **waits**: ready, and kept from the device: from the launch that found the gate closed, or from the closing of the gate, until the
//!   gate opens or yields. A wait is 0 where the gate was open. Time in which an operator holds the group is no wait.
//! - **preempted**: the scheduler closed its gate while it was ready and had the device. A suspension by an operator is none.
//! - **left**: the time from a preemption until the group told that nothing of it is on the device any more, drained or idle.
//! - **ran**: on its device: from the launch that announced it, or the opening of its gate, whichever is later, until it is idle, drained,
//!   or taken off the device by the daemon. So it includes the time in which a preempted group leaves.

use crate::trace::{Record, What, Why};

/// A transition of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Time at which the daemon made or noticed it, CLOCK_MONOTONIC in ns.
    pub at_ns: u64,
    /// Number of the group.
    pub group: u64,
    /// The transition itself.
    pub step: Step,
    /// Reason of a decision, and what was in force.
    pub reason: Reason,
}

/// Reason of a decision, with what was in force at the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// [`Why::Unsaid`] but for [`Step::Granted`], [`Step::Closed`] and [`Step::Waits`].
    pub why: Why,
    /// Place of the policy in the list of policies.
    pub policy: u8,
    /// Preemption level of the group.
    pub level: u8,
}

/// Kinds of transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The group exists from now on: idle, its gate closed.
    Added,
    /// The group wants the device, by its own report since this time, in ns.
    Ready {
        /// Time of the first launch.
        since_ns: u64,
    },
    /// Late news: it wants the device anew since this time, in ns, and was idle before, whatever the daemon knew.
    Late {
        /// Time of the first launch.
        since_ns: u64,
    },
    /// Bursts that have ended since the last look at its words.
    Bursts(Bursts),
    /// The device goes to others: the group's launches wait.
    Waits,
    /// Its gate was opened.
    Granted {
        /// Threads that waited there.
        threads: u32,
    },
    /// Its gate was closed.
    Closed,
    /// Its closed gate yields.
    Yields,
    /// Its gate yields no more, and stays closed.
    Held,
    /// The group reports that nothing of it is on the device behind its closed gate.
    Drained,
    /// The daemon has taken it off the device: interrupted, or held there by device gates. What runs just now may take a moment more.
    TakenOff,
    /// The group wants the device no more, since this time, in ns.
    Idle {
        /// Time of its last completion, as far as it is known.
        since_ns: u64,
    },
    /// The group counts as idle for want of progress.
    Stalled,
    /// The group shows progress again.
    Recovered,
    /// The group is gone.
    Gone,
}

/// Bursts of a group that ended between two looks at its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// Number of them; at least 1, or 0 where only the next one's begin is news.
    pub ended: u64,
    /// Length of the last of them, in ns.
    pub length_ns: u64,
    /// Begin of the last one, or of the one after it where that has begun, in ns.
    pub began_ns: u64,
    /// The group is ready now: another burst has begun.
    pub goes_on: bool,
    /// The words did not change while they were read.
    pub settled: bool,
}

/// Meaning of a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The group wants its device anew, since this time, in ns.
    Wanted(u64),
    /// A wait of so many ns is over; 0 where its gate was open or yielded.
    Waited(u64),
    /// The group was preempted.
    Preempted,
    /// So many ns after that it has left the device, as it tells.
    Left(u64),
    /// The group is on its device from this time on, in ns: it runs.
    On(u64),
    /// The group is off its device from this time on, in ns.
    Off(u64),
    /// A burst is complete.
    Burst {
        /// Its begin, in ns; none = not known.
        from_ns: Option<u64>,
        /// Its length, in ns; 0 where its begin is not known.
        length_ns: u64,
        /// Bursts before it of which nothing else is known.
        missed: u64,
    },
}

/// State of one group, by its transitions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracker {
    ready: bool,
    granted: bool,
    yields: bool,
    /// True once the group has reported that nothing of it is on the device, until it launches again.
    drained: bool,
    stalled: bool,
    on: bool,
    added_ns: u64,
    granted_ns: u64,
    /// Begin of the last burst as it was read, and whether that burst goes on and its begin is exact.
    began_ns: u64,
    began_known: bool,
    waits_since_ns: Option<u64>,
    leaves_since_ns: Option<u64>,
}

impl Tracker {
    /// A group of which the past is not known, as it is at a time in ns.
    pub fn resumed(at_ns: u64, ready: bool, granted: bool, why: Why) -> Tracker {
        Tracker {
            ready,
            granted,
            on: ready && granted,
            granted_ns: at_ns,
            began_ns: at_ns,
            waits_since_ns: (ready && !granted && why != Why::Suspended).then_some(at_ns),
            ..Tracker::default()
        }
    }

    /// True while the group wants its device.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Its gate is open.
    pub fn is_granted(&self) -> bool {
        self.granted
    }

    /// Its gate is closed and yields.
    pub fn yields(&self) -> bool {
        self.yields
    }

    /// True while the group counts as idle for want of progress.
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// True while the group is on its device.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Time since which the group exists, in ns.
    pub fn added_ns(&self) -> u64 {
        self.added_ns
    }

    /// Time at which its gate was opened last, in ns.
    pub fn granted_ns(&self) -> u64 {
        self.granted_ns
    }

    /// Time since which it waits for its device, in ns; none = it does not wait.
    pub fn waits_since_ns(&self) -> Option<u64> {
        self.waits_since_ns
    }

    /// Takes the next transition of the group, and tells what it means.
    pub fn take(&mut self, transition: &Transition, tell: &mut impl FnMut(Outcome)) {
        let at_ns = transition.at_ns;
        match transition.step {
            Step::Added => *self = Tracker { added_ns: at_ns, ..Tracker::default() },
            Step::Gone => {
                self.leave_device(at_ns, tell);
                *self = Tracker::default();
            }
            Step::Ready { since_ns } => self.become_ready(since_ns.min(at_ns), tell),
            Step::Late { since_ns } => self.hear_late(since_ns.min(at_ns), tell),
            Step::Bursts(bursts) => self.count(at_ns, bursts, tell),
            Step::Idle { since_ns } => self.become_idle(since_ns.min(at_ns), tell),
            Step::Waits => match transition.reason.why {
                Why::Suspended => self.waits_since_ns = None,
                _ => self.waits_since_ns = self.waits_since_ns.or(Some(at_ns)),
            },
            Step::Granted { .. } => self.open(at_ns, tell),
            Step::Closed => self.close(at_ns, transition.reason.why, tell),
            Step::Yields => self.begin_to_yield(at_ns, tell),
            Step::Held => {
                self.yields = false;
                self.waits_since_ns = self.ready.then_some(at_ns);
            }
            Step::Drained => {
                (self.ready, self.drained) = (true, true);
                self.leave_device(at_ns, tell);
                self.end_leaving(at_ns, tell);
            }
            Step::TakenOff => self.leave_device(at_ns, tell),
            Step::Stalled => self.stalled = true,
            Step::Recovered => self.stalled = false,
        }
    }

    /// The device is open to it: what it launches goes on.
    fn is_let(&self) -> bool {
        self.granted || self.yields
    }

    fn become_ready(&mut self, since_ns: u64, tell: &mut impl FnMut(Outcome)) {
        (self.stalled, self.drained) = (false, false);
        (self.began_ns, self.began_known) = (since_ns, true);
        self.want(since_ns, tell);
        if self.is_let() {
            self.enter_device(since_ns, tell);
        }
    }

    /// Notes that the group wants the device from a time on, if it did not already.
    fn want(&mut self, since_ns: u64, tell: &mut impl FnMut(Outcome)) {
        if std::mem::replace(&mut self.ready, true) {
            return;
        }
        // The client says when: not before the group existed.
        let since_ns = since_ns.max(self.added_ns);
        tell(Outcome::Wanted(since_ns));
        if self.is_let() {
            tell(Outcome::Waited(0));
        } else {
            self.waits_since_ns = Some(since_ns);
        }
    }

    /// Notes a beginning that was reported late. The bursts tell whether the group was on the device meanwhile.
    fn hear_late(&mut self, since_ns: u64, tell: &mut impl FnMut(Outcome)) {
        if self.ready {
            self.waits_since_ns = None;
            self.end_leaving(since_ns, tell);
        }
        (self.ready, self.drained, self.stalled) = (false, false, false);
        self.want(since_ns, tell);
    }

    fn become_idle(&mut self, since_ns: u64, tell: &mut impl FnMut(Outcome)) {
        (self.ready, self.drained, self.stalled) = (false, false, false);
        (self.waits_since_ns, self.began_known) = (None, false);
        self.leave_device(since_ns, tell);
        self.end_leaving(since_ns, tell);
    }

    fn open(&mut self, at_ns: u64, tell: &mut impl FnMut(Outcome)) {
        (self.granted, self.yields, self.drained) = (true, false, false);
        self.granted_ns = at_ns;
        self.end_wait(at_ns, tell);
        if self.ready {
            self.enter_device(at_ns, tell);
        }
    }

    fn close(&mut self, at_ns: u64, why: Why, tell: &mut impl FnMut(Outcome)) {
        let lost = std::mem::replace(&mut self.granted, false) && self.ready;
        self.stalled = false;
        if lost && why != Why::Suspended {
            (self.waits_since_ns, self.leaves_since_ns) = (Some(at_ns), Some(at_ns));
            tell(Outcome::Preempted);
        }
    }

    fn begin_to_yield(&mut self, at_ns: u64, tell: &mut impl FnMut(Outcome)) {
        self.yields = true;
        self.end_wait(at_ns, tell);
        if self.ready && !self.drained {
            self.enter_device(at_ns, tell);
        }
    }

    /// Enters bursts at their own times. Those that came and went between two looks, through an open gate, are taken to be as long as
    /// the last one.
    fn count(&mut self, at_ns: u64, bursts: Bursts, tell: &mut impl FnMut(Outcome)) {
        let Bursts { ended, length_ns, began_ns, goes_on, settled } = bursts;
        if ended > 0 {
            let on = self.on;
            if on && (goes_on || ended > 1) {
                self.leave_device(self.began_ns.saturating_add(length_ns).min(at_ns), tell);
            }
            let known = u64::from(on) + u64::from(!goes_on);
            let unseen_ns = ended.saturating_sub(known).saturating_mul(length_ns);
            if self.granted {
                self.enter_device(began_ns.saturating_sub(unseen_ns), tell);
            }
            if !goes_on {
                self.leave_device(began_ns.saturating_add(length_ns).min(at_ns), tell);
            }
            let from_ns = match ended {
                1 if self.began_known => Some(self.began_ns),
                // Nothing has begun since: the time is still the burst's.
                _ => (settled && !goes_on).then_some(began_ns),
            };
            let length_ns = from_ns.map_or(0, |_| length_ns);
            tell(Outcome::Burst { from_ns, length_ns, missed: ended - u64::from(from_ns.is_some()) });
        }
        self.began_known = goes_on && settled;
        if goes_on {
            if ended > 0 {
                // A gate that closed in the pause before it keeps only this burst waiting.
                self.waits_since_ns = self.waits_since_ns.map(|since_ns| since_ns.max(began_ns.min(at_ns)));
            }
            self.began_ns = began_ns;
            if self.is_let() {
                self.enter_device(began_ns, tell);
            }
        }
    }

    /// On the device from a time on, but not from before its gate was opened.
    fn enter_device(&mut self, at_ns: u64, tell: &mut impl FnMut(Outcome)) {
        if !std::mem::replace(&mut self.on, true) {
            tell(Outcome::On(at_ns.max(self.granted_ns)));
        }
    }

    fn leave_device(&mut self, at_ns: u64, tell: &mut impl FnMut(Outcome)) {
        if std::mem::replace(&mut self.on, false) {
            tell(Outcome::Off(at_ns));
        }
    }

    fn end_wait(&mut self, at_ns: u64, tell: &mut impl FnMut(Outcome)) {
        self.leaves_since_ns = None;
        if let Some(since_ns) = self.waits_since_ns.take() {
            tell(Outcome::Waited(at_ns.saturating_sub(since_ns)));
        }
    }

    fn end_leaving(&mut self, at_ns: u64, tell: &mut impl FnMut(Outcome)) {
        if let Some(since_ns) = self.leaves_since_ns.take() {
            tell(Outcome::Left(at_ns.saturating_sub(since_ns)));
        }
    }
}

/// [`Record::value`] of a [`What::Drained`] that the daemon has made, not the group.
const TAKEN_OFF: u32 = 1;

impl From<&Record> for Transition {
    fn from(record: &Record) -> Transition {
        let at_ns = record.at_us.saturating_mul(1_000);
        let since_ns = at_ns.saturating_sub(u64::from(record.value) * 1_000);
        let step = match record.what {
            What::Added => Step::Added,
            What::Removed => Step::Gone,
            What::Ready => Step::Ready { since_ns },
            What::Idle => Step::Idle { since_ns },
            What::Waits => Step::Waits,
            What::Opened => Step::Granted { threads: record.value },
            What::Closed => Step::Closed,
            What::Yields => Step::Yields,
            What::Held => Step::Held,
            What::Drained if record.value == TAKEN_OFF => Step::TakenOff,
            What::Drained => Step::Drained,
            What::Stalled => Step::Stalled,
            What::Recovered => Step::Recovered,
        };
        let reason = Reason { why: record.why, policy: record.policy, level: record.level };
        Transition { at_ns, group: record.group, step, reason }
    }
}

impl Transition {
    /// The records that tell of it, of a group that was in a state before; bursts have none.
    pub fn records(&self, before: &Tracker) -> impl Iterator<Item = Record> + use<> {
        let at_us = self.at_ns / 1_000;
        // The client says when: a time from before the group existed is none.
        let ago_us = |since_ns: u64| {
            let since_us = since_ns.max(before.added_ns) / 1_000;
            u32::try_from(at_us.saturating_sub(since_us)).unwrap_or(u32::MAX)
        };
        let (first, second) = match self.step {
            Step::Added => (Some((What::Added, 0)), None),
            Step::Gone => (Some((What::Removed, 0)), None),
            Step::Ready { since_ns } => (Some((What::Ready, ago_us(since_ns))), None),
            // The last known activity had ended by then.
            Step::Late { since_ns } => {
                let ago_us = ago_us(since_ns);
                (before.ready.then_some((What::Idle, ago_us)), Some((What::Ready, ago_us)))
            }
            Step::Idle { since_ns } => (Some((What::Idle, ago_us(since_ns))), None),
            Step::Waits => (Some((What::Waits, 0)), None),
            Step::Granted { threads } => (Some((What::Opened, threads)), None),
            Step::Closed => (Some((What::Closed, 0)), None),
            Step::Yields => (Some((What::Yields, 0)), None),
            Step::Held => (Some((What::Held, 0)), None),
            Step::Drained => (Some((What::Drained, 0)), None),
            Step::TakenOff => (Some((What::Drained, TAKEN_OFF)), None),
            Step::Stalled => (Some((What::Stalled, 0)), None),
            Step::Recovered => (Some((What::Recovered, 0)), None),
            Step::Bursts(_) => (None, None),
        };
        let Transition { group, reason: Reason { why, policy, level }, .. } = *self;
        let record = move |(what, value)| Record { at_us, group, what, why, policy, level, value };
        [first, second].into_iter().flatten().map(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REASON: Reason = Reason { why: Why::Policy, policy: 0, level: 1 };

    /// A group, followed by its own transitions, and by the records of them as a command does it.
    struct Followed {
        tracker: Tracker,
        by_records: Tracker,
        told: Vec<Outcome>,
        told_by_records: Vec<Outcome>,
    }

    impl Followed {
        fn new() -> Followed {
            let (told, told_by_records) = (Vec::new(), Vec::new());
            let mut group =
                Followed { tracker: Tracker::default(), by_records: Tracker::default(), told, told_by_records };
            group.step(0, Step::Added);
            group
        }

        fn step(&mut self, at_us: u64, step: Step) -> Vec<Outcome> {
            self.step_for(at_us, step, Why::Policy)
        }

        fn step_for(&mut self, at_us: u64, step: Step, why: Why) -> Vec<Outcome> {
            let transition = Transition { at_ns: at_us * 1_000, group: 7, step, reason: Reason { why, ..REASON } };
            for record in transition.records(&self.tracker) {
                self.by_records.take(&Transition::from(&record), &mut |outcome| self.told_by_records.push(outcome));
            }
            let mut told = Vec::new();
            self.tracker.take(&transition, &mut |outcome| told.push(outcome));
            self.told.extend(&told);
            told
        }
    }

    fn ready(at_us: u64) -> Step {
        Step::Ready { since_ns: at_us * 1_000 }
    }

    fn idle(at_us: u64) -> Step {
        Step::Idle { since_ns: at_us * 1_000 }
    }

    const GRANTED: Step = Step::Granted { threads: 0 };
    const US: u64 = 1_000;

    #[test]
    fn a_wait_begins_with_the_launch_or_the_closing_of_the_gate_and_ends_when_the_gate_opens_or_yields() {
        let mut group = Followed::new();
        assert_eq!(group.step(100, ready(90)), [Outcome::Wanted(90 * US)]);
        group.step(100, Step::Waits);
        assert_eq!(group.step(150, GRANTED), [Outcome::Waited(60 * US), Outcome::On(150 * US)]);
        assert_eq!(group.step(200, Step::Closed), [Outcome::Preempted]);
        assert_eq!(group.step(230, Step::Drained), [Outcome::Off(230 * US), Outcome::Left(30 * US)]);
        assert_eq!(group.step(300, GRANTED), [Outcome::Waited(100 * US), Outcome::On(300 * US)]);
        assert_eq!(group.step(400, idle(400)), [Outcome::Off(400 * US)]);
        assert_eq!(group.step(500, ready(490)), [Outcome::Wanted(490 * US), Outcome::Waited(0), Outcome::On(490 * US)]);
        group.step(600, Step::Closed);
        assert_eq!(group.step(610, Step::Yields), [Outcome::Waited(10 * US)]);
        group.step(700, idle(700));
        let again = [Outcome::Wanted(800 * US), Outcome::Waited(0), Outcome::On(800 * US)];
        assert_eq!(group.step(800, ready(800)), again, "its gate yields");
        group.step(900, Step::Held);
        assert_eq!(group.step(950, GRANTED), [Outcome::Waited(50 * US)]);
    }

    #[test]
    fn a_group_that_an_operator_holds_neither_waits_nor_is_preempted() {
        let mut group = Followed::new();
        group.step(100, ready(100));
        group.step(100, GRANTED);
        assert_eq!(group.step_for(200, Step::Closed, Why::Suspended), []);
        assert_eq!(group.step(220, Step::Drained), [Outcome::Off(220 * US)]);
        assert_eq!(group.step(300, GRANTED), [Outcome::On(300 * US)]);
        group.step(400, Step::Closed);
        group.step_for(500, Step::Waits, Why::Suspended);
        group.step(600, Step::Waits);
        assert_eq!(group.step(650, GRANTED), [Outcome::Waited(50 * US)], "since it was released");
    }

    #[test]
    fn a_group_that_is_taken_off_runs_no_more_and_has_left_once_it_says_so() {
        let mut group = Followed::new();
        group.step(100, ready(100));
        group.step(100, GRANTED);
        group.step(200, Step::Closed);
        assert_eq!(group.step(200, Step::TakenOff), [Outcome::Off(200 * US)]);
        assert_eq!(group.step(240, Step::Drained), [Outcome::Left(40 * US)]);
    }

    /// Bursts that were read at a time.
    fn read(ended: u64, began_us: u64, length_us: u64, goes_on: bool) -> Step {
        let (length_ns, began_ns) = (length_us * US, began_us * US);
        Step::Bursts(Bursts { ended, length_ns, began_ns, goes_on, settled: true })
    }

    fn burst(from_us: u64, us: u64, missed: u64) -> Outcome {
        let from_ns = (from_us > 0).then_some(from_us * US);
        Outcome::Burst { from_ns, length_ns: us * US, missed }
    }

    #[test]
    fn a_burst_has_its_beginning_and_length_also_when_the_next_has_begun() {
        let mut group = Followed::new();
        group.step(10, GRANTED);
        group.step(100, ready(100));
        let first = [Outcome::Off(120 * US), burst(100, 20, 0)];
        assert_eq!(group.step(150, read(1, 100, 20, false)), first);
        group.step(150, idle(150));
        group.step(200, ready(200));
        // The burst ended, and another one began and goes on.
        let second = [Outcome::Off(230 * US), Outcome::On(300 * US), burst(200, 30, 0)];
        assert_eq!(group.step(320, read(1, 300, 30, true)), second);
        assert_eq!(group.step(350, read(1, 300, 40, false)), [Outcome::Off(340 * US), burst(300, 40, 0)]);
    }

    #[test]
    fn bursts_that_came_between_two_looks_are_counted_and_taken_to_be_as_long_as_the_last() {
        let mut group = Followed::new();
        group.step(10, GRANTED);
        let three = [Outcome::On(280 * US), Outcome::Off(310 * US), burst(300, 10, 2)];
        assert_eq!(group.step(400, read(3, 300, 10, false)), three);
        // A burst has ended whose begin was never read.
        let told = group.step(510, read(1, 500, 10, true));
        assert_eq!(told.last(), Some(&burst(0, 0, 1)));
        // Behind a closed gate nothing runs.
        let mut group = Followed::new();
        assert_eq!(group.step(400, read(1, 300, 10, false)), [burst(300, 10, 0)]);
    }

    /// Random transitions, with all the times at which news may come.
    #[test]
    fn records_tell_a_command_of_the_waits_and_preemptions_that_the_daemon_counts() {
        let mut random = 1u64;
        let mut pick = |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % n
        };
        let (mut group, mut at_us, mut outcomes) = (Followed::new(), 1, 0);
        for _ in 0..20_000 {
            at_us += pick(20_000);
            let ago_us = at_us.saturating_sub(pick(9_000));
            let (is_ready, is_granted) = (group.tracker.is_ready(), group.tracker.is_granted());
            let step = match pick(11) {
                0 | 1 if !is_ready => ready(ago_us),
                2 => Step::Late { since_ns: ago_us * US },
                3 if is_ready => idle(at_us),
                4 | 5 if !is_granted => Step::Granted { threads: pick(3) as u32 },
                6 | 7 if is_granted => Step::Closed,
                8 if is_ready && !is_granted => Step::Drained,
                8 if is_granted => Step::Stalled,
                9 if is_ready && !is_granted => [Step::Waits, Step::TakenOff][pick(2) as usize],
                10 if !is_granted => [Step::Yields, Step::Held][usize::from(group.tracker.yields())],
                _ => continue,
            };
            let why = [Why::Policy, Why::Policy, Why::Suspended][pick(3) as usize];
            group.step_for(at_us, step, why);
            let told = |all: &mut Vec<Outcome>| -> Vec<Outcome> {
                all.drain(..).filter(|o| !matches!(o, Outcome::On(_) | Outcome::Off(_))).collect()
            };
            let (own, by_records) = (told(&mut group.told), told(&mut group.told_by_records));
            assert_eq!(own, by_records, "{step:?} at {at_us}");
            assert_eq!(group.tracker.waits_since_ns(), group.by_records.waits_since_ns(), "{step:?} at {at_us}");
            outcomes += own.len();
        }
        assert!(outcomes > 5_000, "{outcomes}");
    }
}
