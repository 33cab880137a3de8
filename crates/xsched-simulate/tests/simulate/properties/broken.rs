//! Policies with a fault each: the rule that it breaks must find it, make the scenario small, and print a file that shows the fault.

use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestError, TestRunner};
use xsched_policy::registry::{self, Entry};
use xsched_policy::{Choice, GroupView, Micros, Params, Policy, Verdict};
use xsched_simulate::{Outcome, Run, Scenario, Time};

use crate::common::{File, any_scenario};

/// Time for which a lazy policy works, and rests, in µs.
const SPELL_US: Micros = 20_000;

/// Steps by which a scenario is made smaller: enough to leave out programs that matter not, and few, so that the tests are quick.
const SHRINKS: u32 = 100;

/// A policy that sees other groups than there are, or is not asked.
struct Broken {
    sound: Box<dyn Policy>,
    /// Changes what the sound policy sees. Returns the number of groups that it sees at all, the first ones; none = it is not asked until
    /// the end of a spell.
    fault: fn(Micros, &mut [GroupView]) -> Option<usize>,
}

impl Policy for Broken {
    fn decide(&mut self, now: Micros, groups: &[GroupView], verdicts: &mut [Verdict]) -> Option<Micros> {
        let mut seen = groups.to_vec();
        let spell_ends = (now / SPELL_US + 1) * SPELL_US;
        let Some(count) = (self.fault)(now, &mut seen) else { return Some(spell_ends) };
        let again = self.sound.decide(now, &seen[..count], &mut verdicts[..count]);
        Some(again.map_or(spell_ends, |again| again.min(spell_ends)))
    }

    fn lets_yield(&self) -> bool {
        false
    }
}

/// Makes a policy for a device.
type Make = fn(&Params) -> Box<dyn Policy>;

/// A policy with a fault under the name of the sound one.
fn broken(name: &str, make: Make) -> Choice {
    let mut choice = Choice::named(name).expect("a policy");
    choice.entry = Box::leak(Box::new(Entry { make, ..*choice.entry }));
    choice
}

fn sound(name: &str, params: &Params) -> Box<dyn Policy> {
    (registry::find(name).expect("a policy").make)(params)
}

fn play(scenario: &Scenario, choice: Option<&Choice>) -> Outcome {
    let run = Run::new(scenario, &scenario.policy, scenario.placement.strategy).expect("a policy");
    match choice {
        Some(choice) => run.under(choice.clone()).play(),
        None => run.play(),
    }
}

/// Asserts that the rule finds the fault, in a scenario of at most so many programs that shows it once more when it is read from its file, and
/// shows nothing under the sound policy.
fn is_found(
    rule: fn(&Scenario, &Outcome) -> TestCaseResult,
    scenarios: impl Strategy<Value = File>,
    (name, make): (&'static str, Make),
    most_programs: usize,
) {
    let choice = broken(name, make);
    // Without the guard, which saves those that a policy forgets.
    let all = scenarios.prop_map(move |File(mut scenario)| {
        (scenario.policy, scenario.daemon.guard) = (name.to_owned(), Time(0));
        File(scenario)
    });
    let config = ProptestConfig { max_shrink_iters: SHRINKS, ..super::config(24) };
    let found = TestRunner::new(config).run(&all, |File(one)| rule(&one, &play(&one, Some(&choice))));
    let Err(TestError::Fail(why, file)) = found else { panic!("the fault was not found: {found:?}") };
    let printed = format!("{file:?}");
    println!("{why}:{printed}");
    let read = Scenario::read(&printed, |_| unreachable!()).unwrap_or_else(|e| panic!("{e}: {printed}"));
    assert!(rule(&read, &play(&read, Some(&choice))).is_err(), "{why} is not found again: {printed}");
    assert!(rule(&read, &play(&read, None)).is_ok(), "it is no fault of the policy: {printed}");
    assert!(read.programs.len() <= most_programs, "{why} in too large a scenario: {printed}");
}

#[test]
fn a_policy_that_forgets_a_program_is_found() {
    let forgets = |params: &Params| -> Box<dyn Policy> {
        let fault = |_, groups: &mut [GroupView]| Some(groups.len() - usize::from(groups.len() > 1));
        Box::new(Broken { sound: sound("fair", params), fault })
    };
    is_found(super::none_is_forgotten, any_scenario(1_500), ("fair", forgets), 2);
}

#[test]
fn a_policy_that_rests_while_work_waits_is_found() {
    let rests = |params: &Params| -> Box<dyn Policy> {
        let fault = |now: Micros, groups: &mut [GroupView]| (now / SPELL_US).is_multiple_of(2).then_some(groups.len());
        Box::new(Broken { sound: sound("fair", params), fault })
    };
    is_found(super::the_device_works, super::with_a_greedy_one(), ("fair", rests), 1);
}

#[test]
fn a_policy_that_inverts_classes_is_found() {
    let inverts = |params: &Params| -> Box<dyn Policy> {
        let fault = |_, groups: &mut [GroupView]| {
            groups.iter_mut().for_each(|group| group.priority = -group.priority);
            Some(groups.len())
        };
        Box::new(Broken { sound: sound("hpf", params), fault })
    };
    is_found(super::the_urgent_one_comes_first, super::two_alike(), ("hpf", inverts), 2);
}

#[test]
fn a_policy_that_ignores_weights_is_found() {
    let ignores = |params: &Params| -> Box<dyn Policy> {
        let fault = |_, groups: &mut [GroupView]| {
            groups.iter_mut().for_each(|group| group.hints.weight = None);
            Some(groups.len())
        };
        Box::new(Broken { sound: sound("fair", params), fault })
    };
    is_found(super::weights_count, super::two_that_share(), ("fair", ignores), 2);
}
