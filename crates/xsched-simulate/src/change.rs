//! Changes of a scenario that are tried: its outcome before and after, in a line.

use xsched_proto::Error;
use xsched_proto::class::parse_priority;
use xsched_proto::units;

use crate::outcome::{Outcome, ProgramOutcome};
use crate::placement::Plan;
use crate::scenario::{Arrivals, Scenario};

/// A change of one kind of program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Another device, by number.
    Device(u32),
    /// Another weight.
    Weight(u32),
    /// Another class or priority.
    Class(String),
}

impl Change {
    /// A device as users write it: `gpu1` or `1`.
    ///
    /// # Errors
    /// A line that says what is accepted.
    pub fn device(text: &str) -> Result<Change, Error> {
        let number = text.strip_prefix("gpu").unwrap_or(text).parse().ok().filter(|number| *number < 1_000_000);
        number
            .map(Change::Device)
            .ok_or_else(|| Error::input(format!("'{text}' is no device: use gpu0, gpu1 and so on")))
    }

    /// A weight.
    ///
    /// # Errors
    /// A line that says what is accepted.
    pub fn weight(text: &str) -> Result<Change, Error> {
        text.parse()
            .map(Change::Weight)
            .map_err(|_| Error::input(format!("'{text}' is no weight: use a number such as 300")))
    }

    /// A class or a priority.
    ///
    /// # Errors
    /// A line that says what is accepted.
    pub fn class(text: &str) -> Result<Change, Error> {
        parse_priority(text).map(|_| Change::Class(text.to_owned()))
    }
}

impl Scenario {
    /// The scenario with changes of programs, by name. A device that it lacks is made like the first one.
    ///
    /// # Errors
    /// A line that names the program that it has not, or the fault of the changed scenario.
    pub fn changed(&self, changes: &[(String, Change)]) -> Result<Scenario, Error> {
        let mut scenario = self.clone();
        for (name, change) in changes {
            let known = || self.programs.iter().map(|program| program.name.as_str());
            let Some(program) = scenario.programs.iter_mut().find(|program| program.name == *name) else {
                return Err(Error::word(name, "program", known().collect::<Vec<_>>().join(", "), known()));
            };
            match change {
                Change::Device(device) => {
                    program.device = vec![*device];
                    scenario.add_devices(*device + 1);
                }
                Change::Weight(weight) => program.weight = Some(*weight),
                Change::Class(class) => program.class = Some(class.clone()),
            }
        }
        scenario.check()?;
        Ok(scenario)
    }

    /// Adds devices until there are so many.
    fn add_devices(&mut self, wanted: u32) {
        let missing = wanted.saturating_sub(self.device_count() as u32);
        if missing == 0 {
            return;
        }
        match self.devices.as_mut_slice() {
            [only] => only.count += missing,
            [first, ..] => {
                let more = crate::Device { count: missing, ..first.clone() };
                self.devices.push(more);
            }
            [] => (),
        }
    }

    /// The scenario with each program on the devices that a plan gives it, as far as it can name them.
    pub(crate) fn pinned(&self, plan: &Plan) -> Scenario {
        let mut scenario = self.clone();
        for (kind, program) in scenario.programs.iter_mut().enumerate().filter(|(_, program)| program.devices == 1) {
            if plan.unplaced[kind] > 0 {
                continue;
            }
            let of_kind = plan.machines.iter().flat_map(|machine| {
                let placed = machine.programs.iter().filter(move |placed| placed.kind == kind);
                placed.map(|placed| (placed.number, (machine.first + placed.devices[0]) as u32))
            });
            let mut devices: Vec<(u32, u32)> = of_kind.collect();
            devices.sort_unstable();
            program.device = devices.into_iter().map(|(_, device)| device).collect();
        }
        scenario
    }
}

