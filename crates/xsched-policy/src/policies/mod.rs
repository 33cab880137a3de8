//! One file per policy, and the parts that several of them use: [`rank`] (order by rank), [`pauses`] (order among equals), [`turns`] (turns
//! by weight) and [`kept`] (values kept about each group).

mod kept;
mod pauses;
mod rank;
mod turns;

use crate::entry::Entry;

/// The list of policies: a module each, with a static `ENTRY`.
macro_rules! policies {
    ($($name:ident),* $(,)?) => {
        $(pub(crate) mod $name;)*

        /// All policies, the default first.
        pub static POLICIES: &[&Entry] = &[$(&$name::ENTRY),*];
    };
}

policies! { hpf, hhpf, chpf, up, pup, spup, kedf, lax, awf, cfs, mlfq, slo, fair, external, observe, chaos }

#[cfg(test)]
pub(crate) mod tests {
    use crate::{GroupId, GroupView, Micros, Policy, ProgramId, Verdict};

    /// The only group of its program, idle.
    pub(crate) fn group(id: u64) -> GroupView {
        GroupView::new(GroupId(id), ProgramId(id))
    }

    /// Asks a policy. Returns for each group whether it may run, and the time of the next call. All are budgeted where there are several.
    pub(crate) fn ask(policy: &mut dyn Policy, now: Micros, groups: &[GroupView]) -> (Vec<bool>, Option<Micros>) {
        let mut verdicts = vec![Verdict::default(); groups.len()];
        let next = policy.decide(now, groups, &mut verdicts);
        assert!(verdicts.iter().all(|v| v.budgeted == (groups.len() > 1)));
        (verdicts.iter().map(|v| v.run).collect(), next)
    }
}
