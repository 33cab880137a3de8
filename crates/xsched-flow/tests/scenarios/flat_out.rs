//! One program that launches kernels of one kind into one queue, as fast as the scheduler lets it.

use std::collections::{BTreeMap, VecDeque};

use xsched_flow::admission::{self, Budget, InFlight, Pause, Place};
use xsched_flow::estimate::{Cell, Fence, Lesson, Pace, Seen, learn, learn_pace};
use xsched_flow::tuning::*;
use xsched_flow::watchdog::{override_commands, patience_ns};

use crate::{MS, Rule, US};

/// Number of a command that the models do not choose for sampling.
const UNSAMPLED: u64 = 100;
/// Waiting time from which on a program counts as hanging, in ns.
const HANGS_NS: u64 = 5_000 * MS;

/// A command on the device.
struct Command {
    ns: u64,
    end_ns: u64,
    fence: Option<Fence>,
}

/// A device with one queue, and one program with kernels of one kind.
pub(crate) struct FlatOut {
    off: Rule,
    pub(crate) budget_us: u32,
    pub(crate) has_gates: bool,
    pub(crate) host_ns: u64,
    /// True if another queue of the program has work, so that the pace of this queue is no measure.
    pub(crate) beside_others: bool,
    /// Number of launches until which the first kernel spins.
    pub(crate) spins_until: u64,
    pub(crate) now: u64,
    free_at: u64,
    pub(crate) busy_ns: u64,
    device: VecDeque<Command>,
    seq: u64,
    issued_ns: u64,
    fenced: (u64, u64),
    gated_ns: u64,
    done: (u64, u64),
    seen: (u64, u64),
    looked_at: u64,
    pace: Pace,
    cells: BTreeMap<u64, Cell>,
    pub(crate) launches: u64,
    /// Number of overrides in a row, and of launches that the last one lets through.
    overrides: (u32, u32),
    pub(crate) hangs: bool,
    /// Largest amount of work that the device ever had in flight, in ns.
    pub(crate) most_ahead_ns: u64,
}

