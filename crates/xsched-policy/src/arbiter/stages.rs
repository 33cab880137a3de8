//! The stages of a decision, in order. Each changes the verdicts that the stages before it have left, and gives the reason that `xsched ps`
//! and `xsched trace` show for each gate that it was the last to decide otherwise.
//!
//! | stage | decides | reason |
//! |---|---|---|
//! | [`policy`] | the groups that may run, by the policy in force | `policy` |
//! | [`guarantees`] | turns of classes that are owed device time, and quanta that run to their ends | `guarantee` |
//! | [`evenness`] | pauses of groups of a pool that are ahead of the others | `evenness` |
//! | [`guard`] | a turn for a group that has waited for as long as any may | `guard` |
//! | [`drain`] | a pause of all while work of a suspended group comes to its end | `drain` |
//!
//! Reasons that no stage can change are those of [`Member::kept_off`].

pub(super) mod drain;
pub(super) mod evenness;
pub(super) mod guarantees;
pub(super) mod guard;
pub(super) mod policy;

use xsched_proto::trace::Why;

use self::drain::DrainStage;
use self::evenness::Evenness;
use self::guarantees::Guarantees;
use self::guard::Guard;
use self::policy::PolicyStage;
use super::member::Member;
use crate::{Micros, Verdict};

/// Groups that a decision is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// All groups of the device.
    All,
    /// All but the groups of refused jobs, to fill the device meanwhile. Stages keep what they know of the refused groups, lest these
    /// lose their place each time that they have to wait for another device.
    Refill,
}

/// One step of a decision.
pub(super) trait Stage {
    /// Reason for the verdicts that this stage changes.
    fn reason(&self) -> Why;

    /// Changes verdicts, which are in the order of the members. Returns the time at which the device has to be decided again though
    /// nothing happens.
    fn apply(&mut self, now: Micros, round: Round, members: &mut [Member], verdicts: &mut [Verdict]) -> Option<Micros>;
}

/// The stages of one device.
pub(super) struct Stages {
    pub(super) policy: PolicyStage,
    pub(super) guarantees: Guarantees,
    pub(super) evenness: Evenness,
    pub(super) guard: Guard,
    pub(super) drain: DrainStage,
    /// Verdicts as the last stage left them; kept to spare the allocation.
    pub(super) before: Vec<bool>,
}

/// Result of the stages.
#[derive(Clone, Default)]
pub(super) struct Decision {
    /// Verdict on each member, in order.
    pub(super) verdicts: Vec<Verdict>,
    /// Reason of each verdict: that of the last stage that changed it.
    pub(super) reasons: Vec<Why>,
    /// Time of the next decision though nothing happens.
    pub(super) next: Option<Micros>,
}

impl Stages {
    /// Asks each stage in turn. `decision.next` gets earlier, never later.
    pub(super) fn decide(&mut self, now: Micros, round: Round, members: &mut [Member], decision: &mut Decision) {
        let stages: [&mut dyn Stage; 5] =
            [&mut self.policy, &mut self.guarantees, &mut self.evenness, &mut self.guard, &mut self.drain];
        let Decision { verdicts, reasons, next } = decision;
        verdicts.clear();
        verdicts.resize(members.len(), Verdict::default());
        reasons.clear();
        reasons.resize(members.len(), Why::Policy);
        self.before.clear();
        self.before.resize(members.len(), false);
        for stage in stages {
            let again = stage.apply(now, round, members, verdicts);
            *next = [*next, again].into_iter().flatten().min();
            for ((verdict, before), reason) in verdicts.iter().zip(&mut self.before).zip(reasons.iter_mut()) {
                if *before != verdict.run {
                    *before = verdict.run;
                    *reason = stage.reason();
                }
            }
        }
    }
}
