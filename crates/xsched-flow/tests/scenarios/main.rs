//! Scenarios in virtual time: for each rule of the models, the behaviour with it and the fault without it. `docs/internals/models.md#rules` lists
//! the rules.
//!
//! Everything is computed; no test waits. Two worlds ask the models of the product: [`flat_out`] is one program that launches as fast as
//! the scheduler lets it, [`shared`] is several programs with their agents, the device and the daemon's own gatekeeper.

mod activity;
mod admission;
mod estimate;
mod flat_out;
mod shared;
mod timeline;
mod watchdog;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Rule of the models that a scenario can switch off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    None,
    // Rules of admission.
    Budget,
    Consumed,
    Lead,
    Awake,
    Gates,
    Prequeue,
    PrequeueLimit,
    TimeFences,
    Sampling,
    // Rules of estimates.
    Outliers,
    Pace,
    // Rules of the timeline.
    Overdue,
    Silence,
    // Rules of activity.
    Grace,
    Drained,
    Gaps,
    StoppedTime,
    // Rules of the watchdog.
    Override,
    OverridesInARow,
    Patience,
    Release,
    Bypass,
    Lease,
}

/// Asserts that a rule is needed: the scenario shows the wanted behaviour with all rules, and does not without this one.
fn earns(rule: Rule, shows: impl Fn(Rule) -> bool) {
    assert!(shows(Rule::None), "with {rule:?}");
    assert!(!shows(rule), "the scenario does not need {rule:?}");
}
