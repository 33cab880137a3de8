//! Entitlement: the priority that a program gets, whatever it asked for, and the priorities of its groups that follow from it.
//!
//! A program asks for a priority, by an option or by itself; else a rule of the configuration speaks for it; else it is `normal`. The limit
//! of its user and the ceiling of its rule bound the result. Root may raise that bound for one program. The daemon uses this for programs,
//! announced processes and pools. `run --local`, where no other user decides, has no bounds ([`Entitlement::unlimited`]).

use crate::class::{Class, PRIORITY_MAX, PRIORITY_NEVER, queue_priority};
use crate::wire::ClassFrom;

/// Inputs of a program's entitlement, all of them priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Priority that the program or its starter asked for.
    pub asked: Option<i32>,
    /// Priority that a rule of the configuration gives where none is asked for.
    pub rule: Option<i32>,
    /// Limit of the program's user.
    pub limit: i32,
    /// Ceiling of the program's rule.
    pub ceiling: Option<i32>,
    /// Priority to which a rule limits groups of the system domain.
    pub system_ceiling: Option<i32>,
}

/// Priority of a program, its origin, and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entitlement {
    /// Priority of the program's groups, unless a group has one of its own.
    pub priority: i32,
    /// Origin of the priority.
    pub from: ClassFrom,
    /// True if the program requested a higher priority than it has.
    pub limited: bool,
    /// Limit of the program's user or ceiling of its rule, whichever is lower.
    pub allowed: i32,
    /// `allowed`, or a higher priority set by root.
    ceiling: i32,
    system_ceiling: Option<i32>,
    asked: Option<i32>,
}

impl Entitlement {
    /// Entitlement of a program that attaches, or is going to.
    pub fn new(claim: Claim) -> Entitlement {
        let mut entitlement = Entitlement {
            priority: PRIORITY_NEVER,
            from: ClassFrom::Default,
            limited: false,
            allowed: PRIORITY_NEVER,
            ceiling: PRIORITY_NEVER,
            system_ceiling: None,
            asked: claim.asked,
        };
        entitlement.reconsider(claim);
        entitlement
    }

    /// Entitlement of a program without limits.
    pub fn unlimited(asked: Option<i32>) -> Entitlement {
        Entitlement::new(Claim { asked, rule: None, limit: PRIORITY_MAX, ceiling: None, system_ceiling: None })
    }

    /// Applies another configuration. A priority from a hint stays, within the new bounds. Bounds that root has raised stay raised.
    /// `claim.asked` is ignored: a program asks once, when it attaches.
    pub fn reconsider(&mut self, claim: Claim) {
        let allowed = claim.limit.min(claim.ceiling.unwrap_or(PRIORITY_MAX));
        let is_raised = self.ceiling > self.allowed;
        self.ceiling = if is_raised { self.ceiling.max(allowed) } else { allowed };
        self.allowed = allowed;
        self.system_ceiling = claim.system_ceiling;
        if self.from == ClassFrom::Hint {
            self.priority = self.bounded(self.priority);
            return;
        }
        let (wished, from) = match (self.asked, claim.rule) {
            (Some(asked), _) => (asked, ClassFrom::Option),
            (None, Some(rule)) => (rule, ClassFrom::Rule),
            (None, None) => (Class::Normal.nominal(), ClassFrom::Default),
        };
        self.from = from;
        self.priority = self.bounded(wished);
        self.limited = self.priority < wished;
    }

    /// Applies a hint for the whole program. A hint by root raises the bound if necessary.
    pub fn hint(&mut self, priority: i32, by_root: bool) {
        if by_root {
            self.ceiling = self.allowed.max(priority);
        }
        self.priority = self.bounded(priority);
        (self.from, self.limited) = (ClassFrom::Hint, false);
    }

    /// Raises the bound for one of the program's queues, to which root gives this priority; the program will ask for it.
    pub fn raise(&mut self, priority: i32) {
        self.ceiling = self.ceiling.max(priority);
    }

    /// Priority of a group: its own (`fixed`), else the program's shifted by `steps` of ten. A group of the system domain without a
    /// priority of its own rises to the system ceiling.
    pub fn group(&self, steps: i32, fixed: Option<i32>, is_system: bool) -> i32 {
        let own = group_priority(self.priority, steps, fixed);
        let rises = is_system && fixed.is_none() && own > PRIORITY_NEVER;
        let lifted = self.system_ceiling.filter(|_| rises).unwrap_or(PRIORITY_NEVER);
        self.bounded(own).max(lifted)
    }

