//! Search for groups without progress, by polls of their counters.

use crate::tuning::LOOK_US;
use crate::{Event, GroupId, Micros};

/// Counters of one group as of the last poll that saw a change.
#[derive(Debug, Default)]
pub struct Progress(Option<Seen>);

#[derive(Debug)]
struct Seen {
    issued: u64,
    completed: u64,
    changed_at: Micros,
}

impl Progress {
    /// Forgets the counters: the group begins anew, or its progress does not matter.
    pub fn forget(&mut self) {
        self.0 = None;
    }

    /// Polls the numbers of commands issued and completed so far. Returns the event for the arbiter.
    pub fn look(&mut self, now: Micros, id: GroupId, issued: u64, completed: u64) -> Option<Event> {
        let first = Seen { issued, completed, changed_at: now };
        let Some(seen) = &mut self.0 else {
            self.0 = Some(first);
            return None;
        };
        if (seen.issued, seen.completed) != (issued, completed) {
            *seen = first;
            return Some(Event::Progress(id));
        }
        // Reported at each poll: the arbiter may have had a reason to ignore it before.
        (now.saturating_sub(seen.changed_at) >= LOOK_US).then_some(Event::Stalled(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gets_nowhere_is_stale_until_a_counter_moves() {
        let (mut progress, id) = (Progress::default(), GroupId(7));
        assert_eq!(progress.look(1_000, id, 5, 3), None, "nothing to compare with");
        assert_eq!(progress.look(20_999, id, 5, 3), None);
        assert_eq!(progress.look(21_000, id, 5, 3), Some(Event::Stalled(id)));
        assert_eq!(progress.look(41_000, id, 5, 3), Some(Event::Stalled(id)));
        assert_eq!(progress.look(95_000, id, 5, 4), Some(Event::Progress(id)));
        assert_eq!(progress.look(96_000, id, 6, 4), Some(Event::Progress(id)));
        assert_eq!(progress.look(116_000, id, 6, 4), Some(Event::Stalled(id)));
        progress.forget();
        assert_eq!(progress.look(200_000, id, 6, 4), None);
        assert_eq!(progress.look(210_000, id, 6, 4), None, "counted from the first look");
    }
}
