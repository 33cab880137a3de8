//! Decision whether the node has the taint, from polls of the parts.

use std::time::{Duration, Instant};

/// Rule: the node has the taint while a part is not ready. At the start of the program this holds at once; later a part
/// may be away for a while, for instance while a runtime restarts.
#[derive(Debug)]
pub struct Rule {
    set_after: Duration,
    were_ready: bool,
    /// Time since when a part has been away.
    away_since: Option<Instant>,
}

impl Rule {
    /// Makes a rule; `set_after` is the time for which a part that was ready may be away.
    pub fn new(set_after: Duration) -> Rule {
        Rule { set_after, were_ready: false, away_since: None }
    }

    /// Takes a poll of the parts. Returns whether the node is to have the taint; `None` = no change.
    pub fn wanted(&mut self, are_ready: bool, now: Instant) -> Option<bool> {
        if are_ready {
            (self.were_ready, self.away_since) = (true, None);
            return Some(false);
        }
        let since = *self.away_since.get_or_insert(now);
        (!self.were_ready || now.duration_since(since) >= self.set_after).then_some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_were_ready_may_be_away_for_a_while_and_those_that_start_may_not() {
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let mut rule = Rule::new(10 * second);
        assert_eq!(rule.wanted(false, begin), Some(true), "at the start at once");
        assert_eq!(rule.wanted(true, begin + second), Some(false));
        assert_eq!(rule.wanted(false, begin + 2 * second), None);
        assert_eq!(rule.wanted(false, begin + 11 * second), None);
        assert_eq!(rule.wanted(true, begin + 12 * second), Some(false), "back in time");
        assert_eq!(rule.wanted(false, begin + 13 * second), None, "and counted anew");
        assert_eq!(rule.wanted(false, begin + 22 * second), None);
        assert_eq!(rule.wanted(false, begin + 23 * second), Some(true));
        assert_eq!(rule.wanted(false, begin + 24 * second), Some(true));
        assert_eq!(rule.wanted(true, begin + 25 * second), Some(false));
    }
}
