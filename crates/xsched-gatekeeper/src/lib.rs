//! Gatekeeper: the connection between the arbiter and the words of each group's [`GroupSlot`]. Stores of the client there become events of
//! the arbiter, and the arbiter's actions become stores. The daemon keeps its gates with it, and so does the scheduler inside a process
//! (`run --local`).
//!
//! The host calls it to read the words ([`Gatekeeper::scan`], [`Gatekeeper::look`]) and to act ([`Gatekeeper::carry_out`]). Messages,
//! interrupts, time slices and the heartbeat are the host's.

#![forbid(unsafe_code)]

pub mod company;
pub mod ledger;
mod ring;
mod rule;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use xsched_policy::{
    Action, Arbiter, Choice, ClassRule, Event, GroupId, GroupSpec, Micros, PoolId, Progress, Question,
};
use xsched_proto::device::DeviceState;
use xsched_proto::gate::Gate;
use xsched_proto::segment::{GroupSlot, state};
use xsched_proto::transitions::{Outcome, Step, Tracker};

pub use ring::Ring;
pub use rule::InForce;

use company::{Demand, Sharing};
use ledger::Ledger;

/// In-flight budget of a device unless configured, in µs.
pub const BUDGET_DEFAULT_US: u32 = 500;

/// Least part of the in-flight budget for each of several groups that share it, in µs: with less in flight a device that switches between
/// their contexts does little else.
const BUDGET_LEAST_US: u32 = 400;
/// Longest time for which an urgent group keeps the device through a gap, in µs. Others wait as long for a program that stops within a gap,
/// and for one that has nothing more to do. With bursts of 1.2 ms, gaps beyond it can all be given away for the slowdown of 1.05.
const HOLD_US: u32 = 3_500;

/// Change of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The gate of this group opened, and the threads that wait there are awake.
    Opened(GroupId),
    /// The gate of this group closed. A host that takes the group off the device reports that at once: [`Gatekeeper::off_device`].
    Closed(GroupId),
}

/// Error: a state word holds a value that no client stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownState;

/// The arbiter, the words of all groups, and their values as last read.
///
/// Each method that takes a time may leave decisions and actions to [`Gatekeeper::carry_out`]: all events between two calls of that are
/// decided together.
pub struct Gatekeeper<W> {
    arbiter: Arbiter,
    budget_us: u32,
    groups: HashMap<GroupId, Gated<W>>,
    /// Actions of the arbiter, of which the first `done` are carried out.
    actions: Vec<Action>,
    done: usize,
    /// Kept to spare the allocation.
    counts: Vec<Event>,
    /// Groups that have left the device since their gate closed, which the arbiter does not know yet.
    off_device: Vec<GroupId>,
    ledger: Ledger,
    /// Outcomes of transitions are kept, and those that are.
    keeps_outcomes: bool,
    outcomes: Vec<(GroupId, Outcome)>,
    /// Record of the last steps of groups, where that is wanted.
    ring: Option<Ring>,
    /// Groups that became ready since the last decision: whether they wait is still to be recorded.
    asking: Vec<GroupId>,
    /// True once some group was in the company of others.
    has_company: bool,
    /// See [`Gatekeeper::pageless`].
    pageless: Vec<GroupId>,
}

/// A group with its words, and their values as last read.
struct Gated<W> {
    words: W,
    state: u32,
    /// Lent priority; `i32::MIN` = none.
    lent: i32,
    granted: bool,
    /// Counts as idle for want of progress: its next launch will clear the bit in the gate word.
    stalled: bool,
    /// Number of bursts that the arbiter knows of.
    bursts: u64,
    progress: Progress,
    /// Budget while it is granted, in µs.
    budget_us: u32,
    /// See [`Gatekeeper::set_budget`].
    own_budget_us: Option<u32>,
    /// Bursts that the tracker knows of.
    entered: u64,
    tracker: Tracker,
    /// No other group has the device, by the arbiter's last action.
    exclusive: bool,
    /// Another group shares the device, by the arbiter's last action.
    contended: bool,
    /// See [`Gatekeeper::follow`].
    followed: bool,
    sharing: Sharing,
}

