//! Each rule of the models in virtual time, and what goes wrong when it is switched off: `docs/internals/rules.md` lists them.
//!
//! Everything is computed, nothing waits. Two worlds ask the models of the product: [`flat_out`] is one program that launches as
//! fast as it is let, [`shared`] are programs with their agents, the device and the daemon's own gatekeeper.

mod activity;
mod admission;
mod estimate;
mod flat_out;
mod shared;
mod timeline;
mod watchdog;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A rule that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    None,
    // Admission.
    Budget,
    Consumed,
    Lead,
    Awake,
    Gates,
    Prequeue,
    PrequeueLimit,
    TimeFences,
    Sampling,
    // Estimate.
    Outliers,
    Pace,
    // Timeline.
    Overdue,
    Silence,
    // Activity.
    Grace,
    Drained,
    StoppedTime,
    // Watchdog.
    Override,
    OverridesInARow,
    Patience,
    Release,
    Bypass,
    Lease,
}

/// With and without a rule: the first holds, the second does not.
fn earns(rule: Rule, shows: impl Fn(Rule) -> bool) {
    assert!(shows(Rule::None), "with {rule:?}");
    assert!(!shows(rule), "the scenario does not need {rule:?}");
}
