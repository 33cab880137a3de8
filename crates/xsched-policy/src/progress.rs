//! Whether a group gets anywhere, from looks at its counters.

use crate::tuning::LOOK_US;
use crate::{Event, GroupId, Micros};

/// What was last seen of a group's counters.
#[derive(Debug, Default)]
pub struct Progress(Option<Seen>);

#[derive(Debug)]
struct Seen {
    issued: u64,
    completed: u64,
    changed_at: Micros,
}

impl Progress {
    /// The group begins anew, or its progress is of no interest.
    pub fn forget(&mut self) {
        self.0 = None;
    }

    /// A look at how many commands it has issued and completed so far. Returns what the arbiter is to be told.
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
        // Told at each look: the reason why it was disregarded before may be over.
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