impl<W: Deref<Target = GroupSlot>> Gatekeeper<W> {
    /// A gatekeeper around an arbiter without groups. `budget_us` is the in-flight budget of a device, in µs, for all groups that may
    /// have to make room.
    pub fn new(arbiter: Arbiter, budget_us: u32) -> Gatekeeper<W> {
        Gatekeeper {
            arbiter,
            budget_us,
            groups: HashMap::new(),
            actions: Vec::with_capacity(64),
            done: 0,
            counts: Vec::new(),
            off_device: Vec::new(),
            ledger: Ledger::default(),
            keeps_outcomes: false,
            outcomes: Vec::new(),
            ring: None,
            asking: Vec::new(),
            has_company: false,
            pageless: Vec::new(),
        }
    }

    /// Keeps the outcomes of transitions from now on, for [`Gatekeeper::outcomes`].
    pub fn keep_outcomes(&mut self) {
        self.keeps_outcomes = true;
    }

    /// Outcomes of transitions since the last call, but for those that are the ledger's.
    pub fn outcomes(&mut self) -> std::vec::Drain<'_, (GroupId, Outcome)> {
        self.outcomes.drain(..)
    }

    /// The ledger of device time.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The ledger of device time, to settle and close it.
    pub fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// Keeps a record of the last steps of groups, of so many bytes.
    #[must_use]
    pub fn recording(self, bytes: usize) -> Gatekeeper<W> {
        Gatekeeper { ring: Some(Ring::new(bytes)), ..self }
    }

    /// Record of the last steps of groups, if that is kept.
    pub fn ring(&self) -> Option<&Ring> {
        self.ring.as_ref()
    }

    /// The arbiter, for queries.
    pub fn arbiter(&self) -> &Arbiter {
        &self.arbiter
    }

    /// Adds a group, idle and with its gate closed.
    pub fn add(&mut self, now: Micros, spec: GroupSpec, words: W) {
        words.gate.take_over();
        words.budget_us.store(0, Relaxed);
        words.hold_us.store(0, Relaxed);
        words.hear_anew();
        let group = Gated {
            state: state::IDLE,
            lent: i32::MIN,
            granted: false,
            stalled: false,
            bursts: words.bursts.load(Relaxed),
            progress: Progress::default(),
            budget_us: 0,
            own_budget_us: None,
            entered: words.bursts.load(Relaxed),
            tracker: Tracker::default(),
            exclusive: false,
            contended: false,
            followed: false,
            sharing: Sharing::new(words.completed.load(Relaxed)),
            words,
        };
        self.groups.insert(spec.id, group);
        self.ledger.add(now * 1_000, spec.id, spec.program, &spec.device);
        self.note(now, spec.id, Step::Added);
        self.event(now, Event::Add(spec));
    }

    /// Sets the in-flight budget of a group that may have to make room, in µs, in place of its part of the device's budget.
    pub fn set_budget(&mut self, id: GroupId, us: u32) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.own_budget_us = Some(us);
        }
    }

    /// Has a group's completions followed as if another group shared its device, so that its bursts are exact; or no more.
    pub fn follow(&mut self, now: Micros, id: GroupId, on: bool) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        if std::mem::replace(&mut group.followed, on) != on {
            self.mark_company(now, id);
        }
    }

    /// Stores for a group whether another one shares its device. One that is followed alone has the device to itself.
    fn mark_company(&mut self, now: Micros, id: GroupId) {
        let Some(group) = self.groups.get(&id) else { return };
        let contended = group.contended || group.followed;
        group.words.gate.mark(Gate::CONTENDED, contended);
        group.words.gate.mark(Gate::EXCLUSIVE, group.is_exclusive());
        self.ledger.follow(now * 1_000, id, contended);
    }

    /// Removes a group and leaves its gate open.
    pub fn remove(&mut self, now: Micros, id: GroupId) {
        if let Some(words) = self.take_out(now, id) {
            words.gate.give_up();
        }
    }

    /// Removes a group whose process has ended, and leaves its gates closed, so that the device never executes the work that waits there.
    pub fn remove_dead(&mut self, now: Micros, id: GroupId) {
        if let Some(words) = self.take_out(now, id) {
            words.gate.close_on_device();
        }
    }

    fn take_out(&mut self, now: Micros, id: GroupId) -> Option<W> {
        self.hear_last(now, id);
        self.note(now, id, Step::Gone);
        let group = self.groups.remove(&id)?;
        self.ledger.remove(now * 1_000, id);
        self.event(now, Event::Remove(id));
        Some(group.words)
    }

    /// Begin of the burst of a group that goes on by its own words, in ns.
    pub fn burst_since_ns(&self, id: GroupId) -> Option<u64> {
        let group = self.groups.get(&id)?;
        let goes_on = group.words.state.load(Acquire) != state::IDLE;
        goes_on.then(|| group.words.ready_at_ns.load(Relaxed).max(group.tracker.added_ns()))
    }

    /// Takes notice of the last wishes of a group that goes: it had the device for them all the same if its gate stood open.
    pub fn hear_last(&mut self, now: Micros, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let late_us = group.words.hear(now * 1_000, group.tracker.added_ns());
        let word = group.words.state.load(Acquire);
        self.note_bursts(now, id, word, late_us);
        self.note_late(now, id, late_us, true);
    }

    /// Passes an event on to the arbiter, other than that a group was added or removed.
    pub fn event(&mut self, now: Micros, event: Event) {
        self.count(now);
        if let Event::Hold(program) | Event::Release(program) = event {
            // Groups that wait do so for another reason from now on.
            let waiting = self.arbiter.groups().filter(|(_, g)| g.program == program && g.ready && !g.granted);
            self.asking.extend(waiting.map(|(_, g)| g.id));
        }
        self.arbiter.take(now, event);
    }

    /// Reports to the arbiter the numbers of completed commands, when they are due. They come from the word that the client writes: the
    /// device's own word ([`xsched_proto::segment::QueueSlot::completed_word`]) counts fences, and only the client knows the number of
    /// commands that each covers. Its agent polls for reached fences every 2 ms, and so do threads that wait for the budget.
    fn count(&mut self, now: Micros) {
        if self.arbiter.counts_due(now) {
            self.count_now(now);
        }
    }

    fn count_now(&mut self, now: Micros) {
        for (&group, known) in self.groups.iter().filter(|(id, _)| self.arbiter.is_counted(**id)) {
            let completed = known.words.completed.load(Relaxed);
            let longest_us = known.words.longest_us.load(Relaxed);
            let drained = known.words.state.load(Acquire) != state::READY;
            let limited = known.words.limited.load(Relaxed);
            self.counts.push(Event::Counted { group, completed, limited, longest_us, drained });
        }
        for count in self.counts.drain(..) {
            self.arbiter.take(now, count);
        }
    }

    /// See [`Arbiter::set_policy`].
    pub fn set_policy(&mut self, now: Micros, device: Option<&str>, choice: Choice) {
        self.arbiter.set_policy(now, device, choice, &mut self.actions);
    }

    /// Sets the configuration: [`Arbiter::set_classes`], [`Arbiter::set_guard`], [`Arbiter::set_evenness`], and the budget of
    /// [`Gatekeeper::new`].
    pub fn reconfigure(
        &mut self,
        now: Micros,
        classes: Vec<ClassRule>,
        guard_us: Option<Micros>,
        evenness: u32,
        budget_us: u32,
    ) {
        self.arbiter.set_guard(guard_us);
        self.arbiter.set_evenness(evenness);
        self.arbiter.set_classes(now, classes, &mut self.actions);
        self.budget_us = budget_us;
    }

    /// See [`Arbiter::set_spatial`].
    pub fn set_spatial(&mut self, now: Micros, id: GroupId, spatial: Option<PoolId>) {
        self.arbiter.set_spatial(now, id, spatial);
    }

    /// See [`Arbiter::observe`].
    pub fn observe(&mut self, now: Micros, device: &str, state: Option<&DeviceState>) {
        self.arbiter.observe(now, device, state);
    }

    /// See [`Arbiter::questions`].
    pub fn questions(&mut self) -> Vec<(String, Question)> {
        self.arbiter.questions()
    }

    /// Demand of a group for its device, as far as that is known.
    pub fn demand(&self, id: GroupId) -> Demand {
        self.groups.get(&id).map_or_else(Demand::default, |group| group.sharing.demand)
    }

    /// True if the gate of a group is open.
    pub fn is_granted(&self, id: GroupId) -> bool {
        self.groups.get(&id).is_some_and(|group| group.granted)
    }

    /// True if a group had nothing to do at its last scan.
    pub fn is_idle(&self, id: GroupId) -> bool {
        self.groups.get(&id).is_none_or(|group| group.state == state::IDLE)
    }

    /// Reads the words of a group. `cap` limits a lent priority.
    ///
    /// # Errors
    /// The state word holds no known state; the group counts as idle then.
    pub fn scan(&mut self, now: Micros, id: GroupId, cap: impl FnOnce(i32) -> i32) -> Result<(), UnknownState> {
        self.count(now);
        let Some(group) = self.groups.get_mut(&id) else { return Ok(()) };
        let word = group.words.state.load(Acquire);
        // A launch under way has said when it came before it has said so.
        let has_ended = group.words.bursts.load(Acquire) != group.entered;
        let has_wanted = word != state::IDLE || has_ended;
        let late_us = if has_wanted { group.words.hear(now * 1_000, group.tracker.added_ns()) } else { 0 };
        // The lent priority comes first, so that the events below are decided with it.
        let lent = group.words.inherited_priority.load(Relaxed);
        if lent != group.lent {
            group.lent = lent;
            let priority = (lent != i32::MIN).then(|| cap(lent));
            self.arbiter.take(now, Event::Inherit { group: id, priority });
        }
        // A launch has cleared the bit, so the group goes on.
        if group.stalled && !group.words.gate.load().is_stalled() {
            group.stalled = false;
            group.progress.forget();
            self.arbiter.take(now, Event::Progress(id));
            self.note(now, id, Step::Recovered);
        }
        if has_ended || late_us > 0 {
            self.note_bursts(now, id, word, late_us);
            self.note_late(now, id, late_us, word == state::IDLE && self.is_idle(id));
        }
        if word == state::READY {
            // A group that keeps the device through the gaps between its requests is not idle meanwhile.
            self.take_bursts(now, id);
        }
        let Some(group) = self.groups.get_mut(&id) else { return Ok(()) };
        // A group with an open gate is not drained, even if the word still says so.
        if word == group.state || word == state::DRAINED && group.granted {
            return Ok(());
        }
        let before = std::mem::replace(&mut group.state, word);
        if self.has_company {
            // Programs that yield go on at another rate from here on.
            self.count_now(now);
        }
        let Some(group) = self.groups.get_mut(&id) else { return Ok(()) };
        group.progress.forget();
        self.take_bursts(now, id);
        let Some(group) = self.groups.get_mut(&id) else { return Ok(()) };
        // News that has come late is noted already.
        let since_ns = (late_us == 0).then(|| group.words.ready_at_ns.load(Relaxed));
        self.note_state(now, id, before, word, since_ns);
        let (event, known) = match word {
            state::READY => (Event::Ready(id), Ok(())),
            state::DRAINED => (Event::Drained(id), Ok(())),
            state::IDLE => (Event::Idle(id), Ok(())),
            _ => (Event::Idle(id), Err(UnknownState)),
        };
        self.event(now, event);
        known
    }

    /// Learns from the bursts of a group that have ended since the last scan.
    fn take_bursts(&mut self, now: Micros, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let bursts = group.words.bursts.load(Acquire);
        let ended = bursts.wrapping_sub(std::mem::replace(&mut group.bursts, bursts));
        if ended != 0 {
            group.learn(now * 1_000, ended);
            let us = group.words.burst_us.load(Relaxed);
            self.arbiter.take(now, Event::Burst { group: id, us });
        }
    }

    /// Polls the counters of a group that runs while others wait. `issued` returns the number of its launches; it is called only for such a
    /// group.
    pub fn look(&mut self, now: Micros, id: GroupId, issued: impl FnOnce() -> u64) {
        self.end_look(now, now, id, issued);
    }

    /// Ends a poll ([`Gatekeeper::look`]) that began earlier.
    pub fn end_look(&mut self, now: Micros, began: Micros, id: GroupId, issued: impl FnOnce() -> u64) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        if !self.arbiter.status(now, id).is_some_and(|status| status.scrutinised) {
            return group.progress.forget();
        }
        let completed = group.words.completed.load(Relaxed);
        if let Some(event) = group.progress.look(began, id, issued(), completed) {
            self.event(now, event);
        }
    }

    /// Groups whose gates [`Gatekeeper::carry_out`] is about to close.
    pub fn closing(&mut self, now: Micros) -> impl Iterator<Item = GroupId> {
        self.arbiter.decide(now, &mut self.actions);
        self.actions[self.done..].iter().filter_map(|action| match action {
            Action::Close(id) => Some(*id),
            _ => None,
        })
    }

    /// Carries out the arbiter's actions, up to the next gate that changes. Due after each call that may leave actions, until it returns
    /// none.
    pub fn carry_out(&mut self, now: Micros) -> Option<Change> {
        loop {
            self.arbiter.decide(now, &mut self.actions);
            while let Some(&action) = self.actions.get(self.done) {
                self.done += 1;
                let change = self.store(now, action);
                if change.is_some() {
                    return change;
                }
            }
            self.actions.clear();
            self.done = 0;
            while let Some(id) = self.asking.pop() {
                if !self.is_granted(id) && !self.is_idle(id) {
                    self.note(now, id, Step::Waits);
                }
            }
            if self.off_device.is_empty() {
                self.let_yield(now);
                return None;
            }
            for at in 0..self.off_device.len() {
                self.arbiter.take(now, Event::Drained(self.off_device[at]));
            }
            self.off_device.clear();
        }
    }

    /// Takes in that a group whose gate was just closed is off the device, interrupted or held there by device gates, though its commands
    /// are not complete: its time is charged no more. An idle group stays as it is: it would count as wanting the device.
    pub fn off_device(&mut self, now: Micros, id: GroupId) {
        if !self.is_idle(id) && !self.off_device.contains(&id) {
            self.note(now, id, Step::TakenOff);
            self.off_device.push(id);
        }
    }

    fn store(&mut self, now: Micros, action: Action) -> Option<Change> {
        match action {
            Action::Open(id) => return self.open(now, id),
            Action::Close(id) => return self.close(now, id),
            Action::Budget(id, sharers) => {
                let group = self.groups.get_mut(&id)?;
                let budget_us = match group.own_budget_us {
                    Some(own) if sharers > 0 => own,
                    _ => part_of_budget(self.budget_us, sharers),
                };
                group.budget_us = budget_us;
                group.words.budget_us.store(budget_us, Release);
            }
            Action::Contended(id, on) => {
                self.groups.entry(id).and_modify(|group| group.contended = on);
                self.mark_company(now, id);
            }
            Action::Exclusive(id, on) => {
                let group = self.groups.get_mut(&id)?;
                group.exclusive = on;
                group.words.gate.mark(Gate::EXCLUSIVE, group.is_exclusive());
            }
            Action::KeepsGaps(id, budget) => {
                let words = &self.groups.get(&id)?.words;
                words.slowdown_percent.store(budget.unwrap_or_default(), Relaxed);
                words.hold_us.store(budget.map_or(0, |_| HOLD_US), Release);
            }
            Action::Stalled(id, on) => {
                let group = self.groups.get_mut(&id)?;
                group.stalled = on;
                if on {
                    group.words.stalls.fetch_add(1, Relaxed);
                }
                self.mark(id, Gate::STALLED, on);
                if on {
                    self.note(now, id, Step::Stalled);
                }
            }
        }
        None
    }

    fn mark(&self, id: GroupId, bit: Gate, on: bool) {
        if let Some(group) = self.groups.get(&id) {
            group.words.gate.mark(bit, on);
        }
    }

    fn open(&mut self, now: Micros, id: GroupId) -> Option<Change> {
        let group = self.groups.get_mut(&id)?;
        group.granted = true;
        group.progress.forget();
        // The next drain is to be reported anew.
        if group.state == state::DRAINED {
            group.state = state::READY;
        }
        group.words.grants.fetch_add(1, SeqCst);
        // Read before the gate opens, which wakes the threads up.
        let waiting = group.words.waiting.load(Relaxed);
        group.words.budget_us.store(group.budget_us, Release);
        group.words.gate.grant();
        self.note(now, id, Step::Granted { threads: waiting });
        Some(Change::Opened(id))
    }

    fn close(&mut self, now: Micros, id: GroupId) -> Option<Change> {
        let group = self.groups.get_mut(&id)?;
        group.granted = false;
        group.progress.forget();
        group.words.gate.close();
        let drained = group.words.state.load(SeqCst) == state::DRAINED;
        if drained {
            group.state = state::DRAINED;
        }
        self.note(now, id, Step::Closed);
        // A grant may end before a thread that waits for it wakes up: the group is still drained, will not report that again, and must not
        // be charged for the work of others.
        if drained {
            self.note(now, id, Step::Drained);
            if !self.off_device.contains(&id) {
                self.off_device.push(id);
            }
        }
        Some(Change::Closed(id))
    }
}

/// In-flight budget of one of several groups that share one, in µs; 0 = no limit, for a group that shares with none.
fn part_of_budget(budget_us: u32, sharers: u32) -> u32 {
    budget_us.checked_div(sharers).map_or(0, |part| part.max(budget_us.min(BUDGET_LEAST_US)))
}
