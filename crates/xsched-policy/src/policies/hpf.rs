//! Highest priority first.
//!
//! A group runs unless a ready group of strictly higher priority is on the device. The same holds for idle groups,
//! so the gate of an idle top group stands open and its first launch does not wait. Equals run side by side, and so
//! do groups that the hardware runs at the same time by priorities of its own. A group that cannot be taken off the device
//! for long gets it only once those above have left it for a while.

use crate::params::Params;
use crate::tuning::REST_US;
use crate::{Group, Micros, Policy, Verdict};

struct Hpf;

pub(crate) fn make(_: Params) -> Box<dyn Policy> {
    Box::new(Hpf)
}

/// Until when a group that cannot be taken off the device lets a pause of those above it pass.
fn rests_until(now: Micros, group: &Group, groups: &[Group]) -> Option<Micros> {
    if !group.holds_up {
        return None;
    }
    let above = groups.iter().filter(|g| g.priority > group.priority);
    above.filter_map(|g| g.idle_since).max().map(|left| left + REST_US).filter(|until| now < *until)
}

impl Policy for Hpf {
    fn decide(&mut self, now: Micros, groups: &[Group], verdicts: &mut [Verdict]) -> Option<Micros> {
        // A group that rests leaves the device to those below that are off it soon.
        let wants = |g: &&Group| g.ready && rests_until(now, g, groups).is_none();
        let top_ready = groups.iter().filter(wants).map(|g| g.priority).max().unwrap_or(i32::MIN);
        let top = groups.iter().map(|g| g.priority).max().unwrap_or(i32::MIN);
        let mut next: Option<Micros> = None;
        for (group, verdict) in groups.iter().zip(verdicts) {
            *verdict = Verdict {
                run: group.side_by_side || group.priority >= top_ready,
                bounded: !group.side_by_side && group.priority < top,
            };
            if let Some(at) = rests_until(now, group, groups).filter(|_| verdict.run) {
                verdict.run = false;
                next = Some(next.map_or(at, |before| before.min(at)));
            }
        }
        next
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

    #[test]
    fn who_cannot_be_taken_off_the_device_waits_until_the_others_have_left_it_for_a_while() {
        let long = Group { holds_up: true, ready: true, ..group(1) };
        let urgent = |idle_since| Group { priority: 128, ready: false, idle_since, ..group(2) };
        let equal = Group { idle_since: Some(1_000_000), ..group(3) };
        let decide = |now, groups: &[Group]| {
            let mut verdicts = vec![Verdict::default(); groups.len()];
            let next = Hpf.decide(now, groups, &mut verdicts);
            (verdicts[0].run, next)
        };
        let left = Some(1_000_000);
        assert_eq!(decide(1_000_100, &[long.clone(), urgent(left), equal.clone()]), (false, Some(1_002_000)));
        assert_eq!(decide(1_002_000, &[long.clone(), urgent(left), equal.clone()]), (true, None));
        assert_eq!(decide(1_000_100, &[long.clone(), urgent(None), equal.clone()]), (true, None), "it was never there");
        assert_eq!(decide(1_000_100, &[group(1), urgent(left)]), (true, None), "soon off the device");
        let busy = Group { ready: true, ..urgent(left) };
        assert!(!decide(1_002_000, &[long.clone(), busy]).0);
        let short = |priority| Group { ready: true, priority, ..group(3) };
        let pause = [long, urgent(left), short(-1)];
        let mut verdicts = [Verdict::default(); 3];
        assert_eq!(Hpf.decide(1_000_100, &pause, &mut verdicts), Some(1_002_000));
        assert_eq!(verdicts.map(|v| v.run), [false, true, true], "the pause is for who can be preempted");
        Hpf.decide(1_002_000, &pause, &mut verdicts);
        assert_eq!(verdicts.map(|v| v.run), [true, true, false]);
    }
}
