//! Part of a device that each group had lately. No timer is set for it: while the daemon has nothing to do, the same groups keep running.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use xsched_policy::GroupId;

use crate::tuning::{SHARE_NS, SHARE_WINDOW_NS};

/// Samples of the device time charged to each group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    /// Time of each sample in ns, and charges in µs. The oldest first.
    looks: VecDeque<(u64, Arc<HashMap<GroupId, f64>>)>,
}

impl Recent {
    /// Reports whether it is time for a sample.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.looks.back().is_none_or(|(at, _)| at + SHARE_NS <= now_ns)
    }

    /// Adds a sample of the present charges, in µs.
    pub(crate) fn look(&mut self, now_ns: u64, used_us: impl Iterator<Item = (GroupId, f64)>) {
        self.looks.push_back((now_ns, Arc::new(used_us.collect())));
        // One sample before the window is enough.
        let begin_ns = now_ns.saturating_sub(SHARE_WINDOW_NS);
        while self.looks.get(1).is_some_and(|(at, _)| *at <= begin_ns) {
            self.looks.pop_front();
        }
    }

    /// Device time charged to a group within the window, in µs, if `used_us` is charged by now. Between two samples the charge is taken as
    /// even.
    pub(crate) fn charged_us(&self, now_ns: u64, group: GroupId, used_us: f64) -> f64 {
        let begin_ns = now_ns.saturating_sub(SHARE_WINDOW_NS);
        let of = |look: &HashMap<GroupId, f64>| look.get(&group).copied().unwrap_or(0.0);
        let before = self.looks.iter().rev().find(|(at, _)| *at <= begin_ns);
        let after = self.looks.iter().find(|(at, _)| *at > begin_ns);
        let at_begin = match (before, after.map_or((now_ns, used_us), |(at, look)| (*at, of(look)))) {
            (Some((at, look)), (until, then)) => {
                let part = (begin_ns - at) as f64 / (until - at).max(1) as f64;
                of(look) + (then - of(look)) * part
            }
            // All samples lie within the window.
            (None, _) => self.looks.front().map_or(0.0, |(_, look)| of(look)),
        };
        (used_us - at_begin).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn what_is_long_ago_does_not_count() {
        let (mut recent, group) = (Recent::default(), GroupId(1));
        assert_eq!(recent.charged_us(0, group, 70.0), 70.0, "nothing is remembered");
        assert!(recent.is_due(0));
        for n in 0..30 {
            recent.look(n * S, [(group, n as f64)].into_iter());
        }
        assert!(!recent.is_due(29 * S) && recent.is_due(30 * S));
        assert_eq!(recent.charged_us(30 * S, group, 30.0), 10.0);
        assert_eq!(recent.charged_us(30 * S, GroupId(2), 5.0), 5.0, "it came since");
        assert!(recent.looks.len() < 13);
    }

    #[test]
    fn a_time_without_looks_counts_evenly() {
        let (mut recent, group) = (Recent::default(), GroupId(1));
        recent.look(0, [(group, 0.0)].into_iter());
        assert_eq!(recent.charged_us(100 * S, group, 50.0), 5.0);
        recent.look(100 * S, [(group, 50.0)].into_iter());
        assert_eq!(recent.charged_us(105 * S, group, 50.0), 2.5, "it has rested for 5 s");
        assert_eq!(recent.charged_us(111 * S, group, 50.0), 0.0);
    }
}
