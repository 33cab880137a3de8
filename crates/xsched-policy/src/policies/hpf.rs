//! Highest priority first.
//!
//! A group runs unless a ready group of strictly higher priority is on the device. The same holds for idle groups,
//! so the gate of an idle top group stands open and its first launch waits for nobody. Equals run side by side, and so
//! do those whom the hardware runs at the same time by priorities of its own.

use crate::registry::Params;
use crate::{Group, Micros, Policy, Verdict};

struct Hpf;

pub(crate) fn make(_: Params) -> Box<dyn Policy> {
    Box::new(Hpf)
}

impl Policy for Hpf {
    fn decide(&mut self, _: Micros, groups: &[Group], verdicts: &mut [Verdict]) -> Option<Micros> {
        let top_ready = groups.iter().filter(|g| g.ready).map(|g| g.priority).max().unwrap_or(i32::MIN);
        let top = groups.iter().map(|g| g.priority).max().unwrap_or(i32::MIN);
        for (group, verdict) in groups.iter().zip(verdicts) {
            *verdict = Verdict {
                run: group.side_by_side || group.priority >= top_ready,
                bounded: !group.side_by_side && group.priority < top,
            };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::fair::tests::group;

    fn run(groups: &[Group]) -> Vec<(bool, bool)> {
        let mut verdicts = vec![Verdict::default(); groups.len()];
        assert_eq!(Hpf.decide(0, groups, &mut verdicts), None, "it needs no timer");
        verdicts.iter().map(|v| (v.run, v.bounded)).collect()
    }

    #[test]
    fn the_highest_ready_priority_runs_and_who_can_be_preempted_is_bounded() {
        let g = |id, priority, ready| Group { priority, ready, ..group(id) };
        assert_eq!(run(&[g(1, 0, true)]), [(true, false)]);
        assert_eq!(run(&[g(1, 0, true), g(2, 128, true)]), [(false, true), (true, false)]);
        assert_eq!(
            run(&[g(1, 0, true), g(2, 128, false)]),
            [(true, true), (true, false)],
            "an idle one keeps its gate"
        );
        assert_eq!(run(&[g(1, 0, false), g(2, 128, true)]), [(false, true), (true, false)]);
        assert_eq!(run(&[g(1, 7, true), g(2, 7, true)]), [(true, false), (true, false)], "equals run together");
        let beside = |id, priority| Group { side_by_side: true, ..g(id, priority, true) };
        assert_eq!(
            run(&[beside(1, 0), g(2, 0, true), beside(3, 128)]),
            [(true, false), (false, true), (true, false)],
            "whom the hardware tells apart"
        );
    }
}