    /// Priority that results when one of the program's groups lends another `lent`: at most that which a group of the program may have.
    pub fn inherited(&self, lent: i32) -> i32 {
        let most = self.ceiling.max(self.system_ceiling.unwrap_or(self.ceiling));
        lent.clamp(PRIORITY_NEVER, most)
    }

    /// Priority cut to the program's bound.
    pub fn bounded(&self, priority: i32) -> i32 {
        priority.clamp(PRIORITY_NEVER, self.ceiling)
    }
}

/// Priority that a group asks for within a program of priority `base`: its own (`fixed`), else `base` shifted by `steps` of ten.
pub fn group_priority(base: i32, steps: i32, fixed: Option<i32>) -> i32 {
    fixed.unwrap_or_else(|| queue_priority(base, steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Claim = Claim { asked: None, rule: None, limit: PRIORITY_MAX, ceiling: None, system_ceiling: None };

    /// Two simple formulas for the same priority, to compare with: a clamp to the ceiling, and the least of wish, limit and ceiling.
    fn by_hand(claim: Claim) -> [i32; 2] {
        let wished = claim.asked.or(claim.rule).unwrap_or(0);
        let ceiling = claim.limit.min(claim.ceiling.unwrap_or(255));
        [wished.clamp(PRIORITY_NEVER, ceiling), wished.min(claim.limit).min(claim.ceiling.unwrap_or(i32::MAX))]
    }

    #[test]
    fn all_claims_come_to_the_lowest_of_wish_limit_and_ceiling() {
        let wishes = [None, Some(PRIORITY_NEVER), Some(-128), Some(0), Some(128), Some(192), Some(255)];
        for asked in wishes {
            for rule in wishes {
                for limit in [-1, 127, 191, 255] {
                    for ceiling in [None, Some(-1), Some(127), Some(254)] {
                        let claim = Claim { asked, rule, limit, ceiling, ..NONE };
                        let got = Entitlement::new(claim);
                        assert_eq!([got.priority; 2], by_hand(claim), "{claim:?}");
                        let wished = asked.or(rule).unwrap_or(0);
                        assert_eq!(got.limited, got.priority < wished, "{claim:?}");
                        for (steps, fixed) in [(0, None), (2, None), (-1, None), (0, Some(255)), (0, Some(-5))] {
                            let own = fixed.unwrap_or(queue_priority(got.priority, steps));
                            assert_eq!(got.group(steps, fixed, true), own.clamp(PRIORITY_NEVER, got.allowed));
                            assert_eq!(group_priority(got.priority, steps, fixed), own);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_origin_is_told() {
        let from = |asked, rule| Entitlement::new(Claim { asked, rule, ..NONE }).from;
        assert_eq!(from(Some(1), Some(2)), ClassFrom::Option);
        assert_eq!((from(None, Some(2)), from(None, None)), (ClassFrom::Rule, ClassFrom::Default));
        let mut hinted = Entitlement::unlimited(Some(-128));
        hinted.hint(128, false);
        assert_eq!((hinted.priority, hinted.from, hinted.limited), (128, ClassFrom::Hint, false));
    }

    #[test]
    fn the_bound_that_root_has_raised_outlives_another_configuration() {
        let mut program = Entitlement::new(Claim { asked: Some(192), limit: 127, ..NONE });
        assert_eq!((program.priority, program.limited), (127, true));
        program.hint(192, false);
        assert_eq!(program.priority, 127, "a user's hint stays below the limit");
        program.hint(192, true);
        assert_eq!((program.priority, program.allowed), (192, 127));
        program.reconsider(Claim { limit: 0, ..NONE });
        assert_eq!((program.priority, program.allowed), (192, 0));
        assert_eq!(program.group(0, Some(200), false), 192);
        program.raise(200);
        assert_eq!(program.group(0, Some(200), false), 200);
    }

    #[test]
    fn groups_of_the_system_domain_rise_and_lend_up_to_their_ceiling() {
        let program = Entitlement::new(Claim { asked: Some(-128), limit: 0, system_ceiling: Some(128), ..NONE });
        assert_eq!((program.group(0, None, true), program.group(0, None, false)), (128, -128));
        assert_eq!(program.group(0, Some(-3), true), -3, "it has one of its own");
        assert_eq!((program.inherited(255), Entitlement::unlimited(None).inherited(300)), (128, 255));
        let never = Entitlement::new(Claim { asked: Some(PRIORITY_NEVER), system_ceiling: Some(128), ..NONE });
        assert_eq!(never.group(0, None, true), PRIORITY_NEVER);
    }
}
