//! Scenarios in virtual time: what would happen, decided by the daemon's own engine and by the models of the preload library.
//!
//! [`Scenario::read`] reads a scenario; [`Run`] plays it under a policy and a strategy of placement. Machines do not depend on each other, so
//! the caller may play them in any order, or several at a time ([`Run::machine`]), and adds up what they show ([`Outcome::merge`]). Nothing here
//! reads a clock, starts a thread or touches a file: a scenario and its seed decide everything.
//!
//! - `scenario` is what users write.
//! - `placement` gives each program its devices.
//! - `node` plays one machine: devices (`xsched-sim`'s model), programs' threads (`xsched-flow`'s models), the daemon (`xsched-engine`).
//! - `recording` makes a scenario of programs that were seen running.
//! - [`journal`] has what the daemon took and decided.
//! - `change` tries changes of a scenario, and tells what they change.
//! - `outcome` is what a run has shown; `report` puts it into tables and JSON, `svg` into a picture.

#![forbid(unsafe_code)]

mod change;
mod histogram;
pub mod journal;
mod memory;
mod node;
mod outcome;
mod placement;
mod random;
mod recording;
mod report;
mod scenario;
mod svg;

use xsched_policy::Choice;
use xsched_proto::Error;

use node::Node;
use placement::Plan;

pub use change::{Change, difference};
pub use histogram::Histogram;
pub use outcome::{Interval, Outcome, ProgramInterval, ProgramOutcome, RecordedRank, Span, Track};
pub use recording::{Recorded, Recording, Written};
pub use report::{Json, VERSION, table};
pub use scenario::{
    Arrival, Arrivals, Daemon, Detail, Device, Event, Kernels, NATIVE, Placement, Preemption, Program, Scenario,
    Strategy, TIMES_HELP, Time, Times, Traced,
};
pub use svg::picture;

/// A scenario under one policy and one strategy of placement.
pub struct Run<'a> {
    scenario: &'a Scenario,
    written: String,
    policy: Option<Choice>,
    strategy: Strategy,
    plan: Plan,
    /// Set if the run keeps spans for a trace.
    pub has_spans: bool,
    /// Set if the daemon records its programs, as `xsched record` asks it to.
    pub records: bool,
    /// Set if the journal of the daemon is kept.
    pub has_journal: bool,
}

impl<'a> Run<'a> {
    /// A run under a policy, as it is written.
    ///
    /// # Errors
    /// One line that says which policies there are.
    pub fn new(scenario: &'a Scenario, policy: &str, strategy: Strategy) -> Result<Run<'a>, Error> {
        let choice = node::policy_of(policy)?;
        let plan = placement::plan(scenario, strategy);
        Ok(Run {
            scenario,
            written: policy.to_owned(),
            policy: choice,
            strategy,
            plan,
            has_spans: false,
            records: false,
            has_journal: false,
        })
    }

    /// Returns the run under a policy that has no name of its own, such as one with a fault.
    #[must_use]
    pub fn under(self, choice: Choice) -> Run<'a> {
        Run { policy: Some(choice), ..self }
    }

    /// Number of machines.
    pub fn machines(&self) -> usize {
        self.plan.machines.len()
    }

    /// An outcome to which those of machines are added.
    pub fn nothing(&self) -> Outcome {
        let kinds = self.scenario.programs.iter().zip(&self.plan.unplaced);
        let of_kind = |(kind, unplaced): (&Program, &u32)| ProgramOutcome {
            name: kind.name.clone(),
            unplaced: *unplaced,
            ..ProgramOutcome::default()
        };
        let is_placed =
            self.scenario.programs.iter().any(|kind| kind.device.is_empty()) && self.scenario.device_count() > 1;
        Outcome {
            policy: self.written.clone(),
            placement: if is_placed { self.strategy.name().to_owned() } else { String::new() },
            time_ns: self.scenario.time.0,
            programs: kinds.map(of_kind).collect(),
            devices_busy_ns: vec![0; self.scenario.device_count()],
            interval_ns: self.scenario.interval.map_or(0, |interval| interval.0),
            intervals: Interval::all(self.scenario),
            ..Outcome::default()
        }
    }

    /// Plays one machine.
    pub fn machine(&self, at: usize) -> Outcome {
        let mut node = Node::new(self.scenario, &self.plan.machines[at], self.policy.as_ref(), self.has_spans);
        if self.records {
            node.record();
        }
        if self.has_journal {
            node.keep_journal();
        }
        node.play()
    }

    /// The scenario with its programs where this run has placed them, for a change that is to move no other program.
    pub fn pinned(&self) -> Scenario {
        self.scenario.pinned(&self.plan)
    }

    /// Recording of a run with [`Run::records`].
    pub fn recording(&self, outcome: &Outcome) -> Recording {
        let devices = self.scenario.devices.iter();
        let one = |kind: &Device| Device { count: 1, ..kind.clone() };
        Recording {
            question: self.scenario.question.clone(),
            from_us: 0,
            us: self.scenario.time.0 / 1_000,
            policy: self.written.clone(),
            devices: devices.flat_map(|kind| vec![one(kind); kind.count as usize]).collect(),
            programs: outcome.recorded.iter().map(|rank| self.recorded(rank)).collect(),
        }
    }

    fn recorded(&self, rank: &RecordedRank) -> Recorded {
        let kind = &self.scenario.programs[rank.kind];
        let program = Program {
            name: format!("{}-{}-{}", kind.name, rank.number, rank.device),
            count: 1,
            devices: 1,
            device: vec![rank.device as u32],
            ..kind.clone()
        };
        let RecordedRank { bursts, commands, ran_us, longest_us, .. } = rank.clone();
        Recorded { program, bursts, commands, ran_us, longest_us }
    }

    /// Plays all machines, one after the other.
    pub fn play(&self) -> Outcome {
        let mut all = self.nothing();
        (0..self.machines()).for_each(|at| all.merge(self.machine(at)));
        all
    }
}