/// Changes for each program from one outcome of a scenario to another, in a line: the P99 of those with requests, the rate of those without.
pub fn difference(scenario: &Scenario, before: &Outcome, after: &Outcome) -> String {
    let of = |((program, was), is): ((&crate::Program, &ProgramOutcome), &ProgramOutcome)| {
        let has_requests = program.arrivals != Arrivals::default() || program.requests.is_some();
        let p99 = |outcome: &ProgramOutcome| outcome.requests.quantile_ns(0.99);
        match (p99(was), p99(is)) {
            (Some(was), Some(is)) if has_requests => format!("{}: P99 {}", program.name, from_to(was, is)),
            _ => format!("{} {}", program.name, percent(was.per_second(before.time_ns), is.per_second(after.time_ns))),
        }
    };
    let all = scenario.programs.iter().zip(&before.programs).zip(&after.programs);
    all.map(of).collect::<Vec<_>>().join("; ")
}

/// Two times, with the unit once if both have the same.
fn from_to(was_ns: u64, is_ns: u64) -> String {
    let (was, is) = (units::of_ns(was_ns), units::of_ns(is_ns));
    if was == is {
        return format!("{is} as before");
    }
    match (was.split_once(' '), is.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} → {is}"),
        _ => format!("{was} → {is}"),
    }
}

fn percent(was: f64, is: f64) -> String {
    if was <= 0.0 {
        return if is > 0.0 { "gets on, and did not before".to_owned() } else { "as before".to_owned() };
    }
    match ((is / was - 1.0) * 100.0).round() as i64 {
        0 => "as before".to_owned(),
        more @ 1.. => format!("+{more} %"),
        less => format!("−{} %", -less),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Run, Strategy};

    const TWO: &str = "time = \"2s\"\n[[device]]\n[[program]]\nname = \"serve\"\nclass = \"high\"\narrivals = { every = \"10ms\" }\n\
        kernels = [{ count = 20, time = \"100us\" }]\n[[program]]\nname = \"train\"\nkernels = [{ count = 50, time = \"200us\" }]\n";

    #[test]
    fn a_program_that_moves_leaves_its_device_to_the_others() {
        let scenario = Scenario::read(TWO, |_| unreachable!()).expect(TWO);
        let play =
            |scenario: &Scenario, policy: &str| Run::new(scenario, policy, Strategy::Spread).expect("a policy").play();
        let before = play(&scenario, "native");
        let moved = scenario.changed(&[("serve".into(), Change::Device(1))]).expect("it can move");
        assert_eq!((moved.device_count(), moved.devices.len()), (2, 1));
        let line = difference(&scenario, &before, &play(&moved, "native"));
        assert!(line.starts_with("serve: P99 ") && line.contains(" → 2 ms; train +"), "{line}");
        let heavy = scenario.changed(&[("train".into(), Change::Weight(900))]).expect("a weight");
        let line = difference(&scenario, &play(&scenario, "fair"), &play(&heavy, "fair"));
        assert!(line.starts_with("serve: P99 ") && line.contains(" → ") && line.contains("; train +"), "{line}");
        let urgent = scenario.changed(&[("train".into(), Change::Class("realtime".into()))]).expect("a class");
        assert_eq!(difference(&scenario, &before, &play(&urgent, "hpf")), "serve −100 %; train +27 %");
        assert_eq!(difference(&scenario, &before, &before), "serve: P99 4.0 ms as before; train as before");
    }

    #[test]
    fn faults_are_told_in_a_line() {
        let scenario = Scenario::read(TWO, |_| unreachable!()).expect(TWO);
        let fault =
            |name: &str, change| scenario.changed(&[(name.to_owned(), change)]).expect_err("a fault").to_string();
        assert!(
            fault("serv", Change::Weight(3)).contains("did you mean serve"),
            "{}",
            fault("serv", Change::Weight(3))
        );
        assert!(Change::device("cpu").is_err() && Change::weight("much").is_err() && Change::class("hgih").is_err());
        assert_eq!([Change::device("gpu3"), Change::device("3")], [const { Ok(Change::Device(3)) }; 2]);
    }
}
