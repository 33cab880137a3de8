//! Origin of a launch: the program's own work or a vendor library's, and the way to the driver that follows from it.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Domain of a launch: the owner of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// A vendor library's.
    System,
    /// The program's own.
    Application,
}

/// Facts about the launch under way, from the preload library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// A rule lets the launch into the driver, past gate and budget.
    pub passes: bool,
    /// Domain that an explicit call has set; it counts before the stream's.
    pub explicit: Option<Domain>,
    /// Domain that its call site belongs to.
    pub detected: Domain,
}

/// Way of a launch to the driver, by its origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Way {
    /// Not inspected yet. Zero: a thread begins with that.
    #[default]
    Unknown = 0,
    /// Through gate and budget, as any other.
    Gate,
    /// Numbered as any other, but without a wait at a closed gate or for the budget.
    Exempt,
    /// Through the gate of the other domain's group: its queue moves there.
    Regroup,
    /// A rule lets the launch into the driver, past gate and budget.
    Passes,
}

/// Upper limit of the row of system launches that it takes to move a queue which has moved back often.
const ROW_MAX: u32 = 64;

/// Choice of the domain whose group a queue belongs to, by the launches on it.
///
/// The first launch of the system domain moves it there and the next one of the program's own moves it back. A move takes a
/// message to the daemon, so each one back doubles the row of system launches that it takes to go there again: a queue in which
/// both alternate stays where it is.
#[derive(Default)]
pub(crate) struct Leaning {
    /// Launches of the system domain in a row, while the queue is in the program's own group.
    row: AtomicU32,
    /// Times that the queue moved back.
    returns: AtomicU32,
}

impl Leaning {
    /// Begins anew, for a new queue.
    pub(crate) fn reset(&self) {
        self.row.store(0, Relaxed);
        self.returns.store(0, Relaxed);
    }

    /// Notes a launch of a queue which is in the group of the system domain or not. True: the queue is to move to the other.
    pub(crate) fn moves(&self, domain: Domain, is_system: bool) -> bool {
        match (domain, is_system) {
            (Domain::System, true) => false,
            (Domain::Application, false) => {
                self.row.store(0, Relaxed);
                false
            }
            (Domain::Application, true) => {
                self.row.store(0, Relaxed);
                self.returns.fetch_add(1, Relaxed);
                true
            }
            (Domain::System, false) => {
                let wanted = 1u32.checked_shl(self.returns.load(Relaxed)).map_or(ROW_MAX, |row| row.min(ROW_MAX));
                self.row.fetch_add(1, Relaxed) + 1 >= wanted
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_alternates_moves_ever_more_rarely() {
        let leaning = Leaning::default();
        let (mut is_system, mut moves) = (false, 0);
        let mut launch = |domain| {
            let moved = leaning.moves(domain, is_system);
            is_system ^= moved;
            moves += u32::from(moved);
            (is_system, moves)
        };
        assert_eq!(launch(Domain::Application), (false, 0));
        assert_eq!(launch(Domain::System), (true, 1), "the first one counts");
        assert_eq!(launch(Domain::System), (true, 1));
        for _ in 0..1000 {
            launch(Domain::Application);
            launch(Domain::System);
        }
        assert_eq!(launch(Domain::Application), (false, 2), "a row of one is not enough any more");
        for _ in 0..1000 {
            launch(Domain::System);
        }
        assert_eq!(launch(Domain::System), (true, 3));
        for _ in 0..40 {
            let after = (0..ROW_MAX).map(|_| launch(Domain::System)).last();
            assert!(after.is_some_and(|(is_system, _)| is_system), "a long row always moves it");
            launch(Domain::Application);
        }
        leaning.reset();
        assert!(leaning.moves(Domain::System, false));
    }
}