impl FlatOut {
    pub(crate) fn new(off: Rule) -> FlatOut {
        FlatOut {
            off,
            budget_us: 500,
            has_gates: false,
            host_ns: 3 * US,
            beside_others: false,
            spins_until: 0,
            now: MS,
            free_at: 0,
            busy_ns: 0,
            device: VecDeque::new(),
            seq: 0,
            issued_ns: 0,
            fenced: (0, 0),
            gated_ns: 0,
            done: (0, 0),
            seen: (0, 0),
            looked_at: 0,
            pace: Pace::default(),
            cells: BTreeMap::new(),
            launches: 0,
            overrides: (0, 0),
            hangs: false,
            most_ahead_ns: 0,
        }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut FlatOut)) -> FlatOut {
        change(&mut self);
        self
    }

    pub(crate) fn knows(mut self, key: u64, ns: u64) -> FlatOut {
        self.cells.insert(key, Cell::default().sample(ns, true));
        self
    }

    pub(crate) fn expected(&self, key: u64) -> Option<u64> {
        self.cells.get(&key)?.expected_ns()
    }

    fn apply(&mut self, lesson: Lesson) {
        let (Lesson::Sample { key, .. } | Lesson::Lower { key, .. }) = lesson;
        let cell = self.cells.entry(key).or_default();
        *cell = match lesson {
            // Without the rule, every sample counts in a plain average.
            Lesson::Sample { ns, .. } if self.off == Rule::Outliers && ns > 4 * cell.expected_ns().unwrap_or(ns) => {
                let average = cell.expected_ns().map_or(ns, |old| (7 * old + ns) / 8);
                Cell::default().sample(average, true)
            }
            Lesson::Sample { ns, exclusive, .. } => cell.sample(ns, exclusive),
            Lesson::Lower { ns, .. } => cell.lower(ns),
        };
    }

    /// Polls the completions.
    fn look(&mut self) {
        if self.launches < self.spins_until {
            return;
        }
        let late_ns = self.now - self.looked_at;
        self.looked_at = self.now;
        let mut reached = Vec::new();
        while self.device.front().is_some_and(|command| command.end_ns <= self.now) {
            reached.extend(self.device.pop_front().and_then(|command| command.fence));
        }
        let Some(last) = reached.last().copied() else { return };
        let next = self.device.iter().find_map(|command| command.fence);
        let seen = Seen {
            now_ns: self.now,
            late_ns,
            before_ns: self.seen.0,
            before_late_ns: self.seen.1,
            epoch: 1,
            done: self.done.0,
            done_ns: self.done.1,
            exclusive: true,
            budgeted: true,
        };
        self.seen = (self.now, late_ns);
        let known = |key| self.expected(key);
        let mut lessons = Vec::new();
        learn(&seen, &reached, known, |lesson| lessons.push(lesson));
        if self.off != Rule::Pace {
            self.pace = learn_pace(self.pace, &seen, &reached, next.as_ref(), !self.beside_others, known, |lesson| {
                lessons.push(lesson)
            });
        }
        lessons.into_iter().for_each(|lesson| self.apply(lesson));
        self.done = (last.seq, last.issued_ns);
    }

    fn in_flight(&self) -> InFlight {
        InFlight { commands: self.fenced.0 - self.done.0, ns: self.fenced.1 - self.done.1 }
    }

    /// Time at which the next fence should be reached, and the device time already spent towards it, both in ns.
    fn next_fence(&self) -> Option<(u64, u64)> {
        let fence = self.device.iter().find_map(|command| command.fence)?;
        let (began, took) = (self.seen.0.max(fence.at_ns), fence.issued_ns - self.done.1);
        Some((began + took, (self.now - began).min(took)))
    }

    fn fits(&self, estimate_ns: u64) -> bool {
        let budget = Budget::new(self.budget_us, 0, self.has_gates && self.off != Rule::Gates);
        let consumed = || match self.off {
            Rule::Consumed => 0,
            _ => self.next_fence().map_or(0, |(_, consumed)| consumed),
        };
        let in_flight = self.in_flight();
        if self.off == Rule::Lead {
            return in_flight.commands == 0 || in_flight.ns - consumed() + estimate_ns <= budget.ns;
        }
        self.off == Rule::Budget || admission::fits(&budget, &in_flight, estimate_ns, consumed)
    }

    fn wait_for_budget(&mut self, estimate_ns: u64) {
        if self.fits(estimate_ns) {
            self.overrides = (0, 0);
            return;
        }
        if self.overrides.1 > 0 {
            self.overrides.1 -= 1;
            return;
        }
        let expected_ns = if self.off == Rule::Patience { 0 } else { self.in_flight().ns };
        let patience_ns = patience_ns(u64::from(self.budget_us) * US, expected_ns);
        let (began, mut since, mut done) = (self.now, self.now, self.done);
        while !self.fits(estimate_ns) {
            if self.off != Rule::Override && self.now - since >= patience_ns {
                let commands = if self.off == Rule::OverridesInARow { 0 } else { override_commands(self.overrides.0) };
                self.overrides = (self.overrides.0 + 1, commands);
                return;
            }
            self.hangs = self.now - began > HANGS_NS;
            if self.hangs {
                return;
            }
            let due_ns = self.next_fence().map_or(i64::MIN / 2, |(due, _)| due.wrapping_sub(self.now) as i64);
            self.now += match admission::pause(due_ns) {
                // A thread that sleeps wakes up late, by as much as on a machine whose processors are in a power-saving state.
                Pause::Awake if self.off == Rule::Awake => 50 * US + 60 * US,
                Pause::Awake => US,
                Pause::Sleep(sleep) => sleep + if self.off == Rule::Awake { 60 * US } else { AWAKE_NS / 2 },
            };
            self.look();
            if self.done != done {
                (since, done) = (self.now, self.done);
            }
        }
    }

    /// Launches a kernel that takes `ns`, and `away_ns` longer if the device turns to another context meanwhile.
    pub(crate) fn launch(&mut self, key: u64, ns: u64, away_ns: u64) {
        let estimate = self.expected(key);
        let estimate_ns = estimate.unwrap_or(UNKNOWN_NS);
        self.look();
        self.wait_for_budget(estimate_ns);
        self.now += self.host_ns;
        self.seq += 1;
        let ask = Place {
            seq: self.seq,
            estimate_ns: estimate,
            issued_ns: self.issued_ns,
            fenced: self.fenced.0,
            fenced_ns: self.fenced.1,
            gated_ns: self.gated_ns,
            before: self.launches,
            budget_us: self.budget_us,
            has_gates: self.has_gates,
            in_order: true,
            ..Place::default()
        };
        let mut placed = admission::place(&ask, || 0, || true);
        match self.off {
            Rule::TimeFences => placed.fence = self.seq - self.fenced.0 >= FENCE_COMMANDS,
            Rule::Gates => placed.device_gate = false,
            Rule::Sampling => {
                let ask = Place { seq: UNSAMPLED, fenced: UNSAMPLED - (ask.seq - ask.fenced), ..ask };
                placed = admission::place(&ask, || 0, || true);
            }
            _ => {}
        }
        self.issued_ns += estimate_ns;
        if placed.device_gate {
            self.gated_ns = ask.issued_ns;
        }
        let begin = self.now.max(self.free_at);
        self.free_at = begin + ns + away_ns;
        self.busy_ns += ns;
        let fence = placed.fence.then(|| Fence {
            seq: self.seq,
            issued_ns: self.issued_ns,
            estimate_ns,
            commands: self.seq - self.fenced.0,
            key,
            at_ns: self.now,
            epoch: Some(1),
        });
        if placed.fence {
            self.fenced = (self.seq, self.issued_ns);
        }
        self.device.push_back(Command { ns, end_ns: self.free_at, fence });
        self.launches += 1;
        if self.launches == self.spins_until {
            self.free_at = self.now;
            for command in &mut self.device {
                self.free_at += command.ns;
                command.end_ns = self.free_at;
            }
        }
        self.most_ahead_ns = self.most_ahead_ns.max(self.free_at - self.now);
    }

    /// Launches for `for_ns`. Returns the part of that time in which the device was at work.
    pub(crate) fn run(&mut self, for_ns: u64, ns: u64) -> f64 {
        let (began, busy) = (self.now, self.busy_ns);
        while self.now < began + for_ns && !self.hangs {
            self.launch(7, ns, 0);
        }
        (self.busy_ns - busy) as f64 / (self.now.max(self.free_at) - began) as f64
    }

    /// Time for which the device stays occupied when the gate closes now, in ns. Gates on the device hold the commands behind them: all but
    /// the running one, if that is behind a gate itself.
    pub(crate) fn drain_ns(&self) -> u64 {
        self.free_at.saturating_sub(self.now)
    }

    /// Time for which the device stays occupied when the gate closes now, in ns, where gates on the device hold the commands behind them:
    /// each command behind a gate of its own is held once the running one is over.
    pub(crate) fn drain_gated_ns(&self, ns: u64) -> u64 {
        if self.gated_ns == 0 { self.drain_ns() } else { self.drain_ns().min(ns + 500 * US) }
    }
}
